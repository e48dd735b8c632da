//! In place of statistics that follow the flowgraph, in a program without the feature `tui`.

use super::Top;
use super::look::{Look, Watch};
use crate::client::Client;
use crate::failure::Failure;

pub fn show(_: Client, _: Watch, _: Look, _: &Top, _: bool) -> Result<(), Failure> {
    Err(Failure::absent("tui", "`top` without `--once`"))
}
