//! Parses text to terms, by precedence climbing.

use super::{Problem, Scalar, Term, TermKind};

/// Limit of the nesting of parentheses and operators.
const MAX_DEPTH: usize = 64;

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Value(Scalar),
    Name(String),
    Symbol(&'static str),
}

/// Longer ones first.
const SYMBOLS: [&str; 19] = [
    "**", "//", "<=", ">=", "==", "!=", "+", "-", "*", "/", "%", "<", ">", "(", ")", ",", "[", "]",
    ".",
];

/// Left and right binding power of the binary operators; `**` is right-associative.
fn power(symbol: &str) -> Option<(u8, u8)> {
    Some(match symbol {
        "or" => (2, 3),
        "and" => (4, 5),
        "==" | "!=" | "<" | "<=" | ">" | ">=" => (8, 9),
        "+" | "-" => (10, 11),
        "*" | "/" | "//" | "%" => (12, 13),
        "**" => (17, 16),
        _ => return None,
    })
}

const NOT_POWER: u8 = 6;
const SIGN_POWER: u8 = 14;

pub(crate) fn parse(text: &str) -> Result<Term, Problem> {
    let mut parser = Parser { tokens: tokens(text)?, next: 0, depth: 0, end: text.len() };
    let term = parser.choice()?;
    match parser.tokens.get(parser.next) {
        None => Ok(term),
        Some((_, at)) => {
            let extra = &text[at.0..at.1];
            Err(Problem::new(*at, format!("unexpected `{extra}` after the expression")))
        }
    }
}

/// Appends the names that `text` uses to `found`; none if it is not an expression.
pub(crate) fn names(text: &str, found: &mut Vec<String>) {
    let names = tokens(text).unwrap_or_default().into_iter();
    found.extend(names.filter_map(|(token, _)| match token {
        Token::Name(name) => Some(name),
        _ => None,
    }));
}

/// A token with its bytes in the text.
type Placed = (Token, (usize, usize));

fn tokens(text: &str) -> Result<Vec<Placed>, Problem> {
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(first) = text[at..].chars().next() {
        let rest = &text[at..];
        let (token, length) = match first {
            c if c.is_whitespace() => {
                at += c.len_utf8();
                continue;
            }
            '"' | '\'' => {
                let Some(length) = rest[1..].find(first) else {
                    return Err(Problem::new((at, text.len()), "the quote is not closed"));
                };
                (Token::Value(Scalar::Text(rest[1..=length].to_owned())), length + 2)
            }
            c if c.is_ascii_digit() => number(rest, at)?,
            c if c.is_alphabetic() || c == '_' => {
                let length =
                    rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
                (word(&rest[..length]), length)
            }
            _ => {
                let Some(symbol) = SYMBOLS.iter().find(|symbol| rest.starts_with(**symbol)) else {
                    let place = (at, at + first.len_utf8());
                    return Err(Problem::new(place, format!("unexpected `{first}`")));
                };
                (Token::Symbol(symbol), symbol.len())
            }
        };
        tokens.push((token, (at, at + length)));
        at += length;
    }
    Ok(tokens)
}

fn word(text: &str) -> Token {
    match text {
        "true" => Token::Value(Scalar::Bool(true)),
        "false" => Token::Value(Scalar::Bool(false)),
        "and" => Token::Symbol("and"),
        "or" => Token::Symbol("or"),
        "not" => Token::Symbol("not"),
        "if" => Token::Symbol("if"),
        "else" => Token::Symbol("else"),
        name => Token::Name(name.to_owned()),
    }
}

fn number(rest: &str, at: usize) -> Result<(Token, usize), Problem> {
    let bytes = rest.as_bytes();
    if rest.starts_with("0x") {
        let length = bytes[2..].iter().take_while(|b| b.is_ascii_hexdigit()).count() + 2;
        let value =
            i128::from_str_radix(&rest[2..length], 16).map_err(|_| too_large(at, length))?;
        return Ok((Token::Value(Scalar::Int(value)), length));
    }
    let digits = |from: usize| bytes[from..].iter().take_while(|b| b.is_ascii_digit()).count();
    let mut length = digits(0);
    let mut is_int = true;
    if bytes.get(length) == Some(&b'.') && digits(length + 1) > 0 {
        length += 1 + digits(length + 1);
        is_int = false;
    }
    if matches!(bytes.get(length), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(length + 1), Some(b'+' | b'-')));
        let exponent = digits((length + 1 + sign).min(bytes.len()));
        if exponent > 0 {
            length += 1 + sign + exponent;
            is_int = false;
        }
    }
    let digits = &rest[..length];
    let value = if is_int {
        Scalar::Int(digits.parse().map_err(|_| too_large(at, length))?)
    } else {
        Scalar::Float(digits.parse().map_err(|_| too_large(at, length))?)
    };
    Ok((Token::Value(value), length))
}

fn too_large(at: usize, length: usize) -> Problem {
    Problem::new((at, at + length), "not a valid number, or too large")
}

struct Parser {
    tokens: Vec<Placed>,
    next: usize,
    depth: usize,
    end: usize,
}

impl Parser {
    fn symbol(&self) -> Option<&'static str> {
        match self.tokens.get(self.next) {
            Some((Token::Symbol(symbol), _)) => Some(symbol),
            _ => None,
        }
    }

    fn take(&mut self, symbol: &str) -> bool {
        let found = self.symbol() == Some(symbol);
        self.next += usize::from(found);
        found
    }

    fn here(&self) -> (usize, usize) {
        self.tokens.get(self.next).map_or((self.end, self.end), |(_, at)| *at)
    }

    fn need(&mut self, symbol: &str) -> Result<(), Problem> {
        if self.take(symbol) {
            return Ok(());
        }
        let message = match self.tokens.get(self.next) {
            None => format!("the expression ends too early, `{symbol}` is missing"),
            Some(_) => format!("expected `{symbol}` here"),
        };
        Err(Problem::new(self.here(), message))
    }

    /// Parses `a if condition else b`, and everything that binds tighter.
    fn choice(&mut self) -> Result<Term, Problem> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(Problem::new(self.here(), "the expression is nested too deeply"));
        }
        let yes = self.term(0)?;
        let term = if self.take("if") {
            let condition = Box::new(self.term(0)?);
            self.need("else")?;
            let no = Box::new(self.choice()?);
            let at = (yes.at.0, no.at.1);
            Term { kind: TermKind::Choice { condition, yes: Box::new(yes), no }, at }
        } else {
            yes
        };
        self.depth -= 1;
        Ok(term)
    }

    fn term(&mut self, least: u8) -> Result<Term, Problem> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(Problem::new(self.here(), "the expression is nested too deeply"));
        }
        let mut left = self.operand()?;
        // A long chain also makes a deep tree.
        let mut chain = 0;
        while let Some(symbol) = self.symbol() {
            let Some((binds_left, binds_right)) = power(symbol) else { break };
            if binds_left < least {
                break;
            }
            chain += 1;
            if chain > 4 * MAX_DEPTH {
                return Err(Problem::new(self.here(), "the expression is too long"));
            }
            self.next += 1;
            let right = self.term(binds_right)?;
            let at = (left.at.0, right.at.1);
            left = Term { kind: TermKind::Binary(symbol, Box::new(left), Box::new(right)), at };
        }
        self.depth -= 1;
        Ok(left)
    }

    fn operand(&mut self) -> Result<Term, Problem> {
        let at = self.here();
        let Some((token, _)) = self.tokens.get(self.next).cloned() else {
            return Err(Problem::new(at, "the expression ends too early"));
        };
        self.next += 1;
        let kind = match token {
            Token::Value(value) => TermKind::Value(value),
            Token::Name(name) if self.take("(") => TermKind::Call(name, self.list(")")?),
            Token::Name(name) => TermKind::Name(name),
            Token::Symbol("(") => {
                let inner = self.choice()?;
                self.need(")")?;
                inner.kind
            }
            Token::Symbol("[") => TermKind::List(self.list("]")?),
            Token::Symbol("-") => TermKind::Unary("-", Box::new(self.term(SIGN_POWER)?)),
            Token::Symbol("+") => TermKind::Unary("+", Box::new(self.term(SIGN_POWER)?)),
            Token::Symbol("not") => TermKind::Unary("not", Box::new(self.term(NOT_POWER)?)),
            Token::Symbol(symbol) => {
                return Err(Problem::new(at, format!("expected a value, found `{symbol}`")));
            }
        };
        let mut term = Term { kind, at: (at.0, self.last_end()) };
        let mut chain = 0;
        while self.take("[") {
            chain += 1;
            if chain > MAX_DEPTH {
                return Err(Problem::new(self.here(), "the expression is nested too deeply"));
            }
            let index = self.choice()?;
            self.need("]")?;
            let at = (at.0, self.last_end());
            term = Term { kind: TermKind::Index(Box::new(term), Box::new(index)), at };
        }
        Ok(term)
    }

    fn last_end(&self) -> usize {
        self.next.checked_sub(1).and_then(|last| self.tokens.get(last)).map_or(0, |(_, at)| at.1)
    }

    fn list(&mut self, close: &str) -> Result<Vec<Term>, Problem> {
        let mut items = Vec::new();
        if self.take(close) {
            return Ok(items);
        }
        loop {
            items.push(self.choice()?);
            if self.take(close) {
                return Ok(items);
            }
            self.need(",")?;
        }
    }
}
