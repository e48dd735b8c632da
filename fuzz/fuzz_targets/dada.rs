//! Arbitrary bytes as a DADA file.
#![cfg_attr(fuzzing, no_main)]

#[macro_use]
mod target;
mod source;

use fxgraph_blocks::io::dada_source::DadaSource;

target!(dada, "dada");

fn dada(bytes: &[u8]) {
    source::play::<DadaSource>(bytes, serde_json::json!({"samples_per_frame": 16}));
}
