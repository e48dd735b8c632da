//! Estimates of the load of a flowgraph, from results of `fxgraph bench`, and what does not fit a host.

use crate::failure::Failure;
use crate::parts::HostPart;
use crate::table::{Align, Table};
use crate::units;
use fxgraph::DeviceName;
use fxgraph::diagnostic::{Diagnostic, codes};
use fxgraph::files::read_awaited;
use fxgraph::flowgraph::{Estimate, Hosts, MeasuredLoad, Plan, estimate};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;

/// Limit of a file of results.
const MAX_BYTES: u64 = 64 << 20;

/// Loads of blocks on one machine.
#[derive(Debug)]
pub struct Estimates {
    /// Name of the machine, and version of the program that measured there.
    machine: String,
    loads: Vec<MeasuredLoad>,
}

/// What `fxgraph bench --json` writes.
#[derive(Deserialize)]
struct BenchFile {
    machine: String,
    build: String,
    results: Vec<Row>,
}

#[derive(Deserialize)]
struct Row {
    // Failed benchmarks have none.
    #[serde(default)]
    loads: Vec<MeasuredLoad>,
}

/// Expected load of a flowgraph.
#[derive(Debug, Default)]
pub struct Sum {
    /// Cores that its blocks keep busy.
    pub cores: f64,
    /// Fraction of each GPU.
    pub gpus: BTreeMap<DeviceName, f64>,
    /// Number of blocks that nothing is known of.
    pub unknown: usize,
}

impl Estimates {
    /// Reads results of `fxgraph bench --json`.
    pub fn read(path: &Path) -> Result<Self, Failure> {
        let reject = |why: String| Failure::failed(format!("{}: {why}", path.display()));
        let text = read_awaited(path, MAX_BYTES).map_err(|error| reject(error.to_string()))?;
        let file: BenchFile = serde_json::from_slice(&text)
            .map_err(|error| reject(format!("not results of `fxgraph bench --json`: {error}")))?;
        let loads: Vec<MeasuredLoad> = file.results.into_iter().flat_map(|row| row.loads).collect();
        if loads.is_empty() {
            return Err(reject(
                "no benchmark has `loads`; measure again with this version".to_owned(),
            ));
        }
        if let Some(load) = loads.iter().find(|load| !load.is_possible()) {
            return Err(reject(format!(
                "the figures of a load must be finite and not negative, those of `{}` are not",
                load.kind
            )));
        }
        Ok(Self { machine: format!("{}, {}", file.machine, file.build), loads })
    }

    /// Estimate of each block of `plan`, in order.
    fn of<'a>(&'a self, plan: &'a Plan) -> impl Iterator<Item = Option<Estimate>> + 'a {
        plan.blocks.iter().map(|block| estimate(block, &self.loads))
    }

    /// Expected load of `plan`.
    pub fn sum(&self, plan: &Plan) -> Sum {
        let mut sum = Sum::default();
        for (block, estimate) in plan.blocks.iter().zip(self.of(plan)) {
            let Some(Estimate { load, .. }) = estimate else {
                sum.unknown += 1;
                continue;
            };
            sum.cores += load.cores;
            if block.device != DeviceName::Cpu {
                *sum.gpus.entry(block.device).or_default() += load.gpu;
            }
        }
        sum
    }

    /// Table of the blocks of `plan`.
    pub fn as_text(&self, plan: &Plan, coloured: bool) -> String {
        let columns = [
            ("block", Align::Left),
            ("cores", Align::Right),
            ("GPU", Align::Right),
            ("from", Align::Left),
        ];
        let mut table = Table::new(coloured, &columns);
        let mut slow = String::new();
        for (block, estimate) in plan.blocks.iter().zip(self.of(plan)) {
            let (cores, gpu, from) = match estimate {
                None => ("-".to_owned(), "-".to_owned(), "no measurement"),
                Some(Estimate { load, is_measured }) => {
                    let gpu = if block.device == DeviceName::Cpu {
                        "-".to_owned()
                    } else {
                        units::three_digits(load.gpu)
                    };
                    if load.busiest_thread > 1.0 {
                        slow.push_str(&format!(
                            "`{}` needs {} s of one core per second of signal: it is slower than real time\n",
                            block.name,
                            units::three_digits(load.busiest_thread)
                        ));
                    }
                    let from = if is_measured { "the same block" } else { "a similar block" };
                    (units::three_digits(load.cores), gpu, from)
                }
            };
            table.row([block.name.clone(), cores, gpu, from.to_owned()]);
        }
        let sum = self.sum(plan);
        let gpu = sum.gpus.values().sum::<f64>();
        let gpu = if sum.gpus.is_empty() { "-".to_owned() } else { units::three_digits(gpu) };
        table.row(["sum".to_owned(), units::three_digits(sum.cores), gpu, String::new()]);
        format!("load expected on {}\n\n{}{slow}", self.machine, table.finish())
    }

    /// The same for programs: machine and blocks.
    pub fn as_json(&self, plan: &Plan) -> Value {
        let blocks = plan.blocks.iter().zip(self.of(plan));
        let blocks: Vec<Value> = blocks
            .filter_map(|(block, estimate)| {
                let Estimate { load, is_measured } = estimate?;
                let mut value = json!(load);
                value["name"] = block.name.clone().into();
                value["is_measured"] = is_measured.into();
                Some(value)
            })
            .collect();
        json!({ "machine": self.machine, "blocks": blocks })
    }
}

/// One need of a host.
struct Need {
    /// Quantity with its unit.
    what: String,
    is: f64,
    key: &'static str,
    limit: f64,
    /// Blocks with the largest share.
    largest: Vec<(String, f64)>,
}

/// Diagnostics for hosts with too little memory or too few cores for their blocks.
pub fn misfits(
    hosts: &Hosts,
    parts: &[HostPart],
    estimates: Option<&Estimates>,
) -> Vec<Diagnostic> {
    let mut problems = Vec::new();
    for HostPart { part, plan } in parts {
        let class = &hosts.classes[part.host.class];
        for need in needs(plan, class, estimates) {
            if need.is <= need.limit {
                continue;
            }
            let message = format!(
                "`{}` does not fit, because it needs {} {} and `{}` is {}",
                part.name,
                units::three_digits(need.is),
                need.what,
                need.key,
                need.limit
            );
            let mut largest = need.largest;
            largest.sort_by(|(_, a), (_, b)| b.total_cmp(a));
            let largest: Vec<String> = largest
                .iter()
                .take(3)
                .map(|(name, share)| format!("{} for `{name}`", units::three_digits(*share)))
                .collect();
            problems.push(
                Diagnostic::error(codes::NETWORK, class.span, message)
                    .label("the class of this host")
                    .help(format!("largest blocks: {}", largest.join(", ")))
                    .help("give some of its blocks another host"),
            );
        }
    }
    problems
}

fn needs(
    plan: &Plan,
    class: &fxgraph::flowgraph::HostClass,
    estimates: Option<&Estimates>,
) -> Vec<Need> {
    let memory = plan.memory();
    let names = |block: usize| plan.blocks[block].name.clone();
    let gbytes = |bytes: usize| bytes as f64 / 1e9;
    let on = |device: DeviceName| -> Vec<(String, f64)> {
        let there = memory.blocks.iter().filter(|block| block.device == device);
        there.map(|block| (names(block.block), gbytes(block.bytes()))).collect()
    };
    let mut needs = Vec::new();
    if let Some(limit) = class.memory_gbytes {
        needs.push(Need {
            what: "GB of memory".to_owned(),
            is: gbytes(memory.host_bytes()),
            key: "memory_gbytes",
            limit,
            largest: on(DeviceName::Cpu),
        });
    }
    if let Some(limit) = class.gpu_memory_gbytes {
        let gpus = memory.devices().into_iter().filter(|device| *device != DeviceName::Cpu);
        needs.extend(gpus.map(|device| Need {
            what: format!("GB of memory on `{device}`"),
            is: gbytes(memory.bytes_on(device)),
            key: "gpu_memory_gbytes",
            limit,
            largest: on(device),
        }));
    }
    let (Some(estimates), Some(cores)) = (estimates, class.cores) else { return needs };
    let blocks = plan.blocks.iter().zip(estimates.of(plan));
    let of_blocks =
        blocks.filter_map(|(block, estimate)| Some((block.name.clone(), estimate?.load.cores)));
    needs.push(Need {
        what: "cores".to_owned(),
        is: estimates.sum(plan).cores,
        key: "cores",
        limit: cores as f64,
        largest: of_blocks.collect(),
    });
    needs
}
