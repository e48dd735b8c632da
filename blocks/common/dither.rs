//! The parameter that says whether values are dithered.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Noise added before rounding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Dither {
    /// Uniform in (-1/2, 1/2), real and imaginary part on their own.
    #[default]
    Uniform,
    /// None.
    None,
}
