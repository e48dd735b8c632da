//! Parser: from words to formulas, by recursive descent.

use super::tokens::{SyntaxError, Token, Word, shown, words};
use super::{Expression, NoiseSeed, Program, Signal};

/// Longest text in bytes.
const MAX_TEXT: usize = 16 * 1024;
/// Deepest nesting; the parser and the generator recurse.
const MAX_DEPTH: usize = 64;
/// Largest number of operations in one text: each costs a pass over the period.
const MAX_NODES: usize = 512;
/// Largest number of variables: each keeps a whole period while signals are generated.
const MAX_VARIABLES: usize = 32;
/// Largest number of tones in one `multicw`.
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
    /// Parses `text`.
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
        // The last word marks the end and is never consumed.
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
        Err(word.error(format!("expected `{symbol}` before {}", shown(&word))))
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

    /// Parses the value of a statement; returns it and whether it is dithered.
    fn value(&mut self) -> Result<(Expression, bool), SyntaxError> {
        let mut open = 0;
        while self.peek().token == Token::Name("nodither") {
            self.advance();
            self.expect('(')?;
            open += 1;
        }
        let (expression, dither) = self.dithered()?;
        for _ in 0..open {
            self.expect(')')?;
        }
        Ok((expression, dither && open == 0))
    }

    /// Parses a value that does not begin with `nodither`; returns it and whether it is dithered.
    fn dithered(&mut self) -> Result<(Expression, bool), SyntaxError> {
        let first = self.peek();
        // A variable alone keeps its `nodither`; inside a sum `nodither` would be ambiguous.
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

    /// Combines the two sides of an operator; constants are evaluated.
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

    /// Returns the value of a constant expression.
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
            _ => return Err(word.error(format!("expected a signal before {}", shown(&word)))),
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
            help: Some(format!("write `{usage}`; all arguments except `signal` must be constant")),
            ..word.error(format!("wrong arguments of `{name}`"))
        };
        Ok(match (name, numbers.as_slice()) {
            ("cw", [Some(a), Some(f)]) => Expression::Tones(vec![(*a, *f)]),
            ("multicw", [Some(m), Some(a), Some(da), Some(f), Some(df)]) => {
                if !(0.0..=MAX_TONES).contains(m) || m.fract() != 0.0 {
                    return Err(word.error(format!(
                        "the number of tones must be an integer from 0 to {MAX_TONES}, got {m}"
                    )));
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
                    return Err(word
                        .error(format!("the seed must be an integer of at least 0, got {seed}")));
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

fn nodither_inside(word: &Word<'_>) -> SyntaxError {
    SyntaxError {
        help: Some("put `nodither(...)` around the whole signal of a polarisation".to_owned()),
        ..word.error("`nodither` must enclose a whole signal")
    }
}

fn unknown_name(word: &Word<'_>, name: &str) -> SyntaxError {
    let usages: Vec<&str> = FUNCTIONS.iter().map(|(_, usage)| *usage).collect();
    SyntaxError {
        help: Some(format!(
            "use one of {}, or define a variable: `name = value;`",
            usages.join(", ")
        )),
        ..word.error(format!("unknown name `{name}`"))
    }
}
