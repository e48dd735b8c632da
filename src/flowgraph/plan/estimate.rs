//! Estimates of the CPU and GPU time of blocks, from measurements on a machine.

use crate::plan::block::PlannedBlock;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

/// Load of a block, measured while it ran.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MeasuredLoad {
    /// Name of its kind.
    pub kind: String,
    /// Name of its implementation.
    pub implementation: String,
    /// Its parameters, as given.
    pub parameters: Json,
    /// Its work.
    #[serde(flatten)]
    pub work: Work,
    /// The time that this took.
    #[serde(flatten)]
    pub load: Load,
}

/// Work of a block.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Work {
    /// Useful operations per second of signal; 0 if its kind does not count them.
    pub operations_per_second: f64,
    /// Payload of its inputs and outputs in bytes per second of signal.
    pub bytes_per_second: f64,
    /// Frames of all inputs and outputs per second of signal.
    pub frames_per_second: f64,
}

/// Time of a block per second of signal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// CPU time of all its threads: the number of cores that it keeps busy.
    pub cores: f64,
    /// CPU time of its busiest thread. A block with more than 1 is slower than real time.
    pub busiest_thread: f64,
    /// Fraction of its GPU; 0 on the CPU.
    pub gpu: f64,
}

/// Expected load of a block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The load.
    pub load: Load,
    /// Whether a block with the same parameters and the same work was measured. Otherwise the load of the most similar one
    /// is multiplied by the ratio of the work.
    pub is_measured: bool,
}

impl MeasuredLoad {
    /// Whether all figures are finite and not negative. Those of a file may be anything.
    #[must_use]
    pub fn is_possible(&self) -> bool {
        let Work { operations_per_second, bytes_per_second, frames_per_second } = self.work;
        let Load { cores, busiest_thread, gpu } = self.load;
        let figures = [
            operations_per_second,
            bytes_per_second,
            frames_per_second,
            cores,
            busiest_thread,
            gpu,
        ];
        figures.iter().all(|figure| figure.is_finite() && *figure >= 0.0)
    }
}

impl Work {
    /// Work of `block`.
    #[must_use]
    pub fn of(block: &PlannedBlock) -> Self {
        let ports = || block.ports.inputs.iter().chain(&block.ports.outputs);
        let first = block.ports.outputs.first().or(block.ports.inputs.first());
        let frames = first.map_or(0.0, |port| port.clock.frames_per_second());
        Self {
            operations_per_second: block.resources.operations_per_frame * frames,
            bytes_per_second: ports().map(fxgraph_core::port::PortType::bytes_per_second).sum(),
            frames_per_second: ports().map(|port| port.clock.frames_per_second()).sum(),
        }
    }

    /// Number of times that this is as much as `other`.
    fn ratio(&self, other: &Self) -> f64 {
        if self.operations_per_second > 0.0 && other.operations_per_second > 0.0 {
            self.operations_per_second / other.operations_per_second
        } else {
            self.bytes_per_second / other.bytes_per_second
        }
    }

    /// Difference of two kinds of work that does not depend on how fast samples come: operations per byte, bytes per frame.
    fn difference(&self, other: &Self) -> f64 {
        let intensity = |work: &Self| work.operations_per_second / work.bytes_per_second;
        let size = |work: &Self| work.bytes_per_second / work.frames_per_second;
        factor(intensity(self), intensity(other)) + factor(size(self), size(other))
    }
}

/// Logarithm of the factor between two numbers; 0 if one of them is not above 0.
fn factor(a: f64, b: f64) -> f64 {
    if a > 0.0 && b > 0.0 { (a / b).ln().abs() } else { 0.0 }
}

/// Difference of parameters: factors of numbers, and 1 for every other value that differs.
fn difference(a: &Json, b: &Json) -> f64 {
    let (Some(first), Some(second)) = (a.as_object(), b.as_object()) else {
        return f64::from(u8::from(a != b));
    };
    let keys = first.keys().chain(second.keys().filter(|key| !first.contains_key(*key)));
    let of_key = |key: &String| match (first.get(key), second.get(key)) {
        (Some(Json::Number(a)), Some(Json::Number(b))) => match (a.as_f64(), b.as_f64()) {
            (Some(a), Some(b)) if a > 0.0 && b > 0.0 => factor(a, b),
            (a, b) => f64::from(u8::from(a != b)),
        },
        (a, b) => f64::from(u8::from(a != b)),
    };
    keys.map(of_key).sum()
}

/// Expected load of `block` on the machine of `measured`; `None` if no block of its kind and implementation was measured
/// there.
#[must_use]
pub fn estimate(block: &PlannedBlock, measured: &[MeasuredLoad]) -> Option<Estimate> {
    let work = Work::of(block);
    let distance = |row: &MeasuredLoad| {
        difference(&block.parameters, &row.parameters) + work.difference(&row.work)
    };
    let alike = measured
        .iter()
        .filter(|row| row.kind == block.kind && row.implementation == block.implementation)
        .filter(|row| work.ratio(&row.work).is_finite());
    let alike: Vec<(f64, &MeasuredLoad)> = alike.map(|row| (distance(row), row)).collect();
    let nearest = alike.iter().map(|(distance, _)| *distance).min_by(f64::total_cmp)?;
    // Equal blocks of an array are measured one by one.
    let chosen: Vec<&MeasuredLoad> =
        alike.iter().filter(|(distance, _)| *distance <= nearest).map(|(_, row)| *row).collect();
    let mean = |of: fn(&Load) -> f64| {
        let loads = chosen.iter().map(|row| of(&row.load) * work.ratio(&row.work));
        loads.sum::<f64>() / chosen.len() as f64
    };
    let load = Load {
        cores: mean(|load| load.cores),
        busiest_thread: mean(|load| load.busiest_thread),
        gpu: mean(|load| load.gpu),
    };
    let is_same = chosen.iter().all(|row| (work.ratio(&row.work) - 1.0).abs() < 1e-9);
    Some(Estimate { load, is_measured: nearest < 1e-9 && is_same })
}
