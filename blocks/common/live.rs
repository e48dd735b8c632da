//! Parameters of the F-engine's blocks that change while they run.

use crate::common::delay::Piece;
use crate::f_engine::ddc::mixer::Mixer;
use crate::f_engine::postproc::rotate::ChannelGains;

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
