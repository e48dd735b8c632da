//! From this crate's kernels to the framework's programs.

use fxgraph::cuda::{CudaError, Device, IN_FLIGHT, Program, Source};
use fxgraph_kernels::{HEADERS, Needs};
use std::sync::Arc;

/// The kernels of the file `name`, compiled for `device` with `defines` as macros.
pub fn program(
    device: &Arc<Device>,
    name: &'static str,
    defines: Vec<(&'static str, String)>,
) -> Result<Arc<Program>, CudaError> {
    let program = fxgraph_kernels::program(name).ok_or_else(|| CudaError::Compile {
        name: name.to_owned(),
        log: "there is no such source".to_owned(),
    })?;
    let (major, minor) = device.properties().capability;
    let fits = match program.needs {
        Needs::Ampere => major >= 8,
        Needs::Hopper => (major, minor) == (9, 0),
    };
    if !fits {
        let needed = match program.needs {
            Needs::Ampere => "8.0 or later",
            Needs::Hopper => "9.0",
        };
        return Err(CudaError::Capability { name, needed, found: format!("{major}.{minor}") });
    }
    let source = |source: &fxgraph_kernels::Source| Source {
        name: source.name.to_owned(),
        text: source.text.to_owned(),
    };
    Program::new(device, source(&program.source), HEADERS.iter().map(source).collect(), defines)
}

/// One of something for each slot of a lane.
pub fn for_each_slot<T>(make: impl Fn() -> Result<T, CudaError>) -> Result<Vec<T>, CudaError> {
    (0..IN_FLIGHT).map(|_| make()).collect()
}
