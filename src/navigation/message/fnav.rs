//! F/NAV of Galileo, on E5a: pages of 10 s (Galileo OS SIS ICD, 4.2).

use super::bits::Fields;
use super::crc::crc24q;
use super::galileo::{Page, TAIL};
use super::inav::{FIRST_WEEK, GalileoTime, WEEKS, clock, full_weeks, ionosphere, sent_weeks, utc};
use super::viterbi::Decoder;
use super::{Broadcast, Content, Decoded, OutOfRange, Window};
use crate::ephemeris::{Ephemeris, NeQuick, UtcParameters, WEEK_SECONDS};

const PAGE: Page = Page { pattern: 0b1011_0111_0000, pattern_len: 12, bits: 244 };
/// Symbols of a page.
pub const SYMBOLS: usize = PAGE.symbols();
/// Bits of a page before its CRC.
pub const PAGE_BITS: usize = 214;
/// Pages of an ephemeris.
pub const PIECES: usize = 4;
/// Types of the pages of a subframe. Instead of an almanac in the last one, page 1 is sent again.
const TYPES: [u8; 5] = [1, 2, 3, 4, 1];
/// Seconds of a page.
const SECONDS: i64 = 10;

/// Finds pages in symbols.
pub struct Framer {
    window: Window,
    decoder: Decoder,
}

impl Framer {
    pub fn new() -> Self {
        Self { window: Window::new(SYMBOLS), decoder: Decoder::of_block(PAGE.bits) }
    }

    /// Adds a symbol; returns the page that ends with it, if its CRC is right.
    pub fn add(&mut self, symbol: f32) -> Option<[bool; PAGE_BITS]> {
        let mut bits = [false; PAGE.bits];
        if !self.window.add(symbol)
            || !PAGE.decode(self.window.symbols(), &mut self.decoder, &mut bits)
        {
            return None;
        }
        let (page, end) = bits.split_first_chunk::<PAGE_BITS>()?;
        let crc = end.iter().take(24).fold(0, |crc, bit| crc << 1 | u32::from(*bit));
        (crc24q(page.iter().copied()) == crc).then_some(*page)
    }
}

/// Data of the pages.
struct Data {
    ephemeris: Ephemeris,
    nequick: NeQuick,
    utc: UtcParameters,
    time: GalileoTime,
}

impl Data {
    fn new(ephemeris: Ephemeris) -> Self {
        let (nequick, utc) = (NeQuick::default(), UtcParameters::default());
        Self { ephemeris, nequick, utc, time: GalileoTime::default() }
    }
}

/// A page after its type.
fn page(fields: &mut Fields<'_>, kind: u8, data: &mut Data) {
    match kind {
        1 => page_1(fields, data),
        2 => page_2(fields, data),
        3 => page_3(fields, data),
        4 => page_4(fields, data),
        _ => {}
    }
}

fn page_1(fields: &mut Fields<'_>, data: &mut Data) {
    let of = &mut data.ephemeris;
    fields.unsigned("SVID", 6, &mut of.satellite.prn);
    fields.unsigned("IODnav", 10, &mut of.iode);
    clock(fields, of);
    fields.unsigned("SISA", 8, &mut of.accuracy);
    ionosphere(fields, &mut data.nequick);
    fields.scaled("BGD(E1, E5a)", 10, -32, &mut of.group_delays[0]);
    let mut health = of.health >> 4 & 3;
    let mut is_invalid = of.health >> 3 & 1 == 1;
    fields.unsigned("E5a HS", 2, &mut health);
    data.time.fields(fields);
    fields.flag(&mut is_invalid);
    of.health = of.health & !0b11_1000 | health << 4 | u16::from(is_invalid) << 3;
    fields.reserved(26);
}

fn page_2(fields: &mut Fields<'_>, data: &mut Data) {
    let of = &mut data.ephemeris;
    fields.unsigned("IODnav", 10, &mut of.iode);
    fields.phase("M_0", 32, &mut of.mean_anomaly);
    fields.angle("OMEGA DOT", 24, -43, &mut of.node_rate);
    fields.positive("e", 32, 2.0_f64.powi(-33), &mut of.eccentricity);
    fields.positive("sqrt A", 32, 2.0_f64.powi(-19), &mut of.sqrt_a);
    fields.phase("OMEGA_0", 32, &mut of.node);
    fields.angle("i DOT", 14, -43, &mut of.inclination_rate);
    data.time.fields(fields);
}

fn page_3(fields: &mut Fields<'_>, data: &mut Data) {
    let of = &mut data.ephemeris;
    fields.unsigned("IODnav", 10, &mut of.iode);
    fields.phase("i_0", 32, &mut of.inclination);
    fields.phase("omega", 32, &mut of.perigee);
    fields.angle("delta n", 16, -43, &mut of.mean_motion_difference);
    fields.scaled("C_uc", 16, -29, &mut of.cuc);
    fields.scaled("C_us", 16, -29, &mut of.cus);
    fields.scaled("C_rc", 16, -5, &mut of.crc);
    fields.scaled("C_rs", 16, -5, &mut of.crs);
    fields.time("t_0e", 14, 60.0, &mut of.toe_seconds);
    data.time.fields(fields);
    fields.reserved(8);
}

fn page_4(fields: &mut Fields<'_>, data: &mut Data) {
    let of = &mut data.ephemeris;
    fields.unsigned("IODnav", 10, &mut of.iode);
    fields.scaled("C_ic", 16, -29, &mut of.cic);
    fields.scaled("C_is", 16, -29, &mut of.cis);
    utc(fields, &mut data.utc);
    // Offset of GPS time from Galileo time: all ones are none.
    fields.constant(8 + 16 + 12 + 6, (1 << (8 + 16 + 12 + 6)) - 1);
    fields.unsigned("TOW", 20, &mut data.time.seconds);
    fields.reserved(5);
}

/// Returns the symbols of the page that starts at `start`, in seconds of GPS time; true is 1.
pub fn encode(broadcast: &Broadcast, start: i64) -> Result<Vec<bool>, OutOfRange> {
    let mut kind = TYPES[(start.rem_euclid(5 * SECONDS) / SECONDS) as usize];
    let mut data = Data {
        ephemeris: broadcast.ephemeris,
        nequick: broadcast.nequick.unwrap_or_default(),
        utc: sent_weeks(broadcast.utc),
        time: GalileoTime::at(start),
    };
    let mut bits = [false; PAGE.bits - TAIL];
    let mut fields = Fields::write(&mut bits);
    fields.unsigned("type", 6, &mut kind);
    page(&mut fields, kind, &mut data);
    fields.finish()?;
    let crc = crc24q(bits[..PAGE_BITS].iter().copied());
    Fields::write(&mut bits[PAGE_BITS..]).constant(24, u64::from(crc));
    let mut symbols = Vec::with_capacity(SYMBOLS);
    PAGE.encode(&bits, &mut symbols);
    Ok(symbols)
}

fn read(bits: &[bool]) -> (u8, Data) {
    let mut data = Data::new(super::blank());
    let mut fields = Fields::read(bits);
    let mut kind = 0;
    fields.unsigned("type", 6, &mut kind);
    page(&mut fields, kind, &mut data);
    (kind, data)
}

/// Reads the type and the time of a page.
pub fn content(bits: &[bool]) -> Content {
    let (kind, data) = read(bits);
    let GalileoTime { week, seconds } = data.time;
    let is_valid = (1..=4).contains(&kind) && i64::from(seconds) < WEEK_SECONDS;
    Content {
        seconds: is_valid.then_some(seconds),
        week: (is_valid && kind != 4).then_some(((week + FIRST_WEEK) % WEEKS, WEEKS)),
        piece: is_valid.then_some((usize::from(kind) - 1, Some(data.ephemeris.iode))),
        prn: (kind == 1).then_some(data.ephemeris.satellite.prn),
        ..Content::default()
    }
}

/// Reads the ephemeris in pages 1 to 4.
pub fn ephemeris(pieces: &[&[bool]], of: &mut Ephemeris) {
    let mut data = Data::new(*of);
    for (bits, kind) in pieces.iter().zip(1..) {
        page(&mut Fields::read(&bits[6..]), kind, &mut data);
    }
    *of = data.ephemeris;
    of.iodc = of.iode;
    // Data sources of RINEX: F/NAV, clock for E1 and E5a.
    of.codes_on_l2 = 0b1_0000_0010;
}

/// Reads ionosphere and UTC, in a week near `week`, if the page has them.
pub fn others(bits: &[bool], week: u32, decoded: &mut impl FnMut(Decoded)) {
    let (kind, mut data) = read(bits);
    match kind {
        1 => decoded(Decoded::NeQuick(data.nequick)),
        4 => {
            full_weeks(&mut data.utc, week);
            decoded(Decoded::Utc(data.utc));
        }
        _ => {}
    }
}
