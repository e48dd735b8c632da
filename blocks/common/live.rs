//! Parameters of the F-engine's blocks that change while they run.

use fxgraph_dsp::delay::Piece;
use fxgraph_dsp::mixer::Mixer;
use fxgraph_dsp::rotate::ChannelGains;

/// A new value.
pub enum Live {
    /// Delay model of each polarisation.
    Delays(Vec<Vec<Piece>>),
    /// Gains of each polarisation.
    Gains(Vec<ChannelGains>),
    /// Seed of the dither.
    DitherSeed(u64),
    /// Filter around another centre frequency.
    Mixer(Mixer),
}
