//! `fxgraph` with a filter of FutureSDR: every command, the REST interface and the page.

use std::process::ExitCode;

fn main() -> ExitCode {
    fxgraph_cli::main(fxgraph_blocks::kinds().with(fxgraph_futuresdr_fir::kinds()))
}
