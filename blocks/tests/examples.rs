//! Examples of kinds.

use fxgraph::examples::Example;
use fxgraph::flowgraph::load_in;
use fxgraph::{DeviceName, KindEntry};
use std::path::Path;
use tempfile::TempDir;

/// Returns a directory with the files named in examples.
pub fn directory() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let write =
        |name: &str, bytes: &[u8]| std::fs::write(directory.path().join(name), bytes).unwrap();
    write("samples.dat", &vec![0; 1 << 16]);
    write("spectra.fil", include_bytes!("../../fuzz/seeds/filterbank/spectra"));
    let samples =
        r#"{"global": {"core:datatype": "ci8", "core:version": "1.2.0", "core:sample_rate": 1e6}}"#;
    write("samples.sigmf-meta", samples.as_bytes());
    write("samples.sigmf-data", &vec![0; 1 << 16]);
    write("samples.dada", include_bytes!("../io/dada_source/example.dada"));
    write("samples.raw", include_bytes!("../io/guppi_source/example.raw"));
    write("samples.vdif", include_bytes!("../io/vdif_source/example.vdif"));
    directory
}

/// Whether this machine has everything that the example needs.
pub fn can_run(example: &Example) -> bool {
    !["kernel", "python"].contains(&example.kind) || crate::util::python::tests::has_numpy()
}

/// Returns the text of an example, in which the files of [`directory`] have their whole paths: sources read some of them
/// when a flowgraph is checked.
pub fn text(flowgraph: &str, directory: &Path) -> String {
    let names = [
        "samples.dada",
        "samples.dat",
        "samples.raw",
        "samples.sigmf-meta",
        "samples.vdif",
        "spectra.fil",
    ];
    names.iter().fold(flowgraph.to_owned(), |text, name| {
        let path = directory.join(name);
        text.replace(&format!("path: {name}"), &format!("path: '{}'", path.display()))
    })
}

#[test]
fn every_kind_has_an_example() {
    let registry = crate::kinds();
    let has_none = |kind: &&KindEntry| kind.examples.is_empty();
    let without: Vec<_> = registry.iter().filter(has_none).map(|kind| kind.name).collect();
    assert!(without.is_empty(), "no `examples(..)` in `#[kind(..)]` of {without:?}");
}

#[test]
fn examples_are_valid_flowgraphs_with_a_block_of_their_kind() {
    let (registry, directory) = (crate::kinds(), directory());
    for example in registry.examples(DeviceName::Cpu).into_iter().filter(can_run) {
        let name = Path::new("example.yaml");
        let text = text(&example.flowgraph, directory.path());
        let loaded = load_in(directory.path(), name, &text, &[], &registry);
        let problems: Vec<String> = match &loaded.result {
            Ok(plan) => {
                let block = plan.blocks.iter().find(|block| block.name == "block");
                assert_eq!(block.map(|block| block.kind), Some(example.kind), "{example}");
                assert_eq!(block.unwrap().implementation, example.implementation);
                continue;
            }
            Err(problems) => problems.iter().map(|problem| problem.message.clone()).collect(),
        };
        panic!("{example}: {}", problems.join("; "));
    }
}
