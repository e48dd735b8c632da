//! Flowgraphs in which a kind shows what it does: its examples, the cases that compare its implementations, and
//! those that measure it.
//!
//! A case is a flowgraph in which the block stands twice, behind the same inputs: as `cpu` and, in
//! another implementation, as `gpu`. `fxgraph conformance` compares the two outputs frame by frame:
//! timestamps and validity exactly, payload and annotations within the case's [`Tolerance`].

use crate::device::DeviceName;
use serde_json::Value;
use std::fmt;

/// How far values may be apart.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// Of real or imaginary part.
    pub largest: f64,
    /// Root mean square of all differences over that of the definition's values; infinite where
    /// it says nothing.
    pub relative_rms: f64,
    /// Share of the values that may differ at all.
    pub share: f64,
    /// Of annotations: relative to the definition's value.
    pub annotations: f64,
}

impl Tolerance {
    /// Integers that are the same.
    pub const EXACT: Self = Self { largest: 0.0, relative_rms: 0.0, share: 0.0, annotations: 0.0 };

    /// Quantised values: one off, for one value in a thousand. Their saturation counts, which
    /// hang on the same rounding, may be off by as much.
    pub const QUANTISED: Self =
        Self { largest: 1.0, relative_rms: f64::INFINITY, share: 1e-3, annotations: 1e-3 };

    /// Single-precision values with this relative rms error; the largest is not bound.
    #[must_use]
    pub const fn floating(relative_rms: f64) -> Self {
        Self { largest: f64::INFINITY, relative_rms, share: 1.0, annotations: 0.0 }
    }
}

/// A flowgraph in which a form of a kind stands beside the definition.
#[derive(Clone, Debug)]
pub struct Case {
    /// The kind.
    pub kind: &'static str,
    /// The form that is held to the definition.
    pub implementation: &'static str,
    /// What is special about the case, in a few words.
    pub name: String,
    /// The text of the flowgraph.
    pub flowgraph: String,
    /// Live parameters that both go over to, with the timestamps at which they do.
    pub changes: Vec<(u64, Value)>,
    /// How far the two may be apart.
    pub tolerance: Tolerance,
}

impl Case {
    /// The case of `kind` with these `parameters`, fed by `inputs` (references as in a flowgraph)
    /// to blocks in `upstream`: entries of `blocks:`, each on lines of its own, not indented.
    /// `device` is where the form runs.
    #[must_use]
    pub fn new(
        (kind, implementation): (&'static str, &'static str),
        name: impl Into<String>,
        parameters: &Value,
        (upstream, inputs): (&str, &[&str]),
        tolerance: Tolerance,
        device: DeviceName,
    ) -> Self {
        let upstream: Vec<String> =
            upstream.trim().lines().map(|line| format!("  {line}")).collect();
        let upstream = upstream.join("\n");
        let inputs = inputs.join(", ");
        let flowgraph = format!(
            "flowgraph: conformance\nblocks:\n{upstream}\n\
             \x20 cpu: {{kind: {kind}, inputs: [{inputs}], parameters: {parameters}}}\n\
             \x20 gpu: {{kind: {kind}, inputs: [{inputs}], parameters: {parameters}, \
             device: \"{device}\", implementation: {implementation}}}\n"
        );
        Self { kind, implementation, name: name.into(), flowgraph, changes: Vec::new(), tolerance }
    }

    /// The same case, in which both blocks go over to these live `parameters` at timestamp `at`.
    #[must_use]
    pub fn change(mut self, at: u64, parameters: Value) -> Self {
        self.changes.push((at, parameters));
        self
    }
}

/// A flowgraph to measure.
#[derive(Clone, Debug)]
pub struct Benchmark {
    /// What it is, in a few words: kind or kinds, form, parameters that count.
    pub name: String,
    /// The text of the flowgraph. Its sources go on for ever.
    pub flowgraph: String,
    /// The blocks to measure, in the order in which frames pass them.
    pub blocks: &'static [&'static str],
}

/// A kind's example, for one of its implementations.
#[derive(Clone, Debug)]
pub struct Example {
    /// The kind.
    pub kind: &'static str,
    /// The implementation.
    pub implementation: &'static str,
    /// Which of the kind's examples, from 0.
    pub number: usize,
    /// The text of the flowgraph. The block that shows the kind is called `block`.
    pub flowgraph: String,
}

impl Example {
    /// The example `text` of `kind`, with `implementation` on `device`.
    #[must_use]
    pub fn new(
        (kind, number, text): (&'static str, usize, &str),
        implementation: &'static str,
        device: DeviceName,
    ) -> Self {
        let text = text
            .replacen(
                "\n  block: {",
                &format!("\n  block: {{implementation: {implementation}, "),
                1,
            )
            .replacen(
                "\n  block:\n",
                &format!("\n  block:\n    implementation: {implementation}\n"),
                1,
            );
        let flowgraph = format!("device: \"{device}\"\n{text}");
        Self { kind, implementation, number, flowgraph }
    }
}

/// Whether the example `text` is one for CPUs only: its block says so.
#[must_use]
pub(crate) fn is_for_cpus(text: &str) -> bool {
    let (_, block) = text.split_once("\n  block:").unwrap_or_default();
    // Entries of the block are further to the right than the next block.
    let lines = block.lines().enumerate();
    let mut of_block = lines.take_while(|(n, line)| *n == 0 || line.starts_with("   "));
    of_block.any(|(_, line)| line.contains("device: cpu"))
}

impl fmt::Display for Example {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}, example {}", self.kind, self.implementation, self.number + 1)
    }
}
