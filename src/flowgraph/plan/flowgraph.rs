//! The plan: a checked flowgraph, ready to build.

use crate::language::expect::{Check, Tap, TestSpec};
use crate::language::hosts::Hosts;
use crate::plan::block::PlannedBlock;
use crate::plan::build_progress::BuildProgress;
use fxgraph_core::access::FileAccess;
use fxgraph_core::diagnostic::{Diagnostic, codes, suggest};
use fxgraph_core::flowgraph_texts::{FlowgraphText, FlowgraphTexts, TextPart};
use fxgraph_core::live_updates::LiveUpdates;
use fxgraph_core::overload::Overloads;
use fxgraph_core::recorders::Recorders;
use fxgraph_cuda::Tuning;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

/// A parameter of the flowgraph with its value.
#[derive(Clone, Debug)]
pub struct ParameterInfo {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: serde_json::Value,
    /// Its description.
    pub doc: Option<String>,
    /// Whether it was set from outside the file, for example by `--set`.
    pub is_set: bool,
}

/// The original text, and the configuration hash of its plan.
#[derive(Clone, Debug)]
pub(crate) struct Written {
    text: Arc<str>,
    config_hash: String,
}

/// A checked flowgraph. Clones share everything that grows with the number of blocks but the list of pointers to them, so
/// that a live update costs what it changes.
#[derive(Clone)]
pub struct Plan {
    /// Its name.
    pub name: String,
    /// Its description.
    pub doc: Option<String>,
    /// Its parameters in order of definition.
    pub parameters: Arc<[ParameterInfo]>,
    /// Its blocks in order of the file, then the transfers; inputs refer to blocks by index.
    pub blocks: Vec<PlannedBlock>,
    /// Hosts that it is divided among, if any.
    pub hosts: Option<Arc<Hosts>>,
    /// Its tests.
    pub tests: Arc<[TestSpec]>,
    /// Warnings.
    pub warnings: Arc<[Diagnostic]>,
    /// SHA-256 over the hashes of the head and of each block of [`resolved_yaml`](Self::resolved_yaml), in hexadecimal.
    pub config_hash: String,
    /// The whole flowgraph, expanded.
    pub(crate) text: FlowgraphText,
    /// `text` as YAML, once it was read.
    pub(crate) printed: Arc<OnceLock<String>>,
    /// The expanded flowgraph without its blocks, once it was printed.
    pub(crate) outline: OnceLock<Outline>,
    pub(crate) written: Option<Written>,
    /// Directory of its file; empty for the working directory.
    pub directory: PathBuf,
    /// Directory for relative paths of files that blocks write; empty for the working directory.
    pub output_directory: PathBuf,
    /// Directory of edited kernel sources, if any.
    pub kernel_directory: Option<PathBuf>,
    /// Launch configurations of kernels that `fxgraph tune` found.
    pub tuning: Arc<Tuning>,
    /// Progress of its build.
    pub build_progress: Arc<BuildProgress>,
    /// Texts of this flowgraph by `config_id`, with the values in force and scheduled ones.
    pub texts: FlowgraphTexts,
    /// Recorders of this flowgraph while it runs.
    pub recorders: Recorders,
    /// Intervals that its live sources drop when it does not keep up.
    pub overloads: Overloads,
    /// Live updates that its blocks request while it runs.
    pub updates: LiveUpdates,
    /// Files that updates of it may name.
    #[doc(hidden)]
    pub access: FileAccess,
    /// Files that were included.
    pub(crate) included: Arc<[PathBuf]>,
    /// Names of the files of arrays.
    pub(crate) array_files: Arc<[String]>,
}

/// The first 64 bits of a configuration hash.
pub(crate) fn config_id(config_hash: &str) -> u64 {
    let start = config_hash.get(..16).unwrap_or_default();
    u64::from_str_radix(start, 16).unwrap_or_default()
}

/// Text of a plan without its blocks: the head and the edges, which live updates and swaps of blocks do not change.
#[derive(Clone, Debug)]
pub(crate) struct Outline {
    pub part: TextPart,
    pub hashes: [[u8; 32]; 2],
}

impl Plan {
    /// `config_id` of frame headers: the first 64 bits of the configuration hash.
    #[must_use]
    pub fn config_id(&self) -> u64 {
        config_id(&self.config_hash)
    }

    /// The whole flowgraph with its hash, cheap to clone.
    #[must_use]
    pub fn flowgraph_text(&self) -> &FlowgraphText {
        &self.text
    }

    /// Index of the block `name`.
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
                let message = format!("`{}` has no outputs", tap.text);
                return Err(Diagnostic::error(codes::UNKNOWN_PORT, tap.span, message)
                    .label("not a source of data")
                    .help("name the block that feeds it"));
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

    /// Diagnostics for the ports and axes in the expectations of a test of this plan.
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

    /// Output that feeds input `input` of `block`, behind any copies between devices: block and port.
    #[must_use]
    pub fn source(&self, block: &PlannedBlock, input: usize) -> (usize, usize) {
        let (mut source, mut port) = block.inputs[input];
        while self.blocks[source].is_transfer() {
            (source, port) = self.blocks[source].inputs[0];
        }
        (source, port)
    }

    /// Full name of an output: `f[0].pfb.output`.
    #[must_use]
    pub fn output_name(&self, block: usize, port: usize) -> String {
        let block = &self.blocks[block];
        format!("{}.{}", block.name, block.output_names[port])
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

    /// Index of every block by its name, for many look-ups.
    #[must_use]
    pub fn by_name(&self) -> HashMap<&str, usize> {
        self.blocks.iter().map(|block| block.name.as_str()).zip(0..).collect()
    }

    /// Stores `text` as the original text of this plan.
    pub(crate) fn is_written(&mut self, text: &str) {
        let (text, config_hash) = (Arc::from(text), self.config_hash.clone());
        self.written = Some(Written { text, config_hash });
    }

    /// The original text with comments, if it still describes the plan: no parameter was set from outside, and no
    /// change since then is in effect.
    #[must_use]
    pub fn written_yaml(&self) -> Option<&str> {
        let written = self.written.as_ref()?;
        (written.config_hash == self.config_hash).then_some(&*written.text)
    }

    /// For each block: whether it is in a side branch, which gets the frames that the queue at its beginning does not drop.
    /// The flowgraph neither waits for such a block nor needs it to keep up.
    #[must_use]
    pub fn side_branches(&self) -> Vec<bool> {
        let mut waiting: Vec<Vec<usize>> = vec![Vec::new(); self.blocks.len()];
        for (reader, block) in self.blocks.iter().enumerate() {
            let inputs = block.inputs.iter().zip(&block.when_full);
            inputs
                .filter(|(_, action)| !action.drops())
                .for_each(|((writer, _), _)| waiting[*writer].push(reader));
        }
        let mut is_aside = vec![true; self.blocks.len()];
        let sources = self.blocks.iter().enumerate().filter(|(_, block)| block.inputs.is_empty());
        let mut next: Vec<usize> = sources.map(|(index, _)| index).collect();
        while let Some(block) = next.pop() {
            if std::mem::replace(&mut is_aside[block], false) {
                next.extend(&waiting[block]);
            }
        }
        is_aside
    }
}
