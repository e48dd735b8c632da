//! Files of real observations that baseband ships: DADA of Effelsberg and EDD, PUPPI, VDIF of EVN, CHIME, MWA and others.

use super::{fxgraph, needs, script};

/// Sources of the files, and the name of each in `samples.py`.
const SOURCES: [(&str, &str); 8] = [
    ("effelsberg", "dada_source, parameters: {path: sample.dada"),
    ("edd", "dada_source, parameters: {path: sample_meerkat.dada"),
    ("puppi", "guppi_source, parameters: {path: sample_puppi.raw"),
    ("evn", "vdif_source, parameters: {path: sample.vdif, dtype: i8"),
    ("chime", "vdif_source, parameters: {path: sample_arochime.vdif, sample_rate_hz: 390625"),
    (
        "bps1",
        "vdif_source, parameters: {path: sample_bps1.vdif, dtype: i8, sample_rate_hz: 32.0e+6",
    ),
    (
        "mwa",
        "vdif_source, parameters: {path: sample_mwa.vdif, dtype: i8, sample_rate_hz: 1.28e+6, encoding: twos_complement",
    ),
    ("cut", "vdif_source, parameters: {path: cut.vdif, dtype: i8"),
];

#[test]
fn real_files_are_played_as_baseband_reads_them() {
    if !needs::formats() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    script(directory.path(), "samples.py", &["copy"]);
    let mut yaml = "flowgraph: samples\nblocks:\n".to_owned();
    for (name, source) in SOURCES {
        yaml += &format!("  {name}: {{kind: {source}}}}}\n");
        yaml += &format!(
            "  {name}_out: {{kind: file_sink, input: {name}, parameters: {{path: {name}.npy}}}}\n"
        );
    }
    std::fs::write(directory.path().join("samples.yaml"), &yaml).unwrap();
    let output = fxgraph(directory.path(), &["run", "samples.yaml"]);
    let said = String::from_utf8_lossy(&output.stderr) + String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    // The header of the PUPPI sample was changed by hand.
    assert!(said.contains("a channel has 0.00025 MHz by OBSBW and 3.125 MHz by CHAN_BW"), "{said}");
    let said = script(directory.path(), "samples.py", &["compare"]);
    assert!(said.contains("all equal"), "{said}");
    // The samples of the MWA are in two's complement, which the header cannot say.
    let yaml = yaml.replace(", encoding: twos_complement", "");
    std::fs::write(directory.path().join("samples.yaml"), yaml).unwrap();
    let output = fxgraph(directory.path(), &["validate", "samples.yaml"]);
    let said = String::from_utf8_lossy(&output.stderr) + String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    assert_eq!(said.matches("set `encoding: twos_complement`").count(), 1, "{said}");
}
