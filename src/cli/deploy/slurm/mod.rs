//! Slurm: a script for hosts of Slurm, and the command `fxgraph array` behind it, which keeps the parts running there.
//!
//! # Layout
//! - [`directory`]: the files by which commands and supervisors of an array know of each other
//! - `queue`: questions and orders to Slurm
//! - [`array`]: start, stop, state and restart of an array
//! - `supervise`: supervision of its parts
//! - [`update`]: replacement of a running array

pub mod array;
pub mod directory;
mod queue;
mod supervise;
pub mod update;

use super::manifest::{Array, Class, Streams};
use super::{File, Options, quoted};
use crate::failure::Failure;
use crate::flowgraph::registry;
use crate::parts::HostPart;
use fxgraph::flowgraph::{Hosts, Plan, PlannedBlock, Rate};

/// Name of the script.
pub const NAME: &str = "array.sh";

/// Live parameter of sinks that send streams.
const ENABLED: &str = "enabled";

/// Kind of the receiver of a stream between parts.
const RECEIVER: &str = "stream_source";

/// The script: the program of the deployment with the directory, wherever that is.
pub fn script(array: &Array) -> File {
    let text = format!(
        "#!/bin/sh\n# Runs the parts of this directory on hosts of Slurm: `{NAME} help` lists the commands.\n\
         exec {} array \"$(dirname \"$(readlink -f \"$0\")\")\" \"$@\"\n",
        quoted(&array.program)
    );
    File::executable(NAME, text)
}

/// The program, and the hosts that an array needs.
///
/// # Errors
/// If the path of this program is not known, and none is given.
pub fn program_and_hosts(hosts: &Hosts, options: &Options) -> Result<Array, Failure> {
    let program = match &options.program {
        Some(program) => program.clone(),
        None => std::env::current_exe()
            .map_err(|error| Failure::because("cannot find the path of this program", &error))?,
    };
    // Classes that take any machine leave those with a property to the classes that need it.
    let mut classes: Vec<_> = hosts.classes.iter().collect();
    classes.sort_by_key(|class| class.constraint.is_none());
    let classes = classes.into_iter().map(|class| Class {
        name: class.name.clone(),
        size: class.count + class.spares,
        constraint: class.constraint.clone(),
        gpus: class.gpus.unwrap_or(0),
    });
    let program = program.to_string_lossy().into_owned();
    Ok(Array { program, classes: classes.collect() })
}

/// Streams of `host`, one of `parts`, for an update.
pub fn streams(host: &HostPart, parts: &[HostPart]) -> Streams {
    Streams { sent: sent(host, parts), obstacle: obstacle(&host.plan) }
}

/// Streams that a part sends, with the types that their receivers among `parts` expect.
fn sent(host: &HostPart, parts: &[HostPart]) -> Vec<String> {
    let receivers: Vec<&PlannedBlock> = parts
        .iter()
        .flat_map(|part| &part.plan.blocks)
        .filter(|block| block.kind == RECEIVER)
        .collect();
    let stream = |rate: &Rate| {
        let address = rate.address?.to_string();
        let expected = receivers
            .iter()
            .find(|block| block.parameters["source"] == address)
            .map(|block| block.parameters["type"].to_string());
        Some(format!("{} {address} {}", rate.name, expected.unwrap_or_default()))
    };
    host.part.sent.iter().filter_map(stream).collect()
}

/// Reason why a second process cannot take over from a process of this part without missing data, if any.
fn obstacle(plan: &Plan) -> Option<String> {
    let kinds = registry();
    let mut sends = false;
    for (index, block) in plan.blocks.iter().enumerate() {
        let (name, kind) = (&block.name, block.kind);
        let begins_again = kind != RECEIVER && block.configured.cannot_restart().is_some();
        if block.inputs.is_empty() && begins_again {
            return Some(format!("its source `{name}` of kind `{kind}` is not a stream"));
        }
        let is_read = plan.blocks.iter().any(|b| b.inputs.iter().any(|(from, _)| *from == index));
        if is_read {
            continue;
        }
        if kinds.get(kind).is_some_and(|entry| entry.live.contains(&ENABLED)) {
            sends = true;
        } else if kind != "null_sink" {
            return Some(format!("its sink `{name}` of kind `{kind}` sends no stream"));
        }
    }
    (!sends).then(|| "it sends no streams".to_owned())
}
