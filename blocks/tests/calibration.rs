//! Calibration of a simulated array with an antenna without a signal, through all blocks.

use crate::kinds;
use fxgraph::Control;
use fxgraph::flowgraph::{SetTo, Setting, load_in};
use fxgraph::runtime::{Options, Prepared};
use std::path::Path;
use std::time::Duration;

#[test]
fn antenna_without_signal_is_flagged_and_the_others_are_calibrated() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../flowgraphs");
    let text = std::fs::read_to_string(directory.join("16_calibration.yaml")).unwrap();
    // Without the check of all antennas, the file and the tests.
    let text = text.split("\n  fringes:").next().unwrap().replace(
        "loop_gain: \"${loop_gain}\"",
        "loop_gain: \"${loop_gain}\"\n      flag_antennas_in: array\n      silent_solutions: 2",
    );
    let text = format!("{text}\n  end: {{kind: null_sink, input: calibrate}}\n");
    let set = [("amplitudes", "[1, 0.8, 1.25, 0, 1.1]"), ("channels", "16"), ("dumps", "24")];
    let set = set.map(|(name, value)| Setting {
        name: name.to_owned(),
        value: SetTo::Typed(value.to_owned()),
    });
    let name = directory.join("test.yaml");
    let plan = load_in(&directory, &name, &text, &set, &kinds()).result.unwrap();
    let prepared = Prepared::new(plan.build().unwrap()).unwrap();
    let control = Control::new(plan, kinds(), prepared.handle());
    let running = prepared.start(Options::default()).unwrap();
    assert!(control.wait_timeout(Duration::from_mins(5)));
    // The run fails if the last solution has errors of 0.5 degrees or 1 %.
    let failures = running.wait().failures;
    assert!(failures.is_empty(), "{failures:?}");
    let plan = control.plan();
    let value = |block: &str, parameter: &str| {
        plan.blocks[plan.block(block).unwrap()].parameters[parameter].clone()
    };
    assert_eq!(value("array", "flagged_antennas"), serde_json::json!([3]));
    let gains = (0..5).map(|n| value(&format!("antenna[{n}].f.postproc"), "gains").to_string());
    let gains: Vec<String> = gains.collect();
    // The gain from the file, and gains that the solver has set.
    assert!(!gains[3].contains("re") && gains[1].contains("re"), "{gains:?}");
}
