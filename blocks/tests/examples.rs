//! Examples of kinds.

use fxgraph::flowgraph::load_in;
use fxgraph::{DeviceName, KindEntry};
use std::path::Path;
use tempfile::TempDir;

/// Returns a directory with the files named in examples.
pub fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("samples.dat"), vec![0; 1 << 16]).unwrap();
    for (name, bytes) in [
        ("samples.dada", &include_bytes!("../io/dada_source/example.dada")[..]),
        ("samples.raw", include_bytes!("../io/guppi_source/example.raw")),
        ("samples.vdif", include_bytes!("../io/vdif_source/example.vdif")),
    ] {
        std::fs::write(folder.path().join(name), bytes).unwrap();
    }
    folder
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
    let (registry, folder) = (crate::kinds(), folder());
    for example in registry.examples(DeviceName::Cpu) {
        let name = Path::new("example.yaml");
        let loaded = load_in(folder.path(), name, &example.flowgraph, &[], &registry);
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
