//! RINEX, the file format of receivers: navigation files of the versions 2 to 4 are read, navigation and observation
//! files of version 3.04 are written.
//!
//! Lines have fixed columns. Values of other systems than those of [`Constellation`](crate::Constellation) are skipped.

mod columns;
mod header;
mod navigation;
mod observation;
mod writing;

pub use navigation::{Navigation, read_navigation};
pub use observation::{Observation, observation_epoch, observation_header};
pub use writing::navigation_file;

use thiserror::Error;

/// Why a file cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("line {line}: {fault}")]
pub struct RinexError {
    /// Number of the line, from 1.
    pub line: usize,
    /// Rule that the line breaks.
    pub fault: Fault,
}

/// Rule that a line breaks.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Fault {
    /// The first line is not that of a RINEX file.
    #[error("the first line must end with `RINEX VERSION / TYPE`")]
    NoRinex,
    /// The file has another type or version.
    #[error("the file must be RINEX navigation data of version 2, 3 or 4, got `{0}`")]
    Version(String),
    /// The header does not end.
    #[error("the header must end with `END OF HEADER`")]
    NoHeaderEnd,
    /// A field is not a number.
    #[error("columns {from} to {to} must be a number, got `{text}`")]
    Number {
        /// First column, from 1.
        from: usize,
        /// Last column.
        to: usize,
        /// Content of the columns.
        text: String,
    },
    /// The epoch is not a time.
    #[error("the epoch must be a date and time")]
    Epoch,
    /// The number of a satellite is not one.
    #[error("the satellite must have a number from 1 to 99")]
    Satellite,
    /// A record has too few lines.
    #[error("the record must have {0} lines")]
    Short(usize),
}

#[cfg(test)]
mod tests;
