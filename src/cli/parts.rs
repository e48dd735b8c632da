//! Parts of a flowgraph with hosts: their plans, and tables of what each host runs, sends and receives.

use crate::estimates::{Estimates, Sum};
use crate::failure::Failure;
use crate::flowgraph::registry;
use crate::table::{Align, Table};
use crate::units;
use fxgraph::diagnostic::{Diagnostic, Style, render_all};
use fxgraph::flowgraph::{Hosts, Loopback, PartPlan, Plan, Rate, load_in};
use serde_json::{Value, json};
use std::path::Path;

/// A part with its plan.
pub struct HostPart {
    pub part: PartPlan,
    pub plan: Plan,
}

/// Returns the parts of `plan`, each checked like a file.
pub fn parts(plan: &Plan, loopback: Option<Loopback>) -> Result<Vec<HostPart>, Failure> {
    let plain = |problems: &[Diagnostic]| {
        Failure::Configuration(render_all(
            problems,
            &fxgraph::diagnostic::Sources::default(),
            Style::Plain,
        ))
    };
    let parts = plan.parts(loopback).map_err(|problems| plain(&problems))?;
    let checked = parts.into_iter().map(|part| {
        let name = format!("{}.yaml", part.file_name());
        let loaded = load_in(&plan.directory, Path::new(&name), &part.yaml, &[], &registry());
        match loaded.result {
            Ok(plan) => Ok(HostPart { part, plan }),
            Err(problems) => {
                Err(Failure::Configuration(render_all(&problems, &loaded.sources, Style::Plain)))
            }
        }
    });
    checked.collect()
}

/// Whether part `to` receives from part `from`.
pub fn receives(from: &PartPlan, to: &PartPlan) -> bool {
    let mut addresses = to.received.iter().filter_map(|rate| rate.address);
    addresses.any(|address| from.sent.iter().any(|rate| rate.address == Some(address)))
}

/// Indices of the parts in the order of their start: the parts of each level send to those of the levels before, unless
/// two parts send to each other.
pub fn levels(parts: &[&PartPlan]) -> Vec<Vec<usize>> {
    /// Finds the level of part `at`, which is `None` while it is being found.
    fn visit(at: usize, readers: &[Vec<usize>], seen: &mut [bool], found: &mut [Option<usize>]) {
        if std::mem::replace(&mut seen[at], true) {
            return;
        }
        for reader in &readers[at] {
            visit(*reader, readers, seen, found);
        }
        let after = readers[at].iter().filter_map(|reader| found[*reader]).max();
        found[at] = Some(after.map_or(0, |level| level + 1));
    }
    let readers: Vec<Vec<usize>> = parts
        .iter()
        .map(|from| (0..parts.len()).filter(|to| receives(from, parts[*to])).collect())
        .collect();
    let (mut seen, mut found) = (vec![false; parts.len()], vec![None; parts.len()]);
    for at in 0..parts.len() {
        visit(at, &readers, &mut seen, &mut found);
    }
    let mut levels: Vec<Vec<usize>> = Vec::new();
    for (at, level) in found.into_iter().enumerate() {
        let level = level.unwrap_or_default();
        if levels.len() <= level {
            levels.resize(level + 1, Vec::new());
        }
        levels[level].push(at);
    }
    levels
}

fn gbit(rate: f64) -> String {
    units::three_digits(rate)
}

/// Table of the hosts, and of the streams between them.
pub fn as_text(
    plan: &Plan,
    hosts: &Hosts,
    parts: &[HostPart],
    estimates: Option<&Estimates>,
    coloured: bool,
) -> String {
    use Align::{Left, Right};
    let mut columns = vec![("host", Left), ("blocks", Right), ("memory", Left)];
    if estimates.is_some() {
        columns.extend([("cores", Right), ("GPU", Left)]);
    }
    columns.extend([
        ("Gbit/s in", Right),
        ("Gbit/s out", Right),
        ("limit", Right),
        ("spares", Right),
        ("interface", Left),
        ("constraint", Left),
    ]);
    let limit = hosts.network.as_ref().and_then(|network| network.limit_gbit_per_second);
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let mut table = Table::new(coloured, &columns);
    for HostPart { part, plan } in parts {
        let class = &hosts.classes[part.host.class];
        let mut cells = vec![part.name.clone(), part.blocks.len().to_string(), memory(plan)];
        if let Some(estimates) = estimates {
            cells.extend(expected(&estimates.sum(plan)));
        }
        cells.extend([
            gbit(part.gbit_in()),
            gbit(part.gbit_out()),
            or_dash(limit.map(gbit)),
            class.spares.to_string(),
            or_dash(class.interface.clone()),
            or_dash(class.constraint.clone()),
        ]);
        table.row(cells);
    }
    let mut text = table.finish();
    let streams = plan.streams().unwrap_or_default();
    if !streams.is_empty() {
        let columns =
            [("group", Left), ("output", Left), ("from", Left), ("to", Left), ("Gbit/s", Right)];
        let mut table = Table::new(coloured, &columns);
        for stream in streams {
            let to: Vec<String> = stream.to.iter().map(|host| hosts.name(*host)).collect();
            table.row([
                stream.address.to_string(),
                stream.output,
                hosts.name(stream.from),
                to.join(", "),
                gbit(stream.gbit_per_second),
            ]);
        }
        text.push('\n');
        text.push_str(&table.finish());
    }
    text
}

/// Cores, and fractions of the GPUs. A `+` marks a sum without blocks that were not measured.
fn expected(sum: &Sum) -> [String; 2] {
    let more = if sum.unknown > 0 { "+" } else { "" };
    let gpus: Vec<String> = sum
        .gpus
        .iter()
        .map(|(device, share)| format!("{} of {device}", units::three_digits(*share)))
        .collect();
    let gpus = if gpus.is_empty() { "-".to_owned() } else { gpus.join(", ") };
    [format!("{}{more}", units::three_digits(sum.cores)), gpus]
}

/// Memory of the process of a part, by device.
fn memory(plan: &Plan) -> String {
    let memory = plan.memory();
    let mut text = units::bytes(memory.host_bytes() as f64);
    for device in memory.devices().into_iter().skip(1) {
        text.push_str(&format!(", {} on {device}", units::bytes(memory.bytes_on(device) as f64)));
    }
    text
}

/// The same as [`as_text`], for programs: hosts and streams.
pub fn as_json(
    plan: &Plan,
    hosts: &Hosts,
    parts: &[HostPart],
    estimates: Option<&Estimates>,
) -> (Value, Value) {
    let rates = |rates: &[Rate]| -> Vec<Value> {
        let rate = |rate: &Rate| {
            json!({
                "name": rate.name,
                "address": rate.address.map(|address| address.to_string()),
                "gbit_per_second": rate.gbit_per_second,
            })
        };
        rates.iter().map(rate).collect()
    };
    let host = |HostPart { part, plan }: &HostPart| {
        let class = &hosts.classes[part.host.class];
        let memory = plan.memory();
        let by_device: serde_json::Map<String, Value> = memory
            .devices()
            .into_iter()
            .skip(1)
            .map(|device| (device.to_string(), memory.bytes_on(device).into()))
            .collect();
        let mut value = json!({
            "name": part.name,
            "class": part.class,
            "index": part.index,
            "constraint": class.constraint,
            "interface": class.interface,
            "gpus": class.gpus,
            "spares": class.spares,
            "blocks": part.blocks,
            "memory_bytes": memory.host_bytes(),
            "gpu_memory_bytes": by_device,
            "gbit_per_second_in": part.gbit_in(),
            "gbit_per_second_out": part.gbit_out(),
            "sent": rates(&part.sent),
            "received": rates(&part.received),
        });
        if let Some(sum) = estimates.map(|estimates| estimates.sum(plan)) {
            let gpus = sum.gpus.iter().map(|(device, share)| (device.to_string(), json!(share)));
            value["expected_load"] = json!({
                "cores": sum.cores,
                "gpus": gpus.collect::<serde_json::Map<_, _>>(),
                "blocks_without_measurement": sum.unknown,
            });
        }
        value
    };
    let streams = plan.streams().unwrap_or_default();
    let streams = streams.iter().map(|stream| {
        json!({
            "output": stream.output,
            "address": stream.address.to_string(),
            "from": hosts.name(stream.from),
            "to": stream.to.iter().map(|host| hosts.name(*host)).collect::<Vec<_>>(),
            "gbit_per_second": stream.gbit_per_second,
        })
    });
    (parts.iter().map(host).collect(), streams.collect())
}
