//! The table of signals: constants of the interface specifications.
//!
//! A new signal is an entry at the end of the table, because the place is its number in streams, and lines in
//! `codes/digests.txt`.

use super::Subcarrier;
use super::codes::{beidou, galileo, gps};
use schemars::JsonSchema;
use serde::Deserialize;
use std::ops::RangeInclusive;

/// Chips of a satellite, each 1 (logic 0) or -1 (logic 1); `None` if the satellite does not exist.
pub type Code = fn(usize) -> Option<Vec<i8>>;

/// Constants of a signal.
#[derive(Clone, Debug)]
pub struct Signal {
    /// Name in flowgraphs.
    pub name: &'static str,
    /// Letter of the system in names of satellites.
    pub letter: char,
    /// Name of the component in names of satellites; empty for the one that gives a satellite its plain name.
    pub component: &'static str,
    /// Frequency of the carrier.
    pub carrier_hz: f64,
    /// Chips per second.
    pub chip_rate_hz: f64,
    /// Number of chips of the code.
    pub chips: usize,
    /// Shape of a chip.
    pub subcarrier: Subcarrier,
    /// Numbers of the satellites.
    pub prns: RangeInclusive<usize>,
    /// Chips of a satellite.
    pub code: Code,
    /// Number of chips of the secondary code, which last a period of the code each, and the chips of a satellite.
    pub secondary: Option<(usize, Code)>,
    /// Number of code periods per data symbol; `None` for a pilot.
    pub periods_per_symbol: Option<u64>,
}

/// Defines the signals, each with its entry of the table.
macro_rules! signals {
    ($($(#[doc = $about:literal])* $variant:ident: $entry:expr,)*) => {
        /// Signal of a satellite navigation system, by its name in flowgraphs.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
        #[serde(rename_all = "snake_case")]
        pub enum System { $($(#[doc = $about])* $variant,)* }

        const COUNT: usize = [$(stringify!($variant)),*].len();

        pub(super) static SIGNALS: [Signal; COUNT] = [$($entry),*];

        impl System {
            /// All signals; the index of each is its number in streams.
            pub const ALL: [Self; COUNT] = [$(Self::$variant),*];
        }
    };
}

const L1_HZ: f64 = 1575.42e6;
const L2_HZ: f64 = 1227.6e6;
const L5_HZ: f64 = 1176.45e6;
const E5B_HZ: f64 = 1207.14e6;

const GPS: RangeInclusive<usize> = 1..=63;
const QZSS: RangeInclusive<usize> = 193..=202;

const L1_CA: Signal = Signal {
    name: "gps_l1_ca",
    letter: 'G',
    component: "",
    carrier_hz: L1_HZ,
    chip_rate_hz: 1.023e6,
    chips: 1023,
    subcarrier: Subcarrier::None,
    prns: 1..=37,
    code: gps::gps_l1_ca,
    secondary: None,
    periods_per_symbol: Some(20),
};
const L1C_D: Signal = Signal {
    name: "gps_l1c_d",
    component: "L1CD",
    chips: 10_230,
    subcarrier: Subcarrier::Sine(2),
    prns: GPS,
    code: gps::l1c_d,
    periods_per_symbol: Some(1),
    ..L1_CA
};
const L1C_P: Signal = Signal {
    name: "gps_l1c_p",
    component: "L1CP",
    subcarrier: Subcarrier::TimeMultiplexed,
    code: gps::l1c_p,
    secondary: Some((1800, gps::l1c_overlay)),
    periods_per_symbol: None,
    ..L1C_D
};
const L2C_M: Signal = Signal {
    name: "gps_l2c_m",
    component: "L2CM",
    carrier_hz: L2_HZ,
    chip_rate_hz: 0.5115e6,
    chips: 10_230,
    subcarrier: Subcarrier::FirstHalf,
    prns: GPS,
    code: gps::l2c_m,
    periods_per_symbol: Some(1),
    ..L1_CA
};
const L2C_L: Signal = Signal {
    name: "gps_l2c_l",
    component: "L2CL",
    chips: 767_250,
    subcarrier: Subcarrier::SecondHalf,
    code: gps::l2c_l,
    periods_per_symbol: None,
    ..L2C_M
};
const L5_I: Signal = Signal {
    name: "gps_l5_i",
    component: "L5I",
    carrier_hz: L5_HZ,
    chip_rate_hz: 10.23e6,
    chips: 10_230,
    prns: GPS,
    code: gps::l5_i,
    secondary: Some((10, gps::l5_i_secondary)),
    periods_per_symbol: Some(10),
    ..L1_CA
};
const L5_Q: Signal = Signal {
    name: "gps_l5_q",
    component: "L5Q",
    code: gps::l5_q,
    secondary: Some((20, gps::l5_q_secondary)),
    periods_per_symbol: None,
    ..L5_I
};
const E1_B: Signal = Signal {
    name: "galileo_e1b",
    letter: 'E',
    chips: 4092,
    subcarrier: Subcarrier::Sum,
    prns: 1..=50,
    code: galileo::e1b,
    periods_per_symbol: Some(1),
    ..L1_CA
};
const E5A_I: Signal = Signal {
    name: "galileo_e5a_i",
    component: "E5aI",
    carrier_hz: L5_HZ,
    chip_rate_hz: 10.23e6,
    chips: 10_230,
    subcarrier: Subcarrier::None,
    code: galileo::e5a_i,
    secondary: Some((20, galileo::e5a_i_secondary)),
    periods_per_symbol: Some(20),
    ..E1_B
};
const E5A_Q: Signal = Signal {
    name: "galileo_e5a_q",
    component: "E5aQ",
    code: galileo::e5a_q,
    secondary: Some((100, galileo::e5a_q_secondary)),
    periods_per_symbol: None,
    ..E5A_I
};
const B1C_D: Signal =
    Signal { name: "beidou_b1c_d", letter: 'C', component: "B1CD", code: beidou::b1c_d, ..L1C_D };
const B2A_D: Signal = Signal {
    name: "beidou_b2a_d",
    component: "B2aD",
    carrier_hz: L5_HZ,
    chip_rate_hz: 10.23e6,
    subcarrier: Subcarrier::None,
    code: beidou::b2a_d,
    secondary: Some((5, beidou::b2a_d_secondary)),
    periods_per_symbol: Some(5),
    ..B1C_D
};

signals! {
    /// GPS L1 C/A: 1023 chips in 1 ms, BPSK (IS-GPS-200).
    GpsL1Ca: L1_CA,
    /// Galileo E1-B, data: 4092 chips in 4 ms, CBOC(6,1,1/11) (Galileo open service signal-in-space interface control
    /// document).
    GalileoE1b: E1_B,
    /// GPS L1C, data: 10230 chips in 10 ms, BOC(1,1) (IS-GPS-800).
    GpsL1cD: L1C_D,
    /// GPS L1C, pilot: 10230 chips in 10 ms, TMBOC(6,1,4/33) (IS-GPS-800).
    GpsL1cP: L1C_P,
    /// GPS L2C, moderate code with data: 10230 chips in 20 ms, the first half of each chip (IS-GPS-200).
    GpsL2cM: L2C_M,
    /// GPS L2C, long code: 767250 chips in 1.5 s, the second half of each chip (IS-GPS-200).
    GpsL2cL: L2C_L,
    /// GPS L5, in phase, data: 10230 chips in 1 ms, BPSK (IS-GPS-705).
    GpsL5I: L5_I,
    /// GPS L5, in quadrature, pilot: 10230 chips in 1 ms, BPSK (IS-GPS-705).
    GpsL5Q: L5_Q,
    /// Galileo E1-C, pilot: 4092 chips in 4 ms, CBOC(6,1,1/11) with the opposite sign of BOC(6,1).
    GalileoE1c: Signal {
        name: "galileo_e1c",
        component: "E1C",
        subcarrier: Subcarrier::Difference,
        code: galileo::e1c,
        secondary: Some((25, galileo::e1c_secondary)),
        periods_per_symbol: None,
        ..E1_B
    },
    /// Galileo E5a, in phase, data: 10230 chips in 1 ms, BPSK about the carrier of E5a.
    GalileoE5aI: E5A_I,
    /// Galileo E5a, in quadrature, pilot: 10230 chips in 1 ms, BPSK about the carrier of E5a.
    GalileoE5aQ: E5A_Q,
    /// Galileo E5b, in phase, data: 10230 chips in 1 ms, BPSK about the carrier of E5b.
    GalileoE5bI: Signal {
        name: "galileo_e5b_i",
        component: "E5bI",
        carrier_hz: E5B_HZ,
        code: galileo::e5b_i,
        secondary: Some((4, galileo::e5b_i_secondary)),
        periods_per_symbol: Some(4),
        ..E5A_I
    },
    /// Galileo E5b, in quadrature, pilot: 10230 chips in 1 ms, BPSK about the carrier of E5b.
    GalileoE5bQ: Signal {
        name: "galileo_e5b_q",
        component: "E5bQ",
        carrier_hz: E5B_HZ,
        code: galileo::e5b_q,
        secondary: Some((100, galileo::e5b_q_secondary)),
        ..E5A_Q
    },
    /// BeiDou B1C, data: 10230 chips in 10 ms, BOC(1,1) (BDS-SIS-ICD-B1C).
    BeidouB1cD: B1C_D,
    /// BeiDou B1C, pilot: 10230 chips in 10 ms, the BOC(1,1) of QMBOC(6,1,4/33), which has 29/33 of the power of the
    /// pilot; the rest is in quadrature (BDS-SIS-ICD-B1C).
    BeidouB1cP: Signal {
        name: "beidou_b1c_p",
        component: "B1CP",
        code: beidou::b1c_p,
        secondary: Some((1800, beidou::b1c_p_secondary)),
        periods_per_symbol: None,
        ..B1C_D
    },
    /// BeiDou B2a, data: 10230 chips in 1 ms, BPSK (BDS-SIS-ICD-B2a).
    BeidouB2aD: B2A_D,
    /// BeiDou B2a, pilot: 10230 chips in 1 ms, BPSK (BDS-SIS-ICD-B2a).
    BeidouB2aP: Signal {
        name: "beidou_b2a_p",
        component: "B2aP",
        code: beidou::b2a_p,
        secondary: Some((100, beidou::b2a_p_secondary)),
        periods_per_symbol: None,
        ..B2A_D
    },
    /// QZSS L1 C/A: as GPS L1 C/A.
    QzssL1Ca: Signal {
        name: "qzss_l1_ca",
        letter: 'J',
        prns: QZSS,
        code: gps::qzss_l1_ca,
        ..L1_CA
    },
    /// QZSS L1C, data: as GPS.
    QzssL1cD: Signal { name: "qzss_l1c_d", letter: 'J', prns: QZSS, ..L1C_D },
    /// QZSS L1C, pilot: as GPS.
    QzssL1cP: Signal { name: "qzss_l1c_p", letter: 'J', prns: QZSS, ..L1C_P },
    /// QZSS L2C, moderate code: as GPS.
    QzssL2cM: Signal { name: "qzss_l2c_m", letter: 'J', prns: QZSS, ..L2C_M },
    /// QZSS L2C, long code: as GPS.
    QzssL2cL: Signal { name: "qzss_l2c_l", letter: 'J', prns: QZSS, ..L2C_L },
    /// QZSS L5, in phase, data: as GPS.
    QzssL5I: Signal { name: "qzss_l5_i", letter: 'J', prns: QZSS, ..L5_I },
    /// QZSS L5, in quadrature, pilot: as GPS.
    QzssL5Q: Signal { name: "qzss_l5_q", letter: 'J', prns: QZSS, ..L5_Q },
}
