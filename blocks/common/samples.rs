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

/// Axis of the channels of a recording or of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ChannelAxis {
    /// Polarisations.
    #[default]
    Pol,
    /// Antennas.
    Antenna,
}

impl ChannelAxis {
    /// Name of the axis.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pol => "pol",
            Self::Antenna => "antenna",
        }
    }
}
