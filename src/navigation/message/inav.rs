//! I/NAV of Galileo, on E1-B and E5b: nominal pages of an even and an odd part (Galileo OS SIS ICD, 4.3).

use super::bits::{Fields, nearest};
use super::crc::crc24q;
use super::galileo::{Page, TAIL};
use super::viterbi::Decoder;
use super::{Broadcast, Content, Decoded, OutOfRange, Signal, Window};
use crate::ephemeris::{Ephemeris, NeQuick, UtcParameters, WEEK_SECONDS};

/// One of the two parts of a page.
const PART: Page = Page { pattern: 0b01_0110_0000, pattern_len: 10, bits: 120 };
/// Symbols of a page.
pub const SYMBOLS: usize = 2 * PART.symbols();
/// Bits of a word.
pub const WORD: usize = 128;
/// Bits of the word in the even part.
const EVEN: usize = 112;
/// Bits of the odd part before its CRC.
const BEFORE_CRC: usize = 82;
/// Words of an ephemeris: 1 to 4 with orbit and clock, 5 with group delays and health.
pub const PIECES: usize = 5;
/// Week 0 of Galileo as a GPS week.
pub const FIRST_WEEK: u32 = 1024;
/// Weeks after which the number of the week repeats.
pub const WEEKS: u32 = 4096;
/// Words of the 15 pages of a subframe, and how many seconds after its start the first page begins (Galileo OS SIS ICD, 4.3.3).
/// Instead of almanacs, and of other words that are not encoded, word 0 is sent.
const WORDS_OF_E1B: (i64, [u8; 15]) = (1, [2, 4, 6, 0, 0, 0, 0, 0, 0, 0, 1, 3, 5, 0, 0]);
const WORDS_OF_E5B: (i64, [u8; 15]) = (0, [1, 3, 5, 0, 0, 0, 0, 0, 0, 0, 2, 4, 6, 0, 0]);
/// Seconds of a subframe.
const SUBFRAME: i64 = 30;

/// Finds pages in symbols.
pub struct Framer {
    window: Window,
    decoder: Decoder,
}

impl Framer {
    pub fn new() -> Self {
        Self { window: Window::new(SYMBOLS), decoder: Decoder::of_block(PART.bits) }
    }

    /// Adds a symbol; returns the word of the page that ends with it if its CRC is right, of an alert page a dummy.
    pub fn add(&mut self, symbol: f32) -> Option<[bool; WORD]> {
        if !self.window.add(symbol) {
            return None;
        }
        let (even, odd) = self.window.symbols().split_at(PART.symbols());
        let mut parts = [[false; PART.bits]; 2];
        for (symbols, bits) in [even, odd].into_iter().zip(&mut parts) {
            if !PART.decode(symbols, &mut self.decoder, bits) {
                return None;
            }
        }
        let [even, odd] = parts;
        let checked = even[..PART.bits - TAIL].iter().chain(&odd[..BEFORE_CRC]).copied();
        let crc = odd[BEFORE_CRC..].iter().take(24).fold(0, |crc, bit| crc << 1 | u32::from(*bit));
        if even[0] || !odd[0] || crc24q(checked) != crc {
            return None;
        }
        // Type 63 is that of a dummy.
        let mut word = [true; WORD];
        let is_alert = even[1] || odd[1];
        if !is_alert {
            word[..EVEN].copy_from_slice(&even[2..2 + EVEN]);
            word[EVEN..].copy_from_slice(&odd[2..2 + WORD - EVEN]);
        }
        Some(word)
    }
}

/// Time of transmission: week modulo 4096 and second of the week.
#[derive(Clone, Copy, Debug, Default)]
pub struct GalileoTime {
    pub week: u32,
    pub seconds: u32,
}

impl GalileoTime {
    /// Time of an instant in seconds of GPS time.
    pub fn at(gps_seconds: i64) -> Self {
        let week = gps_seconds.div_euclid(WEEK_SECONDS) - i64::from(FIRST_WEEK);
        Self {
            week: week.rem_euclid(i64::from(WEEKS)) as u32,
            seconds: gps_seconds.rem_euclid(WEEK_SECONDS) as u32,
        }
    }

    pub fn fields(&mut self, fields: &mut Fields<'_>) {
        fields.unsigned("WN", 12, &mut self.week);
        fields.unsigned("TOW", 20, &mut self.seconds);
    }
}

/// Data of the words.
struct Data {
    ephemeris: Ephemeris,
    nequick: NeQuick,
    utc: UtcParameters,
    time: GalileoTime,
}

/// Word 0: time alone.
fn spare(fields: &mut Fields<'_>, of: &mut Data) {
    fields.constant(2, 0b10);
    fields.reserved(88);
    of.time.fields(fields);
}

fn word_1(fields: &mut Fields<'_>, of: &mut Ephemeris) {
    fields.unsigned("IODnav", 10, &mut of.iode);
    fields.time("t_0e", 14, 60.0, &mut of.toe_seconds);
    fields.phase("M_0", 32, &mut of.mean_anomaly);
    fields.positive("e", 32, 2.0_f64.powi(-33), &mut of.eccentricity);
    fields.positive("sqrt A", 32, 2.0_f64.powi(-19), &mut of.sqrt_a);
    fields.reserved(2);
}

fn word_2(fields: &mut Fields<'_>, of: &mut Ephemeris) {
    fields.unsigned("IODnav", 10, &mut of.iode);
    fields.phase("OMEGA_0", 32, &mut of.node);
    fields.phase("i_0", 32, &mut of.inclination);
    fields.phase("omega", 32, &mut of.perigee);
    fields.angle("i DOT", 14, -43, &mut of.inclination_rate);
    fields.reserved(2);
}

fn word_3(fields: &mut Fields<'_>, of: &mut Ephemeris) {
    fields.unsigned("IODnav", 10, &mut of.iode);
    fields.angle("OMEGA DOT", 24, -43, &mut of.node_rate);
    fields.angle("delta n", 16, -43, &mut of.mean_motion_difference);
    fields.scaled("C_uc", 16, -29, &mut of.cuc);
    fields.scaled("C_us", 16, -29, &mut of.cus);
    fields.scaled("C_rc", 16, -5, &mut of.crc);
    fields.scaled("C_rs", 16, -5, &mut of.crs);
    fields.unsigned("SISA", 8, &mut of.accuracy);
}

fn word_4(fields: &mut Fields<'_>, of: &mut Ephemeris) {
    fields.unsigned("IODnav", 10, &mut of.iode);
    fields.unsigned("SVID", 6, &mut of.satellite.prn);
    fields.scaled("C_ic", 16, -29, &mut of.cic);
    fields.scaled("C_is", 16, -29, &mut of.cis);
    clock(fields, of);
    fields.reserved(2);
}

/// Clock, as in F/NAV.
pub fn clock(fields: &mut Fields<'_>, of: &mut Ephemeris) {
    fields.time("t_0c", 14, 60.0, &mut of.toc_seconds);
    fields.scaled("a_f0", 31, -34, &mut of.af0);
    fields.scaled("a_f1", 21, -46, &mut of.af1);
    fields.scaled("a_f2", 6, -59, &mut of.af2);
}

fn word_5(fields: &mut Fields<'_>, of: &mut Data) {
    ionosphere(fields, &mut of.nequick);
    let [e5a, e5b] = &mut of.ephemeris.group_delays;
    fields.scaled("BGD(E1, E5a)", 10, -32, e5a);
    fields.scaled("BGD(E1, E5b)", 10, -32, e5b);
    let health = of.ephemeris.health;
    let [mut e5b, mut e1b] = [health >> 7 & 3, health >> 1 & 3];
    let [mut is_e5b_invalid, mut is_e1b_invalid] = [health >> 6 & 1 == 1, health & 1 == 1];
    fields.unsigned("E5b HS", 2, &mut e5b);
    fields.unsigned("E1-B HS", 2, &mut e1b);
    fields.flag(&mut is_e5b_invalid);
    fields.flag(&mut is_e1b_invalid);
    of.ephemeris.health = health & 0b0_0011_1000
        | e5b << 7
        | u16::from(is_e5b_invalid) << 6
        | e1b << 1
        | u16::from(is_e1b_invalid);
    of.time.fields(fields);
    fields.reserved(23);
}

/// Ionosphere, as in F/NAV.
pub fn ionosphere(fields: &mut Fields<'_>, of: &mut NeQuick) {
    let [a0, a1, a2] = &mut of.ionisation;
    fields.positive("a_i0", 11, 0.25, a0);
    fields.scaled("a_i1", 11, -8, a1);
    fields.scaled("a_i2", 14, -15, a2);
    for region in 0..5 {
        let mut is_stormy = of.storms >> region & 1 == 1;
        fields.flag(&mut is_stormy);
        of.storms = of.storms & !(1 << region) | u8::from(is_stormy) << region;
    }
}

fn word_6(fields: &mut Fields<'_>, of: &mut Data) {
    utc(fields, &mut of.utc);
    fields.unsigned("TOW", 20, &mut of.time.seconds);
    fields.reserved(3);
}

/// Relation to UTC, as in F/NAV; weeks modulo 256.
pub fn utc(fields: &mut Fields<'_>, of: &mut UtcParameters) {
    fields.scaled("A_0", 32, -30, &mut of.a0);
    fields.scaled("A_1", 24, -50, &mut of.a1);
    fields.signed(8, &mut of.leap_seconds);
    fields.positive("t_0t", 8, 3600.0, &mut of.reference_seconds);
    fields.unsigned("WN_0t", 8, &mut of.reference_week);
    fields.unsigned("WN_LSF", 8, &mut of.leap_week);
    fields.unsigned("DN", 3, &mut of.leap_day);
    fields.signed(8, &mut of.leap_seconds_after);
}

/// Weeks of UTC as they are sent: those of Galileo modulo 256.
pub fn sent_weeks(utc: Option<UtcParameters>) -> UtcParameters {
    let mut sent = utc.unwrap_or_default();
    for week in [&mut sent.reference_week, &mut sent.leap_week] {
        *week = week.wrapping_sub(FIRST_WEEK) % 256;
    }
    sent
}

/// Full GPS weeks from those that are sent. 1024 is a multiple of 256: the weeks of both systems agree modulo 256.
pub fn full_weeks(utc: &mut UtcParameters, near: u32) {
    for week in [&mut utc.reference_week, &mut utc.leap_week] {
        *week = nearest(*week, 256, near);
    }
}

/// A word by its type.
fn word(fields: &mut Fields<'_>, kind: u8, of: &mut Data) {
    match kind {
        0 => spare(fields, of),
        1 => word_1(fields, &mut of.ephemeris),
        2 => word_2(fields, &mut of.ephemeris),
        3 => word_3(fields, &mut of.ephemeris),
        4 => word_4(fields, &mut of.ephemeris),
        5 => word_5(fields, of),
        6 => word_6(fields, of),
        _ => {}
    }
}

/// Returns the symbols of the page that starts at `start`, in seconds of GPS time; true is 1.
pub fn encode(signal: Signal, broadcast: &Broadcast, start: i64) -> Result<Vec<bool>, OutOfRange> {
    let (first, words) = if signal == Signal::GalileoE5b { WORDS_OF_E5B } else { WORDS_OF_E1B };
    let mut kind = words[((start - first).rem_euclid(SUBFRAME) / 2) as usize];
    if kind == 6 && broadcast.utc.is_none() {
        kind = 0;
    }
    let mut of = Data {
        ephemeris: broadcast.ephemeris,
        nequick: broadcast.nequick.unwrap_or_default(),
        utc: sent_weeks(broadcast.utc),
        time: GalileoTime::at(start),
    };
    let mut bits = [false; WORD];
    let mut fields = Fields::write(&mut bits);
    fields.unsigned("type", 6, &mut kind);
    word(&mut fields, kind, &mut of);
    fields.finish()?;

    // Even, then odd; both are nominal.
    let mut even = [false; PART.bits - TAIL];
    even[2..].copy_from_slice(&bits[..EVEN]);
    let mut odd = [false; PART.bits - TAIL];
    odd[0] = true;
    odd[2..2 + WORD - EVEN].copy_from_slice(&bits[EVEN..]);
    // Authentication, search and rescue, and the spare bits are 0.
    let crc = crc24q(even.iter().chain(&odd[..BEFORE_CRC]).copied());
    let mut fields = Fields::write(&mut odd[BEFORE_CRC..]);
    fields.constant(24, u64::from(crc));
    let mut symbols = Vec::with_capacity(SYMBOLS);
    PART.encode(&even, &mut symbols);
    PART.encode(&odd, &mut symbols);
    Ok(symbols)
}

/// Reads the type and the time of a word.
pub fn content(bits: &[bool]) -> Content {
    let (kind, of) = read(bits);
    let (week, seconds) = ((of.time.week + FIRST_WEEK) % WEEKS, of.time.seconds);
    let is_timed = match kind {
        // The time of word 0 has a flag.
        0 => bits[6] && !bits[7],
        _ => matches!(kind, 5 | 6),
    };
    let is_valid = is_timed && i64::from(seconds) < WEEK_SECONDS;
    Content {
        seconds: is_valid.then_some(seconds),
        week: (is_valid && kind != 6).then_some((week, WEEKS)),
        piece: match kind {
            1..=4 => Some((usize::from(kind) - 1, Some(of.ephemeris.iode))),
            5 => Some((4, None)),
            _ => None,
        },
        // The number of the satellite is in word 4.
        prn: (kind == 4).then_some(of.ephemeris.satellite.prn),
        ..Content::default()
    }
}

fn read(bits: &[bool]) -> (u8, Data) {
    let mut of = Data {
        ephemeris: super::blank(),
        nequick: NeQuick::default(),
        utc: UtcParameters::default(),
        time: GalileoTime::default(),
    };
    let mut fields = Fields::read(bits);
    let mut kind = 0;
    fields.unsigned("type", 6, &mut kind);
    word(&mut fields, kind, &mut of);
    (kind, of)
}

/// Reads the ephemeris in words 1 to 5.
pub fn ephemeris(pieces: &[&[bool]], of: &mut Ephemeris) {
    let mut data = Data {
        ephemeris: *of,
        nequick: NeQuick::default(),
        utc: UtcParameters::default(),
        time: GalileoTime::default(),
    };
    for (bits, kind) in pieces.iter().zip(1..) {
        word(&mut Fields::read(&bits[6..]), kind, &mut data);
    }
    *of = data.ephemeris;
    of.iodc = of.iode;
    // Data sources of RINEX: I/NAV of E1-B and of E5b, clock for E1 and E5b.
    of.codes_on_l2 = 0b10_0000_0101;
}

/// Reads ionosphere and UTC, in a week near `week`, if the word has them.
pub fn others(bits: &[bool], week: u32, decoded: &mut impl FnMut(Decoded)) {
    let (kind, mut of) = read(bits);
    match kind {
        5 => decoded(Decoded::NeQuick(of.nequick)),
        6 => {
            full_weeks(&mut of.utc, week);
            decoded(Decoded::Utc(of.utc));
        }
        _ => {}
    }
}
