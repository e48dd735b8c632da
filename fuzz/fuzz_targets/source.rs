//! Plays arbitrary bytes as a file of a source.

use fxgraph::edge::Harness;
use fxgraph::{Env, KindSpec, Ports};
use serde_json::Value;

/// Largest frame in bytes: larger frames only take time.
const MAX_FRAME_BYTES: usize = 1 << 20;

/// Plays up to 8 frames of a file with these bytes by a source of kind `K`. Errors must be returned, without a panic.
pub fn play<K: KindSpec>(bytes: &[u8], parameters: Value) {
    let directory = std::env::temp_dir().join(format!("fxgraph-fuzz-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory for temporary files");
    let path = directory.join(K::NAME);
    std::fs::write(&path, bytes).expect("room for the file");
    let mut all = serde_json::json!({ "path": path, "frames": 8 });
    if let (Some(all), Value::Object(parameters)) = (all.as_object_mut(), parameters) {
        all.extend(parameters);
    }
    let source: K = fxgraph::kind::read(&all).expect("valid parameters");
    let Ok(outputs) = source.outputs(&[]) else { return };
    if outputs[0].impossible().is_some() || outputs[0].frame_bytes() > MAX_FRAME_BYTES {
        return;
    }
    let ports = Ports { inputs: vec![], outputs };
    let block = source.build(&[], &Env::detached("in")).expect("nothing is opened yet");
    let Ok(mut harness) = Harness::new(block, &ports, 8) else { return };
    let _ = Harness::block_on(async {
        harness.start().await?;
        harness.run().await
    });
}
