//! Evaluates terms.

use super::parse::parse;
use super::value::to_value;
use super::{Problem, Scalar, Term, TermKind};
use fxgraph_core::tree::INT_RANGE;

/// Looks up a name; `Err(None)` if it is unknown, `Err(Some(()))` if its value has an error that is already reported.
pub(crate) type Names<'a> = dyn FnMut(&str) -> Result<Scalar, Option<()>> + 'a;

/// Limit of the texts that expressions make, in bytes.
const MAX_TEXT: usize = 4096;

pub(crate) fn evaluate(text: &str, names: &mut Names<'_>) -> Result<Scalar, Problem> {
    compute(&parse(text)?, names)
}

fn compute(term: &Term, names: &mut Names<'_>) -> Result<Scalar, Problem> {
    let value = match &term.kind {
        TermKind::Value(value) => value.clone(),
        TermKind::Name(name) => names(name).map_err(|known| Problem {
            unknown: known.is_none().then(|| name.clone()),
            silent: known.is_some(),
            ..Problem::new(term.at, format!("unknown parameter `{name}`"))
        })?,
        TermKind::List(items) => {
            Scalar::List(items.iter().map(|item| compute(item, names)).collect::<Result<_, _>>()?)
        }
        TermKind::Choice { condition, yes, no } => {
            let branch = if truth(condition, names)? { yes } else { no };
            compute(branch, names)?
        }
        TermKind::Index(list, index) => element(list, index, names)?,
        TermKind::Unary("not", inner) => Scalar::Bool(!truth(inner, names)?),
        TermKind::Unary(sign, inner) => {
            let value = compute(inner, names)?.rounded();
            match value {
                Scalar::Int(value) => Scalar::Int(if *sign == "-" { -value } else { value }),
                Scalar::Float(value) => Scalar::Float(if *sign == "-" { -value } else { value }),
                other => {
                    let message = format!("`{sign}` cannot be applied to {}", other.sort());
                    return Err(Problem::new(term.at, message));
                }
            }
        }
        TermKind::Binary("and", a, b) => Scalar::Bool(truth(a, names)? && truth(b, names)?),
        TermKind::Binary("or", a, b) => Scalar::Bool(truth(a, names)? || truth(b, names)?),
        TermKind::Binary(symbol, a, b) => {
            let (left, right) = (compute(a, names)?.rounded(), compute(b, names)?.rounded());
            binary(symbol, &left, &right, term.at, b.at)?
        }
        TermKind::Call(name, arguments) => call(name, arguments, term, names)?,
    };
    match &value {
        Scalar::Int(whole) if !INT_RANGE.contains(whole) => {
            Err(Problem::new(term.at, "the result does not fit in 64 bits"))
        }
        Scalar::Float(number) if number.is_nan() => {
            Err(Problem::new(term.at, "the result is not a number"))
        }
        Scalar::Float(number) if number.is_infinite() => {
            Err(Problem::new(term.at, "the result is too large for a number"))
        }
        Scalar::Text(text) if text.len() > MAX_TEXT => {
            Err(Problem::new(term.at, "the text is too long"))
        }
        _ => Ok(value),
    }
}

fn truth(term: &Term, names: &mut Names<'_>) -> Result<bool, Problem> {
    match compute(term, names)? {
        Scalar::Bool(value) => Ok(value),
        other => {
            let message = format!("expected true or false, found {}", other.sort());
            Err(Problem::new(term.at, message))
        }
    }
}

fn element(list: &Term, index: &Term, names: &mut Names<'_>) -> Result<Scalar, Problem> {
    let items = match compute(list, names)? {
        Scalar::List(items) => items,
        other => {
            let message = format!("expected a list, found {}", other.sort());
            return Err(Problem::new(list.at, message));
        }
    };
    match compute(index, names)? {
        Scalar::Int(at) => {
            let found = usize::try_from(at).ok().and_then(|at| items.get(at).cloned());
            found.ok_or_else(|| {
                let message = format!(
                    "index {at} is out of range: the list has {} values, counted from 0",
                    items.len()
                );
                Problem::new(index.at, message)
            })
        }
        other => {
            let message = format!("an index must be an integer, found {}", other.sort());
            Err(Problem::new(index.at, message))
        }
    }
}

fn binary(
    symbol: &str,
    left: &Scalar,
    right: &Scalar,
    at: (usize, usize),
    divisor: (usize, usize),
) -> Result<Scalar, Problem> {
    use Scalar::{Bool, Float, Int, List, Text};
    let zero = || Problem::new(divisor, "division by 0");
    let wide = || Problem::new(at, "the result does not fit in 64 bits");
    let rejected = || {
        let (left, right) = (left.sort(), right.sort());
        Problem::new(at, format!("`{symbol}` cannot be applied to {left} and {right}"))
    };
    match symbol {
        "==" => return Ok(Bool(equal(left, right))),
        "!=" => return Ok(Bool(!equal(left, right))),
        _ => {}
    }
    match (left, right) {
        (Int(a), Int(b)) => {
            let (a, b) = (*a, *b);
            Ok(match symbol {
                "+" => Int(a.checked_add(b).ok_or_else(wide)?),
                "-" => Int(a.checked_sub(b).ok_or_else(wide)?),
                "*" => Int(a.checked_mul(b).ok_or_else(wide)?),
                "/" | "//" | "%" if b == 0 => return Err(zero()),
                "/" if a % b == 0 => Int(a / b),
                "/" => Float(a as f64 / b as f64),
                // Both round down for any signs, as in Python.
                "//" => Int((a - modulo(a, b)) / b),
                "%" => Int(modulo(a, b)),
                "**" if b < 0 => Float((a as f64).powi(b.max(-2000) as i32)),
                "**" => {
                    let exponent = u32::try_from(b).map_err(|_| wide())?;
                    Int(a.checked_pow(exponent).ok_or_else(wide)?)
                }
                "<" => Bool(a < b),
                "<=" => Bool(a <= b),
                ">" => Bool(a > b),
                ">=" => Bool(a >= b),
                _ => return Err(rejected()),
            })
        }
        (Int(_) | Float(_), Int(_) | Float(_)) => {
            let (Some(a), Some(b)) = (left.number(), right.number()) else {
                return Err(rejected());
            };
            Ok(match symbol {
                "+" => Float(a + b),
                "-" => Float(a - b),
                "*" => Float(a * b),
                "/" | "//" | "%" if b == 0.0 => return Err(zero()),
                "/" => Float(a / b),
                "//" => Float((a / b).floor()),
                "%" => Float(a - b * (a / b).floor()),
                "**" => Float(a.powf(b)),
                "<" => Bool(a < b),
                "<=" => Bool(a <= b),
                ">" => Bool(a > b),
                ">=" => Bool(a >= b),
                _ => return Err(rejected()),
            })
        }
        (Text(a), Text(b)) => match symbol {
            "+" => Ok(Text(format!("{a}{b}"))),
            "<" => Ok(Bool(a < b)),
            ">" => Ok(Bool(a > b)),
            _ => Err(rejected()),
        },
        (List(a), List(b)) if symbol == "+" && a.len() + b.len() <= MAX_TEXT => {
            Ok(List(a.iter().chain(b).cloned().collect()))
        }
        _ => Err(rejected()),
    }
}

/// Remainder with the sign of the divisor.
fn modulo(a: i128, b: i128) -> i128 {
    let rest = a % b;
    if rest != 0 && (rest < 0) != (b < 0) { rest + b } else { rest }
}

#[allow(clippy::float_cmp, reason = "`==` in an expression is exact")]
fn equal(left: &Scalar, right: &Scalar) -> bool {
    match (left, right) {
        (Scalar::Int(a), Scalar::Float(b)) | (Scalar::Float(b), Scalar::Int(a)) => *a as f64 == *b,
        _ => left == right,
    }
}

/// Name, minimum and maximum number of arguments of each function.
const FUNCTIONS: [(&str, usize, usize); 13] = [
    ("min", 1, 64),
    ("max", 1, 64),
    ("floor", 1, 1),
    ("ceil", 1, 1),
    ("round", 1, 1),
    ("abs", 1, 1),
    ("log2", 1, 1),
    ("sqrt", 1, 1),
    ("sin", 1, 1),
    ("cos", 1, 1),
    ("radians", 1, 1),
    ("len", 1, 1),
    ("text", 1, 1),
];

fn call(
    name: &str,
    arguments: &[Term],
    term: &Term,
    names: &mut Names<'_>,
) -> Result<Scalar, Problem> {
    let Some((_, least, most)) = FUNCTIONS.iter().find(|(known, _, _)| *known == name) else {
        let known = FUNCTIONS.iter().map(|(known, _, _)| *known);
        let hint = fxgraph_core::diagnostic::nearest(name, known)
            .map_or(String::new(), |near| format!(", did you mean `{near}`?"));
        let at = (term.at.0, term.at.0 + name.len());
        return Err(Problem::new(at, format!("unknown function `{name}`{hint}")));
    };
    if !(*least..=*most).contains(&arguments.len()) {
        let wanted = if least == most { least.to_string() } else { "at least 1".to_owned() };
        let message = format!("`{name}` takes {wanted} argument, got {}", arguments.len());
        return Err(Problem::new(term.at, message));
    }
    let values: Vec<Scalar> =
        arguments.iter().map(|argument| compute(argument, names)).collect::<Result<_, _>>()?;
    let first = &values[0];
    match (name, first) {
        ("text", value) => return Ok(Scalar::Text(to_value(value).plain())),
        ("len", Scalar::List(items)) => return Ok(Scalar::Int(items.len() as i128)),
        ("len", Scalar::Text(text)) => return Ok(Scalar::Int(text.chars().count() as i128)),
        ("floor" | "ceil" | "round", Scalar::Int(_)) => return Ok(first.clone()),
        ("abs", Scalar::Int(value)) => return Ok(Scalar::Int(value.abs())),
        // Exact for powers of two, where flowgraphs use `log2` to count bits.
        ("log2", Scalar::Int(value)) if *value > 0 && value.count_ones() == 1 => {
            return Ok(Scalar::Int(i128::from(value.trailing_zeros())));
        }
        _ => {}
    }
    let Some(number) = first.number() else {
        let message = format!("`{name}` cannot be applied to {}", first.sort());
        return Err(Problem::new(arguments[0].at, message));
    };
    let whole = |value: f64| {
        if value.abs() < 1e18 {
            Ok(Scalar::Int(value as i128))
        } else {
            Err(Problem::new(term.at, "the result does not fit in 64 bits"))
        }
    };
    match name {
        "min" | "max" => {
            let mut best = first.clone().rounded();
            for (value, argument) in values.into_iter().map(Scalar::rounded).zip(arguments).skip(1)
            {
                let symbol = if name == "min" { "<" } else { ">" };
                if binary(symbol, &value, &best, argument.at, argument.at)? == Scalar::Bool(true) {
                    best = value;
                }
            }
            Ok(best)
        }
        "floor" => whole(number.floor()),
        "ceil" => whole(number.ceil()),
        "round" => whole(number.round()),
        "abs" => Ok(Scalar::Float(number.abs())),
        "log2" => Ok(Scalar::Float(number.log2())),
        "sqrt" => Ok(Scalar::Float(number.sqrt())),
        "sin" => Ok(Scalar::Float(number.sin())),
        "cos" => Ok(Scalar::Float(number.cos())),
        "radians" => Ok(Scalar::Float(number.to_radians())),
        _ => Err(Problem::new(arguments[0].at, format!("`{name}` cannot be applied to this"))),
    }
}
