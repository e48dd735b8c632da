//! Tokeniser of the signal language.

/// Syntax error in a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyntaxError {
    /// Byte offset of the wrong word.
    pub start: usize,
    /// The wrong word; empty at the end of the text.
    pub word: String,
    /// Description of the error.
    pub message: String,
    /// Advice for the user.
    pub help: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Token<'a> {
    Number(f64),
    Name(&'a str),
    Symbol(char),
    End,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Word<'a> {
    pub token: Token<'a>,
    pub text: &'a str,
    pub start: usize,
}

impl Word<'_> {
    /// Returns an error at this word.
    pub fn error(&self, message: impl Into<String>) -> SyntaxError {
        SyntaxError {
            start: self.start,
            word: self.text.to_owned(),
            message: message.into(),
            help: None,
        }
    }
}

/// Splits `text` into words.
pub(super) fn words(text: &str) -> Result<Vec<Word<'_>>, SyntaxError> {
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
                return Err(word.error(format!("unexpected `{symbol}`")));
            }
            _ => words.push(word),
        }
        rest = rest[len..].trim_start();
    }
    words.push(Word { token: Token::End, text: "", start: text.len() });
    Ok(words)
}

/// Returns the length of the number at the start of `text`, exponent included, in bytes.
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

/// Returns `word` for a message.
pub(super) fn shown(word: &Word<'_>) -> String {
    if word.token == Token::End { "the end".to_owned() } else { format!("`{}`", word.text) }
}
