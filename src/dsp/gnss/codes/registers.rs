//! Shift registers and Weil codes.

/// Shift register, whose lowest bit is its last stage and its output.
#[derive(Clone)]
pub struct Register {
    state: u32,
    feedback: u32,
    stages: u32,
}

impl Register {
    /// Creates a register with this state, and feedback from these bits of it.
    pub fn new(stages: u32, state: u32, feedback: u32) -> Self {
        Self { state, feedback, stages }
    }

    /// Creates a register of ones, with feedback from the stages `from`, counted from 1.
    pub fn ones(stages: u32, from: &[u32]) -> Self {
        Self::new(stages, (1 << stages) - 1, bits(stages, from))
    }
}

impl Iterator for Register {
    type Item = bool;

    fn next(&mut self) -> Option<bool> {
        let output = self.state & 1 == 1;
        let fed_back = (self.state & self.feedback).count_ones() & 1;
        self.state = self.state >> 1 | fed_back << (self.stages - 1);
        Some(output)
    }
}

/// Returns the bits of these stages, counted from 1, of a register with `stages` stages.
pub fn bits(stages: u32, of: &[u32]) -> u32 {
    of.iter().fold(0, |bits, stage| bits | 1 << (stages - stage))
}

/// Returns the lowest `len` bits in reverse order.
pub fn reversed(bits: u32, len: u32) -> u32 {
    bits.reverse_bits() >> (32 - len)
}

/// Returns the code of a register whose taps and state are written as in the interface specifications of Galileo and of
/// GPS L1C: the coefficient of the first stage follows the lowest bit, which is always 1.
pub fn specified(stages: u32, polynomial: u32, state: u32) -> Register {
    Register::new(stages, reversed(state, stages), reversed(polynomial >> 1, stages))
}

/// Returns the Legendre sequence of the prime `length`: whether an index is a square.
pub fn legendre(length: usize) -> Vec<bool> {
    let mut squares = vec![false; length];
    (1..length).for_each(|n| squares[n * n % length] = true);
    squares
}

/// Returns a Weil code of a Legendre sequence, from index `first` on.
pub fn weil(squares: &[bool], index: usize, first: usize) -> impl Iterator<Item = bool> + '_ {
    let at = move |n: usize| squares[n % squares.len()];
    (first..).map(move |n| at(n) ^ at(n + index))
}

/// Returns chips, -1 for each true value.
pub fn chips(bits: impl IntoIterator<Item = bool>) -> Vec<i8> {
    bits.into_iter().map(|bit| if bit { -1 } else { 1 }).collect()
}

/// Returns chips written as hexadecimal digits, four for each digit, earliest first.
pub fn of_hex(digits: &str) -> Vec<i8> {
    let of_digit = |digit: u32| [3, 2, 1, 0].map(|bit| digit >> bit & 1 == 1);
    chips(digits.chars().filter_map(|digit| digit.to_digit(16)).flat_map(of_digit))
}
