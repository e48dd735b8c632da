//! Compilation of all GPU kernels with NVRTC for several architectures; needs no GPU.

use crate::support::{needs, python, repository};
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

/// Validates the flowgraph of the example kernels in `directory`; returns what the program printed.
fn validate(directory: &std::path::Path) -> (bool, String) {
    let python = python::python();
    let output = Command::new(env!("CARGO_BIN_EXE_fxgraph"))
        .args(["validate", "kernels.yaml", "--set", "device=cuda:0"])
        .env("LD_LIBRARY_PATH", python::nvrtc())
        .env("VIRTUAL_ENV", python.parent().unwrap().parent().unwrap())
        .current_dir(directory)
        .output()
        .unwrap();
    (output.status.success(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn example_kernels_in_files_compile_and_errors_name_the_line() {
    if !needs::nvrtc() || !needs::python() {
        return;
    }
    let examples = repository::root().join("examples/kernels");
    assert_eq!(validate(&examples), (true, String::new()));
    let directory = tempfile::tempdir().unwrap();
    for entry in
        std::fs::read_dir(&examples).unwrap().flatten().filter(|entry| entry.path().is_file())
    {
        std::fs::copy(entry.path(), directory.path().join(entry.file_name())).unwrap();
    }
    let file = directory.path().join("gain.cu");
    let good = std::fs::read_to_string(&file).unwrap();
    for (from, to, message) in [
        ("fx.gain *", "fx.gian *", "gain.cu:9: class \"Fx\" has no member \"gian\""),
        ("void gain(Fx", "void other(Fx", "gain.cu:7: the file must have the kernel `gain`"),
        (
            "*/\n",
            "*/\n#include \"none.cuh\"\n",
            "gain.cu:7: `#include` must name a header of fxgraph, got `none.cuh`",
        ),
        ("gain(Fx fx)", "gain(Fx fx, int more)", "gain.cu:7: the file must have the kernel `gain`"),
        ("[256]", "[0]", "gain.cu:5: `0` must be an integer from 1 to 1024, got 0"),
    ] {
        std::fs::write(&file, good.replace(from, to)).unwrap();
        let (is_valid, said) = validate(directory.path());
        assert!(!is_valid && said.contains(message), "{to}: {said}");
    }
}
