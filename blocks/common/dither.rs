//! The parameter `dither`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Noise added before rounding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Dither {
    /// Uniform in (-1/2, 1/2), independent for real and imaginary part.
    #[default]
    Uniform,
    /// No dither.
    None,
}
