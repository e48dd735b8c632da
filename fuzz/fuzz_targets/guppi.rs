//! Arbitrary bytes as a GUPPI raw file.
#![cfg_attr(fuzzing, no_main)]

#[macro_use]
mod target;
mod source;

use fxgraph_blocks::io::guppi_source::GuppiSource;

target!(guppi, "guppi");

fn guppi(bytes: &[u8]) {
    source::play::<GuppiSource>(bytes, serde_json::json!({}));
}
