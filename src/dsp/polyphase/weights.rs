//! Weights of the polyphase filter.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::f64::consts::PI;

/// Window by which the sinc of the filter is multiplied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Window {
    /// Raised cosine, sin^2(pi i / (W - 1)).
    #[default]
    Hann,
    /// 1 everywhere.
    Rect,
}

/// Returns the weights w\[i\] = window\[i\] x sinc(w_cutoff x ((i + 1/2)/step - taps/2)), scaled so that the sum of
/// their squares is 1; computed in double precision.
#[must_use]
pub fn weights(step: usize, taps: usize, window: Window, w_cutoff: f64) -> Vec<f32> {
    let len = step * taps;
    let shape = |i: usize| match window {
        Window::Hann => (PI * i as f64 / (len - 1) as f64).sin().powi(2),
        Window::Rect => 1.0,
    };
    let position = |i: usize| (i as f64 + 0.5) / step as f64 - taps as f64 / 2.0;
    let unscaled: Vec<f64> = (0..len).map(|i| shape(i) * sinc(w_cutoff * position(i))).collect();
    let scale = 1.0 / unscaled.iter().map(|w| w * w).sum::<f64>().sqrt();
    unscaled.iter().map(|w| (w * scale) as f32).collect()
}

fn sinc(x: f64) -> f64 {
    if x == 0.0 { 1.0 } else { (PI * x).sin() / (PI * x) }
}
