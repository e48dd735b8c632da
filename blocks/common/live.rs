//! Live parameters of the F-engine's blocks.

use fxgraph_dsp::delay::Piece;
use fxgraph_dsp::mixer::Mixer;
use fxgraph_dsp::rotate::ChannelGains;

/// New value of a live parameter.
pub enum Live {
    /// Delay model of each polarisation.
    Delays(Vec<Vec<Piece>>),
    /// Gains of each polarisation.
    Gains(Vec<ChannelGains>),
    /// Seed of the dither.
    DitherSeed(u64),
    /// Mixer and filter for another centre frequency.
    Mixer(Mixer),
}
