//! `fxgraph` with a filter of FutureSDR: all commands, the REST interface and the web page.

use std::process::ExitCode;

fn main() -> ExitCode {
    fxgraph_cli::main(fxgraph_blocks::kinds().with(fxgraph_futuresdr_fir::kinds()))
}
