//! Compilation of all GPU kernels with NVRTC for several architectures; needs no GPU.

use crate::support::{needs, python};
use serde_json::Value;
use std::process::{Command, Output};

fn fxgraph(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_fxgraph"))
        .args(arguments)
        .env("LD_LIBRARY_PATH", python::nvrtc())
        .output()
        .unwrap()
}

#[test]
fn every_kernel_compiles_for_every_architecture() {
    if !needs::nvrtc() {
        return;
    }
    let output = fxgraph(&["kernels", "--json"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let report: Value = serde_json::from_str(&text).unwrap();
    let programs = report["programs"].as_array().unwrap();
    assert!(!programs.is_empty());
    for program in programs {
        let what =
            format!("{} {} {}", program["program"], program["architecture"], program["parameters"]);
        assert!(program["error"].is_null(), "{what}: {}", program["error"].as_str().unwrap());
        let kernels = program["kernels"].as_array().unwrap();
        assert!(!kernels.is_empty(), "{what} has no kernels");
        for kernel in kernels {
            assert!(kernel["registers"].as_u64().unwrap() > 0, "{what}: {kernel}");
            println!(
                "{what} {} {} registers, {} bytes spilt",
                kernel["kernel"], kernel["registers"], kernel["spill_bytes"]
            );
        }
    }
}

#[test]
fn kernel_error_names_file_and_line() {
    if !needs::nvrtc() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let broken =
        "// one\nextern \"C\" __global__ void matrix_peak(int *sums) { *sums = nothing; }\n";
    std::fs::write(directory.path().join("matrix_peak.cu"), broken).unwrap();
    let directory = directory.path().to_str().unwrap();
    let output = fxgraph(&["kernels", "--only", "matrix_peak.cu", "--kernels", directory]);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains("matrix_peak.cu(2): error: identifier \"nothing\" is undefined"),
        "{text}"
    );
}
