//! Stages that the GPU implementations accept and reject.

use super::tests::{Array, SMALL};
use super::*;
use crate::tests::chain::connected;
use serde_json::{Value, json};

#[test]
fn gpu_implementations_accept_conformance_and_benchmark_flowgraphs() {
    let gpu = DeviceName::Cuda(0);
    let registry = crate::kinds();
    let cases = conformance::cases(gpu).into_iter().map(|case| (case.name, case.flowgraph));
    let benchmarks = bench::benchmarks(gpu).into_iter();
    let benchmarks = benchmarks.map(|benchmark| (benchmark.name, benchmark.flowgraph));
    let mut taken = 0;
    for (name, text) in cases.chain(benchmarks) {
        let loaded = fxgraph::flowgraph::load_text("case.yaml", &text, &[], &registry);
        let problems = loaded.result.err().unwrap_or_default();
        let messages: Vec<_> = problems.iter().map(|problem| problem.message.as_str()).collect();
        assert!(messages.is_empty(), "{name}: {}", messages.join("; "));
        taken += 1;
    }
    assert_eq!(taken, 3 * (9 + 4 + 4) + 3 + 9);
}

#[test]
fn gpu_implementations_reject_unsupported_stages() {
    let rejected = |parameters: Value, implementation: &str, array: Array| {
        let block =
            connected("frb_beamformer", implementation, &parameters, &[array.port()]).unwrap();
        let rejections = block.check(None);
        rejections.iter().map(|rejection| rejection.message.clone()).collect::<Vec<_>>().join("; ")
    };
    let large = Array { feeds: 256, units: [1, 1], spectra: 48, ..SMALL };
    let stages =
        json!({"north_south": {"points": 512}, "clamp": {"beams": 100}, "upchannelise": 16});
    assert_eq!(
        rejected(stages, "tensor_core", large),
        "`tensor_core` needs a multiple of 64 as `clamp.beams`, got 100; \
         `tensor_core` does not support this combination of stages"
    );
    assert_eq!(
        rejected(json!({"north_south": {"points": 300}}), "tensor_core", large),
        "`tensor_core` needs a transform of 512 points"
    );
    assert_eq!(
        rejected(json!({}), "tensor_core", SMALL),
        "`tensor_core` needs 256 feeds per cylinder, got 12"
    );
    assert_eq!(
        rejected(json!({"north_south": {"points": 300}, "upchannelise": 48}), "fp32", large),
        "`fp32` needs a power of two up to 4096 as points, got 300; \
         `fp32` needs a power of two up to 128 as `upchannelise`, got 48"
    );
    let long = Array { spectra: 65_536, units: [1, 1], ..SMALL };
    assert_eq!(
        rejected(json!({"integrate": {}}), "fp32", long),
        "`fp32` supports up to 65535 output spectra and channels of a frame, got 65536 and 2"
    );
    assert_eq!(rejected(json!({"integrate": {"spectra": 2}}), "fp32", long), "");
}
