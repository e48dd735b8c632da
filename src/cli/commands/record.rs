//! `fxgraph record`

use crate::assignment::Assignment;
use crate::client::output::Output;
use crate::client::{Connection, in_path, typed};
use crate::failure::Failure;
use crate::table::{Align, Table};
use crate::terminal::Terminal;
use fxgraph_api::recordings::RecorderInfo;
use serde_json::{Map, Value};
use ureq::http::Method;

/// Records an output of a running flowgraph, before and after a trigger; without an output, lists the recorders
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples: fxgraph record 'f[0].pfb' after_seconds=10\n          \
                  fxgraph record 'digitiser[0].pol0' before_seconds=2 after_seconds=1 'trigger={events: {}}'\n          \
                  fxgraph record --trigger 1")]
pub struct Record {
    /// Output to record; the port is optional if the block has one output
    #[arg(value_name = "BLOCK[.PORT]")]
    output: Option<String>,

    /// Parameters of the kind `recorder`, in YAML; `path` must be a file name without a directory
    #[arg(value_name = "PARAMETER=VALUE", value_parser = Assignment::parse)]
    parameters: Vec<Assignment>,

    /// Triggers a recorder: writes the frames before and after the trigger
    #[arg(long, value_name = "RECORDER", conflicts_with = "output")]
    trigger: Option<String>,

    /// Timestamp of the trigger, in ADC samples since the sync time (default: now)
    #[arg(long, value_name = "TIMESTAMP", requires = "trigger")]
    at: Option<u64>,

    /// Stops a recorder and closes its files
    #[arg(long, value_name = "RECORDER", conflicts_with_all = ["output", "trigger"])]
    stop: Option<String>,

    /// Deletes a recorder and its files
    #[arg(long, value_name = "RECORDER", conflicts_with_all = ["output", "trigger", "stop"])]
    delete: Option<String>,

    /// Writes the answer as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    connection: Connection,
}

impl Record {
    pub fn execute(self, terminal: &mut Terminal) -> Result<(), Failure> {
        let client = self.connection.client()?;
        let recorder = |name: &str| format!("/api/v1/recorders/{}", in_path(name));
        let answer: Value = if let Some(output) = &self.output {
            let named = self.parameters.iter().map(|one| (one.name.clone(), one.value.clone()));
            let body = Value::Object(named.collect::<Map<_, _>>());
            let path = Output::find(&client, output)?.path();
            client.send(Method::POST, &format!("{path}/recordings"), Some(&body))?
        } else if let Some(name) = &self.trigger {
            let at = self.at.map_or(String::new(), |at| format!("?at={at}"));
            client.send(Method::POST, &format!("{}/trigger{at}", recorder(name)), None)?
        } else if let Some(name) = &self.stop {
            client.send(Method::POST, &format!("{}/stop", recorder(name)), None)?
        } else if let Some(name) = &self.delete {
            client.send(Method::DELETE, &recorder(name), None)?
        } else {
            client.get("/api/v1/recorders")?
        };
        if self.json {
            return terminal.json(&answer);
        }
        let recorders = match answer {
            Value::Array(recorders) => recorders,
            one => vec![one],
        };
        terminal.results(&as_text(&typed::<Vec<_>>(recorders.into())?, terminal))
    }
}

fn as_text(recorders: &[RecorderInfo], terminal: &Terminal) -> String {
    if recorders.is_empty() {
        return "there are no recorders\n".to_owned();
    }
    let columns = [
        ("recorder", Align::Left),
        ("output", Align::Left),
        ("state", Align::Left),
        ("in memory", Align::Right),
        ("written", Align::Right),
        ("dropped", Align::Right),
        ("newest recording", Align::Left),
    ];
    let mut table = Table::new(terminal.coloured_results, &columns);
    for recorder in recorders {
        let newest = || recorder.recordings.last().map(|newest| newest.path.clone());
        let last = recorder.fault.clone().or_else(newest);
        table.row([
            recorder.name.clone(),
            recorder.output.clone().unwrap_or("-".to_owned()),
            recorder.state.clone(),
            recorder.frames_kept.to_string(),
            recorder.frames_written.to_string(),
            recorder.frames_lost.to_string(),
            last.unwrap_or("-".to_owned()),
        ]);
    }
    table.finish()
}
