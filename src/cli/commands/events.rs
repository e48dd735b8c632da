//! `fxgraph events`

use crate::client::events::{is_bad, time_of_day};
use crate::client::{Connection, typed};
use crate::failure::Failure;
use crate::terminal::{Paint, Terminal};
use fxgraph_api::events::EventInfo;
use serde_json::Value;

/// Lists events of a running flowgraph: faults, swaps, missing data
#[derive(Debug, clap::Args)]
pub struct Events {
    /// Continues with new events, until the run ends
    #[arg(long, short)]
    follow: bool,

    /// Shows only events after this sequence number
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    since: u64,

    /// Writes one JSON object per line
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    connection: Connection,
}

impl Events {
    pub fn execute(self, terminal: &mut Terminal) -> Result<(), Failure> {
        let client = self.connection.client()?;
        if self.follow {
            for sent in client.follow(&format!("/api/v1/events/stream?since={}", self.since))? {
                let sent =
                    sent.map_err(|error| Failure::because("the stream of events broke", &error))?;
                self.show(serde_json::from_str(&sent.data).unwrap_or(Value::Null), terminal)?;
            }
            return Ok(());
        }
        let path = format!("/api/v1/events?since={}", self.since);
        let answer: Value = client.get(&path)?;
        if let Some(forgotten) = answer["forgotten"].as_u64().filter(|count| *count > 0) {
            terminal.note(&format!("{forgotten} earlier events are no longer stored"));
        }
        let events = answer["events"].as_array().cloned().unwrap_or_default();
        events.into_iter().try_for_each(|event| self.show(event, terminal))
    }

    fn show(&self, event: Value, terminal: &Terminal) -> Result<(), Failure> {
        if self.json {
            return terminal.results(&event.to_string());
        }
        terminal.results(&line(&typed(event)?, terminal))
    }
}

fn line(event: &EventInfo, terminal: &Terminal) -> String {
    let kind = if is_bad(event) { Paint::Bad } else { Paint::Bold };
    let block = event.block.as_ref().map(|block| format!(" {block}")).unwrap_or_default();
    let text = if event.text.is_empty() { String::new() } else { format!("  {}", event.text) };
    format!(
        "{:>5}  {}  {}{block}{text}",
        event.sequence,
        time_of_day(event),
        terminal.paint(kind, &event.kind),
    )
}
