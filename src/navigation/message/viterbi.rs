//! Convolutional code of CNAV, I/NAV and F/NAV: rate 1/2, constraint length 7, generators 171 and 133 (octal), and its
//! decoder by Viterbi's algorithm from soft symbols.

/// States of the encoder: its last 6 bits, the newest one in the highest bit.
const STATES: usize = 64;
/// Generators, with the newest bit in the highest of 7 bits.
const GENERATORS: [usize; 2] = [0o171, 0o133];
/// Number of bits after which paths of the decoder have merged: more than ten constraint lengths.
const DEPTH: usize = 72;

/// Returns the two symbols for a register of 7 bits.
fn outputs(register: usize) -> [bool; 2] {
    GENERATORS.map(|generator| (register & generator).count_ones() & 1 == 1)
}

/// Encoder, with 6 bits of memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct Encoder {
    state: usize,
}

impl Encoder {
    /// Returns the two symbols of a bit.
    pub fn encode(&mut self, bit: bool) -> [bool; 2] {
        let register = usize::from(bit) << 6 | self.state;
        self.state = register >> 1;
        outputs(register)
    }
}

/// Decoder. Symbols are positive for 0 and negative for 1; a missing one is 0.
pub struct Decoder {
    /// Largest correlation of a path that ends in each state.
    metrics: [f32; STATES],
    /// For the newest bits, oldest first as a ring: whether the better path to each state has a 1 in the bit that the
    /// state has shifted out.
    decisions: Vec<u64>,
    bits: usize,
}

impl Decoder {
    /// Creates a decoder for blocks of up to `bits` bits that start in state 0.
    pub fn of_block(bits: usize) -> Self {
        let mut decoder = Self { metrics: [0.0; STATES], decisions: vec![0; bits], bits: 0 };
        decoder.restart();
        decoder
    }

    /// Creates a decoder of a stream, which may start anywhere.
    pub fn of_stream() -> Self {
        Self { metrics: [0.0; STATES], decisions: vec![0; DEPTH], bits: 0 }
    }

    /// Starts a block.
    pub fn restart(&mut self) {
        self.metrics = [f32::NEG_INFINITY; STATES];
        self.metrics[0] = 0.0;
        self.bits = 0;
    }

    /// Adds the symbols of a bit.
    fn step(&mut self, symbols: [f32; 2]) {
        let mut metrics = [0.0; STATES];
        let mut decisions = 0;
        for (state, metric) in metrics.iter_mut().enumerate() {
            let through = |oldest: usize| {
                let register = state << 1 | oldest;
                let [first, second] = outputs(register);
                let signed = |symbol: f32, is_one| if is_one { -symbol } else { symbol };
                self.metrics[register & (STATES - 1)]
                    + signed(symbols[0], first)
                    + signed(symbols[1], second)
            };
            let [zero, one] = [through(0), through(1)];
            *metric = zero.max(one);
            decisions |= u64::from(one > zero) << state;
        }
        // Differences alone count; without this the metrics of a stream would grow.
        let most = metrics.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        self.metrics = metrics.map(|metric| metric - most);
        let len = self.decisions.len();
        self.decisions[self.bits % len] = decisions;
        self.bits += 1;
    }

    /// Calls `bit` with the newest `count` bits of the path that ends in `state`, newest first.
    fn trace(&self, mut state: usize, count: usize, mut bit: impl FnMut(bool)) {
        let len = self.decisions.len();
        for n in 0..count {
            bit(state >> 5 & 1 == 1);
            let oldest = self.decisions[(self.bits - 1 - n) % len] >> state & 1;
            state = (state << 1 | oldest as usize) & (STATES - 1);
        }
    }

    /// Decodes a block that ends in state 0, after [`restart`](Self::restart). Writes its bits, the 6 of the tail
    /// included.
    pub fn block(&mut self, symbols: impl Iterator<Item = [f32; 2]>, bits: &mut [bool]) {
        symbols.take(self.decisions.len()).for_each(|symbols| self.step(symbols));
        let count = self.bits.min(bits.len());
        let mut places = bits[..count].iter_mut().rev();
        self.trace(0, count, |bit| {
            if let Some(place) = places.next() {
                *place = bit;
            }
        });
    }

    /// Adds the symbols of a bit of a stream; returns the bit [`Decoder::DELAY`] bits before it.
    pub fn stream(&mut self, symbols: [f32; 2]) -> Option<bool> {
        self.step(symbols);
        if self.bits < DEPTH {
            return None;
        }
        let best = (0..STATES).max_by(|a, b| self.metrics[*a].total_cmp(&self.metrics[*b]))?;
        let mut oldest = false;
        self.trace(best, DEPTH, |bit| oldest = bit);
        Some(oldest)
    }

    /// Delay of a stream in bits.
    pub const DELAY: usize = DEPTH - 1;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bits without a pattern, by a linear congruential generator.
    fn bits(count: usize) -> Vec<bool> {
        let mut state = 12345_u32;
        let mut bit = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state >> 31 == 1
        };
        (0..count).map(|_| bit()).collect()
    }

    fn encoded(bits: &[bool]) -> Vec<[f32; 2]> {
        let mut encoder = Encoder::default();
        let soft = |bit: &bool| encoder.encode(*bit).map(|one| if one { -1.0 } else { 1.0 });
        bits.iter().map(soft).collect()
    }

    #[test]
    fn impulse_response_is_that_of_the_generators() {
        let mut encoder = Encoder::default();
        let response =
            [true, false, false, false, false, false, false].map(|bit| encoder.encode(bit));
        // 1111001 and 1011011.
        let first = response.map(|[first, _]| u8::from(first));
        let second = response.map(|[_, second]| u8::from(second));
        assert_eq!((first, second), ([1, 1, 1, 1, 0, 0, 1], [1, 0, 1, 1, 0, 1, 1]));
    }

    #[test]
    fn block_with_four_wrong_and_twelve_missing_symbols_is_decoded() {
        let mut sent = bits(114);
        sent.extend([false; 6]);
        let mut symbols = encoded(&sent);
        // The free distance is 10: four errors within it are corrected.
        for at in [30, 31, 33, 34] {
            symbols[at][0] = -symbols[at][0];
        }
        for at in [5, 55, 56, 80, 100, 110] {
            symbols[at] = [0.0; 2];
        }
        let mut decoder = Decoder::of_block(120);
        for _ in 0..2 {
            decoder.restart();
            let mut decoded = [false; 120];
            decoder.block(symbols.iter().copied(), &mut decoded);
            assert_eq!(decoded[..], sent[..]);
        }
    }

    #[test]
    fn stream_is_decoded_from_anywhere_with_either_sign() {
        let sent = bits(2000);
        for sign in [1.0, -1.0] {
            let mut decoder = Decoder::of_stream();
            let symbols = encoded(&sent).into_iter().skip(7).map(|pair| pair.map(|s| sign * s));
            let decoded: Vec<bool> = symbols.filter_map(|pair| decoder.stream(pair)).collect();
            assert_eq!(decoded.len(), 2000 - 7 - Decoder::DELAY);
            // The code is transparent: inverted symbols are those of inverted bits.
            let expected = sent[7 + 20..].iter().map(|bit| *bit == (sign > 0.0));
            assert!(decoded[20..].iter().copied().zip(expected).all(|(a, b)| a == b));
        }
    }
}
