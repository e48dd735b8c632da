//! `fxgraph top`
//!
//! # Layout
//! - [`look`]: statistics of a flowgraph at one time
//! - `live`: statistics that follow the flowgraph, with `screen`: drawing on a terminal, and keys

#[cfg_attr(not(feature = "tui"), path = "live_absent.rs")]
mod live;
#[cfg_attr(not(feature = "tui"), allow(dead_code))]
mod look;
#[cfg(feature = "tui")]
mod screen;

use crate::client::Connection;
use crate::failure::Failure;
use crate::terminal::Terminal;
use crate::units;
use look::Watch;
use std::io::{self, IsTerminal};
use std::time::Duration;

/// Shows live statistics of the blocks of a running flowgraph
#[derive(Debug, clap::Args)]
pub struct Top {
    /// Time between two updates, like 1s or 200ms
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration, default_value = "1s")]
    every: Duration,

    /// Prints one table and ends
    #[arg(long)]
    once: bool,

    /// Shows every replica. By default more than 8 blocks are folded: `f[0..63].pfb` has the minimum and the maximum of
    /// its replicas, and the worst one below it
    #[arg(long)]
    all: bool,

    /// Writes JSON
    #[arg(long, requires = "once")]
    json: bool,

    #[command(flatten)]
    connection: Connection,
}

impl Top {
    pub fn execute(self, terminal: &mut Terminal) -> Result<(), Failure> {
        let client = self.connection.client()?;
        let mut watch = Watch::default();
        let look = watch.look(&client)?;
        if self.json {
            return terminal.json(&look.as_json());
        }
        if self.once {
            return terminal.results(&look.as_text(self.all, terminal));
        }
        if !(io::stdout().is_terminal() && io::stdin().is_terminal()) {
            return Err(Failure::failed("`top` needs a terminal; `--once` prints one table"));
        }
        live::show(client, watch, look, &self, terminal.coloured_results)
    }
}
