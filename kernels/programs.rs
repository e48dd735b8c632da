//! The list of programs, each with the parameter sets it is checked with.

use crate::Program;

/// All programs, by name.
pub const PROGRAMS: &[Program] = &[];
