//! A deployment of processes on this machine, as `fxgraph run --as-parts` starts them.

use super::TOKEN;
use super::manifest::{Manifest, Part, Server};
use crate::failure::Failure;
use crate::parts::{HostPart, receives};
use fxgraph::flowgraph::Plan;
use std::collections::HashMap;
use std::path::Path;

/// Writes `deployment.json` of `parts`, whose servers have `addresses` by name of part, to `directory`. Parts that have
/// ended have no address.
pub fn write(
    plan: &Plan,
    parts: &[HostPart],
    levels: &[Vec<usize>],
    addresses: &HashMap<&str, Option<&str>>,
    directory: &Path,
) -> Result<(), Failure> {
    let level = |at: usize| levels.iter().position(|level| level.contains(&at)).unwrap_or_default();
    let part = |(at, host): (usize, &HostPart)| {
        let part = &host.part;
        let address = addresses.get(part.name.as_str()).copied().flatten().unwrap_or_default();
        let port = address.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
        let readers = parts.iter().filter(|to| receives(part, &to.part));
        Part {
            name: part.name.clone(),
            file_name: part.file_name(),
            class: part.class.clone(),
            index: part.index,
            config_hash: host.plan.config_hash.clone(),
            level: level(at),
            sends_to: readers.map(|to| to.part.name.clone()).collect(),
            port: port.unwrap_or_default(),
            server: Server::Address(address.to_owned()),
            streams: None,
        }
    };
    let manifest = Manifest {
        flowgraph: plan.name.clone(),
        engine: "processes".to_owned(),
        version: crate::BUILD.to_owned(),
        parts: parts.iter().enumerate().map(part).collect(),
        token_file: TOKEN.into(),
        files: parts.iter().map(|host| format!("{}.yaml", host.part.file_name()).into()).collect(),
        array: None,
    };
    manifest.write(directory)
}

/// Notes in `deployment.json` that the parts with the names `changed` run their configurations in `parts`. Others were
/// not changed: their flowgraph may differ in parameters that none of their blocks uses.
pub fn follow(parts: &[HostPart], changed: &[String], directory: &Path) -> Result<(), Failure> {
    let mut manifest = Manifest::read(directory)?;
    for part in manifest.parts.iter_mut().filter(|part| changed.contains(&part.name)) {
        if let Some(host) = parts.iter().find(|host| host.part.name == part.name) {
            part.config_hash.clone_from(&host.plan.config_hash);
        }
    }
    manifest.write(directory)
}
