//! Arbitrary bytes as a filterbank file.
#![cfg_attr(fuzzing, no_main)]

#[macro_use]
mod target;

use fxgraph::edge::Harness;
use fxgraph::{Env, KindSpec, Ports};
use fxgraph_blocks::io::filterbank_source::FilterbankSource;
use std::fs;

/// Largest frame in bytes: larger frames only take time.
const MAX_FRAME_BYTES: usize = 1 << 20;

target!(filterbank, "filterbank");

fn filterbank(bytes: &[u8]) {
    let directory = std::env::temp_dir().join(format!("fxgraph-fuzz-fil-{}", std::process::id()));
    fs::create_dir_all(&directory).expect("a directory for temporary files");
    let path = directory.join("a.fil");
    fs::write(&path, bytes).expect("room for the file");
    let parameters = serde_json::json!({ "path": path, "spectra_per_frame": 7, "frames": 8 });
    let source: FilterbankSource = serde_json::from_value(parameters).expect("known parameters");
    let Ok(outputs) = KindSpec::outputs(&source, &[]) else { return };
    if outputs[0].frame_bytes() > MAX_FRAME_BYTES {
        return;
    }
    let ports = Ports { inputs: vec![], outputs };
    let block = KindSpec::build(&source, &[], &Env::detached("in")).expect("nothing is opened yet");
    let Ok(mut harness) = Harness::new(block, &ports, 8) else { return };
    // Errors must be returned, without a panic.
    let _ = Harness::block_on(async {
        harness.start().await?;
        harness.run().await
    });
}
