//! Symbol synchronisation: from sums over a period of the code to soft symbols.

use std::collections::VecDeque;

/// Symbols over which the place of the symbols is measured at least, and at most before the measurement starts again.
const LEAST_SYMBOLS: f64 = 20.0;
const MOST_SYMBOLS: f64 = 2000.0;
/// Standard deviations between the best place and the second.
const DEVIATIONS: f64 = 6.0;
/// Number of transitions of the data that the best place has been supported by at least.
const LEAST_TRANSITIONS: f64 = 3.0;
/// Sums that are kept until the place of the symbols is known: symbols of that time are not missed.
const MOST_KEPT: usize = 4096;
/// Longest gap whose symbols are output as missing ones, in symbols; a longer one restarts the synchronisation.
const LONGEST_GAP: u64 = 2500;

/// Finds the first period of a symbol, and adds the periods of each symbol.
///
/// The sum over a symbol is largest in magnitude where it contains no transition of the data (C/A), or where its signs are
/// those of the secondary code. The mean magnitude is measured for each place.
pub struct SymbolSync {
    signs: &'static [i8],
    /// Period of the first sum of a symbol, modulo the periods of a symbol; `None` until it is known.
    place: Option<u64>,
    /// Newest sums: (period, real part); consecutive ones at the end.
    kept: VecDeque<(u64, f64)>,
    /// Consecutive periods at the end of `kept`.
    consecutive: usize,
    /// Sum of the magnitudes for each place.
    magnitudes: Vec<f64>,
    /// Symbols in each magnitude.
    symbols: f64,
    /// Sum of the squares of the imaginary parts, which are noise, and their number.
    noise: [f64; 2],
    /// Number and sum of the symbol in progress, and the periods in it.
    current: Option<(u64, f64, usize)>,
}

impl SymbolSync {
    /// Creates the synchronisation for symbols of periods with these signs.
    pub fn new(signs: &'static [i8]) -> Self {
        Self {
            signs,
            place: (signs.len() == 1).then_some(0),
            kept: VecDeque::new(),
            consecutive: 0,
            magnitudes: vec![0.0; signs.len()],
            symbols: 0.0,
            noise: [0.0; 2],
            current: None,
        }
    }

    /// Number of the period at which symbol number `symbol` starts; `None` if it is not known.
    pub fn period_of(&self, symbol: u64) -> Option<u64> {
        symbol.checked_mul(self.signs.len() as u64)?.checked_add(self.place?)
    }

    /// Adds the sum over `period`, whose number is higher than that of the sum before. Calls `symbol` with the number and
    /// the value of each symbol that is complete, in their order without gaps: missing symbols are 0.
    pub fn add(&mut self, period: u64, [re, im]: [f64; 2], mut symbol: impl FnMut(u64, f64)) {
        if self.place.is_some() {
            self.collect(period, re, &mut symbol);
            return;
        }
        self.keep(period, re);
        self.noise[0] += im * im;
        self.noise[1] += 1.0;
        self.measure(period);
        self.place = self.decide();
        if self.place.is_some() {
            for (period, re) in std::mem::take(&mut self.kept) {
                self.collect(period, re, &mut symbol);
            }
        }
    }

    fn keep(&mut self, period: u64, re: f64) {
        let is_next = self.kept.back().is_some_and(|(last, _)| last + 1 == period);
        self.consecutive = if is_next { self.consecutive + 1 } else { 1 };
        if self.kept.len() == MOST_KEPT {
            self.kept.pop_front();
        }
        self.kept.push_back((period, re));
    }

    /// Adds the magnitude of a symbol that ends with `period`.
    fn measure(&mut self, period: u64) {
        let len = self.signs.len();
        if self.consecutive < len {
            return;
        }
        let newest = self.kept.iter().rev().zip(self.signs.iter().rev());
        let sum: f64 = newest.map(|((_, re), sign)| re * f64::from(*sign)).sum();
        self.magnitudes[((period + 1) % len as u64) as usize] += sum.abs();
        self.symbols += 1.0 / len as f64;
        if self.symbols > MOST_SYMBOLS {
            self.magnitudes.fill(0.0);
            self.symbols = 0.0;
            self.noise = [0.0; 2];
        }
    }

    fn decide(&self) -> Option<u64> {
        if self.symbols < LEAST_SYMBOLS {
            return None;
        }
        let (mut best, mut second) = ((0, 0.0), 0.0);
        for (place, magnitude) in self.magnitudes.iter().enumerate() {
            if *magnitude > best.1 {
                second = best.1;
                best = (place as u64, *magnitude);
            } else if *magnitude > second {
                second = *magnitude;
            }
        }
        // Sums at neighbouring places share all periods but two.
        let deviation = (2.0 * self.symbols * self.noise[0] / self.noise[1]).sqrt();
        let of_period = best.1 / (self.symbols * self.signs.len() as f64);
        let margin = DEVIATIONS * deviation + 2.0 * LEAST_TRANSITIONS * of_period;
        (best.1 - second > margin).then_some(best.0)
    }

    /// Adds the sum over `period` to its symbol.
    fn collect(&mut self, period: u64, re: f64, symbol: &mut impl FnMut(u64, f64)) {
        let len = self.signs.len() as u64;
        // Periods before the first whole symbol.
        let Some(since) = period.checked_sub(self.place.unwrap_or(0)) else { return };
        let (number, sign) = (since / len, self.signs[(since % len) as usize]);
        if let Some((current, sum, count)) = self.current
            && current < number
        {
            // Periods at the end of the symbol are missing.
            let value = if 2 * count >= self.signs.len() { sum } else { 0.0 };
            symbol(current, value);
            for missing in current + 1..number.min(current + LONGEST_GAP) {
                symbol(missing, 0.0);
            }
            self.current = None;
        }
        let (_, sum, count) = self.current.unwrap_or((number, 0.0, 0));
        self.current = Some((number, sum + re * f64::from(sign), count + 1));
        if let Some((number, sum, count)) = self.current
            && since % len == len - 1
        {
            // As many symbols as have a number: the next one is in progress, without periods.
            let value = if 2 * count >= self.signs.len() { sum } else { 0.0 };
            symbol(number, value);
            self.current = Some((number + 1, 0.0, 0));
        }
    }
}
