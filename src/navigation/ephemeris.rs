//! Broadcast ephemerides: orbit, clock and health of a satellite, and the parameters of its whole system.

use fxgraph_time::Time;
use std::fmt;

/// Seconds of a week of GPS time.
pub const WEEK_SECONDS: i64 = 604_800;

/// A system of navigation satellites.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Constellation {
    /// GPS.
    Gps,
    /// Galileo.
    Galileo,
    /// QZSS, whose messages and equations are those of GPS.
    Qzss,
}

impl Constellation {
    /// All systems; the index of each is its number in streams.
    pub const ALL: [Self; 3] = [Self::Gps, Self::Galileo, Self::Qzss];

    /// Letter of the system in RINEX.
    #[must_use]
    pub fn letter(self) -> char {
        match self {
            Self::Gps => 'G',
            Self::Galileo => 'E',
            Self::Qzss => 'J',
        }
    }

    /// Gravitational constant of the Earth in m^3/s^2 for ephemerides of this system (IS-GPS-200, table 20-IV; Galileo
    /// OS SIS ICD, table 57).
    #[must_use]
    pub fn gravitation(self) -> f64 {
        match self {
            Self::Gps | Self::Qzss => 3.986_005e14,
            Self::Galileo => 3.986_004_418e14,
        }
    }
}

/// A satellite; displayed as in RINEX, such as `G07`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SatelliteId {
    /// System of the satellite.
    pub constellation: Constellation,
    /// Number of the satellite in RINEX, from 1: for GPS and Galileo that of its code, for QZSS that of its code minus 192.
    pub prn: u8,
}

impl SatelliteId {
    /// GPS satellite `prn`.
    #[must_use]
    pub fn gps(prn: u8) -> Self {
        Self { constellation: Constellation::Gps, prn }
    }

    /// Galileo satellite `prn`.
    #[must_use]
    pub fn galileo(prn: u8) -> Self {
        Self { constellation: Constellation::Galileo, prn }
    }
}

impl fmt::Display for SatelliteId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:02}", self.constellation.letter(), self.prn)
    }
}

/// Message that an ephemeris was broadcast in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Message {
    /// GPS and QZSS LNAV, on L1 C/A. The clock is that of the signals L1 and L2 P(Y) without ionosphere.
    #[default]
    Lnav,
    /// GPS and QZSS CNAV, on L2C and L5.
    Cnav,
    /// Galileo I/NAV, on E1-B and E5b. The clock is that of the signals E1 and E5b without ionosphere.
    Inav,
    /// Galileo F/NAV, on E5a. The clock is that of the signals E1 and E5a without ionosphere.
    Fnav,
}

/// Broadcast ephemeris: Kepler elements with harmonic corrections, and the clock.
///
/// Names of the interface specifications are in parentheses: IS-GPS-200, tables 20-I (clock) and 20-III (orbit);
/// Galileo OS SIS ICD, section 5.1. Angles, which the messages give in semicircles, are in radians.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ephemeris {
    /// Satellite.
    pub satellite: SatelliteId,
    /// Message that it was broadcast in.
    pub message: Message,
    /// Week of `toe_seconds`, counted from 1980-01-06 without rollover: the full GPS week; the Galileo week (WN) plus 1024.
    pub week: u32,
    /// Reference time of the orbit (toe) in seconds of the week.
    pub toe_seconds: f64,
    /// Reference time of the clock (toc) in seconds of the week, at most half a week from `toe_seconds`.
    pub toc_seconds: f64,
    /// Time of the week at which the message was transmitted, in seconds; 0 if not known.
    pub transmission_seconds: f64,
    /// Issue of the orbit: IODE of GPS (8 bits), IODnav of Galileo (10 bits).
    pub iode: u16,
    /// Issue of the clock: IODC of GPS (10 bits), IODnav of Galileo.
    pub iodc: u16,

    /// Square root of the semi-major axis in m^(1/2) (sqrt A).
    pub sqrt_a: f64,
    /// Eccentricity (e).
    pub eccentricity: f64,
    /// Mean anomaly at the reference time in radians (M0).
    pub mean_anomaly: f64,
    /// Difference of the mean motion from its computed value in radians per second (delta n).
    pub mean_motion_difference: f64,
    /// Rate of the semi-major axis in m/s (A DOT of CNAV); 0 in other messages.
    pub semi_major_axis_rate: f64,
    /// Rate of `mean_motion_difference` in radians per second squared (delta n 0 DOT of CNAV); 0 in other messages.
    pub mean_motion_rate: f64,
    /// Argument of perigee in radians (omega).
    pub perigee: f64,
    /// Longitude of the ascending node at the start of the week in radians (OMEGA 0).
    pub node: f64,
    /// Rate of the ascending node in radians per second (OMEGA DOT).
    pub node_rate: f64,
    /// Inclination at the reference time in radians (i0).
    pub inclination: f64,
    /// Rate of the inclination in radians per second (IDOT).
    pub inclination_rate: f64,
    /// Cosine correction of the argument of latitude in radians (Cuc).
    pub cuc: f64,
    /// Sine correction of the argument of latitude in radians (Cus).
    pub cus: f64,
    /// Cosine correction of the radius in metres (Crc).
    pub crc: f64,
    /// Sine correction of the radius in metres (Crs).
    pub crs: f64,
    /// Cosine correction of the inclination in radians (Cic).
    pub cic: f64,
    /// Sine correction of the inclination in radians (Cis).
    pub cis: f64,

    /// Offset of the satellite's clock at `toc_seconds` in seconds (af0).
    pub af0: f64,
    /// Drift of the clock in seconds per second (af1).
    pub af1: f64,
    /// Rate of the drift in seconds per second squared (af2).
    pub af2: f64,
    /// Group delays in seconds. GPS: T_GD, and the inter-signal correction (ISC) of CNAV for its signal, or 0. Galileo: BGD(E1, E5a) and BGD(E1, E5b).
    pub group_delays: [f64; 2],

    /// Health; 0 is healthy. GPS: the 6 bits of subframe 1. Galileo: as in RINEX 3 (bit 0 E1-B DVS, bits 1 and 2 E1-B
    /// HS, bit 3 E5a DVS, bits 4 and 5 E5a HS, bit 6 E5b DVS, bits 7 and 8 E5b HS).
    pub health: u16,
    /// Index of the accuracy: URA of GPS (0 to 15), SISA of Galileo (0 to 255).
    pub accuracy: u8,
    /// Whether the orbit was fitted to more than four hours (fit interval flag of GPS).
    pub is_long_fit: bool,
    /// Code on L2 (2 bits of GPS subframe 1: 1 is P, 2 is C/A); for Galileo the data sources of RINEX.
    pub codes_on_l2: u16,
    /// Whether the L2 P code has no data (GPS).
    pub l2_p_data_off: bool,
}

impl Ephemeris {
    /// Reference time of the orbit; `None` outside the years of [`Time`].
    #[must_use]
    pub fn toe(&self) -> Option<Time> {
        time_of_week(self.week, self.toe_seconds)
    }

    /// Reference time of the clock; `None` outside the years of [`Time`].
    #[must_use]
    pub fn toc(&self) -> Option<Time> {
        let half = 0.5 * WEEK_SECONDS as f64;
        let apart = self.toc_seconds - self.toe_seconds;
        let weeks = i64::from(apart < -half) - i64::from(apart > half);
        time_of_week(self.week, self.toc_seconds + (weeks * WEEK_SECONDS) as f64)
    }

    /// Group delay in seconds that a receiver of E1 or L1 alone subtracts from the clock (IS-GPS-200, 20.3.3.3.3.2; Galileo OS
    /// SIS ICD, 5.1.5).
    #[must_use]
    pub fn single_frequency_delay(&self) -> f64 {
        self.group_delays[usize::from(self.message == Message::Inav)]
    }

    /// Whether the signal on L1 or E1 is healthy.
    #[must_use]
    pub fn is_healthy(&self) -> bool {
        match self.message {
            // Bits 0 to 2 are those of E1-B.
            Message::Inav => self.health.trailing_zeros() >= 3,
            Message::Fnav => (self.health >> 3).trailing_zeros() >= 3,
            Message::Lnav | Message::Cnav => self.health == 0,
        }
    }

    /// Accuracy of the range in metres, one standard deviation; `None` if the satellite gives no estimate.
    #[must_use]
    pub fn accuracy_metres(&self) -> Option<f64> {
        accuracy_metres(self.satellite.constellation, self.accuracy)
    }
}

/// Returns the accuracy in metres that an index means; `None` if the satellite gives no estimate (IS-GPS-200,
/// 20.3.3.3.1.3; Galileo OS SIS ICD, table 76).
#[must_use]
pub fn accuracy_metres(constellation: Constellation, accuracy: u8) -> Option<f64> {
    let index = f64::from(accuracy);
    match (constellation, accuracy) {
        (Constellation::Galileo, 0..=49) => Some(0.01 * index),
        (Constellation::Galileo, 50..=74) => Some(0.5 + 0.02 * (index - 50.0)),
        (Constellation::Galileo, 75..=99) => Some(1.0 + 0.04 * (index - 75.0)),
        (Constellation::Galileo, 100..=125) => Some(2.0 + 0.16 * (index - 100.0)),
        (Constellation::Galileo, _) | (_, 15..) => None,
        // Rounded as the specification asks.
        (_, 1) => Some(2.8),
        (_, 3) => Some(5.7),
        (_, 5) => Some(11.3),
        (_, 0..=6) => Some(2.0_f64.powf(1.0 + 0.5 * index)),
        (_, 7..) => Some(2.0_f64.powf(index - 2.0)),
    }
}

/// Instant of a time of the week, in GPS time; `None` outside the years of [`Time`].
#[must_use]
pub fn time_of_week(week: u32, seconds: f64) -> Option<Time> {
    Time::from_gps(i64::from(week) * WEEK_SECONDS, 0)?.plus_seconds(seconds)
}

/// Full week and seconds of the week of an instant, in GPS time; week 0 before 1980.
#[must_use]
pub fn week_of(time: Time) -> (u32, f64) {
    let (seconds, picoseconds) = time.to_gps();
    let week = u32::try_from(seconds.div_euclid(WEEK_SECONDS)).unwrap_or(0);
    (week, seconds.rem_euclid(WEEK_SECONDS) as f64 + 1e-12 * picoseconds as f64)
}

/// Klobuchar's model of the ionosphere, from GPS subframe 4, page 18 (IS-GPS-200, table 20-X).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Klobuchar {
    /// Amplitude of the delay: alpha n in s/semicircle^n.
    pub alpha: [f64; 4],
    /// Period of the model: beta n in s/semicircle^n.
    pub beta: [f64; 4],
}

/// Effective ionisation level of NeQuick G, from the Galileo messages (Galileo OS SIS ICD, table 72).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct NeQuick {
    /// Coefficients a i0 in sfu, a i1 in sfu/degree, a i2 in sfu/degree^2.
    pub ionisation: [f64; 3],
    /// Flags of ionospheric storms in the regions 1 to 5, the first one in bit 0.
    pub storms: u8,
}

/// Relation of GPS or Galileo time to UTC, from GPS subframe 4, page 18 (IS-GPS-200, table 20-IX), or I/NAV word 6.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct UtcParameters {
    /// Offset at the reference time in seconds (A0).
    pub a0: f64,
    /// Drift in seconds per second (A1).
    pub a1: f64,
    /// Reference time in seconds of the week (t ot).
    pub reference_seconds: f64,
    /// Full week of the reference time (WN t).
    pub reference_week: u32,
    /// Leap seconds before the next one (delta t LS).
    pub leap_seconds: i8,
    /// Full week at whose end, or at the end of a day of which, a leap second takes effect (WN LSF).
    pub leap_week: u32,
    /// Day of that week, from 1 (DN).
    pub leap_day: u8,
    /// Leap seconds after it (delta t LSF).
    pub leap_seconds_after: i8,
}
