//! Files that `fxgraph deploy` writes.
#![allow(clippy::unwrap_used, missing_docs)]

#[path = "support/needs.rs"]
mod needs;
#[path = "support/python.rs"]
#[allow(dead_code, reason = "no test here needs packages of Python")]
mod python;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// 64 antennas on 16 hosts, and 16 further hosts that each correlate 64 of the 1024 channels.
const ARRAY: &str = "flowgraph: array
hosts: {f_host: {count: 16, interface: lo}, x_host: {count: 16, interface: lo, spares: 1}}
network: {multicast: 239.212.0.0/16, port: 7148}
blocks:
  digitiser:
    kind: digitiser_simulator
    replicate: 64
    host: 'f_host[${index // 4}]'
    parameters: {signals: wgn(0.1), seed: '${index}'}
  f:
    kind: f_engine
    replicate: 64
    host: 'f_host[${index // 4}]'
    inputs: ['digitiser[${index}].pol0', 'digitiser[${index}].pol1']
    parameters: {channels: 1024, dither_seed: '${index}'}
  array:
    kind: antenna_stack
    replicate: 16
    host: 'x_host[${index}]'
    inputs: ['f[*]']
    parameters: {first_channel: '${index * 64}', channels: 64}
  x:
    kind: correlator
    replicate: 16
    host: 'x_host[${index}]'
    input: 'array[${index}]'
    parameters: {spectra_per_dump: 1024}
  visibilities: {kind: null_sink, replicate: 16, host: 'x_host[${index}]', input: 'x[${index}]'}
";

fn fxgraph(arguments: &[&str], folder: &Path) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_fxgraph"))
        .args(arguments)
        .current_dir(folder)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output
}

#[test]
fn array_of_64_antennas_is_planned_and_deployed_on_32_hosts() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("array.yaml"), ARRAY).unwrap();
    fxgraph(&["validate", "array.yaml"], folder.path());
    let plan = fxgraph(&["plan", "array.yaml"], folder.path());
    let plan = String::from_utf8_lossy(&plan.stdout).into_owned();
    let groups = plan.lines().filter(|line| line.starts_with("239.212.0.")).count();
    assert_eq!(groups, 64, "each F-engine has one group\n{plan}");

    for engine in ["slurm", "systemd"] {
        fxgraph(&["deploy", "array.yaml", "--engine", engine, "-o", engine], folder.path());
        let folder = folder.path().join(engine);
        let text = fs::read_to_string(folder.join("deployment.json")).unwrap();
        let manifest: serde_json::Value = serde_json::from_str(&text).unwrap();
        let parts = manifest["parts"].as_array().unwrap();
        assert_eq!(parts.len(), 32);
        for part in parts {
            let sends = part["class"] == "f_host";
            let receivers = if sends { 16 } else { 0 };
            assert_eq!(part["sends_to"].as_array().unwrap().len(), receivers, "{part}");
            assert_eq!(part["level"], u64::from(sends), "receivers start first: {part}");
            let name = part["file_name"].as_str().unwrap();
            assert!(folder.join(format!("parts/{name}.yaml")).is_file());
        }
    }
}

#[test]
fn unit_of_each_part_passes_the_check_of_systemd() {
    if !needs::systemd() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("array.yaml"), ARRAY).unwrap();
    fxgraph(&["deploy", "array.yaml", "--engine", "systemd", "-o", "."], folder.path());
    let unit = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/debian/fxgraph@.service");
    let unit = fs::read_to_string(unit).unwrap();
    let program = env!("CARGO_BIN_EXE_fxgraph");
    // The installed program need not be here.
    let unit = unit.replace("ExecStart=/usr/bin/fxgraph", &format!("ExecStart={program}"));
    assert!(unit.contains(program));

    let mut units = Vec::new();
    for machine in fs::read_dir(folder.path().join("machines")).unwrap() {
        let machine = machine.unwrap();
        let part = machine.file_name().into_string().unwrap();
        let conf = machine.path().join(format!("etc/fxgraph/{part}.conf"));
        let options = fs::read_to_string(conf).unwrap();
        let options = options.trim_end().strip_prefix("FXGRAPH_OPTIONS=").unwrap();
        // systemd splits the options at spaces: none of them may have one.
        let words: Vec<&str> = options.split(' ').collect();
        assert!(
            matches!(words[..], ["--listen", _, "--token-file", "/etc/fxgraph/token"]),
            "{options}"
        );
        let path = folder.path().join(format!("fxgraph@{part}.service"));
        fs::write(&path, &unit).unwrap();
        units.push(path);
    }
    assert_eq!(units.len(), 32);
    let checked =
        Command::new("systemd-analyze").args(["verify", "--man=no"]).args(&units).output().unwrap();
    let said = String::from_utf8_lossy(&checked.stderr);
    assert!(checked.status.success(), "{said}");
    assert!(!said.contains("fxgraph@"), "no warning about a unit\n{said}");
}
