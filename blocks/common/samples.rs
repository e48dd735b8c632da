//! Form of a stream of samples that a block makes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Real or complex samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Samples {
    /// Real samples: the lower edge of the band is at 0 Hz, and their rate is twice the bandwidth.
    Real,
    /// Complex samples: the centre of the band is at 0 Hz, and their rate is the bandwidth.
    Complex,
}
