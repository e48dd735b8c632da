//! Values that cannot be right, or that become others, are named before the start.

use super::{run, stderr, stdout};
use serde_json::Value;

/// A tone above half of the sample rate, a rate in MHz instead of Hz, and dumps shorter than a heap.
const IMPLAUSIBLE: &str = "flowgraph: implausible
blocks:
  d:
    kind: digitiser_simulator
    replicate: 2
    parameters:
      antenna: '${index}'
      adc_sample_rate_hz: 1712000
      signals: cw(0.1, 1200000) + wgn(0.1)
      frames: 9
      samples_per_frame: 131072
  f: {kind: f_engine, replicate: 2, inputs: ['d[${index}].pol0', 'd[${index}].pol1'], parameters: {channels: 256}}
  array: {kind: antenna_stack, inputs: ['f[*]']}
  x: {kind: correlator, input: array, parameters: {dump_seconds: 0.01}}
  e: {kind: null_sink, input: x}
  slow:
    kind: digitiser_simulator
    parameters: {adc_sample_rate_hz: 1712, signals: wgn(0.1), frames: 1, samples_per_frame: 4096}
  ends: {kind: null_sink, inputs: [slow.pol0, slow.pol1]}
";

#[test]
fn implausible_values_are_warned_of_and_shown_in_the_plan() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("implausible.yaml"), IMPLAUSIBLE).unwrap();
    let validated = run(&["validate", "implausible.yaml"], directory.path());
    let said = stderr(&validated);
    assert!(validated.status.success(), "{said}");
    // 256 spectra of 512 samples are 76.6 ms; a tone at 1.2 MHz appears at 1.712 - 1.2 MHz.
    for warning in [
        "warning[E0307]: a tone of 1200000 Hz is above half of the sample rate of 1712000 Hz and appears at 512000 Hz",
        "warning[E0307]: `dump_seconds` of 0.01 s is rounded to 0.07656 s",
        "warning[E0307]: `adc_sample_rate_hz` is 1712 Hz, which is slow for a digitiser",
    ] {
        assert!(said.contains(warning), "{warning}\n{said}");
    }
    let plan = stdout(&run(&["plan", "implausible.yaml"], directory.path()));
    let row = plan.lines().find(|line| line.starts_with("x ") && line.contains("dump_seconds"));
    let cells: Vec<&str> = row.unwrap_or_else(|| panic!("{plan}")).split_whitespace().collect();
    assert_eq!(cells, ["x", "dump_seconds", "0.01", "0.07656", "s"]);
    let plan = stdout(&run(&["plan", "implausible.yaml", "--json"], directory.path()));
    let plan: Value = serde_json::from_str(&plan).unwrap();
    let blocks = plan["blocks"].as_array().unwrap();
    let correlator = blocks.iter().find(|block| block["name"] == "x").unwrap();
    let used = correlator["rounded"][0]["used"].as_f64().unwrap();
    assert!((used - 131_072.0 / 1_712_000.0).abs() < 1e-9, "{used}");
}
