//! A VLBI recording of a tied-array beam against baseband.

use super::{example, fxgraph, needs, script};

#[test]
fn tones_of_a_beam_are_continuous_and_on_time_in_its_vdif_file() {
    if !needs::formats() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let flowgraph = example("15_vlbi.yaml");
    let arguments = ["run", "--quiet", flowgraph.to_str().unwrap(), "--set", "path=beam.vdif"];
    let output = fxgraph(directory.path(), &arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // Sync time, lower edge of the band, and tones.
    let said = script(
        directory.path(),
        "vlbi.py",
        &["beam.vdif", "1790000000", "488000", "535000", "508250"],
    );
    assert!(said.contains("tones are continuous"), "{said}");
}
