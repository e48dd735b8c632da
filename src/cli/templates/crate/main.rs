//! `fxgraph` with the kinds of this crate.

use std::process::ExitCode;

fn main() -> ExitCode {
    fxgraph_cli::main(fxgraph_blocks::kinds().with(my_block::kinds()))
}
