//! Channels decode what [`encode`] returns, and nothing else.
#![allow(clippy::unwrap_used)]

mod rtklib;

use super::*;
use crate::ephemeris::WEEK_SECONDS;
use fxgraph_time::Time;

/// Numbers without a pattern, by splitmix64.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.0;
        bits = (bits ^ bits >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^ bits >> 31
    }

    /// Between 0 and 1.
    pub fn uniform(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / 2.0_f64.powi(53)
    }

    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }
}

/// Broadcast ephemeris of GPS 1 of 2022-01-01 (CDDIS, `brdc0010.22n`).
pub fn gps_1() -> Ephemeris {
    Ephemeris {
        satellite: SatelliteId::gps(1),
        message: Message::Lnav,
        week: 2190,
        toe_seconds: 518_400.0,
        toc_seconds: 518_400.0,
        transmission_seconds: 511_218.0,
        iode: 39,
        iodc: 39,
        sqrt_a: 5153.675_424_99,
        eccentricity: 1.121_820_333_92e-2,
        mean_anomaly: -0.624_294_238_235,
        mean_motion_difference: 3.988_380_417_77e-9,
        perigee: 0.884_087_601_569,
        node: -1.036_611_240_09,
        node_rate: -8.133_553_080_85e-9,
        inclination: 0.986_418_769_49,
        inclination_rate: -3.778_728_827_8e-10,
        cuc: -7.363_036_274_91e-6,
        cus: 4.695_728_421_21e-6,
        crc: 299.75,
        crs: -141.125,
        cic: -3.166_496_753_69e-8,
        cis: 1.956_777_406_69e-7,
        af0: 4.691_267_386_08e-4,
        af1: -1.000_444_171_95e-11,
        af2: 0.0,
        group_delays: [5.122_274_160_39e-9, 0.0],
        health: 0,
        accuracy: 0,
        is_long_fit: false,
        codes_on_l2: 1,
        l2_p_data_off: false,
    }
}

/// An ephemeris with the values of an orbit of Galileo.
pub fn galileo_11() -> Ephemeris {
    Ephemeris {
        satellite: SatelliteId::galileo(11),
        message: Message::Inav,
        iode: 117,
        iodc: 117,
        sqrt_a: 5440.612_319_946_289,
        eccentricity: 1.6e-4,
        node: 2.9,
        group_delays: [-1.862_645_149_23e-9, -2.328_306_436_54e-9],
        accuracy: 107,
        codes_on_l2: 517,
        ..gps_1()
    }
}

pub fn broadcast(ephemeris: Ephemeris) -> Broadcast {
    Broadcast {
        ephemeris,
        klobuchar: Some(Klobuchar {
            alpha: [1.210_7e-8, -7.450_6e-9, -5.960_5e-8, 1.192_1e-7],
            beta: [116_736.0, -245_760.0, -65_536.0, 1_114_112.0],
        }),
        nequick: Some(NeQuick {
            ionisation: [97.25, 0.105_468_75, 0.008_911_132_812_5],
            storms: 5,
        }),
        utc: Some(UtcParameters {
            a0: 2.793_967_723_85e-9,
            a1: 7.993_605_777_3e-15,
            reference_seconds: 147_456.0,
            reference_week: 2191,
            leap_seconds: 18,
            leap_week: 2185,
            leap_day: 7,
            leap_seconds_after: 18,
        }),
    }
}

/// Signal of a satellite, as sums over periods of the code.
struct Transmitter {
    signal: Signal,
    broadcast: Broadcast,
    /// GPS time of the start of period 0 in milliseconds.
    start: i64,
    /// Standard deviation of the noise of a period, whose sum without noise is 1.
    noise: f64,
    random: Random,
    /// Start and symbols of the unit in progress.
    unit: (i64, Vec<bool>),
}

impl Transmitter {
    fn new(signal: Signal, ephemeris: Ephemeris, start: i64) -> Self {
        let broadcast = broadcast(ephemeris);
        Self {
            signal,
            broadcast,
            start,
            noise: 0.3,
            random: Random::new(7),
            unit: (i64::MIN, vec![]),
        }
    }

    /// Time of the start of a period.
    fn time(&self, period: u64) -> Time {
        let milliseconds =
            self.start + period as i64 * i64::from(self.signal.period_milliseconds());
        let picoseconds = milliseconds.rem_euclid(1000) as u64 * 1_000_000_000;
        Time::from_gps(milliseconds.div_euclid(1000), picoseconds).unwrap()
    }

    fn sum(&mut self, period: u64) -> [f64; 2] {
        let length = i64::from(self.signal.period_milliseconds());
        let milliseconds = self.start + period as i64 * length;
        let unit = self.signal.unit_start(milliseconds.div_euclid(1000));
        if self.unit.0 != unit {
            self.unit = (unit, encode(self.signal, &self.broadcast, unit).unwrap());
        }
        let periods = ((milliseconds - 1000 * unit) / length) as usize;
        let signs = self.signal.secondary();
        let is_one = self.unit.1[periods / signs.len()];
        let sign = f64::from(signs[periods % signs.len()]) * if is_one { -1.0 } else { 1.0 };
        [sign + self.noise * self.random.normal(), self.noise * self.random.normal()]
    }
}

const SIGNALS: [Signal; 4] =
    [Signal::GpsL1Ca, Signal::GalileoE1b, Signal::GalileoE5a, Signal::GalileoE5b];

fn ephemeris_of(signal: Signal) -> Ephemeris {
    let ephemeris = match signal.message() {
        Message::Lnav | Message::Cnav => gps_1(),
        Message::Inav | Message::Fnav => galileo_11(),
    };
    Ephemeris { message: signal.message(), ..ephemeris }
}

/// Time of the tests, in a week after that of the ephemeris' start, not at the start of a period or a unit.
fn start(week: i64, seconds: i64) -> i64 {
    1000 * (week * WEEK_SECONDS + seconds)
}

/// Adds `seconds` of sums; returns what was decoded.
fn receive(
    channel: &mut Channel,
    transmitter: &mut Transmitter,
    first: u64,
    seconds: u32,
    sign: f64,
) -> Vec<Decoded> {
    let count = u64::from(1000 * seconds / transmitter.signal.period_milliseconds());
    let mut decoded = Vec::new();
    for period in first..first + count {
        channel.add(period, transmitter.sum(period).map(|part| sign * part));
        decoded.extend(std::iter::from_fn(|| channel.take()));
    }
    decoded
}

fn ephemerides(decoded: &[Decoded]) -> Vec<Ephemeris> {
    let of = |decoded: &Decoded| match decoded {
        Decoded::Ephemeris(ephemeris) => Some(**ephemeris),
        _ => None,
    };
    decoded.iter().filter_map(of).collect()
}

/// Asserts that both ephemerides have the same symbols, and the same week.
fn assert_same(signal: Signal, ephemeris: &Ephemeris, expected: &Ephemeris) {
    let start = i64::from(expected.week) * WEEK_SECONDS + 518_400;
    for unit in (0..60).step_by(signal.unit_seconds() as usize) {
        let of = |ephemeris: &Ephemeris| encode(signal, &broadcast(*ephemeris), start + unit);
        assert_eq!(of(ephemeris), of(expected), "{ephemeris:?}");
    }
    assert_eq!((ephemeris.week, ephemeris.satellite), (expected.week, expected.satellite));
    assert_eq!(ephemeris.message, signal.message());
    let apart = (ephemeris.mean_anomaly - expected.mean_anomaly).abs();
    assert!(apart < 1e-9 && (ephemeris.sqrt_a - expected.sqrt_a).abs() < 2e-6);
}

#[test]
fn channel_decodes_the_ephemeris_and_the_time_of_each_signal_with_either_sign() {
    for signal in SIGNALS {
        for (sign, offset) in [(1.0, 0), (-1.0, 12_340)] {
            let sent = ephemeris_of(signal);
            let mut transmitter = Transmitter::new(signal, sent, start(2190, 517_003) + offset);
            // The week is ambiguous by 1024.
            let mut channel = Channel::new(signal, sent.satellite, 2400);
            let seconds = if signal == Signal::GalileoE5a { 75 } else { 50 };
            let decoded = receive(&mut channel, &mut transmitter, 5, seconds, sign);
            let [ephemeris] = ephemerides(&decoded)[..] else { panic!("{signal:?} {decoded:?}") };
            assert_same(signal, &ephemeris, &sent);
            for period in [5, 1234, 100_000] {
                assert_eq!(channel.transmission(period), Some(transmitter.time(period)));
            }
            assert_eq!((channel.counts().failed, channel.counts().contradicted), (0, 0));
            if signal.message() != Message::Lnav {
                let nequick = Decoded::NeQuick(transmitter.broadcast.nequick.unwrap());
                assert!(decoded.contains(&nequick), "{decoded:?}");
            }
        }
    }
}

/// Ephemerides whose values go through the range of their fields.
fn files() -> Vec<Ephemeris> {
    let mut random = Random::new(3);
    let mut between = |least: f64, most: f64| least + (most - least) * random.uniform();
    let mut of = |_| Ephemeris {
        iode: between(0.0, 255.9) as u16,
        sqrt_a: between(5100.0, 5200.0),
        eccentricity: between(0.0, 0.03),
        mean_anomaly: between(-3.1, 3.1),
        mean_motion_difference: between(-1e-8, 1e-8),
        perigee: between(-3.1, 3.1),
        node: between(-3.1, 3.1),
        node_rate: between(-1e-8, 1e-8),
        inclination: between(0.9, 1.1),
        inclination_rate: between(-1e-9, 1e-9),
        cuc: between(-6e-5, 6e-5),
        cus: between(-6e-5, 6e-5),
        crc: between(-1000.0, 1000.0),
        crs: between(-1000.0, 1000.0),
        cic: between(-6e-5, 6e-5),
        cis: between(-6e-5, 6e-5),
        af0: between(-9e-4, 9e-4),
        af1: between(-3e-9, 3e-9),
        af2: between(-3e-15, 3e-15),
        group_delays: [between(-5e-8, 5e-8), 0.0],
        health: between(0.0, 63.9) as u16,
        accuracy: between(0.0, 14.9) as u8,
        ..gps_1()
    };
    let mut all: Vec<Ephemeris> = (0..3).map(&mut of).collect();
    for ephemeris in &mut all {
        ephemeris.iodc = 0x200 | ephemeris.iode;
    }
    all.push(gps_1());
    all
}
