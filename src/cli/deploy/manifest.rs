//! `deployment.json`: the parts of a deployment, and where their servers are found.

use super::{File, write_file};
use crate::client::with_help;
use crate::failure::Failure;
use fxgraph::files::read_regular;
use serde::{Deserialize, Serialize};
use std::error::Error;
use std::path::{Path, PathBuf};

/// Name of the file in the directory of a deployment.
pub const FILE: &str = "deployment.json";

/// How to get a deployment.
const HELP: &str = "give the directory that `fxgraph deploy FLOWGRAPH --engine ENGINE -o DIR` or \
                    `fxgraph run FLOWGRAPH --as-parts -o DIR` has written";

/// Largest file of a deployment.
const MAX_BYTES: u64 = 64 << 20;

/// A deployment.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Manifest {
    /// Name of the flowgraph.
    pub flowgraph: String,
    /// Engine that runs the parts: `slurm`, `systemd`, or `processes` of `run --as-parts`.
    pub engine: String,
    /// Program version and commit.
    pub version: String,
    /// Parts in the order of the file.
    pub parts: Vec<Part>,
    /// File with the token of all servers, relative to the directory.
    pub token_file: PathBuf,
    /// All files of the deployment, relative to the directory.
    pub files: Vec<PathBuf>,
    /// Program and hosts; only for Slurm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub array: Option<Array>,
}

/// Program and hosts of an array.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Array {
    /// Path of the program on all hosts.
    pub program: String,
    /// Classes of hosts, in the order in which they get theirs.
    pub classes: Vec<Class>,
}

/// A class of hosts.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Class {
    pub name: String,
    /// Number of hosts, with spares.
    pub size: usize,
    /// Property of the hosts.
    pub constraint: Option<String>,
    /// GPUs of each host.
    pub gpus: usize,
}

/// Streams of a part under Slurm, for an update.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Streams {
    /// Streams that the part sends, each with its address and the type that receivers expect.
    pub sent: Vec<String>,
    /// Reason why a second process cannot take over from the part without missing data, if any.
    pub obstacle: Option<String>,
}

/// A part of a deployment.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Part {
    /// Name of its host in the flowgraph: `f_host[0]`.
    pub name: String,
    /// The same for file names: `f_host_0`.
    pub file_name: String,
    /// Class of its host.
    pub class: String,
    /// Number of the host within its class.
    pub index: usize,
    /// Hash of the configuration.
    pub config_hash: String,
    /// Level of its start: a part sends to parts of lower levels only, unless two parts send to each other.
    pub level: usize,
    /// Names of the parts that it sends to.
    pub sends_to: Vec<String>,
    /// Port of its server.
    pub port: u16,
    /// Where its server is found.
    pub server: Server,
    /// Its streams; only for Slurm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub streams: Option<Streams>,
}

/// Where the server of a part is found.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Server {
    /// `HOST:PORT`.
    Address(String),
    /// A file, relative to the directory, with `HOST:PORT`; the engine writes it when it has placed the part.
    AddressFile(PathBuf),
}

impl Manifest {
    /// Reads the deployment in `directory`.
    pub fn read(directory: &Path) -> Result<Self, Failure> {
        let path = directory.join(FILE);
        let absent = |what: String, error: &(dyn Error + 'static)| {
            let why = Failure::because(&what, error).first_line();
            Failure::failed(with_help(&why, [HELP]))
        };
        let text = read_regular(&path, MAX_BYTES)
            .map_err(|error| absent(format!("cannot read `{}`", path.display()), &error))?;
        serde_json::from_slice(&text)
            .map_err(|error| absent(format!("`{}` is not a deployment", path.display()), &error))
    }

    /// Writes the deployment to `directory`; readers see the old one or the new one.
    pub fn write(&self, directory: &Path) -> Result<(), Failure> {
        let text = serde_json::to_string_pretty(self).unwrap_or_default();
        let path = directory.join(FILE);
        write_file(&path, &File::new(FILE, text + "\n")).map_err(|error| {
            Failure::because(&format!("cannot write `{}`", path.display()), &error)
        })
    }
}

impl Part {
    /// Address of its server, `HOST:PORT`; `None` if the engine has not placed the part yet. `directory` is the directory
    /// of the deployment.
    pub fn address(&self, directory: &Path) -> Option<String> {
        match &self.server {
            Server::Address(address) => Some(address.clone()),
            Server::AddressFile(path) => {
                let text = read_regular(&directory.join(path), MAX_BYTES).ok()?;
                let text = String::from_utf8(text).ok()?;
                let address = text.trim();
                (!address.is_empty()).then(|| address.to_owned())
            }
        }
    }
}
