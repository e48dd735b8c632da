//! The only module that uses FutureSDR.
//!
//! An update of FutureSDR changes only these files. Frames do not pass through FutureSDR: its ports
//! connect blocks and carry wake-ups, frames pass through [`Edge`](fxgraph_core::edge::Edge)s.

mod adapter;
mod port;
pub(crate) mod ready;
mod scheduler;
mod survive;
mod workers;

use super::hosted::Mailbox;
use super::report::StartError;
use super::run::Run;
use crate::connections::{Connection, Options};
use adapter::Adapter;
use futuresdr::runtime::scheduler::Scheduler;
use futuresdr::runtime::{BlockId, Flowgraph, Runtime, config};
use fxgraph_flowgraph::{Assembly, Thread};
use scheduler::{Guard, OwnThread};
use std::collections::HashMap;
use std::sync::Arc;
use workers::Workers;

/// Starts `assembly` and returns when every block has started or failed to.
pub(super) fn launch(
    assembly: Assembly,
    connections: &[Connection],
    options: Options,
    (run, mailboxes): (&Arc<Run>, &[Arc<Mailbox>]),
) -> Result<(), StartError> {
    // FutureSDR panics on invalid settings.
    std::panic::catch_unwind(configure).map_err(|_| {
        let advice = "invalid setting in `config.toml` here or in a `FUTURESDR_` variable";
        StartError::Runtime(advice.to_owned())
    })?;
    let mut threads = HashMap::new();
    let mut flowgraph = Flowgraph::new();
    let mut ids: Vec<BlockId> = Vec::with_capacity(assembly.parts.len());
    for ((part, cell), mailbox) in assembly.parts.into_iter().zip(&run.cells).zip(mailboxes) {
        let own = match part.thread {
            Thread::Shared => None,
            Thread::Own { core } => Some(OwnThread::spawn(&part.name, core)?),
        };
        for pool in part.outputs.iter().filter_map(|output| output.pool.as_ref()) {
            let wake = part.wake.clone();
            pool.on_return(move || wake.wake());
        }
        let block = (Arc::clone(cell), Arc::clone(mailbox));
        let adapter = Adapter::new(part, options.config_id, Arc::clone(run), block);
        let id = flowgraph.add(adapter).id();
        if let Some(own) = own {
            threads.insert(id, own);
        }
        ids.push(id);
    }
    for &Connection { from, output, to, input } in connections {
        flowgraph
            .stream_dyn(
                ids[from],
                format!("outputs[{output}]"),
                ids[to],
                format!("inputs[{input}]"),
            )
            .map_err(|error| StartError::Runtime(error.to_string()))?;
    }

    let workers = match options.workers {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        workers => workers,
    };
    let workers = Workers::start(workers).map_err(|error| {
        StartError::Runtime(format!("cannot start {workers} worker threads: {error}"))
    })?;
    let _ = run.workers.set(Box::new(workers.waker()));
    let runtime = Runtime::with_scheduler(Guard::new(workers, threads, Arc::clone(run)));
    let running =
        runtime.start(flowgraph).map_err(|error| StartError::Runtime(error.to_string()))?;
    let run = Arc::clone(run);
    let scheduler = runtime.scheduler().clone();
    scheduler
        .spawn(async move {
            let result = running.wait_async().await;
            drop(runtime);
            run.set_ended(result.err().map(|error| error.to_string()));
        })
        .detach();
    Ok(())
}

/// Overrides FutureSDR's global settings from its configuration files and environment variables.
fn configure() {
    // FutureSDR's control port is open to all hosts, and fxgraph does not need it.
    config::set("ctrlport_enable", false);
    // FutureSDR installs a `tracing` subscriber if none is set; that subscriber must log nothing.
    config::set("log_level", "off");
    config::set("queue_size", 8192);
}

#[cfg(test)]
mod tests {
    #[test]
    fn fault_10_configure_disables_control_port_and_log() {
        super::configure();
        let settings = super::config::config();
        assert!(!settings.ctrlport_enable);
        assert_eq!(settings.log_level.to_string(), "off");
    }
}
