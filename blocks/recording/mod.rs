//! Frames on disk: what [`file_sink`](crate::file_sink) writes and
//! [`file_source`](crate::file_source) reads.
//!
//! A recording is a `data` array with the frames along its first axis, arrays `timestamp` and
//! `validity` and one per annotation with the same first axis, and a JSON side file.

pub mod npy;
pub mod side_file;
