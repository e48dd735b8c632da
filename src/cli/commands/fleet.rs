//! `fxgraph fleet`

use crate::deploy::manifest::Manifest;
use crate::failure::Failure;
use crate::serve::Serve;
use crate::signals::Signals;
use crate::table::{Align, Table};
use crate::terminal::Terminal;
use fxgraph::files::read_regular;
use fxgraph_api::parts::PartInfo;
use fxgraph_web::fleet::{Deployed, Find, look_once};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Shows all parts of a deployment, or serves them as one flowgraph
///
/// Without `--listen`: prints a table of the parts; the exit status is 1 if one is not there, gives no answer to three
/// requests in a row, rejects the token, or has failed. Parts that run another configuration than the deployed one are marked
/// as changed.
#[derive(Debug, clap::Args)]
pub struct Fleet {
    /// Directory of the deployment (`fxgraph deploy`, or `fxgraph run --as-parts -o DIR`)
    #[arg(value_name = "DIR")]
    directory: PathBuf,

    /// Writes the table as JSON
    #[arg(long, conflicts_with = "listen")]
    json: bool,

    // Last, since its heading applies to all following options.
    #[command(flatten)]
    serve: Serve,
}

/// Largest file with a token.
const TOKEN_BYTES: u64 = 4096;
/// Time between two checks for signals.
const TICK: Duration = Duration::from_millis(100);

impl Fleet {
    pub fn execute(self, terminal: &mut Terminal) -> Result<(), Failure> {
        let manifest = Manifest::read(&self.directory)?;
        let find = find(&self.directory);
        self.serve.reject_for_fleet()?;
        if let Some(server) = self.serve.bind(terminal)? {
            let signals = Signals::count()?;
            let url = server.url();
            let _serving = server.serve_fleet(manifest.flowgraph, find);
            terminal.note(&format!("serving {url}"));
            while signals.look() == 0 {
                std::thread::sleep(TICK);
            }
            return Ok(());
        }
        let parts = look_once(find).map_err(Failure::failed)?;
        if self.json {
            terminal.json(&serde_json::to_value(&parts).unwrap_or_default())?;
        } else {
            terminal.results(&as_text(&parts, terminal))?;
        }
        let bad = parts.iter().filter(|part| !part.is_healthy);
        let bad: Vec<String> =
            bad.map(|part| format!("part `{}`: {}", part.name, part.troubles.join("; "))).collect();
        if bad.is_empty() { Ok(()) } else { Err(Failure::Failed(bad)) }
    }
}

/// Returns the parts of the deployment in `directory` whenever it is called.
pub fn find(directory: &Path) -> Find {
    let directory = directory.to_owned();
    Arc::new(move || deployed(&directory).map_err(|failure| failure.first_line()))
}

/// The parts of the deployment in `directory` as they are now.
fn deployed(directory: &Path) -> Result<Vec<Deployed>, Failure> {
    let manifest = Manifest::read(directory)?;
    let path = directory.join(&manifest.token_file);
    let token = match read_regular(&path, TOKEN_BYTES) {
        Ok(text) => Some(String::from_utf8_lossy(&text).trim().to_owned()),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => {
            return Err(Failure::because(&format!("cannot read `{}`", path.display()), &error));
        }
    };
    let parts = manifest.parts.iter().map(|part| Deployed {
        name: part.name.clone(),
        address: part.address(directory).filter(|address| !address.is_empty()),
        config_hash: part.config_hash.clone(),
        token: token.clone(),
    });
    Ok(parts.collect())
}

fn as_text(parts: &[PartInfo], terminal: &Terminal) -> String {
    use Align::{Left, Right};
    let columns = [
        ("part", Left),
        ("address", Left),
        ("state", Left),
        ("lag s", Right),
        ("version", Left),
        ("config", Left),
        ("health", Left),
    ];
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let mut table = Table::new(terminal.coloured_results, &columns);
    for part in parts {
        let short = |hash: &String| hash.chars().take(16).collect::<String>();
        let health = if part.is_healthy { "good".to_owned() } else { part.troubles.join("; ") };
        table.row([
            part.name.clone(),
            or_dash(part.address.clone()),
            or_dash(part.state.clone()),
            or_dash(part.lag_seconds.map(|lag| format!("{lag:.2}"))),
            or_dash(part.version.clone()),
            or_dash(part.config_hash.as_ref().map(|hash| {
                let changed = if part.is_changed { " (changed)" } else { "" };
                short(hash) + changed
            })),
            health,
        ]);
    }
    table.finish()
}
