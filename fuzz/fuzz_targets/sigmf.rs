//! Arbitrary bytes as a SigMF recording: length of the description in four bytes, description, samples.
#![cfg_attr(fuzzing, no_main)]

#[macro_use]
mod target;

use fxgraph::edge::Harness;
use fxgraph::{Env, KindSpec, Ports};
use fxgraph_blocks::io::sigmf_source::SigmfSource;
use std::fs;

/// Largest frame in bytes: larger frames only take time.
const MAX_FRAME_BYTES: usize = 1 << 20;

target!(recording, "sigmf");

fn recording(bytes: &[u8]) {
    let Some((length, rest)) = bytes.split_first_chunk() else { return };
    let length = u32::from_le_bytes(*length) as usize;
    let (meta, data) = rest.split_at(length.min(rest.len()));
    let directory = std::env::temp_dir().join(format!("fxgraph-fuzz-sigmf-{}", std::process::id()));
    fs::create_dir_all(&directory).expect("a directory for temporary files");
    let path = directory.join("a.sigmf-meta");
    fs::write(&path, meta).expect("room for the file");
    fs::write(directory.join("a.sigmf-data"), data).expect("room for the file");
    let parameters = serde_json::json!({
        "path": path, "samples_per_frame": 12, "heaps_per_frame": 3, "frames": 8
    });
    let source: SigmfSource = serde_json::from_value(parameters).expect("known parameters");
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
