//! Flowgraphs of a kind: its examples, cases that compare its implementations, and benchmarks.
//!
//! A case is a flowgraph with two blocks of the kind on the same inputs: `cpu`, with the reference implementation, and
//! `gpu`, with another one. `fxgraph conformance` compares their outputs frame by frame:
//! timestamps and validity exactly, payload and annotations within the [`Tolerance`] of the case.

use crate::device::DeviceName;
use serde_json::Value;
use std::fmt;

/// Differences allowed between an implementation and the reference.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// Largest difference of a real or imaginary part.
    pub largest: f64,
    /// Root mean square of all differences divided by that of the reference values; infinite for no
    /// limit.
    pub relative_rms: f64,
    /// Fraction of the values that may differ.
    pub share: f64,
    /// Relative difference of the values of each named annotation; those of others must be equal.
    pub annotations: &'static [(&'static str, f64)],
}

impl Tolerance {
    /// Bit-identical values, for integers.
    pub const EXACT: Self = Self { largest: 0.0, relative_rms: 0.0, share: 0.0, annotations: &[] };

    /// Quantised values: a difference of 1 for one value in a thousand. Saturation counts and the output power, which
    /// depend on the same rounding, may differ by one in a thousand.
    pub const QUANTISED: Self = Self {
        largest: 1.0,
        relative_rms: f64::INFINITY,
        share: 1e-3,
        annotations: &[("saturated", 1e-3), ("output_power", 1e-3)],
    };

    /// Relative difference that the values of the annotation `name` may have.
    #[must_use]
    pub fn of_annotation(&self, name: &str) -> f64 {
        self.annotations.iter().find(|(key, _)| *key == name).map_or(0.0, |(_, most)| *most)
    }

    /// Single-precision values with this relative RMS error; the largest difference is not limited.
    #[must_use]
    pub const fn floating(relative_rms: f64) -> Self {
        Self { largest: f64::INFINITY, relative_rms, share: 1.0, annotations: &[] }
    }
}

/// A flowgraph that compares an implementation of a kind with the reference.
#[derive(Clone, Debug)]
pub struct Case {
    /// The kind.
    pub kind: &'static str,
    /// The implementation that is compared with the reference.
    pub implementation: &'static str,
    /// Short description of the case.
    pub name: String,
    /// YAML text of the flowgraph.
    pub flowgraph: String,
    /// Live updates of both blocks: effective timestamp and parameters.
    pub changes: Vec<(u64, Value)>,
    /// Differences allowed.
    pub tolerance: Tolerance,
}

impl Case {
    /// The case of `kind` with these `parameters`. `upstream` are entries of `blocks:`, each on lines of its own,
    /// not indented; `inputs` are references to them. The implementation runs on `device`.
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

    /// Adds a live update of both blocks with the effective timestamp `at`.
    #[must_use]
    pub fn change(mut self, at: u64, parameters: Value) -> Self {
        self.changes.push((at, parameters));
        self
    }
}

/// A flowgraph for a benchmark.
#[derive(Clone, Debug)]
pub struct Benchmark {
    /// Short description: kinds, implementation, important parameters.
    pub name: String,
    /// YAML text of the flowgraph. Its sources never end.
    pub flowgraph: String,
    /// Names of the blocks to measure, upstream first.
    pub blocks: &'static [&'static str],
}

/// An example of a kind, with one of its implementations.
#[derive(Clone, Debug)]
pub struct Example {
    /// The kind.
    pub kind: &'static str,
    /// The implementation.
    pub implementation: &'static str,
    /// Number of the example among those of the kind, from 0.
    pub number: usize,
    /// YAML text of the flowgraph. The block of the kind is called `block`.
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

/// Whether the example `text` is for the CPU only: its block has `device: cpu`.
#[must_use]
pub(crate) fn is_for_cpus(text: &str) -> bool {
    let (_, block) = text.split_once("\n  block:").unwrap_or_default();
    // Entries of the block are indented more than the next block.
    let lines = block.lines().enumerate();
    let mut of_block = lines.take_while(|(n, line)| *n == 0 || line.starts_with("   "));
    of_block.any(|(_, line)| line.contains("device: cpu"))
}

impl fmt::Display for Example {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}, example {}", self.kind, self.implementation, self.number + 1)
    }
}
