//! In place of plots in a program without the feature `tui`.

use crate::failure::Failure;
use crate::terminal::Terminal;

pub fn print(_: &str, _: &str, _: &Terminal) -> Result<(), Failure> {
    Err(absent())
}

pub fn follow(
    _: &str,
    _: impl Iterator<Item = Result<String, Failure>> + Send + 'static,
    _: &Terminal,
) -> Result<(), Failure> {
    Err(absent())
}

fn absent() -> Failure {
    Failure::absent("tui", "a plot (`--json` writes its values)")
}
