//! Arbitrary bytes as a recording: length of the side file in four bytes, side file, array or archive.
#![cfg_attr(fuzzing, no_main)]

#[macro_use]
mod target;

use fxgraph::edge::Harness;
use fxgraph::{Env, KindSpec, Ports};
use fxgraph_blocks::io::file_source::FileSource;
use std::fs;

/// Largest frame in bytes: larger frames only take time.
const MAX_FRAME_BYTES: usize = 1 << 20;

target!(recording, "recording");

fn recording(bytes: &[u8]) {
    let Some((length, rest)) = bytes.split_first_chunk() else { return };
    let length = u32::from_le_bytes(*length) as usize;
    let (side, data) = rest.split_at(length.min(rest.len()));
    let directory = std::env::temp_dir().join(format!("fxgraph-fuzz-{}", std::process::id()));
    fs::create_dir_all(&directory).expect("a directory for temporary files");
    for extension in ["npy", "npz"] {
        let path = directory.join(format!("a.{extension}"));
        fs::write(&path, data).expect("room for the file");
        fs::write(directory.join(format!("a.{extension}.json")), side).expect("room for the file");
        let parameters = serde_json::json!({ "path": path, "frames": 8 });
        let source: FileSource = serde_json::from_value(parameters).expect("a path and a number");
        let Ok(outputs) = KindSpec::outputs(&source, &[]) else { continue };
        if outputs[0].impossible().is_some() || outputs[0].frame_bytes() > MAX_FRAME_BYTES {
            continue;
        }
        let ports = Ports { inputs: vec![], outputs };
        let block =
            KindSpec::build(&source, &[], &Env::detached("in")).expect("nothing is opened yet");
        let Ok(mut harness) = Harness::new(block, &ports, 8) else { continue };
        // Errors must be returned, without a panic.
        let _ = Harness::block_on(async {
            harness.start().await?;
            harness.run().await
        });
    }
}
