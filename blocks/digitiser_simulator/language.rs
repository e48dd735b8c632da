//! The signal language: text to expressions.
//!
//! Statements are separated by `;`. `name = value` defines a variable, any other statement is
//! the signal of the next polarisation.

/// Longest text that is read.
const MAX_TEXT: usize = 16 * 1024;
/// Deepest nesting; the parser and the generator recurse.
const MAX_DEPTH: usize = 64;
/// Most operations in one text: each costs a pass over the period.
const MAX_NODES: usize = 512;
/// Most variables: each keeps a whole period while signals are generated.
const MAX_VARIABLES: usize = 32;
/// Most tones in one `multicw`.
const MAX_TONES: f64 = 65_536.0;

/// Names of the functions with their arguments.
const FUNCTIONS: &[(&str, &str)] = &[
    ("cw", "cw(amplitude, frequency_hz)"),
    ("multicw", "multicw(tones, amplitude, amplitude_step, frequency_hz, frequency_step_hz)"),
    ("comb", "comb(amplitude, frequency_hz)"),
    ("wgn", "wgn(standard_deviation[, seed])"),
    ("delay", "delay(signal, samples)"),
    ("nodither", "nodither(signal)"),
];

/// A signal as a formula.
#[derive(Clone, Debug, PartialEq)]
pub enum Expression {
    /// The same value always.
    Constant(f64),
    /// Tones: amplitude and frequency in Hz of each.
    Tones(Vec<(f64, f64)>),
    /// Impulses of an amplitude at a frequency in Hz.
    Comb(f64, f64),
    /// White Gaussian noise with this standard deviation.
    Noise(f64, NoiseSeed),
    /// A signal that many samples later.
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
    /// Most signals that exist at the same time while this one is made.
    #[must_use]
    pub fn signals_held(&self) -> usize {
        match self {
            Self::Delay(inner, _) => inner.signals_held(),
            // The left one is kept while the right one is made.
            Self::Add(a, b) | Self::Subtract(a, b) | Self::Multiply(a, b) => {
                a.signals_held().max(1 + b.signals_held())
            }
            _ => 1,
        }
    }
}

/// What selects the random numbers of a `wgn`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoiseSeed {
    /// Given in the text: the same noise wherever this seed stands, at all antennas.
    Given(u64),
    /// The `n`th `wgn` of the text without one: different at each antenna.
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

/// A whole text.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Program {
    /// Formulas of the variables; each uses only those before it.
    pub variables: Vec<Expression>,
    /// One per polarisation.
    pub signals: Vec<Signal>,
}

/// What is wrong with a text, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyntaxError {
    /// First byte of the offending word.
    pub start: usize,
    /// The offending word; empty at the end of the text.
    pub word: String,
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub help: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Token<'a> {
    Number(f64),
    Name(&'a str),
    Symbol(char),
    End,
}

#[derive(Clone, Copy, Debug)]
struct Word<'a> {
    token: Token<'a>,
    text: &'a str,
    start: usize,
}

impl Word<'_> {
    fn error(&self, message: impl Into<String>) -> SyntaxError {
        SyntaxError {
            start: self.start,
            word: self.text.to_owned(),
            message: message.into(),
            help: None,
        }
    }
}

/// Cuts `text` into words.
fn words(text: &str) -> Result<Vec<Word<'_>>, SyntaxError> {
    let mut words = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let start = text.len() - rest.len();
        let len = if first.is_ascii_digit() || first == '.' {
            number_len(rest)
        } else if first.is_ascii_alphabetic() || first == '_' {
            rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len())
        } else {
            first.len_utf8()
        };
        let word = &rest[..len];
        let token = if first.is_ascii_digit() || first == '.' {
            Token::Number(word.parse().ok().filter(|v: &f64| v.is_finite()).unwrap_or(f64::NAN))
        } else if first.is_ascii_alphabetic() || first == '_' {
            Token::Name(word)
        } else {
            Token::Symbol(first)
        };
        let word = Word { token, text: word, start };
        match token {
            Token::Number(value) if value.is_nan() => {
                return Err(word.error(format!("`{}` is not a number", word.text)));
            }
            Token::Symbol(symbol) if !"+-*(),;=".contains(symbol) => {
                return Err(word.error(format!("`{symbol}` means nothing here")));
            }
            _ => words.push(word),
        }
        rest = rest[len..].trim_start();
    }
    words.push(Word { token: Token::End, text: "", start: text.len() });
    Ok(words)
}

/// Length of the number at the start of `text`, exponent included.
fn number_len(text: &str) -> usize {
    let mut previous = ' ';
    let end = text.find(|c: char| {
        let in_exponent = previous == 'e' || previous == 'E';
        let goes_on = c.is_ascii_alphanumeric() || c == '.' || (in_exponent && "+-".contains(c));
        previous = c;
        !goes_on
    });
    end.unwrap_or(text.len())
}

struct Parser<'a> {
    words: Vec<Word<'a>>,
    next: usize,
    depth: usize,
    nodes: usize,
    noises: u64,
    names: Vec<(&'a str, bool)>,
    program: Program,
}

impl Program {
    /// Reads `text`.
    pub fn parse(text: &str) -> Result<Self, SyntaxError> {
        if text.len() > MAX_TEXT {
            let error = Word { token: Token::End, text: "", start: MAX_TEXT };
            return Err(error.error(format!("the text is longer than {MAX_TEXT} bytes")));
        }
        let mut parser = Parser {
            words: words(text)?,
            next: 0,
            depth: 0,
            nodes: 0,
            noises: 0,
            names: Vec::new(),
            program: Self::default(),
        };
        parser.statements()?;
        Ok(parser.program)
    }
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Word<'a> {
        self.words[self.next]
    }

    fn advance(&mut self) -> Word<'a> {
        let word = self.peek();
        // The last word is the end and stays there.
        self.next = (self.next + 1).min(self.words.len() - 1);
        word
    }

    fn take_symbol(&mut self, symbol: char) -> bool {
        let there = self.peek().token == Token::Symbol(symbol);
        if there {
            self.advance();
        }
        there
    }

    fn expect(&mut self, symbol: char) -> Result<(), SyntaxError> {
        if self.take_symbol(symbol) {
            return Ok(());
        }
        let word = self.peek();
        Err(word.error(format!("`{symbol}` is missing before {}", shown(&word))))
    }

    fn statements(&mut self) -> Result<(), SyntaxError> {
        while self.peek().token != Token::End {
            if self.take_symbol(';') {
                continue;
            }
            self.statement()?;
            if self.peek().token != Token::End {
                self.expect(';')?;
            }
        }
        Ok(())
    }

    fn statement(&mut self) -> Result<(), SyntaxError> {
        let first = self.peek();
        let assigns = matches!(first.token, Token::Name(_))
            && self.words[self.next + 1].token == Token::Symbol('=');
        if !assigns {
            let (expression, dither) = self.value()?;
            self.program.signals.push(Signal { expression, dither });
            return Ok(());
        }
        self.advance();
        self.advance();
        if FUNCTIONS.iter().any(|(name, _)| *name == first.text) {
            return Err(first.error(format!("`{}` is a function, not a variable", first.text)));
        }
        if self.names.len() == MAX_VARIABLES {
            return Err(first.error(format!("more than {MAX_VARIABLES} variables")));
        }
        let (expression, dither) = self.value()?;
        self.names.push((first.text, dither));
        self.program.variables.push(expression);
        Ok(())
    }

    /// A whole statement's value, and whether it is dithered.
    fn value(&mut self) -> Result<(Expression, bool), SyntaxError> {
        let first = self.peek();
        if first.token == Token::Name("nodither") {
            self.advance();
            self.expect('(')?;
            let (expression, _) = self.value()?;
            self.expect(')')?;
            return Ok((expression, false));
        }
        // A variable alone keeps its `nodither`; inside a sum there is no telling.
        let alone = matches!(
            self.words[(self.next + 1).min(self.words.len() - 1)].token,
            Token::Symbol(';' | ')') | Token::End
        );
        if alone && let Some(index) = self.variable(first.text) {
            self.advance();
            return Ok((Expression::Variable(index), self.names[index].1));
        }
        Ok((self.sum()?, true))
    }

    fn variable(&self, name: &str) -> Option<usize> {
        self.names.iter().rposition(|(known, _)| *known == name)
    }

    fn sum(&mut self) -> Result<Expression, SyntaxError> {
        let mut left = self.product()?;
        loop {
            let word = self.peek();
            if self.take_symbol('+') || self.take_symbol('-') {
                let right = self.product()?;
                left = self.combine(&word, left, right)?;
            } else {
                return Ok(left);
            }
        }
    }

    fn product(&mut self) -> Result<Expression, SyntaxError> {
        let mut left = self.unary()?;
        loop {
            let word = self.peek();
            if !self.take_symbol('*') {
                return Ok(left);
            }
            let right = self.unary()?;
            left = self.combine(&word, left, right)?;
        }
    }

    /// The two sides of an operator; numbers are worked out at once.
    fn combine(
        &mut self,
        operator: &Word<'_>,
        left: Expression,
        right: Expression,
    ) -> Result<Expression, SyntaxError> {
        self.nodes += 1;
        if self.nodes > MAX_NODES {
            return Err(operator.error(format!("more than {MAX_NODES} operations")));
        }
        let numbers = self.number(&left).zip(self.number(&right));
        let boxed = (Box::new(left), Box::new(right));
        Ok(match (operator.text, numbers) {
            ("+", Some((a, b))) => Expression::Constant(a + b),
            ("-", Some((a, b))) => Expression::Constant(a - b),
            ("*", Some((a, b))) => Expression::Constant(a * b),
            ("+", None) => Expression::Add(boxed.0, boxed.1),
            ("-", None) => Expression::Subtract(boxed.0, boxed.1),
            _ => Expression::Multiply(boxed.0, boxed.1),
        })
    }

    /// The value of an expression that does not change with time.
    fn number(&self, expression: &Expression) -> Option<f64> {
        match expression {
            Expression::Constant(value) => Some(*value),
            Expression::Variable(index) => self.number(&self.program.variables[*index]),
            _ => None,
        }
    }

    fn unary(&mut self) -> Result<Expression, SyntaxError> {
        let word = self.advance();
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(word.error(format!("nested deeper than {MAX_DEPTH} levels")));
        }
        let expression = match word.token {
            Token::Number(value) => Expression::Constant(value),
            Token::Symbol('-') => {
                let inner = self.unary()?;
                let minus = Word { text: "*", ..word };
                self.combine(&minus, Expression::Constant(-1.0), inner)?
            }
            Token::Symbol('(') => {
                let inner = self.sum()?;
                self.expect(')')?;
                inner
            }
            Token::Name(name) if self.peek().token == Token::Symbol('(') => {
                self.function(&word, name)?
            }
            Token::Name(name) => match self.variable(name) {
                Some(index) if !self.names[index].1 => return Err(nodither_inside(&word)),
                Some(index) => Expression::Variable(index),
                None => return Err(unknown_name(&word, name)),
            },
            _ => return Err(word.error(format!("a signal is missing before {}", shown(&word)))),
        };
        self.depth -= 1;
        Ok(expression)
    }

    fn function(&mut self, word: &Word<'a>, name: &str) -> Result<Expression, SyntaxError> {
        if name == "nodither" {
            return Err(nodither_inside(word));
        }
        let Some((_, usage)) = FUNCTIONS.iter().find(|(known, _)| *known == name) else {
            return Err(unknown_name(word, name));
        };
        self.nodes += 1;
        if self.nodes > MAX_NODES {
            return Err(word.error(format!("more than {MAX_NODES} operations")));
        }
        let arguments = self.arguments()?;
        let numbers: Vec<Option<f64>> = arguments.iter().map(|a| self.number(a)).collect();
        let wrong = || SyntaxError {
            help: Some(format!("it is used as `{usage}`, numbers where no signal is named")),
            ..word.error(format!("the arguments of `{name}` do not fit"))
        };
        Ok(match (name, numbers.as_slice()) {
            ("cw", [Some(a), Some(f)]) => Expression::Tones(vec![(*a, *f)]),
            ("multicw", [Some(m), Some(a), Some(da), Some(f), Some(df)]) => {
                if !(0.0..=MAX_TONES).contains(m) || m.fract() != 0.0 {
                    return Err(word.error(format!("{m} is not a number of tones")));
                }
                let tone = |i: u32| (a + f64::from(i) * da, f + f64::from(i) * df);
                Expression::Tones((0..*m as u32).map(tone).collect())
            }
            ("comb", [Some(a), Some(f)]) => Expression::Comb(*a, *f),
            ("wgn", [Some(std)]) => {
                self.noises += 1;
                Expression::Noise(*std, NoiseSeed::Own(self.noises))
            }
            ("wgn", [Some(std), Some(seed)]) => {
                if *seed < 0.0 || seed.fract() != 0.0 {
                    return Err(
                        word.error(format!("{seed} is not a seed: whole numbers from 0 are"))
                    );
                }
                Expression::Noise(*std, NoiseSeed::Given(*seed as u64))
            }
            ("delay", [_, Some(samples)]) => {
                let signal = arguments.into_iter().next().ok_or_else(wrong)?;
                Expression::Delay(Box::new(signal), *samples)
            }
            _ => return Err(wrong()),
        })
    }

    fn arguments(&mut self) -> Result<Vec<Expression>, SyntaxError> {
        self.expect('(')?;
        let mut arguments = Vec::new();
        if self.take_symbol(')') {
            return Ok(arguments);
        }
        loop {
            arguments.push(self.sum()?);
            if !self.take_symbol(',') {
                self.expect(')')?;
                return Ok(arguments);
            }
        }
    }
}

fn shown(word: &Word<'_>) -> String {
    if word.token == Token::End { "the end".to_owned() } else { format!("`{}`", word.text) }
}

fn nodither_inside(word: &Word<'_>) -> SyntaxError {
    SyntaxError {
        help: Some("write `nodither(...)` around the whole signal of a polarisation".to_owned()),
        ..word.error("dither cannot be switched off for a part of a signal")
    }
}

fn unknown_name(word: &Word<'_>, name: &str) -> SyntaxError {
    let usages: Vec<&str> = FUNCTIONS.iter().map(|(_, usage)| *usage).collect();
    SyntaxError {
        help: Some(format!(
            "there are {}; variables are defined by `name = value;`",
            usages.join(", ")
        )),
        ..word.error(format!("nothing is called `{name}`"))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn arithmetic_binds_as_in_school_and_numbers_are_worked_out() {
        let program = Program::parse("a = 2; 1 + a * 3 - (4 - 1) * -1").unwrap();
        assert_eq!(program.signals[0].expression, Expression::Constant(10.0));
    }

    #[test]
    fn one_statement_per_polarisation_variables_apart() {
        let text = "f = 1e-3*2e9; x = cw(0.5, f); x; nodither(x + wgn(0.1, 7));";
        let program = Program::parse(text).unwrap();
        assert_eq!(program.variables.len(), 2);
        assert_eq!(program.variables[1], Expression::Tones(vec![(0.5, 2e6)]));
        assert_eq!(program.signals.iter().map(|s| s.dither).collect::<Vec<_>>(), [true, false]);
    }

    #[test]
    fn errors_name_the_word_and_its_place() {
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
    fn hostile_nesting_is_an_error_not_a_crash() {
        assert!(Program::parse(&"(".repeat(10_000)).is_err());
        assert!(Program::parse(&"-".repeat(10_000)).is_err());
        assert!(Program::parse(&"nodither(".repeat(1_500)).is_err());
        assert!(Program::parse(&"1+".repeat(5_000)).is_err());
    }

    proptest! {
        #[test]
        fn any_text_parses_or_is_refused_within_it(text in "[a-z0-9.+*(),;= -]{0,60}|\\PC{0,40}") {
            if let Err(error) = Program::parse(&text) {
                prop_assert!(text[error.start..].starts_with(&error.word));
            }
        }
    }
}
