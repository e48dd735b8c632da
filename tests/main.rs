//! End-to-end tests of the program, in one binary: each would otherwise link the whole program.
//!
//! `cargo test -p fxgraph-cli --test e2e -- web::` runs those of one module. Tests of all modules run side by side, each with
//! ports, directories and processes of its own. Tests that measure their own process, or that compile, are programs of
//! their own: `memory`, `python_kind`, `steady_state`, `outside`, `block_in_ten_minutes`.

#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

mod cli;
mod deploy;
mod edits;
mod files;
mod fleet;
mod formats;
mod frb;
mod hostile_kernels;
mod kernels;
mod ladder;
mod manual;
mod page;
mod parts;
mod peers;
mod python;
mod radio;
mod recordings;
mod sample_source;
mod slurm;
mod state;
mod stream_peers;
mod supervisor;
mod support;
mod swap;
mod takeover;
mod terminal;
mod web;
