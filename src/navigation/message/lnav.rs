//! LNAV of GPS and QZSS: subframes of ten words of 30 bits, each with 6 bits of parity (IS-GPS-200, 20.3).

use super::bits::{Fields, nearest};
use super::{Broadcast, Content, Decoded, OutOfRange, Window};
use crate::ephemeris::{Ephemeris, Klobuchar, UtcParameters};

/// Symbols, which are bits, of a subframe.
pub const SUBFRAME: usize = 300;
/// Bits of a word, and those of them that are data.
const WORD: usize = 30;
const DATA: usize = 24;
/// Data bits of a subframe, and those of its first two words, which differ from subframe to subframe.
pub const DATA_BITS: usize = 10 * DATA;
pub const HEADER_BITS: usize = 2 * DATA;
/// First bits of a subframe.
const PREAMBLE: u32 = 0b1000_1011;
/// Seconds of a subframe, and of the week.
const SECONDS: i64 = 6;
const WEEK: i64 = crate::ephemeris::WEEK_SECONDS;
/// Number of the page of subframe 4 with ionosphere and UTC, and its identification.
const PAGE_18: i64 = 18;
const IDENTIFICATION_18: u64 = 56;
/// Subframes of an ephemeris.
pub const PIECES: usize = 3;

/// Data bits that each parity bit sums, the first one in the highest of 24 bits (IS-GPS-200, table 20-XIV).
const PARITY: [u32; 6] = [
    of_bits(&[1, 2, 3, 5, 6, 10, 11, 12, 13, 14, 17, 18, 20, 23]),
    of_bits(&[2, 3, 4, 6, 7, 11, 12, 13, 14, 15, 18, 19, 21, 24]),
    of_bits(&[1, 3, 4, 5, 7, 8, 12, 13, 14, 15, 16, 19, 20, 22]),
    of_bits(&[2, 4, 5, 6, 8, 9, 13, 14, 15, 16, 17, 20, 21, 23]),
    of_bits(&[1, 3, 5, 6, 7, 9, 10, 14, 15, 16, 17, 18, 21, 22, 24]),
    of_bits(&[3, 5, 6, 8, 9, 10, 11, 13, 15, 19, 22, 23, 24]),
];
/// Which of the last two bits of the word before each parity bit includes: bit 29 or bit 30.
const WITH_BIT_29: [bool; 6] = [true, false, true, false, false, true];

const fn of_bits(bits: &[u32]) -> u32 {
    let (mut mask, mut n) = (0, 0);
    while n < bits.len() {
        mask |= 1 << (DATA as u32 - bits[n]);
        n += 1;
    }
    mask
}

/// Returns the parity of 24 data bits after a word that ends with these bits.
fn parity(data: u32, last: [bool; 2]) -> [bool; 6] {
    std::array::from_fn(|n| {
        let before = if WITH_BIT_29[n] { last[0] } else { last[1] };
        ((PARITY[n] & data).count_ones() & 1 == 1) != before
    })
}

fn number(bits: &[bool]) -> u32 {
    bits.iter().fold(0, |value, bit| value << 1 | u32::from(*bit))
}

/// Finds subframes in symbols.
pub struct Framer {
    window: Window,
}

impl Framer {
    pub fn new() -> Self {
        Self { window: Window::new(SUBFRAME) }
    }

    /// Adds a symbol; returns the data bits of the subframe that ends with it, if its parity is right.
    pub fn add(&mut self, symbol: f32) -> Option<[bool; DATA_BITS]> {
        self.window.add(symbol).then(|| self.subframe()).flatten()
    }

    fn subframe(&self) -> Option<[bool; DATA_BITS]> {
        let symbols = self.window.symbols();
        let is_one = |n: usize| symbols[n] < 0.0;
        let first = (0..8).fold(0, |value, n| value << 1 | u32::from(is_one(n)));
        let is_inverted = first == !PREAMBLE & 0xFF;
        if first != PREAMBLE && !is_inverted || symbols.contains(&0.0) {
            return None;
        }
        let mut data = [false; DATA_BITS];
        // The last two bits of a subframe are 0.
        let mut last = [is_inverted; 2];
        for (word, data) in data.chunks_exact_mut(DATA).enumerate() {
            let received: [bool; WORD] = std::array::from_fn(|n| is_one(WORD * word + n));
            for (data, bit) in data.iter_mut().zip(received) {
                *data = bit != last[1];
            }
            if parity(number(data), last) != received[DATA..] {
                return None;
            }
            last = [received[WORD - 2], received[WORD - 1]];
        }
        (last == [is_inverted; 2]).then_some(data)
    }
}

/// Header of a subframe.
struct Header {
    /// Start of the next subframe in units of 6 s, from the start of the week.
    next: u32,
    is_alert: bool,
    subframe: u8,
}

fn header(fields: &mut Fields<'_>, header: &mut Header) {
    fields.constant(8, u64::from(PREAMBLE));
    // Message, integrity status, reserved.
    fields.constant(16, 0);
    fields.unsigned("TOW", 17, &mut header.next);
    fields.flag(&mut header.is_alert);
    // Anti-spoofing.
    fields.constant(1, 1);
    fields.unsigned("subframe", 3, &mut header.subframe);
    fields.constant(2, 0);
}

/// Subframe 1 after its header; `week` modulo 1024 is that of transmission.
fn clock(fields: &mut Fields<'_>, of: &mut Ephemeris, week: &mut u32) {
    fields.unsigned("WN", 10, week);
    fields.unsigned("codes on L2", 2, &mut of.codes_on_l2);
    fields.unsigned("URA", 4, &mut of.accuracy);
    fields.unsigned("health", 6, &mut of.health);
    let [mut high, mut low] = [of.iodc >> 8, of.iodc & 0xFF];
    fields.unsigned("IODC", 2, &mut high);
    fields.flag(&mut of.l2_p_data_off);
    fields.reserved(23 + 24 + 24 + 16);
    fields.scaled("T_GD", 8, -31, &mut of.group_delays[0]);
    fields.unsigned("IODC", 8, &mut low);
    of.iodc = high << 8 | low;
    fields.time("t_oc", 16, 16.0, &mut of.toc_seconds);
    fields.scaled("a_f2", 8, -55, &mut of.af2);
    fields.scaled("a_f1", 16, -43, &mut of.af1);
    fields.scaled("a_f0", 22, -31, &mut of.af0);
}

/// Subframe 2 after its header.
fn orbit(fields: &mut Fields<'_>, of: &mut Ephemeris) {
    fields.unsigned("IODE", 8, &mut of.iode);
    fields.scaled("C_rs", 16, -5, &mut of.crs);
    fields.angle("delta n", 16, -43, &mut of.mean_motion_difference);
    fields.phase("M_0", 32, &mut of.mean_anomaly);
    fields.scaled("C_uc", 16, -29, &mut of.cuc);
    fields.positive("e", 32, 2.0_f64.powi(-33), &mut of.eccentricity);
    fields.scaled("C_us", 16, -29, &mut of.cus);
    fields.positive("sqrt A", 32, 2.0_f64.powi(-19), &mut of.sqrt_a);
    fields.time("t_oe", 16, 16.0, &mut of.toe_seconds);
    fields.flag(&mut of.is_long_fit);
    // Age of the corrections of the navigation message correction table: there are none.
    fields.constant(5, 31);
}

/// Subframe 3 after its header.
fn plane(fields: &mut Fields<'_>, of: &mut Ephemeris) {
    fields.scaled("C_ic", 16, -29, &mut of.cic);
    fields.phase("OMEGA_0", 32, &mut of.node);
    fields.scaled("C_is", 16, -29, &mut of.cis);
    fields.phase("i_0", 32, &mut of.inclination);
    fields.scaled("C_rc", 16, -5, &mut of.crc);
    fields.phase("omega", 32, &mut of.perigee);
    fields.angle("OMEGA DOT", 24, -43, &mut of.node_rate);
    fields.unsigned("IODE", 8, &mut of.iode);
    fields.angle("IDOT", 14, -43, &mut of.inclination_rate);
}

/// Page 18 of subframe 4 after its header and identification; weeks modulo 256.
fn corrections(fields: &mut Fields<'_>, klobuchar: &mut Klobuchar, utc: &mut UtcParameters) {
    let [alpha, beta] = [&mut klobuchar.alpha, &mut klobuchar.beta];
    for (value, log2) in alpha.iter_mut().zip([-30, -27, -24, -24]) {
        fields.scaled("alpha", 8, log2, value);
    }
    for (value, log2) in beta.iter_mut().zip([11, 14, 16, 16]) {
        fields.scaled("beta", 8, log2, value);
    }
    fields.scaled("A_1", 24, -50, &mut utc.a1);
    fields.scaled("A_0", 32, -30, &mut utc.a0);
    fields.positive("t_ot", 8, 4096.0, &mut utc.reference_seconds);
    fields.unsigned("WN_t", 8, &mut utc.reference_week);
    fields.signed(8, &mut utc.leap_seconds);
    fields.unsigned("WN_LSF", 8, &mut utc.leap_week);
    fields.unsigned("DN", 8, &mut utc.leap_day);
    fields.signed(8, &mut utc.leap_seconds_after);
}

/// Returns the symbols of the subframe that starts at `start`, in seconds of GPS time; true is 1.
pub fn encode(broadcast: &Broadcast, start: i64) -> Result<Vec<bool>, OutOfRange> {
    let count = start.rem_euclid(WEEK) / SECONDS;
    let (subframe, page) = ((count % 5 + 1) as u8, count / 5 % 25 + 1);
    let mut data = [false; DATA_BITS];
    let mut fields = Fields::write(&mut data);
    let next = ((count + 1) % (WEEK / SECONDS)) as u32;
    header(&mut fields, &mut Header { next, is_alert: false, subframe });
    let mut of = broadcast.ephemeris;
    match subframe {
        1 => clock(&mut fields, &mut of, &mut (start.div_euclid(WEEK).rem_euclid(1024) as u32)),
        2 => orbit(&mut fields, &mut of),
        3 => plane(&mut fields, &mut of),
        _ => {
            // Data of GPS.
            fields.constant(2, 1);
            match (broadcast.klobuchar, broadcast.utc) {
                (Some(mut klobuchar), Some(mut utc)) if (subframe, page) == (4, PAGE_18) => {
                    fields.constant(6, IDENTIFICATION_18);
                    utc.reference_week %= 256;
                    utc.leap_week %= 256;
                    corrections(&mut fields, &mut klobuchar, &mut utc);
                    fields.reserved(14);
                }
                // A dummy: satellite 0.
                _ => {
                    fields.constant(6, 0);
                    fields.reserved((8 * DATA - 8 - 2) as u32);
                }
            }
        }
    }
    fields.finish()?;
    Ok(with_parity(data))
}

/// Returns the bits of a subframe with these data. The last two data bits of words 2 and 10 are chosen so that the words end
/// with zeros.
fn with_parity(data: [bool; DATA_BITS]) -> Vec<bool> {
    let mut bits = Vec::with_capacity(SUBFRAME);
    let mut last = [false; 2];
    for (word, data) in data.chunks_exact(DATA).enumerate() {
        let mut data = number(data);
        if word == 1 || word == 9 {
            let ends_with_zeros = |data: &u32| parity(*data, last)[4..] == [false; 2];
            data = (0..4).map(|end| data & !3 | end).find(ends_with_zeros).unwrap_or(data);
        }
        let check = parity(data, last);
        bits.extend((0..DATA).map(|n| (data >> (DATA - 1 - n) & 1 == 1) != last[1]));
        bits.extend(check);
        last = [check[4], check[5]];
    }
    bits
}

/// Reads the header of a subframe, and which piece of an ephemeris it is.
pub fn content(data: &[bool]) -> Option<Content> {
    let mut fields = Fields::read(data);
    let mut of = Header { next: 0, is_alert: false, subframe: 0 };
    header(&mut fields, &mut of);
    if !(1..=5).contains(&of.subframe) || i64::from(of.next) >= WEEK / SECONDS {
        return None;
    }
    let mut content = Content {
        seconds: Some((i64::from(of.next) * SECONDS - SECONDS).rem_euclid(WEEK) as u32),
        is_alert: of.is_alert,
        ..Content::default()
    };
    let mut ephemeris = super::blank();
    match of.subframe {
        1 => {
            let mut week = 0;
            clock(&mut fields, &mut ephemeris, &mut week);
            content.week = Some((week, 1024));
            content.piece = Some((0, Some(ephemeris.iodc & 0xFF)));
        }
        2 => {
            orbit(&mut fields, &mut ephemeris);
            content.piece = Some((1, Some(ephemeris.iode)));
        }
        3 => {
            plane(&mut fields, &mut ephemeris);
            content.piece = Some((2, Some(ephemeris.iode)));
        }
        _ => {}
    }
    Some(content)
}

/// Reads the ephemeris in subframes 1, 2 and 3 without their first two words.
pub fn ephemeris(pieces: &[&[bool]], of: &mut Ephemeris) {
    for (n, data) in pieces.iter().enumerate() {
        let mut fields = Fields::read(data);
        match n {
            0 => clock(&mut fields, of, &mut 0),
            1 => orbit(&mut fields, of),
            _ => plane(&mut fields, of),
        }
    }
}

/// Reads ionosphere and UTC, in a week near `week`, if the subframe has them.
pub fn others(data: &[bool], week: u32, decoded: &mut impl FnMut(Decoded)) {
    let mut fields = Fields::read(data);
    let mut of = Header { next: 0, is_alert: false, subframe: 0 };
    header(&mut fields, &mut of);
    let mut identification = 0_u8;
    fields.constant(2, 1);
    fields.unsigned("page", 6, &mut identification);
    if of.subframe != 4 || u64::from(identification) != IDENTIFICATION_18 {
        return;
    }
    let (mut klobuchar, mut utc) = (Klobuchar::default(), UtcParameters::default());
    corrections(&mut fields, &mut klobuchar, &mut utc);
    utc.reference_week = nearest(utc.reference_week, 256, week);
    utc.leap_week = nearest(utc.leap_week, 256, week);
    decoded(Decoded::Klobuchar(klobuchar));
    decoded(Decoded::Utc(utc));
}
