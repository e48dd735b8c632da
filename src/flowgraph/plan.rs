//! The plan: a flowgraph that is checked and can be built.

use crate::diagnostic::{Diagnostic, Span, codes, suggest};
use crate::flowgraph::test_spec::{Check, Tap, TestSpec};
use crate::kind::{Configured, PortPool, Ports, Resources};
use crate::runtime::assembly::Thread;
use std::sync::Arc;

/// One block of the plan.
#[derive(Clone)]
pub struct PlannedBlock {
    /// Name in the expanded flowgraph: `f[0].pfb`.
    pub name: String,
    /// Its kind.
    pub kind: &'static str,
    /// The templates it came out of, outermost first: (name of the use, name of the template).
    pub templates: Vec<(String, String)>,
    /// Its parameters as given, expressions computed.
    pub parameters: serde_json::Value,
    /// Its parameters, read.
    pub configured: Arc<dyn Configured>,
    /// What its ports carry.
    pub ports: Ports,
    /// Names of its inputs.
    pub input_names: Vec<String>,
    /// Names of its outputs.
    pub output_names: Vec<String>,
    /// What it needs.
    pub resources: Resources,
    /// Block and output port that feed each input.
    pub inputs: Vec<(usize, usize)>,
    /// Where it runs.
    pub thread: Thread,
    /// Frames that the queue before each of its inputs holds.
    pub queue: usize,
    /// Device it runs on.
    pub device: &'static str,
    /// The form of the kind that runs.
    pub implementation: &'static str,
    /// Where it stands in the file.
    pub span: Span,
}

/// A parameter of the flowgraph with its value.
#[derive(Clone, Debug)]
pub struct ParameterInfo {
    /// Its name.
    pub name: String,
    /// The value in force.
    pub value: serde_json::Value,
    /// What it is for.
    pub doc: Option<String>,
    /// Whether `--set` changed it.
    pub is_set: bool,
}

/// A checked flowgraph.
#[derive(Clone)]
pub struct Plan {
    /// Its name.
    pub name: String,
    /// What it is for.
    pub doc: Option<String>,
    /// Its parameters in order of definition.
    pub parameters: Vec<ParameterInfo>,
    /// Its blocks in order of the file; every block feeds others by index.
    pub blocks: Vec<PlannedBlock>,
    /// Its tests.
    pub tests: Vec<TestSpec>,
    /// What looks odd but runs.
    pub warnings: Vec<Diagnostic>,
    /// The whole flowgraph, expanded, as YAML.
    pub resolved_yaml: Arc<str>,
    /// SHA-256 over [`resolved_yaml`](Self::resolved_yaml), in hexadecimal.
    pub config_hash: String,
}

/// Memory of one output port's pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolMemory {
    /// Name of the output port.
    pub port: String,
    /// Buffers in the pool.
    pub frames: usize,
    /// Bytes of each.
    pub frame_bytes: usize,
}

/// Memory of one block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockMemory {
    /// Index into [`Plan::blocks`].
    pub block: usize,
    /// What the block allocates for itself, in bytes.
    pub host_bytes: usize,
    /// Pools of its outputs; outputs that pass frames through have none.
    pub pools: Vec<PoolMemory>,
}

impl BlockMemory {
    /// All of it in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.pools.iter().fold(self.host_bytes, |sum, pool| {
            sum.saturating_add(pool.frames.saturating_mul(pool.frame_bytes))
        })
    }
}

/// Memory of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Block by block, in the plan's order.
    pub blocks: Vec<BlockMemory>,
}

impl Memory {
    /// All of it in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.blocks.iter().fold(0usize, |sum, block| sum.saturating_add(block.bytes()))
    }
}

impl Plan {
    /// Index of the block called `name`.
    #[must_use]
    pub fn block(&self, name: &str) -> Option<usize> {
        self.blocks.iter().position(|block| block.name == name)
    }

    /// Block and output port that a test's tap names: `block`, `block.port`, also inside templates
    /// (`f[0].fft`, `f[0].fft.output`).
    #[allow(clippy::result_large_err, reason = "once per tap")]
    pub fn find(&self, tap: &Tap) -> Result<(usize, usize), Diagnostic> {
        if let Some(block) = self.block(&tap.text) {
            if self.blocks[block].output_names.is_empty() {
                let message = format!("`{}` has no outputs to look at", tap.text);
                return Err(Diagnostic::error(codes::UNKNOWN_PORT, tap.span, message)
                    .label("nothing comes out of this block")
                    .help("tap the block that feeds it"));
            }
            return Ok((block, 0));
        }
        if let Some((name, port)) = tap.text.rsplit_once('.')
            && let Some(block) = self.block(name)
        {
            let names = &self.blocks[block].output_names;
            if let Some(port) = names.iter().position(|known| known == port) {
                return Ok((block, port));
            }
            let known: Vec<&str> = names.iter().map(String::as_str).collect();
            return Err(Diagnostic::error(
                codes::UNKNOWN_PORT,
                tap.span,
                format!("`{name}` has no output `{port}`"),
            )
            .label("no such output")
            .maybe_help(suggest(port, "output", &known)));
        }
        let known: Vec<&str> = self.blocks.iter().map(|block| block.name.as_str()).collect();
        let message = format!("there is no block `{}`", tap.text);
        Err(Diagnostic::error(codes::UNKNOWN_BLOCK, tap.span, message)
            .label("no such block")
            .maybe_help(suggest(&tap.text, "block", &known)))
    }

    /// What is wrong with the taps of a test of this plan.
    #[must_use]
    pub fn check_taps(&self, test: &TestSpec) -> Vec<Diagnostic> {
        let mut problems = Vec::new();
        for expect in &test.expects {
            let found = self.find(&expect.tap);
            let axes: Vec<&str> = match &expect.check {
                Check::Peak { axis, .. } => vec![axis],
                Check::Rms { at, .. } | Check::Mean { at, .. } | Check::Phase { at, .. } => {
                    at.iter().map(|(axis, _)| axis.as_str()).collect()
                }
                Check::SameAs(other) => {
                    problems.extend(self.find(other).err());
                    Vec::new()
                }
                _ => Vec::new(),
            };
            if let Ok((block, port)) = found {
                let port = &self.blocks[block].ports.outputs[port];
                let known: Vec<&str> = port.axes.iter().map(|axis| axis.name).collect();
                for axis in axes.into_iter().filter(|axis| !known.contains(axis)) {
                    let message = format!("`{}` has no axis `{axis}`", expect.tap.text);
                    problems.push(
                        Diagnostic::error(codes::TEST, expect.span, message)
                            .label("no such axis")
                            .maybe_help(suggest(axis, "axis", &known)),
                    );
                }
            }
            problems.extend(found.err());
        }
        problems
    }

    /// Readers of an output: (block, input) of each.
    pub fn readers(&self, block: usize, port: usize) -> impl Iterator<Item = (usize, usize)> {
        self.blocks.iter().enumerate().flat_map(move |(reader, planned)| {
            planned
                .inputs
                .iter()
                .enumerate()
                .filter(move |(_, source)| **source == (block, port))
                .map(move |(input, _)| (reader, input))
        })
    }

    /// What the flowgraph keeps in memory while it runs.
    #[must_use]
    pub fn memory(&self) -> Memory {
        let blocks = self.blocks.iter().enumerate().map(|(index, block)| BlockMemory {
            block: index,
            host_bytes: block.resources.host_bytes,
            pools: block
                .ports
                .outputs
                .iter()
                .enumerate()
                .filter(|(port, _)| self.pool_of(index, *port) == PortPool::Own)
                .map(|(port, kind)| PoolMemory {
                    port: block.output_names[port].clone(),
                    frames: self.pool_frames(index, port),
                    frame_bytes: kind.frame_bytes(),
                })
                .collect(),
        });
        Memory { blocks: blocks.collect() }
    }

    /// Where the frames of an output come from.
    #[must_use]
    pub fn pool_of(&self, block: usize, port: usize) -> PortPool {
        self.blocks[block].resources.pools.get(port).copied().unwrap_or(PortPool::Own)
    }

    /// Buffers that an output's pool must hold so that nobody waits for a frame that only
    /// they could give back.
    #[must_use]
    pub fn pool_frames(&self, block: usize, port: usize) -> usize {
        let fills = self.blocks[block].resources.fills.get(port).copied().unwrap_or(1).max(1);
        fills.saturating_add(self.demand(block, port))
    }

    /// Frames of an output that readers, and readers behind pass-through ports, may have in
    /// flight: those that wait, the one being worked on, and those held.
    fn demand(&self, block: usize, port: usize) -> usize {
        self.readers(block, port).fold(0usize, |sum, (reader, input)| {
            let planned = &self.blocks[reader];
            let holds = planned.resources.holds.get(input).copied().unwrap_or(0);
            let own = planned.queue.saturating_add(1).saturating_add(holds);
            let behind = (0..planned.ports.outputs.len())
                .filter(|out| self.pool_of(reader, *out) == PortPool::PassThrough(input))
                .fold(0usize, |sum, out| sum.saturating_add(self.demand(reader, out)));
            sum.saturating_add(own).saturating_add(behind)
        })
    }
}
