//! Navigation messages: from correlator sums to ephemerides and the time of transmission, and from ephemerides to symbols.
//!
//! A message is a sequence of units that are checked one by one: subframes of LNAV (6 s), pages of I/NAV (2 s) and F/NAV
//! (10 s), messages of CNAV (12 s on L2C, 6 s on L5).
//! [`encode`] returns the symbols of a unit.
//! A [`Channel`] decodes the correlator sums of a satellite.
//!
//! Sources: IS-GPS-200 (LNAV, and CNAV on L2C), IS-GPS-705 (CNAV on L5), Galileo open service signal-in-space interface
//! control document (I/NAV, F/NAV).

mod bits;
mod channel;
mod cnav;
mod crc;
mod fnav;
mod galileo;
mod inav;
mod lnav;
mod pieces;
mod sync;
#[cfg(test)]
mod tests;
mod viterbi;

pub use channel::{Channel, Counts};

use crate::ephemeris::{Ephemeris, Klobuchar, Message, NeQuick, SatelliteId, UtcParameters};
use thiserror::Error;

/// Signal that carries a message, and how: symbols, and periods of the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Signal {
    /// GPS or QZSS L1 C/A: LNAV, 50 symbols per second, each 20 periods of 1 ms.
    GpsL1Ca,
    /// GPS or QZSS L2 CM: CNAV, 50 symbols per second, each one period of 20 ms.
    GpsL2c,
    /// GPS or QZSS L5 I: CNAV, 100 symbols per second, each 10 periods of 1 ms with a Neuman-Hofman code.
    GpsL5,
    /// Galileo E1-B: I/NAV, 250 symbols per second, each one period of 4 ms.
    GalileoE1b,
    /// Galileo E5a-I: F/NAV, 50 symbols per second, each 20 periods of 1 ms with a secondary code.
    GalileoE5a,
    /// Galileo E5b-I: I/NAV, 250 symbols per second, each 4 periods of 1 ms with a secondary code.
    GalileoE5b,
}

impl Signal {
    /// All signals.
    pub const ALL: [Self; 6] = [
        Self::GpsL1Ca,
        Self::GpsL2c,
        Self::GpsL5,
        Self::GalileoE1b,
        Self::GalileoE5a,
        Self::GalileoE5b,
    ];

    /// Returns its message.
    #[must_use]
    pub fn message(self) -> Message {
        match self {
            Self::GpsL1Ca => Message::Lnav,
            Self::GpsL2c | Self::GpsL5 => Message::Cnav,
            Self::GalileoE1b | Self::GalileoE5b => Message::Inav,
            Self::GalileoE5a => Message::Fnav,
        }
    }

    /// Returns the period of the code in milliseconds.
    #[must_use]
    pub fn period_milliseconds(self) -> u32 {
        match self {
            Self::GpsL1Ca | Self::GpsL5 | Self::GalileoE5a | Self::GalileoE5b => 1,
            Self::GalileoE1b => 4,
            Self::GpsL2c => 20,
        }
    }

    /// Returns the sign of each period of the code in a symbol: the secondary code, or ones.
    #[must_use]
    pub fn secondary(self) -> &'static [i8] {
        match self {
            Self::GpsL1Ca => &[1; 20],
            Self::GpsL2c | Self::GalileoE1b => &[1],
            // 0000110101 (IS-GPS-705, 3.3.3.1.2).
            Self::GpsL5 => &[1, 1, 1, 1, -1, -1, 1, -1, 1, -1],
            // CS20_1, 842E9 in hexadecimal (Galileo OS SIS ICD, table 18).
            Self::GalileoE5a => {
                &[-1, 1, 1, 1, 1, -1, 1, 1, 1, 1, -1, 1, -1, -1, -1, 1, -1, 1, 1, -1]
            }
            // CS4_1, E in hexadecimal.
            Self::GalileoE5b => &[-1, -1, -1, 1],
        }
    }

    /// Returns the length of a symbol in milliseconds.
    #[must_use]
    pub fn symbol_milliseconds(self) -> u32 {
        self.period_milliseconds() * self.secondary().len() as u32
    }

    /// Returns the length of a unit in seconds.
    #[must_use]
    pub fn unit_seconds(self) -> u32 {
        match self {
            Self::GpsL1Ca | Self::GpsL5 => 6,
            Self::GpsL2c => 12,
            Self::GalileoE1b | Self::GalileoE5b => 2,
            Self::GalileoE5a => 10,
        }
    }

    /// Returns the number of symbols of a unit.
    #[must_use]
    pub fn unit_symbols(self) -> usize {
        (1000 * self.unit_seconds() / self.symbol_milliseconds()) as usize
    }

    /// Returns the start of the unit that is transmitted at `seconds`, both in seconds of GPS time since 1980-01-06.
    ///
    /// Pages of E1-B begin at odd seconds, all other units at multiples of their length.
    #[must_use]
    pub fn unit_start(self, seconds: i64) -> i64 {
        let first = i64::from(self == Self::GalileoE1b);
        let length = i64::from(self.unit_seconds());
        seconds - (seconds - first).rem_euclid(length)
    }
}

/// Data of a satellite that [`encode`] puts into its message.
#[derive(Clone, Debug, PartialEq)]
pub struct Broadcast {
    /// Orbit, clock and health of the satellite; its `message` may be any, its week and times are those of the reference times.
    pub ephemeris: Ephemeris,
    /// Ionosphere of GPS; without it the pages with it are dummies.
    pub klobuchar: Option<Klobuchar>,
    /// Ionosphere of Galileo; without it all coefficients are 0.
    pub nequick: Option<NeQuick>,
    /// Relation to UTC; without it the pages with it are dummies.
    pub utc: Option<UtcParameters>,
}

/// A value that its field of the message cannot hold.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
#[error("{field} of {value} does not fit in its field of the navigation message")]
pub struct OutOfRange {
    /// Name in the interface specification.
    pub field: &'static str,
    /// Value in units of its least significant bit.
    pub value: f64,
}

/// Data that a [`Channel`] has decoded.
#[derive(Clone, Debug, PartialEq)]
pub enum Decoded {
    /// A complete ephemeris that differs from the one before.
    Ephemeris(Box<Ephemeris>),
    /// Ionosphere, from GPS.
    Klobuchar(Klobuchar),
    /// Ionosphere, from Galileo.
    NeQuick(NeQuick),
    /// Relation to UTC of the time of the satellite's system.
    Utc(UtcParameters),
}

/// Returns the symbols of the unit of `signal` that starts at [`Signal::unit_start`] of `seconds`, in seconds of GPS time
/// since 1980-01-06: `[symbol]`, true for logic 1, which is sent as -1. The secondary code is not in them.
pub fn encode(
    signal: Signal,
    broadcast: &Broadcast,
    seconds: i64,
) -> Result<Vec<bool>, OutOfRange> {
    let start = signal.unit_start(seconds);
    match signal.message() {
        Message::Lnav => lnav::encode(broadcast, start),
        Message::Inav => inav::encode(signal, broadcast, start),
        Message::Fnav => fnav::encode(broadcast, start),
        Message::Cnav => cnav::encode(signal, broadcast, start),
    }
}

/// Content of a unit that every message has.
#[derive(Clone, Copy, Debug, Default)]
struct Content {
    /// Start of the unit in seconds of the week, if it is in the unit.
    seconds: Option<u32>,
    /// Full GPS week at the start of the unit, modulo the second number.
    week: Option<(u32, u32)>,
    /// Which piece of an ephemeris the unit has, and its issue.
    piece: Option<(usize, Option<u16>)>,
    /// Number of the satellite, if it is in the unit.
    prn: Option<u8>,
    is_alert: bool,
}

/// The newest symbols.
struct Window {
    symbols: Vec<f32>,
    len: usize,
}

impl Window {
    /// Creates a window of `len` symbols.
    fn new(len: usize) -> Self {
        Self { symbols: Vec::with_capacity(len), len }
    }

    /// Adds a symbol; returns whether the window is full.
    fn add(&mut self, symbol: f32) -> bool {
        if self.symbols.len() == self.len {
            self.symbols.copy_within(1.., 0);
            self.symbols[self.len - 1] = symbol;
        } else {
            self.symbols.push(symbol);
        }
        self.symbols.len() == self.len
    }

    /// The symbols, oldest first.
    fn symbols(&self) -> &[f32] {
        &self.symbols
    }
}

/// An ephemeris without values, before they are read.
fn blank() -> Ephemeris {
    Ephemeris {
        satellite: SatelliteId::gps(0),
        message: Message::Lnav,
        week: 0,
        toe_seconds: 0.0,
        toc_seconds: 0.0,
        transmission_seconds: 0.0,
        iode: 0,
        iodc: 0,
        sqrt_a: 0.0,
        eccentricity: 0.0,
        mean_anomaly: 0.0,
        mean_motion_difference: 0.0,
        semi_major_axis_rate: 0.0,
        mean_motion_rate: 0.0,
        perigee: 0.0,
        node: 0.0,
        node_rate: 0.0,
        inclination: 0.0,
        inclination_rate: 0.0,
        cuc: 0.0,
        cus: 0.0,
        crc: 0.0,
        crs: 0.0,
        cic: 0.0,
        cis: 0.0,
        af0: 0.0,
        af1: 0.0,
        af2: 0.0,
        group_delays: [0.0; 2],
        health: 0,
        accuracy: 0,
        is_long_fit: false,
        codes_on_l2: 0,
        l2_p_data_off: false,
    }
}
