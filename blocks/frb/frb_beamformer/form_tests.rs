//! What the forms for a GPU take, and what they refuse.

use super::tests::{Array, SMALL};
use super::*;
use crate::tests::chain::connected;
use serde_json::{Value, json};

#[test]
fn the_forms_for_a_gpu_take_the_flowgraphs_that_hold_them_and_measure_them() {
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
fn what_a_form_for_a_gpu_is_not_made_for_is_refused() {
    let refused = |parameters: Value, form: &str, array: Array| {
        let block = connected("frb_beamformer", form, &parameters, &[array.port()]).unwrap();
        let refusals = block.check(None);
        refusals.iter().map(|refusal| refusal.message.clone()).collect::<Vec<_>>().join("; ")
    };
    let large = Array { feeds: 256, units: [1, 1], spectra: 48, ..SMALL };
    let stages =
        json!({"north_south": {"points": 512}, "clamp": {"beams": 100}, "upchannelise": 16});
    assert_eq!(
        refused(stages, "tensor_core", large),
        "`tensor_core` keeps no 100 beams; `tensor_core` does not do these stages together"
    );
    assert_eq!(
        refused(json!({"north_south": {"points": 300}}), "tensor_core", large),
        "`tensor_core` transforms feeds to 512 points"
    );
    assert_eq!(
        refused(json!({}), "tensor_core", SMALL),
        "`tensor_core` transforms 256 feeds, not 12"
    );
    assert_eq!(
        refused(json!({"north_south": {"points": 300}, "upchannelise": 48}), "fp32", large),
        "`fp32` makes no transform of 300 points; `fp32` makes no 48 channels of one"
    );
    let long = Array { spectra: 65_536, units: [1, 1], ..SMALL };
    assert_eq!(
        refused(json!({"integrate": {}}), "fp32", long),
        "`fp32` makes no 65536 spectra of 2 channels at once"
    );
    assert_eq!(refused(json!({"integrate": {"spectra": 2}}), "fp32", long), "");
}
