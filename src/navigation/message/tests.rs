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
        sqrt_a: 5_153.675_424_99,
        eccentricity: 1.121_820_333_92e-2,
        mean_anomaly: -0.624_294_238_235,
        mean_motion_difference: 3.988_380_417_77e-9,
        semi_major_axis_rate: 0.0,
        mean_motion_rate: 0.0,
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
        sqrt_a: 5_440.612_319_946_289,
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
    /// An ephemeris that is sent from the second on.
    upload: Option<(i64, Ephemeris)>,
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
            upload: None,
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
            if let Some((_, ephemeris)) = self.upload.filter(|(from, _)| unit >= *from) {
                self.broadcast.ephemeris = ephemeris;
            }
            self.unit = (unit, encode(self.signal, &self.broadcast, unit).unwrap());
        }
        let periods = ((milliseconds - 1000 * unit) / length) as usize;
        let signs = self.signal.secondary();
        let is_one = self.unit.1[periods / signs.len()];
        let sign = f64::from(signs[periods % signs.len()]) * if is_one { -1.0 } else { 1.0 };
        [sign + self.noise * self.random.normal(), self.noise * self.random.normal()]
    }
}

const SIGNALS: [Signal; 6] = Signal::ALL;

fn ephemeris_of(signal: Signal) -> Ephemeris {
    let ephemeris = match signal.message() {
        Message::Lnav => gps_1(),
        // Values that LNAV does not have; the issue is the reference time.
        Message::Cnav => Ephemeris {
            iode: 1728,
            iodc: 1728,
            semi_major_axis_rate: -3.1e-3,
            mean_motion_rate: 1.7e-14,
            group_delays: [-5.8e-9, 1.9e-9],
            codes_on_l2: 0,
            ..gps_1()
        },
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
            // As long as an ephemeris takes.
            let seconds = match signal {
                Signal::GpsL2c => 90,
                Signal::GalileoE5a => 75,
                _ => 50,
            };
            let decoded = receive(&mut channel, &mut transmitter, 5, seconds, sign);
            let [ephemeris] = ephemerides(&decoded)[..] else { panic!("{signal:?} {decoded:?}") };
            assert_same(signal, &ephemeris, &sent);
            for period in [5, 1234, 100_000] {
                assert_eq!(channel.transmission(period), Some(transmitter.time(period)));
            }
            assert_eq!((channel.counts().failed, channel.counts().contradicted), (0, 0));
            if matches!(signal.message(), Message::Inav | Message::Fnav) {
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

#[test]
fn subframe_with_a_half_cycle_slip_anywhere_is_rejected() {
    let start = 2190 * WEEK_SECONDS + 518_400;
    for seconds in [0, 6, 12] {
        let symbols = encode(Signal::GpsL1Ca, &broadcast(gps_1()), start + seconds).unwrap();
        let decode = |slip: usize| {
            let mut framer = lnav::Framer::new();
            let soft = |(n, one): (usize, &bool)| if *one == (n < slip) { -1.0 } else { 1.0 };
            symbols.iter().enumerate().find_map(|(n, one)| framer.add(soft((n, one))))
        };
        assert!(decode(0).is_some() && decode(0) == decode(300));
        for slip in 1..300 {
            assert!(decode(slip).is_none(), "subframe at {seconds} s, slip before bit {slip}");
        }
    }
}

#[test]
fn no_wrong_ephemeris_is_accepted_from_symbols_with_many_errors() {
    // Bit error rates of 0.15, 0.4 and 0.9 %.
    for (noise, least) in [(1.5, 6), (1.7, 1), (1.9, 0)] {
        let sent = gps_1();
        let mut transmitter = Transmitter::new(Signal::GpsL1Ca, sent, start(2190, 500_000));
        transmitter.noise = noise;
        let mut channel = Channel::new(Signal::GpsL1Ca, sent.satellite, 2190);
        let mut accepted = 0;
        let mut sent = vec![sent];
        for hour in 1..=8 {
            let mut next = gps_1();
            (next.iode, next.iodc) = (hour, 0x100 | hour);
            next.mean_anomaly = f64::from(hour) / 10.0;
            next.af0 = f64::from(hour) * 1e-5;
            sent.push(next);
            transmitter.upload =
                Some((2190 * WEEK_SECONDS + 500_000 + 600 * i64::from(hour - 1), next));
            let first = 600_000 * u64::from(hour - 1);
            for found in ephemerides(&receive(&mut channel, &mut transmitter, first, 600, 1.0)) {
                let of = sent.iter().find(|sent| sent.iodc == found.iodc);
                assert_same(Signal::GpsL1Ca, &found, of.unwrap());
                accepted += 1;
            }
        }
        assert!(accepted >= least, "{accepted}");
        let counts = channel.counts();
        assert!(counts.failed > 100 && counts.contradicted == 0, "{counts:?}");
    }
}

#[test]
fn upload_within_a_frame_gives_the_old_or_the_new_ephemeris() {
    // E5b has the pages of E1-B.
    for signal in [Signal::GpsL1Ca, Signal::GalileoE1b, Signal::GalileoE5a] {
        let old = ephemeris_of(signal);
        let mut new = Ephemeris { mean_anomaly: 0.5, af0: 1e-5, ..old };
        (new.iode, new.iodc) = (77, 77);
        let unit = i64::from(signal.unit_seconds());
        // Not every page of I/NAV, for the time that it takes.
        for units in (0..50 / unit).step_by(if unit == 2 { 3 } else { 1 }) {
            let first = 2190 * WEEK_SECONDS + 518_000 + unit * units;
            let mut transmitter = Transmitter::new(signal, old, start(2190, 517_960));
            transmitter.upload = Some((signal.unit_start(first), new));
            let mut channel = Channel::new(signal, old.satellite, 2190);
            let decoded = receive(&mut channel, &mut transmitter, 0, 160, 1.0);
            let found = ephemerides(&decoded);
            assert!((1..=2).contains(&found.len()), "{signal:?}: {found:?}");
            for ephemeris in &found {
                let sent = if ephemeris.iode == old.iode { &old } else { &new };
                assert_same(signal, ephemeris, sent);
            }
            assert_eq!(found[found.len() - 1].iode, new.iode);
        }
    }
}

#[test]
fn time_and_week_are_right_across_gaps_and_the_end_of_a_week() {
    for signal in SIGNALS {
        let mut sent = ephemeris_of(signal);
        (sent.toe_seconds, sent.toc_seconds) = (0.0, 0.0);
        sent.week = 2191;
        if signal.message() == Message::Cnav {
            (sent.iode, sent.iodc) = (0, 0);
        }
        let length = u64::from(signal.period_milliseconds());
        let mut transmitter = Transmitter::new(signal, sent, start(2190, 604_760));
        let mut channel = Channel::new(signal, sent.satellite, 2190);
        let mut decoded = receive(&mut channel, &mut transmitter, 0, 20, -1.0);
        // 3.3 s are missing, and single periods are.
        let first = 23_300 / length;
        for period in (first..first + 120_000 / length).filter(|period| period % 2500 != 3) {
            channel.add(period, transmitter.sum(period));
            decoded.extend(std::iter::from_fn(|| channel.take()));
        }
        let found = ephemerides(&decoded);
        assert_same(signal, &found[0], &sent);
        assert_eq!((found.len(), channel.counts().contradicted), (1, 0));
        for period in [0, 39_000 / length, 100_000 / length] {
            assert_eq!(channel.transmission(period), Some(transmitter.time(period)));
        }
        // A lower number starts another track, whose time is not known yet.
        channel.add(3, transmitter.sum(3));
        assert_eq!(channel.transmission(3), None);
        let again = receive(&mut channel, &mut transmitter, 4, 100, 1.0);
        assert_eq!(channel.transmission(7), Some(transmitter.time(7)));
        assert!(ephemerides(&again).is_empty(), "the ephemeris is known");
    }
}

#[test]
fn message_of_another_satellite_gives_no_ephemeris() {
    for signal in [Signal::GalileoE1b, Signal::GalileoE5a] {
        let mut transmitter = Transmitter::new(signal, galileo_11(), start(2190, 517_003));
        let mut channel = Channel::new(signal, SatelliteId::galileo(12), 2190);
        let decoded = receive(&mut channel, &mut transmitter, 0, 120, 1.0);
        assert_eq!((ephemerides(&decoded).len(), channel.ephemeris()), (0, None));
        assert!(channel.counts().contradicted > 1, "{:?}", channel.counts());
    }
}

#[test]
fn noise_and_zeros_give_nothing() {
    for signal in SIGNALS {
        let mut channel = Channel::new(signal, ephemeris_of(signal).satellite, 2190);
        let mut random = Random::new(5);
        for period in 0..150_000 / u64::from(signal.period_milliseconds()) {
            channel.add(period, [random.normal(), random.normal()]);
        }
        for period in 400_000..500_000 {
            channel.add(period, [0.0; 2]);
        }
        assert_eq!((channel.take(), channel.counts().decoded), (None, 0), "{signal:?}");
    }
}

#[test]
fn value_outside_its_field_is_rejected_with_its_name() {
    let mut sent = broadcast(gps_1());
    sent.ephemeris.eccentricity = 0.6;
    let error = encode(Signal::GpsL1Ca, &sent, 2190 * WEEK_SECONDS + 6).unwrap_err();
    assert_eq!(error.field, "e");
    assert!(error.to_string().starts_with("e of 5153960755"), "{error}");
}
