//! The signal language: text to expressions.
//!
//! Statements are separated by `;`. `name = value` defines a variable, any other statement is
//! the signal of the next polarisation.
//!
//! # Layout
//! - `words`: tokeniser
//! - `parse`: parser, from words to formulas

mod parse;
mod tokens;

/// A signal as a formula.
#[derive(Clone, Debug, PartialEq)]
pub enum Expression {
    /// A constant value.
    Constant(f64),
    /// Tones: amplitude and frequency in Hz of each.
    Tones(Vec<(f64, f64)>),
    /// Impulses of an amplitude at a frequency in Hz.
    Comb(f64, f64),
    /// White Gaussian noise with this standard deviation.
    Noise(f64, NoiseSeed),
    /// A signal delayed by a number of samples.
    Delay(Box<Expression>, f64),
    /// Sum.
    Add(Box<Expression>, Box<Expression>),
    /// Difference.
    Subtract(Box<Expression>, Box<Expression>),
    /// Product, sample by sample.
    Multiply(Box<Expression>, Box<Expression>),
    /// The variable with this index.
    Variable(usize),
}

impl Expression {
    /// Returns the largest number of signals that exist at the same time while this one is computed.
    #[must_use]
    pub fn signals_held(&self) -> usize {
        match self {
            Self::Delay(inner, _) => inner.signals_held(),
            // The left operand is kept while the right operand is computed.
            Self::Add(a, b) | Self::Subtract(a, b) | Self::Multiply(a, b) => {
                a.signals_held().max(1 + b.signals_held())
            }
            _ => 1,
        }
    }

    /// Adds the frequencies of tones and combs in Hz.
    fn add_frequencies(&self, found: &mut Vec<f64>) {
        match self {
            Self::Tones(tones) => found.extend(tones.iter().map(|(_, hz)| hz)),
            Self::Comb(_, hz) => found.push(*hz),
            Self::Delay(inner, _) => inner.add_frequencies(found),
            Self::Add(a, b) | Self::Subtract(a, b) | Self::Multiply(a, b) => {
                a.add_frequencies(found);
                b.add_frequencies(found);
            }
            Self::Constant(_) | Self::Noise(..) | Self::Variable(_) => {}
        }
    }
}

/// Seed of the random numbers of a `wgn`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoiseSeed {
    /// A seed in the text: the same noise for the same seed, at all antennas.
    Given(u64),
    /// Number of the `wgn` among those without a seed: different noise at each antenna.
    Own(u64),
}

/// The signal of one polarisation.
#[derive(Clone, Debug, PartialEq)]
pub struct Signal {
    /// The formula.
    pub expression: Expression,
    /// Whether the quantiser adds dither.
    pub dither: bool,
}

/// A parsed text.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Program {
    /// Formulas of the variables; each uses only those before it.
    pub variables: Vec<Expression>,
    /// One per polarisation.
    pub signals: Vec<Signal>,
}

impl Program {
    /// Frequencies of tones and combs in Hz.
    #[must_use]
    pub fn frequencies_hz(&self) -> Vec<f64> {
        let signals = self.signals.iter().map(|signal| &signal.expression);
        let mut found = Vec::new();
        self.variables.iter().chain(signals).for_each(|each| each.add_frequencies(&mut found));
        found
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn arithmetic_has_usual_precedence_and_folds_constants() {
        let program = Program::parse("a = 2; 1 + a * 3 - (4 - 1) * -1").unwrap();
        assert_eq!(program.signals[0].expression, Expression::Constant(10.0));
    }

    #[test]
    fn each_statement_but_variables_is_one_polarisation() {
        let text = "f = 1e-3*2e9; x = cw(0.5, f); x; nodither(x + wgn(0.1, 7));";
        let program = Program::parse(text).unwrap();
        assert_eq!(program.variables.len(), 2);
        assert_eq!(program.variables[1], Expression::Tones(vec![(0.5, 2e6)]));
        assert_eq!(program.signals.iter().map(|s| s.dither).collect::<Vec<_>>(), [true, false]);
    }

    #[test]
    fn errors_contain_the_word_and_its_position() {
        let error = |text: &str| {
            let error = Program::parse(text).unwrap_err();
            (error.start, error.word)
        };
        assert_eq!(error("cw(1, 2); cww(1, 2)"), (10, "cww".to_owned()));
        assert_eq!(error("cw(1)"), (0, "cw".to_owned()));
        assert_eq!(error("1 + "), (4, String::new()));
        assert_eq!(error("1 + wgn(2"), (9, String::new()));
        assert_eq!(error("1 ? 2"), (2, "?".to_owned()));
        assert_eq!(error("1 2"), (2, "2".to_owned()));
        assert_eq!(error("0x12"), (0, "0x12".to_owned()));
        assert_eq!(error("1 + nodither(2)"), (4, "nodither".to_owned()));
        assert_eq!(error("a = nodither(1); a + 1"), (17, "a".to_owned()));
        assert_eq!(error("multicw(1e9, 1, 1, 1, 1)"), (0, "multicw".to_owned()));
    }

    #[test]
    fn deep_nesting_is_an_error() {
        assert!(Program::parse(&"(".repeat(10_000)).is_err());
        assert!(Program::parse(&"-".repeat(10_000)).is_err());
        assert!(Program::parse(&"nodither(".repeat(1_500)).is_err());
        assert!(Program::parse(&"1+".repeat(5_000)).is_err());
    }

    proptest! {
        #[test]
        fn arbitrary_text_parses_or_fails_at_a_word_of_it(text in "[a-z0-9.+*(),;= -]{0,60}|\\PC{0,40}") {
            if let Err(error) = Program::parse(&text) {
                prop_assert!(text[error.start..].starts_with(&error.word));
            }
        }
    }
}
