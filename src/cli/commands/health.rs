//! `fxgraph health`

use crate::client::Connection;
use crate::failure::Failure;
use crate::terminal::Terminal;
use fxgraph_api::flowgraph::Health as Answer;

/// Tells whether a flowgraph runs and frames pass all its blocks
///
/// The exit status is 1, with the block and the reason, if the flowgraph does not run, or if no frame has passed a block
/// although ten were due, or if there is no answer.
#[derive(Debug, clap::Args)]
pub struct Health {
    /// Fails only where a restart may help: if the flowgraph has failed, or a block holds its frames for a minute. A server
    /// that rejects the token is alive
    #[arg(long)]
    live: bool,

    /// Time without a frame from which the command fails, in seconds
    #[arg(long, value_name = "SECONDS")]
    limit: Option<f64>,

    /// Writes the answer as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    connection: Connection,
}

impl Health {
    pub fn execute(self, terminal: &mut Terminal) -> Result<(), Failure> {
        let client = self.connection.client()?;
        let check = if self.live { "live" } else { "ready" };
        let limit = self.limit.map(|limit| format!("?limit_seconds={limit}")).unwrap_or_default();
        let path = format!("/api/v1/health/{check}{limit}");
        let health: Answer = if self.live {
            let Some(health) = client.get_if_allowed(&path)? else {
                let text =
                    "the server rejects the token, so it is alive; whether frames pass is unknown";
                terminal.warning(text);
                return Ok(());
            };
            health
        } else {
            client.get(&path)?
        };
        if self.json {
            return terminal.json(&serde_json::to_value(&health).unwrap_or_default());
        }
        terminal.results(&health.state)
    }
}
