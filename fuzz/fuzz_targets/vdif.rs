//! Arbitrary bytes as a VDIF file.
#![cfg_attr(fuzzing, no_main)]

#[macro_use]
mod target;
mod source;

use fxgraph_blocks::io::vdif_source::VdifSource;

target!(vdif, "vdif");

fn vdif(bytes: &[u8]) {
    source::play::<VdifSource>(bytes, serde_json::json!({"vdif_frames": 2}));
}
