//! `fxgraph shadow`

use super::swap::Changes;
use crate::client::{Client, Connection, in_path, typed};
use crate::failure::Failure;
use crate::shadows::as_text;
use crate::terminal::Terminal;
use fxgraph_api::shadows::ShadowInfo;
use serde_json::Value;
use ureq::http::Method;

/// Starts or ends a shadow of a block of a running flowgraph, or shows its results; without a block, lists all shadows
///
/// A shadow is a second implementation of a block on the same frames, whose output is compared and dropped.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples: fxgraph shadow x implementation=tensor_core\n          \
                        fxgraph shadow x\n          \
                        fxgraph shadow x --end")]
pub struct Shadow {
    /// Block; with changes a shadow starts, without changes its results are shown
    block: Option<String>,

    #[command(flatten)]
    changes: Changes,

    /// Stops the shadow at the first frame that differs, and keeps both frames
    #[arg(long, requires = "block", conflicts_with = "end")]
    stop_at_first_difference: bool,

    /// Ends the shadow, and shows its results
    #[arg(long, requires = "block", conflicts_with_all = ["parameters", "kind", "implementation", "device"])]
    end: bool,

    /// Writes the answer as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    connection: Connection,
}

fn path(block: &str) -> String {
    format!("/api/v1/blocks/{}/shadow", in_path(block))
}

/// Starts a shadow of `block` with the changed keys in `entry`; the answer is a [`ShadowInfo`].
pub fn start(client: &Client, block: &str, entry: &Value, stops: bool) -> Result<Value, Failure> {
    let path = format!("{}?stop_at_first_difference={stops}", path(block));
    client.send(Method::POST, &path, Some(entry))
}

/// The results so far of the shadow of `block`, a [`ShadowInfo`].
fn result(client: &Client, block: &str) -> Result<Value, Failure> {
    client.get(&path(block))
}

/// Ends the shadow of `block`, and returns its results, a [`ShadowInfo`].
pub fn end(client: &Client, block: &str) -> Result<Value, Failure> {
    client.send(Method::DELETE, &path(block), None)
}

impl Shadow {
    pub fn execute(self, terminal: &mut Terminal) -> Result<(), Failure> {
        let client = self.connection.client()?;
        let answer: Value = match &self.block {
            None => client.get("/api/v1/shadows")?,
            Some(block) if self.end => end(&client, block)?,
            Some(block) => {
                let (changes, stops) = (self.changes.entry()?, self.stop_at_first_difference);
                if changes.is_empty() && !stops {
                    result(&client, block)?
                } else {
                    start(&client, block, &changes.into(), stops)?
                }
            }
        };
        if self.json {
            return terminal.json(&answer);
        }
        let shadows: Vec<ShadowInfo> = match answer {
            Value::Array(_) => typed(answer)?,
            one => vec![typed(one)?],
        };
        if shadows.is_empty() {
            return terminal.results("no shadows");
        }
        let ended = shadows.iter().filter_map(|shadow| {
            Some(format!("the shadow of {} has ended: {}\n", shadow.block, shadow.ended.as_ref()?))
        });
        let ended: String = ended.collect();
        terminal.results(&(as_text(&shadows, terminal) + &ended))
    }
}
