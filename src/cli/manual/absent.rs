//! In place of the manual in a program without the feature `manual`.

use crate::failure::Failure;
use std::collections::BTreeMap;
use std::path::Path;

pub fn pages() -> BTreeMap<String, String> {
    BTreeMap::new()
}

pub fn write(_: &Path, _: bool) -> Result<usize, Failure> {
    Err(Failure::absent("manual", "`manual`"))
}
