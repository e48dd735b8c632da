//! Common parts of I/NAV and F/NAV: pages are encoded, interleaved, and preceded by a pattern (Galileo OS SIS ICD, 4.1).

use super::viterbi::{Decoder, Encoder};

/// Bits of the tail of a page, which are 0.
pub const TAIL: usize = 6;
/// Rows of the interleaver.
const ROWS: usize = 8;
/// Smallest part of the pattern's symbols, weighted by their magnitudes, that must have the right sign more often than the
/// wrong one.
const LEAST_AGREEMENT: f32 = 0.5;

/// Format of the symbols of a page.
#[derive(Clone, Copy, Debug)]
pub struct Page {
    /// Pattern before the page, the first symbol in the highest bit.
    pub pattern: u32,
    /// Number of symbols of the pattern.
    pub pattern_len: usize,
    /// Number of bits of the page, tail included.
    pub bits: usize,
}

impl Page {
    /// Returns the number of symbols, pattern included.
    pub const fn symbols(&self) -> usize {
        self.pattern_len + 2 * self.bits
    }

    fn pattern(&self) -> impl Iterator<Item = bool> {
        (0..self.pattern_len).rev().map(|n| self.pattern >> n & 1 == 1)
    }

    /// Returns the place among the transmitted symbols of symbol `n` of the encoder: written in columns, read in rows.
    fn place(&self, n: usize) -> usize {
        let columns = 2 * self.bits / ROWS;
        n % ROWS * columns + n / ROWS
    }

    /// Adds the symbols of a page; true is 1.
    pub fn encode(&self, bits: &[bool], symbols: &mut Vec<bool>) {
        symbols.extend(self.pattern());
        let first = symbols.len();
        symbols.resize(first + 2 * self.bits, false);
        let mut encoder = Encoder::default();
        let tail = std::iter::repeat_n(&false, TAIL);
        for (n, bit) in bits.iter().chain(tail).take(self.bits).enumerate() {
            let [one, other] = encoder.encode(*bit);
            symbols[first + self.place(2 * n)] = one;
            // The second branch is inverted.
            symbols[first + self.place(2 * n + 1)] = !other;
        }
    }

    /// Decodes the symbols of a page; false if they do not begin with the pattern, of either sign.
    pub fn decode(&self, symbols: &[f32], decoder: &mut Decoder, bits: &mut [bool]) -> bool {
        let (start, page) = symbols.split_at(self.pattern_len);
        let signed = |(symbol, is_one): (&f32, bool)| if is_one { -symbol } else { *symbol };
        let agreement: f32 = start.iter().zip(self.pattern()).map(signed).sum();
        let all: f32 = start.iter().map(|symbol| symbol.abs()).sum();
        // A comparison that is also false for NaN.
        let begins = agreement.abs() > LEAST_AGREEMENT * all;
        if begins {
            let sign = agreement.signum();
            let soft = |n: usize| sign * page[self.place(n)];
            let pairs = (0..self.bits).map(|n| [soft(2 * n), -soft(2 * n + 1)]);
            decoder.restart();
            decoder.block(pairs, bits);
        }
        begins
    }
}
