//! The `fxgraph` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    fxgraph_cli::main(fxgraph_blocks::kinds())
}
