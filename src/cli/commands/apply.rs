//! `fxgraph apply`

use super::swap::shown;
use crate::assignment::Assignment;
use crate::client::{Connection, in_path, typed};
use crate::failure::Failure;
use crate::table::{Align, Table};
use crate::terminal::Terminal;
use fxgraph::files::read_awaited;
use fxgraph::flowgraph::MAX_BYTES;
use fxgraph_api::changes::UpdateInfo;
use serde_json::{Map, Value};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Applies a flowgraph file to a running flowgraph, all of it at one timestamp or nothing
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Values that the file gives replace those of live updates. Files that the flowgraph includes are read \
                  by the running program, in the directory of its own flowgraph file. A running program reads its own \
                  file again at SIGHUP, and with `fxgraph run --watch` whenever the file changes.\n\n\
                  Examples: fxgraph apply array.yaml --dry-run\n          \
                  fxgraph apply array.yaml --set antennas=4 --restart"
)]
#[allow(clippy::struct_excessive_bools, reason = "each is an option of its own")]
pub struct Apply {
    /// Flowgraph file; `-` reads standard input
    file: PathBuf,

    /// Sets a parameter of the flowgraph; may be given several times
    #[arg(long, value_name = "NAME=VALUE", value_parser = Assignment::parse)]
    set: Vec<Assignment>,

    /// Shows the changes without making them
    #[arg(long)]
    dry_run: bool,

    /// If a change is not possible while frames flow, drains the flowgraph and starts the new one; if that fails, the
    /// previous one is started again
    #[arg(long)]
    restart: bool,

    /// Lets the flowgraph wait for new blocks (for files, not for live data)
    #[arg(long)]
    allow_stall: bool,

    /// Writes the answer as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    connection: Connection,
}

impl Apply {
    pub fn execute(self, terminal: &mut Terminal) -> Result<(), Failure> {
        let text = read(&self.file)?;
        let set: Map<String, Value> =
            self.set.into_iter().map(|Assignment { name, value }| (name, value)).collect();
        let set = in_path(&Value::from(set).to_string());
        let path = format!(
            "/api/v1/flowgraph?dry_run={}&restart={}&may_hold_up={}&set={set}",
            self.dry_run, self.restart, self.allow_stall
        );
        let answer = self.connection.client()?.replace_flowgraph(&path, text)?;
        if self.json {
            return terminal.json(&answer);
        }
        terminal.results(&as_text(&typed(answer)?, self.dry_run, terminal))
    }
}

fn read(file: &Path) -> Result<String, Failure> {
    let read = if file == Path::new("-") {
        let mut text = Vec::new();
        io::stdin().lock().take(MAX_BYTES as u64 + 1).read_to_end(&mut text).map(|_| text)
    } else {
        read_awaited(file, MAX_BYTES as u64)
    };
    let text = read.and_then(|text| {
        String::from_utf8(text).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    });
    text.map_err(|error| Failure::because(&format!("cannot read `{}`", file.display()), &error))
}

/// Table of the changes of an update, and a line on what becomes of it.
pub fn as_text(update: &UpdateInfo, is_dry: bool, terminal: &Terminal) -> String {
    let columns = [
        ("block", Align::Left),
        ("change", Align::Left),
        ("from", Align::Left),
        ("to", Align::Left),
        ("by", Align::Left),
        ("interruption", Align::Left),
    ];
    let mut table = Table::new(terminal.coloured_results, &columns);
    let changed: Vec<_> = update.blocks.iter().filter(|block| block.way != "nothing").collect();
    for block in &changed {
        let way = match block.way.as_str() {
            "live_update" => "live update",
            way => way,
        };
        if block.differences.is_empty() {
            let why = block.restart_because.clone().unwrap_or_default();
            let row = [block.block.clone(), why, String::new(), String::new()];
            table.row(row.into_iter().chain([way.to_owned(), block.gap.clone()]));
        }
        for difference in &block.differences {
            table.row([
                block.block.clone(),
                difference.key.clone(),
                shown(&difference.from),
                shown(&difference.to),
                way.to_owned(),
                block.gap.clone(),
            ]);
        }
    }
    let mut text = if changed.is_empty() { String::new() } else { format!("{}\n", table.finish()) };
    for why in &update.restart_because {
        text += &format!("needs a restart: {why}\n");
    }
    for why in &update.not_atomic {
        text += &format!("{why}\n");
    }
    text + &summary(update, changed.len(), is_dry)
}

/// One line on what becomes of an update of `changed` blocks.
pub fn summary(update: &UpdateInfo, changed: usize, is_dry: bool) -> String {
    let config = update.config_hash.get(..16).unwrap_or_default();
    let blocks = if changed == 1 { "1 block".to_owned() } else { format!("{changed} blocks") };
    let from = update.effective_timestamp.map(|at| format!(" from timestamp {at} on"));
    match (is_dry, changed) {
        _ if update.is_restarting => {
            format!("the flowgraph drains, then the new one starts (config {config})")
        }
        (true, _) if !update.restart_because.is_empty() => {
            format!("would need a restart (config {config})")
        }
        (_, 0) => format!("no block differs (config {config})"),
        (true, _) => format!("would change {blocks} (config {config})"),
        (false, _) => format!("changed {blocks}{} (config {config})", from.unwrap_or_default()),
    }
}
