//! Text of flowgraphs: YAML and JSON as trees of values with their places, and the content of files.

pub(crate) mod document;
pub(crate) mod include;
pub(crate) mod json;
pub(crate) mod parse;
