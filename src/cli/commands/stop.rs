//! `fxgraph stop` and `fxgraph abort`

use crate::client::{Client, Connection};
use crate::failure::Failure;
use crate::terminal::Terminal;
use fxgraph_api::flowgraph::Health;
use ureq::http::Method;

/// Stops a running flowgraph: its sources stop, and queued frames are processed
#[derive(Debug, clap::Args)]
pub struct Stop {
    #[command(flatten)]
    connection: Connection,
}

/// Stops a running flowgraph at once: queued frames are dropped
#[derive(Debug, clap::Args)]
pub struct Abort {
    #[command(flatten)]
    connection: Connection,
}

impl Stop {
    pub fn execute(self, terminal: &mut Terminal) -> Result<(), Failure> {
        end(&self.connection.client()?, "stop", terminal)
    }
}

impl Abort {
    pub fn execute(self, terminal: &mut Terminal) -> Result<(), Failure> {
        end(&self.connection.client()?, "abort", terminal)
    }
}

fn end(client: &Client, how: &str, terminal: &Terminal) -> Result<(), Failure> {
    let path = format!("/api/v1/flowgraph/{how}");
    let health: Health = client.send(Method::POST, &path, None)?;
    terminal.results(&health.state)
}
