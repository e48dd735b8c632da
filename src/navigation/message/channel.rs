//! Channel of a satellite: from correlator sums to decoded messages.

use super::bits::nearest;
use super::pieces::Pieces;
use super::sync::SymbolSync;
use super::{Content, Decoded, Signal, blank, cnav, fnav, inav, lnav};
use crate::ephemeris::{Ephemeris, Message, SatelliteId, WEEK_SECONDS};
use fxgraph_time::Time;
use std::collections::VecDeque;

/// Number of units of a channel since it was created, by result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Units whose parity or CRC is right.
    pub decoded: u64,
    /// Units with a wrong parity or CRC, or with missing symbols, at a place where a unit is expected.
    pub failed: u64,
    /// Units that contradict the time of others or are of another satellite, and ephemerides with implausible values.
    pub contradicted: u64,
}

/// Units that fail one after the other before their place is searched again.
const MOST_FAILED: u32 = 10;
/// Units without a decoded one after which the place of the symbols is searched again: before the first one, and later.
const SILENT_UNITS: [u64; 2] = [15, 100];
/// Largest age of a piece of an ephemeris. Issues repeat after hours.
const MOST_SECONDS: u64 = 3600;
/// Decoded data that wait to be taken; more replace the oldest.
const MOST_WAITING: usize = 16;
/// Units that have given the same time before it is used.
const LEAST_AGREEING: u32 = 2;

/// Finds the units of each message in the symbols.
enum Framer {
    Lnav(lnav::Framer),
    Cnav(Box<cnav::Framer>),
    Inav(inav::Framer),
    Fnav(fnav::Framer),
}

/// A unit whose check is right.
enum Unit {
    Lnav([bool; lnav::DATA_BITS]),
    Cnav([bool; cnav::MESSAGE]),
    Inav([bool; inav::WORD]),
    Fnav([bool; fnav::PAGE_BITS]),
}

impl Framer {
    fn new(message: Message) -> Self {
        match message {
            Message::Lnav => Self::Lnav(lnav::Framer::new()),
            Message::Cnav => Self::Cnav(Box::new(cnav::Framer::new())),
            Message::Inav => Self::Inav(inav::Framer::new()),
            Message::Fnav => Self::Fnav(fnav::Framer::new()),
        }
    }

    /// Adds a symbol; returns the unit that is complete with it.
    fn add(&mut self, symbol: f32) -> Option<Unit> {
        match self {
            Self::Lnav(framer) => framer.add(symbol).map(Unit::Lnav),
            Self::Cnav(framer) => framer.add(symbol).map(Unit::Cnav),
            Self::Inav(framer) => framer.add(symbol).map(Unit::Inav),
            Self::Fnav(framer) => framer.add(symbol).map(Unit::Fnav),
        }
    }

    /// Number of symbols from the end of a unit to its decoding.
    fn delay(&self) -> u64 {
        if matches!(self, Self::Cnav(_)) { cnav::DELAY } else { 0 }
    }
}

impl Unit {
    fn content(&self, signal: Signal) -> Option<Content> {
        match self {
            Self::Lnav(bits) => lnav::content(bits),
            Self::Cnav(bits) => cnav::content(bits, signal),
            Self::Inav(bits) => Some(inav::content(bits)),
            Self::Fnav(bits) => Some(fnav::content(bits)),
        }
    }

    /// The bits that two units with the same content have in common.
    fn bits(&self) -> &[bool] {
        match self {
            Self::Lnav(bits) => &bits[lnav::HEADER_BITS..],
            Self::Cnav(bits) => bits,
            Self::Inav(bits) => bits,
            Self::Fnav(bits) => bits,
        }
    }

    fn others(&self, signal: Signal, week: u32, mut decoded: impl FnMut(Decoded)) {
        match self {
            Self::Lnav(bits) => lnav::others(bits, week, &mut decoded),
            Self::Cnav(bits) => cnav::others(bits, signal, week, &mut decoded),
            Self::Inav(bits) => inav::others(bits, week, &mut decoded),
            Self::Fnav(bits) => fnav::others(bits, week, &mut decoded),
        }
    }
}

/// Where units are, in numbers of symbols.
#[derive(Clone, Copy, Debug, Default)]
struct Places {
    /// End of the next unit.
    next: Option<u64>,
    /// Units that have failed since the last one that was decoded.
    failed: u32,
    /// First symbol of the oldest unit after which no unit has failed.
    since: u64,
}

/// Time of transmission of a symbol.
#[derive(Clone, Copy, Debug)]
struct Anchor {
    symbol: u64,
    /// Second of the week.
    seconds: u32,
    week: Option<u32>,
    /// Units that have given this time.
    agreeing: u32,
}

/// Decoder of the message of one satellite, from its correlator sums.
pub struct Channel {
    signal: Signal,
    satellite: SatelliteId,
    near_week: u32,
    sync: SymbolSync,
    framer: Framer,
    places: Places,
    /// Period added last.
    period: Option<u64>,
    /// Number of the next symbol, and of the one from which on no unit was decoded.
    next_symbol: u64,
    silent_since: u64,
    anchor: Option<Anchor>,
    pieces: Pieces,
    /// Ephemeris that was decoded last.
    ephemeris: Option<Ephemeris>,
    is_alert: bool,
    decoded: VecDeque<Decoded>,
    counts: Counts,
}

impl Channel {
    /// Creates the decoder of `signal` of `satellite`. LNAV numbers weeks modulo 1024, and Galileo modulo 4096: the week is
    /// the one nearest to `near_week`, a full GPS week.
    #[must_use]
    pub fn new(signal: Signal, satellite: SatelliteId, near_week: u32) -> Self {
        let pieces = match signal.message() {
            Message::Lnav => lnav::PIECES,
            Message::Cnav => cnav::PIECES,
            Message::Inav => inav::PIECES,
            Message::Fnav => fnav::PIECES,
        };
        let longest = MOST_SECONDS * 1000 / u64::from(signal.symbol_milliseconds());
        Self {
            signal,
            satellite,
            near_week,
            sync: SymbolSync::new(signal.secondary()),
            framer: Framer::new(signal.message()),
            places: Places::default(),
            period: None,
            next_symbol: 0,
            silent_since: 0,
            anchor: None,
            pieces: Pieces::new(pieces, longest),
            ephemeris: None,
            is_alert: false,
            decoded: VecDeque::with_capacity(MOST_WAITING),
            counts: Counts::default(),
        }
    }

    /// Signal of this channel.
    #[must_use]
    pub fn signal(&self) -> Signal {
        self.signal
    }

    /// Satellite of this channel.
    #[must_use]
    pub fn satellite(&self) -> SatelliteId {
        self.satellite
    }

    /// Adds the correlator sum (real and imaginary part) of a whole period of the code, whose carrier loop has its phase on
    /// the real axis, with either sign. `period` counts periods of the code since the start of tracking: a number that is
    /// left out is a period that was missing. A number that is not higher than the one before restarts the channel.
    pub fn add(&mut self, period: u64, sum: [f64; 2]) {
        if !sum.iter().all(|part| part.is_finite()) {
            return;
        }
        if self.period.replace(period).is_some_and(|last| period <= last) {
            self.restart();
        }
        let mut sync = std::mem::replace(&mut self.sync, SymbolSync::new(&[]));
        sync.add(period, sum, |number, symbol| self.symbol(number, symbol as f32));
        self.sync = sync;
        let silent = self.next_symbol.saturating_sub(self.silent_since);
        let most = SILENT_UNITS[usize::from(self.anchor.is_some())];
        if silent > most * self.signal.unit_symbols() as u64 {
            self.restart();
        }
    }

    /// Forgets everything but decoded data: the periods of the code may have other numbers now.
    fn restart(&mut self) {
        self.sync = SymbolSync::new(self.signal.secondary());
        self.forget_symbols();
        self.next_symbol = 0;
        self.silent_since = 0;
    }

    /// Forgets the time, and all data that are not complete.
    fn forget_symbols(&mut self) {
        self.framer = Framer::new(self.signal.message());
        self.places = Places::default();
        self.anchor = None;
        self.pieces.clear();
    }

    fn symbol(&mut self, number: u64, symbol: f32) {
        if number != self.next_symbol {
            // The first symbol, or the first one after a gap that is too long for missing symbols.
            self.forget_symbols();
            self.silent_since = number;
        }
        self.next_symbol = number + 1;
        let unit = self.framer.add(symbol);
        let length = self.signal.unit_symbols() as u64;
        let is_expected = self.places.next == Some(self.next_symbol);
        if let Some(unit) = unit {
            let first = self.next_symbol.saturating_sub(length + self.framer.delay());
            let was_failed = !is_expected || self.places.failed > 0;
            self.places.next = Some(self.next_symbol + length);
            self.places.failed = 0;
            if was_failed {
                self.places.since = first;
            }
            self.silent_since = self.next_symbol;
            self.counts.decoded += 1;
            self.take_unit(&unit, first);
        } else if is_expected {
            self.counts.failed += 1;
            self.places.failed += 1;
            let is_over = self.places.failed == MOST_FAILED;
            self.places.next = (!is_over).then_some(self.next_symbol + length);
        }
    }

    /// Takes the content of a unit that starts with symbol `first`.
    fn take_unit(&mut self, unit: &Unit, first: u64) {
        let Some(content) = unit.content(self.signal) else { return };
        let is_of_other = content.prn.is_some_and(|prn| prn != self.satellite.prn);
        if is_of_other || !self.agrees(&content, first) {
            self.counts.contradicted += 1;
            self.anchor = None;
            self.pieces.clear();
            return;
        }
        self.is_alert = content.is_alert;
        if let Some(week) = self.week_at(first) {
            let decoded = &mut self.decoded;
            unit.others(self.signal, week, |data| push(decoded, data));
        }
        if let Some((index, issue)) = content.piece {
            self.pieces.add(index, issue, first, unit.bits());
        }
        self.assemble(first);
    }

    /// Compares the time of a unit with that of those before, and takes it.
    fn agrees(&mut self, content: &Content, first: u64) -> bool {
        let Some(seconds) = content.seconds else { return true };
        let week = content.week.map(|(residue, modulus)| nearest(residue, modulus, self.near_week));
        let Some(anchor) = self.anchor else {
            self.anchor = Some(Anchor { symbol: first, seconds, week, agreeing: 1 });
            return true;
        };
        let Some((weeks, expected)) = self.after(&anchor, first) else { return false };
        let anchor_week = week.map(|week| week.saturating_sub(weeks));
        let is_other = anchor.week.zip(anchor_week).is_some_and(|(known, new)| known != new);
        if seconds != expected || is_other {
            return false;
        }
        let week = anchor.week.or(anchor_week);
        let agreeing = anchor.agreeing.saturating_add(1);
        self.anchor = Some(Anchor { week, agreeing, ..anchor });
        true
    }

    /// Weeks after the week of `anchor`, and second of the week, of a symbol at a whole second after it.
    fn after(&self, anchor: &Anchor, symbol: u64) -> Option<(u32, u32)> {
        let symbols = symbol.checked_sub(anchor.symbol)?;
        let milliseconds = symbols.checked_mul(u64::from(self.signal.symbol_milliseconds()))?;
        let seconds = u64::from(anchor.seconds) + milliseconds / 1000;
        let weeks = u32::try_from(seconds / WEEK_SECONDS as u64).ok()?;
        // A remainder cannot be expected: units start at whole seconds.
        let second = (seconds % WEEK_SECONDS as u64) as u32;
        milliseconds.is_multiple_of(1000).then_some((weeks, second))
    }

    /// Full week at the start of a unit.
    fn week_at(&self, first: u64) -> Option<u32> {
        let anchor = self.anchor.filter(|anchor| anchor.agreeing >= LEAST_AGREEING)?;
        let (weeks, _) = self.after(&anchor, first)?;
        anchor.week?.checked_add(weeks)
    }

    /// Puts an ephemeris together if its pieces are complete with the unit that starts with symbol `first`.
    fn assemble(&mut self, first: u64) {
        let Some(week) = self.week_at(first) else { return };
        let seconds = self.anchor.and_then(|anchor| self.after(&anchor, first));
        let Some((_, seconds)) = seconds else { return };
        // A CRC finds nearly all errors; parity of 6 bits needs neighbours without errors, or a repetition.
        let is_parity = matches!(self.framer, Framer::Lnav(_));
        let since = if is_parity { self.places.since } else { 0 };
        let Some(pieces) = self.pieces.complete(first, since) else { return };
        let mut ephemeris = Ephemeris {
            satellite: self.satellite,
            message: self.signal.message(),
            transmission_seconds: f64::from(seconds),
            ..blank()
        };
        match self.signal.message() {
            Message::Lnav => lnav::ephemeris(&pieces, &mut ephemeris),
            Message::Cnav => cnav::ephemeris(&pieces, self.signal, &mut ephemeris),
            Message::Inav => inav::ephemeris(&pieces, &mut ephemeris),
            Message::Fnav => fnav::ephemeris(&pieces, &mut ephemeris),
        }
        ephemeris.satellite = self.satellite;
        ephemeris.week = week_of(ephemeris.toe_seconds, week, f64::from(seconds));
        if !is_plausible(&ephemeris) {
            self.counts.contradicted += 1;
            self.pieces.clear();
            return;
        }
        let transmission_seconds = ephemeris.transmission_seconds;
        let is_known = |known: Ephemeris| Ephemeris { transmission_seconds, ..known } == ephemeris;
        if !self.ephemeris.is_some_and(is_known) {
            self.ephemeris = Some(ephemeris);
            push(&mut self.decoded, Decoded::Ephemeris(Box::new(ephemeris)));
        }
    }

    /// Takes what was decoded, oldest first.
    pub fn take(&mut self) -> Option<Decoded> {
        self.decoded.pop_front()
    }

    /// Returns the time of transmission of the start of period number `period`; `None` until two units have given the same
    /// time, and one of them its week.
    #[must_use]
    pub fn transmission(&self, period: u64) -> Option<Time> {
        let anchor = self.anchor.filter(|anchor| anchor.agreeing >= LEAST_AGREEING)?;
        let start = i64::from(anchor.week?) * WEEK_SECONDS + i64::from(anchor.seconds);
        let periods =
            i64::try_from(period).ok()? - self.sync.period_of(anchor.symbol)?.cast_signed();
        let milliseconds = periods.checked_mul(i64::from(self.signal.period_milliseconds()))?;
        let seconds = start.checked_add(milliseconds.div_euclid(1000))?;
        Time::from_gps(seconds, milliseconds.rem_euclid(1000).cast_unsigned() * 1_000_000_000)
    }

    /// Returns the newest ephemeris of this channel.
    #[must_use]
    pub fn ephemeris(&self) -> Option<&Ephemeris> {
        self.ephemeris.as_ref()
    }

    /// Whether the newest unit had the alert flag: the signal may be worse than the accuracy says (GPS).
    #[must_use]
    pub fn is_alert(&self) -> bool {
        self.is_alert
    }

    /// Number of units by result.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }
}

fn push(waiting: &mut VecDeque<Decoded>, decoded: Decoded) {
    if waiting.len() == MOST_WAITING {
        waiting.pop_front();
    }
    waiting.push_back(decoded);
}

/// Returns the week in which `of` seconds are nearest to second `now` of week `week`.
fn week_of(of: f64, week: u32, now: f64) -> u32 {
    let half = 0.5 * WEEK_SECONDS as f64;
    match of - now {
        apart if apart > half => week.saturating_sub(1),
        apart if apart < -half => week.saturating_add(1),
        _ => week,
    }
}

/// Whether the values can be those of a satellite in a medium or geosynchronous orbit (QZSS).
fn is_plausible(ephemeris: &Ephemeris) -> bool {
    let seconds = 0.0..WEEK_SECONDS as f64;
    (4800.0..6800.0).contains(&ephemeris.sqrt_a)
        && ephemeris.eccentricity < 0.2
        && (0.0..2.0).contains(&ephemeris.inclination)
        && seconds.contains(&ephemeris.toe_seconds)
        && seconds.contains(&ephemeris.toc_seconds)
        && ephemeris.is_plausible()
}
