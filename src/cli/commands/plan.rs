//! `fxgraph plan`

use crate::chosen;
use crate::estimates::{self, Estimates};
use crate::failure::{Failure, judge};
use crate::flowgraph::{self, Target};
use crate::parts;
use crate::prose;
use crate::table::{Align, Table, width};
use crate::terminal::{Paint, Terminal};
use crate::units;
use fxgraph::DeviceName;
use fxgraph::diagnostic::{Severity, render_all};
use fxgraph::edge::WhenFull;
use fxgraph::flowgraph::{Memory, PartPlan, Thread, Work};
use fxgraph::kind::{Rounded, four_digits};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Shows the resources of a flowgraph without running it: memory, data rates, operations/s, sockets
#[derive(Debug, clap::Args)]
pub struct Plan {
    #[command(flatten)]
    target: Target,

    /// Adds the expected load of CPU and GPU, from results of `fxgraph bench --json` on such a machine
    #[arg(long, value_name = "FILE")]
    bench: Option<PathBuf>,

    /// Writes JSON
    #[arg(long)]
    json: bool,
}

impl Plan {
    pub fn execute(self, terminal: &mut Terminal) -> Result<(), Failure> {
        let (plan, sources) =
            flowgraph::plan_and_sources(&self.target, Severity::Warning, terminal)?;
        let estimates = self.bench.as_deref().map(Estimates::read).transpose()?;
        let memory = plan.memory();
        let parts = parts::parts(&plan, None)?;
        let written = if self.json {
            let mut value = as_json(&plan, &memory);
            if let Some(hosts) = &plan.hosts {
                (value["hosts"], value["streams"]) =
                    parts::as_json(&plan, hosts, &parts, estimates.as_ref());
            }
            if let Some(estimates) = &estimates {
                value["expected_load"] = estimates.as_json(&plan);
            }
            terminal.json(&value)
        } else {
            let mut text = as_text(&plan, &memory, terminal);
            let coloured = terminal.coloured_results;
            if let Some(estimates) = &estimates {
                text.push('\n');
                text.push_str(&estimates.as_text(&plan, coloured));
            }
            if let Some(hosts) = &plan.hosts {
                text.push('\n');
                text.push_str(&parts::as_text(&plan, hosts, &parts, estimates.as_ref(), coloured));
            }
            terminal.results(&text)
        };
        let mut overloads = plan
            .hosts
            .as_ref()
            .map_or_else(Vec::new, |hosts| estimates::misfits(hosts, &parts, estimates.as_ref()));
        let parts: Vec<PartPlan> = parts.into_iter().map(|host| host.part).collect();
        overloads.extend(plan.overloads(&parts));
        let verdict = if overloads.is_empty() {
            Ok(())
        } else {
            let text = render_all(&overloads, &sources, flowgraph::style(terminal));
            Err(Failure::Configuration(text))
        };
        judge(verdict, written, terminal)
    }
}

fn thread(thread: Thread) -> String {
    match thread {
        Thread::Shared => "shared".to_owned(),
        Thread::Own { core: None } => "own".to_owned(),
        Thread::Own { core: Some(core) } => format!("core {core}"),
    }
}

/// One row of the table of edges.
struct EdgeRow<'a> {
    from: String,
    to: String,
    port: &'a fxgraph::PortType,
    queue: usize,
    when_full: WhenFull,
}

fn edges(plan: &fxgraph::flowgraph::Plan) -> impl Iterator<Item = EdgeRow<'_>> {
    plan.blocks.iter().flat_map(move |block| {
        block.inputs.iter().enumerate().map(move |(input, (source, output))| {
            let writer = &plan.blocks[*source];
            EdgeRow {
                from: format!("{}.{}", writer.name, writer.output_names[*output]),
                to: format!("{}.{}", block.name, block.input_names[input]),
                port: &writer.ports.outputs[*output],
                queue: block.queue_frames(input),
                when_full: block.when_full[input],
            }
        })
    })
}

/// Description of the flowgraph, and its parameters.
fn about(plan: &fxgraph::flowgraph::Plan, terminal: &Terminal) -> String {
    let mut text = String::new();
    if let Some(doc) = &plan.doc {
        text.push_str(&format!("{}\n\n", prose::fit(doc, width()).trim_end()));
    }
    if plan.parameters.is_empty() {
        return text;
    }
    let columns = [
        ("parameter", Align::Left),
        ("value", Align::Left),
        ("from", Align::Left),
        ("description", Align::Left),
    ];
    let mut table = Table::new(terminal.coloured_results, &columns);
    for parameter in plan.parameters.iter() {
        let value = match &parameter.value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        table.row([
            parameter.name.clone(),
            value,
            if parameter.is_set { "--set" } else { "default" }.to_owned(),
            parameter.doc.clone().unwrap_or_default(),
        ]);
    }
    format!("{text}{}\n", table.finish())
}

fn as_text(plan: &fxgraph::flowgraph::Plan, memory: &Memory, terminal: &Terminal) -> String {
    let coloured = terminal.coloured_results;
    let hash = &plan.config_hash[..plan.config_hash.len().min(12)];
    let operations: f64 =
        plan.blocks.iter().map(|block| Work::of(block).operations_per_second).sum();
    format!(
        "{} {}\n\n{}{}{}{}{}\n{}\n{}\nmemory {}, {} operations/s at full rate\n\
         including {} for the program{}; swapping a block needs up to {} more\n",
        terminal.paint(Paint::Bold, &plan.name),
        terminal.paint(Paint::Dim, &format!("configuration {hash}")),
        about(plan, terminal),
        blocks_table(plan, memory, coloured),
        frames_table(plan, coloured),
        chosen_table(plan, coloured),
        rounded_table(plan, coloured),
        edges_table(plan, coloured),
        pools_table(plan, memory, coloured),
        by_device(&all_bytes(memory), terminal),
        units::count(operations),
        units::bytes(memory.process_bytes as f64),
        contexts(memory),
        by_device(&plan.swap_bytes(memory), terminal),
    )
}

fn blocks_table(plan: &fxgraph::flowgraph::Plan, memory: &Memory, coloured: bool) -> String {
    use Align::{Left, Right};
    let mut columns = vec![
        ("block", Left),
        ("kind", Left),
        ("device", Left),
        ("thread", Left),
        ("operations/s", Right),
        ("own memory", Right),
        ("pools", Right),
        ("sockets", Left),
    ];
    if plan.hosts.is_some() {
        columns.push(("host", Left));
    }
    let mut table = Table::new(coloured, &columns);
    for (block, needs) in plan.blocks.iter().zip(&memory.blocks) {
        let operations = Work::of(block).operations_per_second;
        let cells = [
            block.name.clone(),
            block.kind.to_owned(),
            block.place(),
            thread(block.thread),
            if operations > 0.0 { units::count(operations) } else { "-".to_owned() },
            units::bytes(needs.own_bytes as f64),
            units::bytes(needs.bytes().saturating_sub(needs.own_bytes) as f64),
            [&block.resources.binds[..], &block.resources.sockets].concat().join(", "),
        ];
        let host = plan
            .hosts
            .as_ref()
            .map(|hosts| block.host.map(|host| hosts.name(host)).unwrap_or_default());
        table.row(cells.into_iter().chain(host));
    }
    table.finish()
}

/// Frame sizes of the sources in real time, with their reasons.
fn frames_table(plan: &fxgraph::flowgraph::Plan, coloured: bool) -> String {
    use Align::{Left, Right};
    let columns = [("frames of", Left), ("samples", Right), ("ms", Right), ("why", Left)];
    let mut table = Table::new(coloured, &columns);
    let frames = plan.blocks.iter().filter_map(|block| Some((&block.name, block.frame.as_ref()?)));
    let mut is_empty = true;
    for (name, frame) in frames {
        is_empty = false;
        let duration = frame.milliseconds().to_string();
        table.row([name.clone(), frame.samples.to_string(), duration, frame.why()]);
    }
    if is_empty { String::new() } else { format!("\n{}", table.finish()) }
}

/// Parameters that blocks have chosen themselves, with their reasons. Equal ones of replicated blocks are one row.
fn chosen_table(plan: &fxgraph::flowgraph::Plan, coloured: bool) -> String {
    use Align::Left;
    let columns = [("chosen for", Left), ("parameter", Left), ("value", Left), ("why", Left)];
    let mut table = Table::new(coloured, &columns);
    let all = chosen::all(plan);
    for (blocks, each) in &all {
        let parameter = each.parameter.to_owned();
        table.row([blocks.clone(), parameter, chosen::value(each), each.why.clone()]);
    }
    if all.is_empty() { String::new() } else { format!("\n{}", table.finish()) }
}

/// Parameters in physical units that blocks round to a grid.
fn rounded_table(plan: &fxgraph::flowgraph::Plan, coloured: bool) -> String {
    use Align::{Left, Right};
    let columns =
        [("rounded", Left), ("parameter", Left), ("given", Right), ("in use", Right), ("", Left)];
    let mut table = Table::new(coloured, &columns);
    let mut is_empty = true;
    for block in &plan.blocks {
        for each in block.configured.rounded() {
            is_empty = false;
            let [given, used] = [each.given, each.used].map(four_digits);
            let parameter = each.parameter.to_owned();
            table.row([block.name.clone(), parameter, given, used, each.unit.to_owned()]);
        }
    }
    if is_empty { String::new() } else { format!("\n{}", table.finish()) }
}

fn rounded_as_json(rounded: &Rounded) -> Value {
    let Rounded { parameter, unit, given, used, .. } = rounded;
    json!({ "parameter": parameter, "unit": unit, "given": given, "used": used })
}

fn edges_table(plan: &fxgraph::flowgraph::Plan, coloured: bool) -> String {
    use Align::{Left, Right};
    let columns = [
        ("from", Left),
        ("to", Left),
        ("frames/s", Right),
        ("GB/s", Right),
        ("frame", Right),
        ("queue", Right),
        ("carries", Left),
    ];
    let mut table = Table::new(coloured, &columns);
    for edge in edges(plan) {
        table.row([
            edge.from,
            edge.to,
            units::three_digits(edge.port.clock.frames_per_second()),
            units::three_digits(edge.port.bytes_per_second() / 1e9),
            units::bytes(edge.port.frame_bytes() as f64),
            match edge.when_full {
                WhenFull::Wait => edge.queue.to_string(),
                action => format!("{}, {}", edge.queue, action.name()),
            },
            edge.port.to_string(),
        ]);
    }
    table.finish()
}

fn pools_table(plan: &fxgraph::flowgraph::Plan, memory: &Memory, coloured: bool) -> String {
    use Align::{Left, Right};
    let columns = [("pool of", Left), ("frames", Right), ("each", Right), ("memory", Right)];
    let mut table = Table::new(coloured, &columns);
    for needs in &memory.blocks {
        for pool in &needs.pools {
            table.row([
                format!("{}.{}", plan.blocks[needs.block].name, pool.port),
                pool.frames.to_string(),
                units::bytes(pool.frame_bytes as f64),
                units::bytes(pool.bytes() as f64),
            ]);
        }
    }
    table.finish()
}

/// Bytes of the process on `device`.
fn bytes_on(memory: &Memory, device: DeviceName) -> usize {
    if device == DeviceName::Cpu { memory.host_bytes() } else { memory.bytes_on(device) }
}

/// Bytes of the process on each device.
fn all_bytes(memory: &Memory) -> BTreeMap<DeviceName, usize> {
    memory.devices().into_iter().map(|device| (device, bytes_on(memory, device))).collect()
}

/// `, 560 MB for the CUDA context of cuda:0`, for each GPU.
fn contexts(memory: &Memory) -> String {
    let one = |(device, bytes): (&DeviceName, &usize)| {
        format!(", {} for the CUDA context of {device}", units::bytes(*bytes as f64))
    };
    memory.contexts.iter().map(one).collect()
}

/// `1.2 GB`, or `1.2 GB, 3 GB on cuda:0`.
fn by_device(all: &BTreeMap<DeviceName, usize>, terminal: &Terminal) -> String {
    let one = |(device, bytes): (&DeviceName, &usize)| {
        let bytes = terminal.paint(Paint::Bold, &units::bytes(*bytes as f64));
        if *device == DeviceName::Cpu { bytes } else { format!("{bytes} on {device}") }
    };
    all.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn by_device_as_json(all: &BTreeMap<DeviceName, usize>) -> Value {
    let one = |(device, bytes): (&DeviceName, &usize)| (device.to_string(), (*bytes).into());
    Value::Object(all.iter().map(one).collect())
}

fn as_json(plan: &fxgraph::flowgraph::Plan, memory: &Memory) -> Value {
    let blocks: Vec<Value> = plan
        .blocks
        .iter()
        .zip(&memory.blocks)
        .map(|(block, needs)| {
            let pools: Vec<Value> = needs
                .pools
                .iter()
                .map(|pool| {
                    json!({
                        "port": pool.port,
                        "frames": pool.frames,
                        "frame_bytes": pool.frame_bytes,
                        "validity_bytes": pool.validity_bytes,
                    })
                })
                .collect();
            let mut value = json!({
                "name": block.name,
                "kind": block.kind,
                "device": block.device.to_string(),
                "implementation": block.implementation,
                "thread": thread(block.thread),
                "operations_per_second": Work::of(block).operations_per_second,
                "own_bytes": needs.own_bytes,
                "pools": pools,
                "binds": block.resources.binds,
                "sockets": block.resources.sockets,
                "parameters": block.parameters,
            });
            if let Some(frame) = &block.frame {
                value["frame"] = json!(frame);
            }
            let chosen = block.configured.chosen();
            if !chosen.is_empty() {
                value["chosen"] = json!(chosen);
            }
            let rounded = block.configured.rounded();
            if !rounded.is_empty() {
                value["rounded"] = rounded.iter().map(rounded_as_json).collect();
            }
            if let (Some(hosts), Some(host)) = (&plan.hosts, block.host) {
                value["host"] = hosts.name(host).into();
            }
            value
        })
        .collect();
    let edges: Vec<Value> = edges(plan)
        .map(|edge| {
            json!({
                "from": edge.from,
                "to": edge.to,
                "carries": edge.port.to_string(),
                "frame_bytes": edge.port.frame_bytes(),
                "frames_per_second": edge.port.clock.frames_per_second(),
                "bytes_per_second": edge.port.bytes_per_second(),
                "queue": edge.queue,
                "when_full": edge.when_full.name(),
            })
        })
        .collect();
    let parameters: serde_json::Map<String, Value> =
        plan.parameters.iter().map(|p| (p.name.clone(), p.value.clone())).collect();
    json!({
        "flowgraph": plan.name,
        "config_hash": plan.config_hash,
        "doc": plan.doc,
        "parameters": parameters,
        "memory_bytes": by_device_as_json(&all_bytes(memory)),
        "context_bytes": by_device_as_json(&memory.contexts),
        "process_bytes": memory.process_bytes,
        "swap_bytes": by_device_as_json(&plan.swap_bytes(memory)),
        "blocks": blocks,
        "edges": edges,
    })
}
