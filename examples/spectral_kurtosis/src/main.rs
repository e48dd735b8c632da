//! `fxgraph` with one more kind of block: all commands, the REST interface and the web page.

use std::process::ExitCode;

fn main() -> ExitCode {
    fxgraph_cli::main(fxgraph_blocks::kinds().with(fxgraph_spectral_kurtosis::kinds()))
}
