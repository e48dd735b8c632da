//! The flowgraphs of the repository, as users run them.

use crate::support::repository::root;
use crate::support::{needs, python, stops};
use std::fs;
use std::net::UdpSocket;
use std::path::PathBuf;
use std::process::{Command, Output};

fn flowgraphs() -> Vec<PathBuf> {
    let entries = fs::read_dir(root().join("flowgraphs")).unwrap();
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    files.sort();
    assert!(files.len() >= 6);
    files
}

fn succeeds(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let said = String::from_utf8_lossy(&stdout).into_owned();
    assert!(status.success(), "{command:?}\n{said}{}", String::from_utf8_lossy(&stderr));
    said
}

fn fxgraph() -> Command {
    Command::new(env!("CARGO_BIN_EXE_fxgraph"))
}

#[test]
fn every_flowgraph_passes_its_own_tests_while_it_is_stopped_again_and_again() {
    let directory = tempfile::tempdir().unwrap();
    let mut command = fxgraph();
    command.args(["test", "--timeout", "10m"]).args(flowgraphs()).current_dir(directory.path());
    let said = stops::run(&mut command, directory.path(), |program| vec![program]);
    assert!(said.contains(" 0 failed"), "{said}");
    assert!(!directory.path().join("out").exists(), "tests do not write to the user's directory");
    for file in flowgraphs() {
        let name = format!("{}\n  ok ", file.display());
        assert!(said.contains(&name), "{} has no test\n{said}", file.display());
    }
}

#[test]
fn first_light_reports_fringes_and_writes_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let flowgraph = root().join("flowgraphs/01_first_light.yaml");
    let said = succeeds(fxgraph().arg("run").arg(flowgraph).current_dir(directory.path()));
    assert!(said.contains("fringes of 4 antennas"), "{said}");
    assert!(directory.path().join("out/first_light.npz").metadata().unwrap().len() > 100_000);
}

#[test]
fn readme_shows_the_graph_as_drawn_by_the_program() {
    let mut draw = fxgraph();
    draw.args(["graph", "flowgraphs/01_first_light.yaml", "--set", "antennas=2"]);
    let drawn = succeeds(draw.current_dir(root()));
    let page = fs::read_to_string(root().join("docs/src/tutorials/first_light.md")).unwrap();
    assert!(page.contains(&format!("```text\n{drawn}```")), "draw it again:\n{drawn}");
}

#[test]
fn readme_shows_an_error_as_written_by_the_program() {
    let directory = tempfile::tempdir().unwrap();
    for part in ["flowgraphs", "flowgraphs/include"] {
        fs::create_dir(directory.path().join(part)).unwrap();
        for entry in fs::read_dir(root().join(part)).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                let name = path.file_name().unwrap();
                fs::copy(&path, directory.path().join(part).join(name)).unwrap();
            }
        }
    }
    let file = "flowgraphs/01_first_light.yaml";
    let text = fs::read_to_string(root().join(file)).unwrap();
    let last = "\"${elevation_degrees}\"}";
    let wrong = text.replace(last, "\"${elevation_degrees}\", amplitude: 0.1}");
    assert_ne!(text, wrong);
    fs::write(directory.path().join(file), wrong).unwrap();
    let output = fxgraph().args(["validate", file]).current_dir(directory.path()).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    let shown = said.split("\n\n").next().unwrap();
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    assert!(readme.contains(&format!("```text\n{shown}\n```")), "write it again:\n{shown}");
}

#[test]
fn array_of_several_processes_correlates_over_loopback_multicast() {
    if !needs::python() {
        return;
    }
    // All runs use the same groups; the port separates simultaneous runs.
    let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let mut listener = Command::new(python::python());
    listener.arg(root().join("tests/peers/array_listener.py")).arg(&port);
    listener.arg(root().join("flowgraphs/multicast_array.sh")).arg("6");
    listener.env("FXGRAPH", env!("CARGO_BIN_EXE_fxgraph")).env("PORT", &port);
    let said = succeeds(&mut listener);
    assert!(said.contains("all engines ended"), "{said}");
}
