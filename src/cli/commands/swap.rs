//! `fxgraph swap`

use crate::assignment::Assignment;
use crate::client::{Client, Connection, in_path, typed};
use crate::failure::Failure;
use crate::table::{Align, Table};
use crate::terminal::Terminal;
use crate::units;
use fxgraph_api::changes::ChangeInfo;
use serde_json::{Map, Value, json};
use ureq::http::Method;

/// Replaces a block of a running flowgraph (parameters, implementation or kind)
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples: fxgraph swap x --implementation tensor_core --dry-run\n          \
                  fxgraph swap 'f[0].pfb' taps=8\n          \
                  fxgraph swap sink kind=file_sink path=out/x.npy"
)]
pub struct Swap {
    /// Block to replace
    block: String,

    #[command(flatten)]
    changes: Changes,

    /// Checks the swap and reports its effect without doing it
    #[arg(long)]
    dry_run: bool,

    /// Lets the flowgraph wait for the new block (for files, not for live data)
    #[arg(long)]
    allow_stall: bool,

    /// Writes the answer as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    connection: Connection,
}

/// Keys of a block, other than `parameters`, that may change; no kind has a parameter of the same name.
const OWN_KEYS: [&str; 4] = ["kind", "implementation", "device", "on_fault"];

/// Changes to a block.
#[derive(Clone, Debug, clap::Args)]
pub struct Changes {
    /// Changed parameters, in YAML; an empty value (`taps=`) restores the default. The names
    /// kind, implementation, device and on_fault are keys of the block itself
    #[arg(value_name = "PARAMETER=VALUE", value_parser = Assignment::parse)]
    parameters: Vec<Assignment>,

    /// New kind, with the same ports
    #[arg(long)]
    kind: Option<String>,

    /// New implementation
    #[arg(long)]
    implementation: Option<String>,

    /// New device
    #[arg(long)]
    device: Option<String>,
}

impl Changes {
    /// Returns the changed keys of the block.
    pub fn entry(&self) -> Result<Map<String, Value>, Failure> {
        let (mut entry, mut parameters) = (Map::new(), Map::new());
        let words = [
            ("kind", &self.kind),
            ("implementation", &self.implementation),
            ("device", &self.device),
        ];
        for (key, word) in words {
            if let Some(word) = word {
                entry.insert(key.to_owned(), json!(word));
            }
        }
        for Assignment { name, value } in &self.parameters {
            let is_own = OWN_KEYS.contains(&name.as_str());
            let values = if is_own { &mut entry } else { &mut parameters };
            if values.insert(name.clone(), value.clone()).is_some() {
                return Err(Failure::failed(format!("`{name}` is given twice")));
            }
        }
        if !parameters.is_empty() {
            entry.insert("parameters".to_owned(), parameters.into());
        }
        Ok(entry)
    }
}

impl Swap {
    pub fn execute(self, terminal: &mut Terminal) -> Result<(), Failure> {
        let client = self.connection.client()?;
        let entry = self.changes.entry()?.into();
        let answer = if self.dry_run {
            check(&client, &self.block, &entry)?
        } else {
            swap(&client, &self.block, &entry, self.allow_stall, terminal)?
        };
        if self.json {
            return terminal.json(&answer);
        }
        terminal.results(&as_text(&typed(answer)?, self.dry_run, terminal))
    }
}

fn path(block: &str, query: &str) -> String {
    format!("/api/v1/blocks/{}?{query}", in_path(block))
}

/// Checks the swap of `block` for one with the changed keys in `entry`; the answer is a [`ChangeInfo`].
pub fn check(client: &Client, block: &str, entry: &Value) -> Result<Value, Failure> {
    client.send(Method::PATCH, &path(block, "dry_run=true"), Some(entry))
}

/// Kinds of the events of a swap that was made, and of one that was not.
pub const SWAPPED: &str = "swapped";
pub const NOT_SWAPPED: [&str; 2] = ["not_swapped", "rolled_back"];

/// Begins the swap of `block` for one with the changed keys in `entry`; the answer is a [`ChangeInfo`], which names the event
/// after which its result comes if it goes on.
pub fn begin(
    client: &Client,
    block: &str,
    entry: &Value,
    allow_stall: bool,
) -> Result<Value, Failure> {
    let path = path(block, &format!("may_hold_up={allow_stall}"));
    client.send(Method::PATCH, &path, Some(entry))
}

/// Makes the swap of `block` for one with the changed keys in `entry`, and waits for its end; the answer is a [`ChangeInfo`].
pub fn swap(
    client: &Client,
    block: &str,
    entry: &Value,
    allow_stall: bool,
    terminal: &Terminal,
) -> Result<Value, Failure> {
    let mut answer = begin(client, block, entry, allow_stall)?;
    if let Some(since) = answer["goes_on_after_event"].as_u64() {
        terminal.note("the swap goes on until its first frames are checked");
        client.wait_for(since, Some(block), &[SWAPPED], &NOT_SWAPPED)?;
        answer["is_made"] = true.into();
    }
    Ok(answer)
}

/// A value of a parameter; none is the default.
pub fn shown(value: &Value) -> String {
    if value.is_null() { "default".to_owned() } else { value.to_string() }
}

fn as_text(change: &ChangeInfo, is_dry: bool, terminal: &Terminal) -> String {
    let columns = [("change", Align::Left), ("from", Align::Left), ("to", Align::Left)];
    let mut table = Table::new(terminal.coloured_results, &columns);
    for difference in &change.differences {
        table.row([difference.key.clone(), shown(&difference.from), shown(&difference.to)]);
    }
    let mut text = if change.differences.is_empty() {
        "no differences\n".to_owned()
    } else {
        format!("{}\n", table.finish())
    };
    let done = if is_dry { "would swap" } else { "swapped" };
    text += &match &change.restart_because {
        Some(why) => format!("needs a restart: {why}\n"),
        None if change.way == "nothing" => String::new(),
        None if change.way == "live_update" => {
            let done = if is_dry { "would change" } else { "changed" };
            format!("{done} live parameters without interruption (live update)\n")
        }
        None if change.way == "seamless" => format!("{done} without interruption (seamless)\n"),
        None => format!("{done}; interruption: {} ({})\n", change.gap, change.way),
    };
    for (device, bytes) in &change.memory_bytes {
        text += &format!("memory on {device} during the swap: {}\n", units::bytes(*bytes as f64));
    }
    text
}
