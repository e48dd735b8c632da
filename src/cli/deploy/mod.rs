//! Files with which an engine runs the parts of a flowgraph with hosts.

mod kubernetes;
pub mod manifest;
pub mod processes;
pub mod slurm;
mod systemd;

use crate::client::with_help;
use crate::failure::Failure;
use crate::parts::{HostPart, levels, parts};
use fxgraph::flowgraph::{Hosts, PartPlan, Plan, PlannedBlock};
use manifest::{Manifest, Part, Server};
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// File with the token of the servers, in the directory of the deployment.
const TOKEN: &str = "token";

/// Program that places and supervises the parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Engine {
    /// Slurm: a script that allocates hosts and keeps the parts running on them
    Slurm,
    /// systemd: units and files of each machine, and a script that installs them over ssh
    Systemd,
    /// Kubernetes: manifests for `kubectl apply -k DIR`
    Kubernetes,
}

/// Options of a deployment.
pub struct Options {
    pub engine: Engine,
    /// Port of the server of the first part; each further part has the next one.
    pub first_port: u16,
    /// Path of the program on the hosts; by default that of this program (Slurm) or of the package (systemd).
    pub program: Option<PathBuf>,
    /// Container image with the program.
    pub image: Option<String>,
    /// Machines by name of part; other parts run on machines that are named as they are.
    pub machines: Vec<(String, String)>,
}

/// Parts of a flowgraph with what an engine needs to know of them.
pub struct Deployment<'a> {
    pub hosts: &'a Hosts,
    pub options: &'a Options,
    pub parts: &'a [HostPart],
    pub manifest: &'a Manifest,
}

/// A file of a deployment.
pub struct File {
    /// Path in the directory.
    pub path: PathBuf,
    pub text: String,
    pub is_executable: bool,
}

impl File {
    pub fn new(path: impl Into<PathBuf>, text: impl Into<String>) -> Self {
        Self { path: path.into(), text: text.into(), is_executable: false }
    }

    pub fn executable(path: impl Into<PathBuf>, text: impl Into<String>) -> Self {
        Self { is_executable: true, ..Self::new(path, text) }
    }
}

impl Engine {
    fn name(self) -> &'static str {
        match self {
            Self::Slurm => "slurm",
            Self::Systemd => "systemd",
            Self::Kubernetes => "kubernetes",
        }
    }

    /// Hands the deployment in `directory` to the engine.
    ///
    /// # Errors
    /// If the engine's command fails or is not installed.
    pub fn submit(self, directory: &Path) -> Result<(), Failure> {
        let mut command = match self {
            Self::Slurm => {
                let mut command = Command::new(directory.join(slurm::NAME));
                command.arg("start");
                command
            }
            Self::Kubernetes => {
                let mut command = Command::new("kubectl");
                command.args(["apply", "-k"]).arg(directory);
                command
            }
            Self::Systemd => Command::new(directory.join(systemd::NAME)),
        };
        let name = command.get_program().to_string_lossy().into_owned();
        let status = command
            .status()
            .map_err(|error| Failure::because(&format!("cannot start `{name}`"), &error))?;
        if status.success() {
            return Ok(());
        }
        Err(Failure::failed(format!(
            "`{name}` has failed: {status}; the files are in {}",
            directory.display()
        )))
    }

    /// Commands that start the deployment of `manifest` in `directory`, and that show it, each with its effect.
    pub fn next_steps(self, directory: &Path, manifest: &Manifest) -> Vec<(String, &'static str)> {
        let shown = quoted_if_needed(&directory.to_string_lossy());
        let fleet = (format!("fxgraph fleet {shown}"), "lists the parts and their states");
        // A script in the working directory needs a path, too.
        let script =
            |name| quoted_if_needed(&Path::new(".").join(directory).join(name).to_string_lossy());
        match self {
            Self::Slurm => vec![
                (
                    format!("{} start", script(slurm::NAME)),
                    "allocates hosts, and supervises the parts",
                ),
                fleet,
            ],
            Self::Systemd => vec![
                (script(systemd::NAME), "copies the files to their machines, and starts the parts"),
                fleet,
            ],
            Self::Kubernetes => vec![
                (format!("kubectl apply -k {shown}"), "starts the parts"),
                (kubernetes::list(&manifest.flowgraph), "lists the parts and their states"),
            ],
        }
    }

    /// Where the server of a part is found.
    fn server(self, flowgraph: &str, part: &PartPlan, port: u16, options: &Options) -> Server {
        match self {
            Self::Kubernetes => kubernetes::server(flowgraph, part, port),
            Self::Slurm => Server::AddressFile(format!("run/{}.address", part.file_name()).into()),
            Self::Systemd => systemd::server(part, port, &options.machines),
        }
    }

    /// The engine's own files.
    fn files(self, deployment: &Deployment<'_>) -> Result<Vec<File>, Failure> {
        match self {
            Self::Slurm => Ok(deployment.manifest.array.iter().map(slurm::script).collect()),
            Self::Systemd => systemd::files(deployment),
            Self::Kubernetes => kubernetes::files(deployment),
        }
    }
}

/// Writes the deployment of `plan` to `directory`. Files of an earlier deployment there that the new one does not have are
/// removed; the token stays.
pub fn write(plan: &Plan, options: &Options, directory: &Path) -> Result<Manifest, Failure> {
    let Some(hosts) = &plan.hosts else {
        let message = format!("`{}` has no `hosts`, so it has no parts to deploy", plan.name);
        return Err(Failure::failed(message));
    };
    let cannot = |what: &str, path: &Path, error: &io::Error| {
        Failure::because(&format!("cannot {what} `{}`", path.display()), error)
    };
    let parts = parts(plan, None)?;
    for (name, _) in &options.machines {
        if !parts.iter().any(|host| host.part.name == *name) {
            return Err(Failure::failed(format!("`--machine`: there is no part `{name}`")));
        }
    }
    reject_overwriting(&parts)?;
    fs::create_dir_all(directory).map_err(|error| cannot("create", directory, &error))?;
    let directory = directory.canonicalize().map_err(|error| cannot("find", directory, &error))?;
    let mut manifest = manifest(plan, hosts, options, &parts)?;

    let yaml = |HostPart { part, .. }: &HostPart| {
        File::new(format!("parts/{}.yaml", part.file_name()), &part.yaml)
    };
    let mut files: Vec<File> = parts.iter().map(yaml).collect();
    files.extend(options.engine.files(&Deployment {
        hosts,
        options,
        parts: &parts,
        manifest: &manifest,
    })?);
    manifest.files = files.iter().map(|file| file.path.clone()).collect();
    let earlier = Manifest::read(&directory).ok();

    write_token(&directory.join(TOKEN))
        .map_err(|error| cannot("write", &directory.join(TOKEN), &error))?;
    for file in &files {
        let path = directory.join(&file.path);
        write_file(&path, file).map_err(|error| cannot("write", &path, &error))?;
    }
    manifest.write(&directory)?;
    // Only now is no file of the earlier deployment in use.
    let gone = earlier.map(|earlier| earlier.files).unwrap_or_default();
    for path in gone.iter().filter(|path| is_inside(path) && !manifest.files.contains(path)) {
        let path = directory.join(path);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(cannot("remove", &path, &error));
            }
            _ => {}
        }
    }
    Ok(manifest)
}

/// Rejects files that a part would overwrite when its engine starts it again: only the process that has recorded a file
/// knows that it must not.
fn reject_overwriting(parts: &[HostPart]) -> Result<(), Failure> {
    let overwrites = |block: &&PlannedBlock| {
        !block.resources.writes.is_empty() && block.parameters["overwrite"] == true
    };
    let reject = |part: &PartPlan, block: &PlannedBlock| {
        let text = format!(
            "`{}` of part `{}` must not have `overwrite: true`: after a restart of the part it would begin its file \
             again, and delete what it has recorded",
            block.name, part.name
        );
        with_help(&text, ["remove `overwrite`: each start then writes to the next free name"])
    };
    let rejected = parts.iter().flat_map(|HostPart { part, plan }| {
        plan.blocks.iter().filter(overwrites).map(|block| reject(part, block))
    });
    let rejected: Vec<String> = rejected.collect();
    if rejected.is_empty() { Ok(()) } else { Err(Failure::Failed(rejected)) }
}

/// A word of the shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// A word of the shell, in quotes only if it has characters with a meaning there.
fn quoted_if_needed(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%,".contains(c);
    let text = text.strip_prefix("./").filter(|rest| rest.contains('/')).unwrap_or(text);
    if !text.is_empty() && text.chars().all(is_plain) { text.to_owned() } else { quoted(text) }
}

/// Whether a path of `deployment.json` stays in its directory.
fn is_inside(path: &Path) -> bool {
    path.components().all(|component| matches!(component, std::path::Component::Normal(_)))
}

fn manifest(
    plan: &Plan,
    hosts: &Hosts,
    options: &Options,
    parts: &[HostPart],
) -> Result<Manifest, Failure> {
    let is_array = options.engine == Engine::Slurm;
    let plans: Vec<&PartPlan> = parts.iter().map(|host| &host.part).collect();
    let levels = levels(&plans);
    let level = |at: usize| levels.iter().position(|level| level.contains(&at)).unwrap_or_default();
    let plan_name = plan.name.clone();
    let part = |(at, host): (usize, &HostPart)| -> Result<Part, Failure> {
        let HostPart { part, plan } = host;
        let port = u16::try_from(at).ok().and_then(|at| options.first_port.checked_add(at));
        let port = port.ok_or_else(|| {
            let message = format!(
                "the {} parts need a port each, counted from {}, and ports end at 65535",
                parts.len(),
                options.first_port
            );
            Failure::failed(message)
        })?;
        let reads = |to: &&&PartPlan| {
            let mut addresses = to.received.iter().filter_map(|rate| rate.address);
            addresses.any(|address| part.sent.iter().any(|rate| rate.address == Some(address)))
        };
        Ok(Part {
            name: part.name.clone(),
            file_name: part.file_name(),
            class: part.class.clone(),
            index: part.index,
            config_hash: plan.config_hash.clone(),
            level: level(at),
            sends_to: plans.iter().filter(reads).map(|to| to.name.clone()).collect(),
            port,
            server: options.engine.server(&plan_name, part, port, options),
            streams: is_array.then(|| slurm::streams(host, parts)),
        })
    };
    Ok(Manifest {
        flowgraph: plan.name.clone(),
        engine: options.engine.name().to_owned(),
        version: crate::BUILD.to_owned(),
        parts: parts.iter().enumerate().map(part).collect::<Result<_, _>>()?,
        token_file: TOKEN.into(),
        files: Vec::new(),
        array: is_array.then(|| slurm::program_and_hosts(hosts, options)).transpose()?,
    })
}

/// Writes a file such that readers see the old one or the new one.
fn write_file(path: &Path, file: &File) -> io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(directory)?;
    let mut written = tempfile::NamedTempFile::new_in(directory)?;
    written.write_all(file.text.as_bytes())?;
    let mode = if file.is_executable { 0o755 } else { 0o644 };
    written.as_file().set_permissions(fs::Permissions::from_mode(mode))?;
    written.persist(path).map(drop).map_err(|error| error.error)
}

/// Writes a random token that only its owner can read, unless there is one.
fn write_token(path: &Path) -> io::Result<()> {
    let mut bytes = [0; 32];
    fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    let mut text = String::new();
    for byte in bytes {
        text.push_str(&format!("{byte:02x}"));
    }
    // Temporary files have mode 0600. The token is there whole or not at all.
    let mut written = tempfile::NamedTempFile::new_in(path.parent().unwrap_or(Path::new(".")))?;
    writeln!(written, "{text}")?;
    match written.persist_noclobber(path) {
        Err(error) if error.error.kind() != io::ErrorKind::AlreadyExists => Err(error.error),
        _ => Ok(()),
    }
}
