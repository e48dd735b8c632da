//! Cases whose input is on another GPU of the host.

use fxgraph::DeviceName;
use fxgraph::examples::{Case, Tolerance};
use serde_json::json;

/// (samples of a frame, units of its validity of which every seventh is missing). Two polarisations.
const FRAMES: &[(usize, usize)] = &[(1, 1), (4099, 2), (1 << 14, 64)];

/// Returns the cases: blocks on the CPU and on `device` read the same frames of a block on `other`. One reads a copy
/// through the host, the other a copy between the GPUs.
pub fn cases(device: DeviceName, other: DeviceName) -> Vec<Case> {
    let case = |&(samples, units): &(usize, usize)| {
        let source = json!({
            "dtype": "ci16",
            "axes": [{"name": "heap", "len": units}, {"name": "pol", "len": 2}, {"name": "sample", "len": samples}],
            "validity_axes": [{"name": "heap", "len": units}], "missing_every": 7,
            "samples_per_frame": units * samples, "frames": 40, "pattern": "random",
        });
        let upstream = format!(
            "source: {{kind: null_source, parameters: {source}}}\n\
             other: {{kind: convert, input: source, device: \"{other}\", parameters: {{dtype: cf32, scale: 0.5}}}}"
        );
        Case::new(
            ("convert", "cuda"),
            format!("{units} x 2 x {samples} elements from another GPU"),
            &json!({"dtype": "ci32", "scale": 2.0}),
            (&upstream, &["other"]),
            Tolerance::EXACT,
            device,
        )
    };
    FRAMES.iter().map(case).collect()
}
