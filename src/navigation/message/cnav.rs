//! CNAV of GPS and QZSS, on L2C and L5: messages of 300 bits with a CRC, convolutionally encoded without a tail (IS-GPS-200,
//! 30.3; IS-GPS-705, 20.3).

use super::bits::{Fields, nearest};
use super::crc::crc24q;
use super::viterbi::{Decoder, Encoder};
use super::{Broadcast, Content, Decoded, OutOfRange, Signal};
use crate::ephemeris::{Ephemeris, Klobuchar, UtcParameters, WEEK_SECONDS};
use std::collections::VecDeque;

/// Bits of a message, and those before its CRC.
pub const MESSAGE: usize = 300;
const BEFORE_CRC: usize = 276;
const PREAMBLE: u64 = 0b1000_1011;
/// Symbols from the end of a message to its decoding.
pub const DELAY: u64 = 2 * Decoder::DELAY as u64;
/// Types of the messages of an ephemeris: two of the orbit, and the clock with group delays and ionosphere.
pub const PIECES: usize = 3;
const TYPES: [u8; 4] = [10, 11, 30, 33];
/// Semi-major axis in m and rate of the node in semicircles per second from which differences are sent.
const AXIS: f64 = 26_559_710.0;
const NODE_RATE: f64 = -2.6e-9 * std::f64::consts::PI;
/// Unit of reference times in seconds.
const TIME_UNIT: f64 = 300.0;

/// Finds messages in symbols. The first symbol of a bit is unknown: both possibilities are decoded.
pub struct Framer {
    phases: [(Decoder, VecDeque<bool>); 2],
    last: Option<f32>,
    is_second: bool,
}

impl Framer {
    pub fn new() -> Self {
        let phase = || (Decoder::of_stream(), VecDeque::with_capacity(MESSAGE));
        Self { phases: [phase(), phase()], last: None, is_second: false }
    }

    /// Adds a symbol; returns the message that ended [`DELAY`] symbols before its end, if its CRC is right.
    pub fn add(&mut self, symbol: f32) -> Option<[bool; MESSAGE]> {
        let last = self.last.replace(symbol)?;
        self.is_second = !self.is_second;
        let (decoder, bits) = &mut self.phases[usize::from(self.is_second)];
        let bit = decoder.stream([last, symbol])?;
        if bits.len() == MESSAGE {
            bits.pop_front();
        }
        bits.push_back(bit);
        if bits.len() < MESSAGE {
            return None;
        }
        let number = |bits: &mut dyn Iterator<Item = bool>| {
            bits.fold(0, |value, bit| value << 1 | u64::from(bit))
        };
        let is_inverted = match number(&mut bits.range(..8).copied()) {
            PREAMBLE => false,
            inverted if inverted == !PREAMBLE & 0xFF => true,
            _ => return None,
        };
        let mut message = [false; MESSAGE];
        for (to, bit) in message.iter_mut().zip(bits) {
            *to = *bit != is_inverted;
        }
        let (checked, crc) = message.split_at(BEFORE_CRC);
        let is_right =
            u64::from(crc24q(checked.iter().copied())) == number(&mut crc.iter().copied());
        is_right.then_some(message)
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Header {
    prn: u8,
    kind: u8,
    /// Start of the next message in units of 6 s, from the start of the week.
    next: u32,
    is_alert: bool,
}

fn header(fields: &mut Fields<'_>, of: &mut Header) {
    fields.constant(8, PREAMBLE);
    fields.unsigned("PRN", 6, &mut of.prn);
    fields.unsigned("type", 6, &mut of.kind);
    fields.unsigned("TOW", 17, &mut of.next);
    fields.flag(&mut of.is_alert);
}

/// Data of the messages.
struct Data {
    ephemeris: Ephemeris,
    klobuchar: Klobuchar,
    utc: UtcParameters,
    /// Week of transmission modulo 8192.
    week: u32,
    signal: Signal,
}

impl Data {
    fn new(ephemeris: Ephemeris, signal: Signal) -> Self {
        let (klobuchar, utc) = (Klobuchar::default(), UtcParameters::default());
        Self { ephemeris, klobuchar, utc, week: 0, signal }
    }
}

/// A message after its header.
fn message(fields: &mut Fields<'_>, kind: u8, data: &mut Data) {
    match kind {
        10 => orbit(fields, data),
        11 => plane(fields, &mut data.ephemeris),
        30 => clock_and_delays(fields, data),
        33 => clock_and_utc(fields, data),
        _ => {}
    }
}

fn orbit(fields: &mut Fields<'_>, data: &mut Data) {
    let of = &mut data.ephemeris;
    fields.unsigned("WN", 13, &mut data.week);
    fields.unsigned("health", 3, &mut of.health);
    let mut prediction = of.toe_seconds;
    fields.time("t_op", 11, TIME_UNIT, &mut prediction);
    // Negative indices, better than 2.4 m, have no number in LNAV.
    let mut accuracy = of.accuracy.cast_signed();
    fields.signed(5, &mut accuracy);
    of.accuracy = accuracy.max(0).cast_unsigned();
    fields.time("t_oe", 11, TIME_UNIT, &mut of.toe_seconds);
    let mut axis = of.sqrt_a.powi(2) - AXIS;
    fields.scaled("delta A", 26, -9, &mut axis);
    of.sqrt_a = (axis + AXIS).sqrt();
    fields.scaled("A DOT", 25, -21, &mut of.semi_major_axis_rate);
    fields.angle("delta n_0", 17, -44, &mut of.mean_motion_difference);
    fields.angle("delta n_0 DOT", 23, -57, &mut of.mean_motion_rate);
    fields.phase("M_0", 33, &mut of.mean_anomaly);
    fields.positive("e", 33, 2.0_f64.powi(-34), &mut of.eccentricity);
    fields.phase("omega", 33, &mut of.perigee);
    // Integrity status, phasing of L2C, reserved.
    fields.constant(5, 0);
}

fn plane(fields: &mut Fields<'_>, of: &mut Ephemeris) {
    fields.time("t_oe", 11, TIME_UNIT, &mut of.toe_seconds);
    fields.phase("OMEGA_0", 33, &mut of.node);
    fields.phase("i_0", 33, &mut of.inclination);
    let mut rate = of.node_rate - NODE_RATE;
    fields.angle("delta OMEGA DOT", 17, -44, &mut rate);
    of.node_rate = rate + NODE_RATE;
    fields.angle("IDOT", 15, -44, &mut of.inclination_rate);
    fields.scaled("C_is", 16, -30, &mut of.cis);
    fields.scaled("C_ic", 16, -30, &mut of.cic);
    fields.scaled("C_rs", 24, -8, &mut of.crs);
    fields.scaled("C_rc", 24, -8, &mut of.crc);
    fields.scaled("C_us", 21, -30, &mut of.cus);
    fields.scaled("C_uc", 21, -30, &mut of.cuc);
    fields.constant(7, 0);
}

fn clock(fields: &mut Fields<'_>, of: &mut Ephemeris) {
    let mut prediction = of.toc_seconds;
    fields.time("t_op", 11, TIME_UNIT, &mut prediction);
    // Accuracy of the clock, and how it changes.
    fields.constant(5 + 3 + 3, 0);
    fields.time("t_oc", 11, TIME_UNIT, &mut of.toc_seconds);
    fields.scaled("a_f0", 26, -35, &mut of.af0);
    fields.scaled("a_f1", 20, -48, &mut of.af1);
    fields.scaled("a_f2", 10, -60, &mut of.af2);
}

fn clock_and_delays(fields: &mut Fields<'_>, data: &mut Data) {
    clock(fields, &mut data.ephemeris);
    let [group, signal] = &mut data.ephemeris.group_delays;
    fields.scaled("T_GD", 13, -35, group);
    // Differences of L1 C/A, L2C, L5 I and L5 Q.
    for of in [Signal::GpsL1Ca, Signal::GpsL2c, Signal::GpsL5] {
        let mut other = 0.0;
        let difference = if of == data.signal { &mut *signal } else { &mut other };
        fields.scaled("ISC", 13, -35, difference);
    }
    fields.constant(13, 0);
    let Klobuchar { alpha, beta } = &mut data.klobuchar;
    for (value, log2) in alpha.iter_mut().zip([-30, -27, -24, -24]) {
        fields.scaled("alpha", 8, log2, value);
    }
    for (value, log2) in beta.iter_mut().zip([11, 14, 16, 16]) {
        fields.scaled("beta", 8, log2, value);
    }
    fields.constant(8 + 12, 0);
}

fn clock_and_utc(fields: &mut Fields<'_>, data: &mut Data) {
    clock(fields, &mut data.ephemeris);
    let of = &mut data.utc;
    fields.scaled("A_0", 16, -35, &mut of.a0);
    fields.scaled("A_1", 13, -51, &mut of.a1);
    // Acceleration.
    fields.constant(7, 0);
    fields.signed(8, &mut of.leap_seconds);
    fields.positive("t_ot", 16, 16.0, &mut of.reference_seconds);
    fields.unsigned("WN_ot", 13, &mut of.reference_week);
    fields.unsigned("WN_LSF", 13, &mut of.leap_week);
    fields.unsigned("DN", 4, &mut of.leap_day);
    fields.signed(8, &mut of.leap_seconds_after);
    fields.constant(51, 0);
}

/// Returns the bits of the message that starts at `start`.
fn bits(signal: Signal, broadcast: &Broadcast, start: i64) -> Result<[bool; MESSAGE], OutOfRange> {
    let length = i64::from(signal.unit_seconds());
    let mut kind = TYPES[(start.div_euclid(length)).rem_euclid(4) as usize];
    if kind == 33 && broadcast.utc.is_none() {
        kind = 30;
    }
    let mut data = Data::new(broadcast.ephemeris, signal);
    data.week = start.div_euclid(WEEK_SECONDS).rem_euclid(8192) as u32;
    data.klobuchar = broadcast.klobuchar.unwrap_or_default();
    data.utc = broadcast.utc.unwrap_or_default();
    let next = ((start + length).rem_euclid(WEEK_SECONDS) / 6) as u32;
    let prn = broadcast.ephemeris.satellite.prn;
    let mut message_bits = [false; MESSAGE];
    let mut fields = Fields::write(&mut message_bits);
    header(&mut fields, &mut Header { prn, kind, next, is_alert: false });
    message(&mut fields, kind, &mut data);
    fields.finish()?;
    let crc = crc24q(message_bits[..BEFORE_CRC].iter().copied());
    Fields::write(&mut message_bits[BEFORE_CRC..]).constant(24, u64::from(crc));
    Ok(message_bits)
}

/// Returns the symbols of the message that starts at `start`, in seconds of GPS time; true is 1.
pub fn encode(signal: Signal, broadcast: &Broadcast, start: i64) -> Result<Vec<bool>, OutOfRange> {
    let before = bits(signal, broadcast, start - i64::from(signal.unit_seconds()))?;
    let mut encoder = Encoder::default();
    // The encoder goes on from message to message.
    for bit in &before[MESSAGE - 6..] {
        encoder.encode(*bit);
    }
    let bits = bits(signal, broadcast, start)?;
    Ok(bits.iter().flat_map(|bit| encoder.encode(*bit)).collect())
}

fn read(bits: &[bool], signal: Signal) -> (Header, Data) {
    let mut fields = Fields::read(bits);
    let mut of = Header::default();
    header(&mut fields, &mut of);
    let mut data = Data::new(super::blank(), signal);
    message(&mut fields, of.kind, &mut data);
    (of, data)
}

/// Reads the type and the time of a message.
pub fn content(bits: &[bool], signal: Signal) -> Option<Content> {
    let (of, data) = read(bits, signal);
    let next = i64::from(of.next) * 6;
    let issue = |seconds: f64| Some((seconds / TIME_UNIT) as u16);
    (next < WEEK_SECONDS).then(|| Content {
        seconds: Some((next - i64::from(signal.unit_seconds())).rem_euclid(WEEK_SECONDS) as u32),
        week: (of.kind == 10).then_some((data.week, 8192)),
        piece: match of.kind {
            10 => Some((0, issue(data.ephemeris.toe_seconds))),
            11 => Some((1, issue(data.ephemeris.toe_seconds))),
            // Data of one upload have the same reference time.
            30 => Some((2, issue(data.ephemeris.toc_seconds))),
            _ => None,
        },
        prn: Some(of.prn),
        is_alert: of.is_alert,
    })
}

/// Reads the ephemeris in messages 10, 11 and 30.
pub fn ephemeris(pieces: &[&[bool]], signal: Signal, of: &mut Ephemeris) {
    let mut data = Data::new(*of, signal);
    for bits in pieces {
        let mut fields = Fields::read(bits);
        let mut of = Header::default();
        header(&mut fields, &mut of);
        message(&mut fields, of.kind, &mut data);
    }
    *of = data.ephemeris;
    of.iode = (of.toe_seconds / TIME_UNIT) as u16;
    of.iodc = of.iode;
}

/// Reads ionosphere and UTC, in a week near `week`, if the message has them.
pub fn others(bits: &[bool], signal: Signal, week: u32, decoded: &mut impl FnMut(Decoded)) {
    let (of, mut data) = read(bits, signal);
    match of.kind {
        30 => decoded(Decoded::Klobuchar(data.klobuchar)),
        33 => {
            for of in [&mut data.utc.reference_week, &mut data.utc.leap_week] {
                *of = nearest(*of, 8192, week);
            }
            decoded(Decoded::Utc(data.utc));
        }
        _ => {}
    }
}
