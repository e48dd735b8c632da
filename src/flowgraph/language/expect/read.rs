//! Reads `tests:`.

use super::{Alongside, Check, Expect, Run, Tap, TestSpec};
use crate::language::parameters::{SetTo, Setting};
use crate::text::document::{self, map};
use fxgraph_core::diagnostic::{Diagnostic, Span, codes};
use fxgraph_core::tree::{Node, ReadError, Reader, Value};
use serde::Deserialize;
use std::collections::BTreeMap;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawTest {
    name: String,
    #[serde(default)]
    #[allow(dead_code, reason = "read from the tree, so that values of any type are accepted")]
    set: Option<serde::de::IgnoredAny>,
    #[allow(dead_code, reason = "read from the tree, one by one")]
    alongside: Option<serde::de::IgnoredAny>,
    run: Option<RawRun>,
    #[allow(dead_code, reason = "read from the tree, one by one")]
    expect: serde::de::IgnoredAny,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawAlongside {
    flowgraph: String,
    #[allow(dead_code, reason = "read from the tree, so that values of any type are accepted")]
    set: Option<serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRun {
    frames: Option<u64>,
    seconds: Option<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawExpect {
    tap: String,
    peak: Option<RawPeak>,
    rms: Option<RawNear>,
    mean: Option<RawNear>,
    equals: Option<Number>,
    close_to: Option<RawClose>,
    validity: Option<RawValidity>,
    frames: Option<u64>,
    same_as: Option<String>,
    phase: Option<RawPhase>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPeak {
    axis: String,
    at: f64,
    #[serde(default)]
    tolerance: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawNear {
    value: f64,
    tolerance: f64,
    #[serde(default)]
    at: BTreeMap<String, u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawClose {
    value: Number,
    tolerance: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPhase {
    #[serde(default)]
    at: BTreeMap<String, u64>,
    radians: f64,
    tolerance: f64,
}

/// A real number, or `[re, im]`.
#[derive(Deserialize)]
#[serde(untagged)]
enum Number {
    Real(f64),
    Complex(f64, f64),
}

impl From<Number> for (f64, f64) {
    fn from(number: Number) -> Self {
        match number {
            Number::Real(re) => (re, 0.0),
            Number::Complex(re, im) => (re, im),
        }
    }
}

/// `full`, `none`, a fraction from 0 to 1, or a fraction with a tolerance.
#[derive(Deserialize)]
#[serde(untagged)]
enum RawValidity {
    Fraction(f64),
    Word(String),
    Near { fraction: f64, tolerance: f64 },
}

const CHECKS: &str =
    "`peak`, `rms`, `mean`, `equals`, `close_to`, `validity`, `frames`, `same_as` or `phase`";

/// Reads one entry of `tests:`, with computed expressions.
pub(crate) fn test(node: &Node, problems: &mut Vec<Diagnostic>) -> Option<TestSpec> {
    let owner = Span { end: node.span.start + 1, ..node.span };
    let raw = match RawTest::deserialize(Reader::new(node, owner)) {
        Ok(raw) => raw,
        Err(error) => {
            problems.push(diagnostic(&error, owner));
            return None;
        }
    };
    let before = problems.len();
    let run = match raw.run {
        None => Some(Run::ToTheEnd),
        Some(RawRun { frames: Some(frames), seconds: None }) if frames > 0 => {
            Some(Run::Frames(frames))
        }
        Some(RawRun { frames: None, seconds: Some(seconds) })
            if seconds > 0.0 && seconds.is_finite() =>
        {
            Some(Run::Seconds(seconds))
        }
        Some(_) => {
            let span = node.entry("run").map_or(node.span, |(_, value)| value.span);
            problems.push(
                Diagnostic::error(
                    codes::TEST,
                    span,
                    "`run` must have either `frames` or `seconds`, above 0",
                )
                .label("invalid duration")
                .help("write `run: {frames: 4}` or `run: {seconds: 0.5}`"),
            );
            None
        }
    };
    let set = set(node, problems);
    let alongside = alongside(node, problems);
    let expects = expects(node, problems);
    (problems.len() == before).then_some(TestSpec {
        name: raw.name,
        set,
        alongside,
        run: run?,
        expects,
        span: owner,
    })
}

fn set(node: &Node, problems: &mut Vec<Diagnostic>) -> Vec<Setting> {
    node.entry("set").map_or_else(Vec::new, |(_, node)| settings(node, problems))
}

/// Returns the entries of a `set:`.
pub(crate) fn settings(node: &Node, problems: &mut Vec<Diagnostic>) -> Vec<Setting> {
    map(node, problems)
        .iter()
        .map(|(key, node)| Setting {
            name: key.text.clone(),
            value: SetTo::Value(node.value.clone()),
        })
        .collect()
}

fn alongside(node: &Node, problems: &mut Vec<Diagnostic>) -> Vec<Alongside> {
    let Some((_, list)) = node.entry("alongside") else { return Vec::new() };
    let items = document::list(list, problems);
    let other = |item: &Node| {
        let owner = Span { end: item.span.start + 1, ..item.span };
        match RawAlongside::deserialize(Reader::new(item, owner)) {
            Ok(raw) => Some(Alongside {
                flowgraph: raw.flowgraph.into(),
                set: set(item, problems),
                span: item.entry("flowgraph").map_or(owner, |(_, value)| value.span),
            }),
            Err(error) => {
                problems.push(diagnostic(&error, owner));
                None
            }
        }
    };
    items.iter().filter_map(other).collect()
}

fn expects(node: &Node, problems: &mut Vec<Diagnostic>) -> Vec<Expect> {
    let Some((key, list)) = node.entry("expect") else { return Vec::new() };
    let items = document::list(list, problems);
    if items.is_empty() && matches!(list.value, Value::Null | Value::List(_)) {
        problems.push(
            Diagnostic::error(codes::TEST, key.span, "`expect` must have at least one entry")
                .label("empty")
                .help("write at least one `- {tap: block, ...}`"),
        );
    }
    items.iter().filter_map(|item| expect(item, problems)).collect()
}

fn expect(node: &Node, problems: &mut Vec<Diagnostic>) -> Option<Expect> {
    let owner = Span { end: node.span.start + 1, ..node.span };
    let raw = match RawExpect::deserialize(Reader::new(node, owner)) {
        Ok(raw) => raw,
        Err(error) => {
            problems.push(diagnostic(&error, owner));
            return None;
        }
    };
    let span_of = |key: &str| node.entry(key).map_or(node.span, |(_, value)| value.span);
    let tap = Tap { text: raw.tap, span: span_of("tap") };
    let near = |near: RawNear| (near.at.into_iter().collect(), near.value, near.tolerance);
    let validity = raw.validity.map(|validity| match validity {
        RawValidity::Word(word) if word == "full" => Some((1.0, 0.0)),
        RawValidity::Word(word) if word == "none" => Some((0.0, 0.0)),
        RawValidity::Word(_) => None,
        RawValidity::Fraction(fraction) => Some((fraction, 1e-9)),
        RawValidity::Near { fraction, tolerance } => Some((fraction, tolerance)),
    });
    if validity.is_some_and(|v| v.is_none_or(|(fraction, _)| !(0.0..=1.0).contains(&fraction))) {
        let message = "`validity` must be `full`, `none` or a fraction from 0 to 1";
        problems
            .push(Diagnostic::error(codes::TEST, span_of("validity"), message).label("invalid"));
        return None;
    }
    let checks = [
        raw.peak.map(|p| Check::Peak { axis: p.axis, at: p.at, tolerance: p.tolerance }),
        raw.rms.map(near).map(|(at, value, tolerance)| Check::Rms { at, value, tolerance }),
        raw.mean.map(near).map(|(at, value, tolerance)| Check::Mean { at, value, tolerance }),
        raw.equals.map(|value| Check::Equals(value.into())),
        raw.close_to
            .map(|close| Check::CloseTo { value: close.value.into(), tolerance: close.tolerance }),
        validity.flatten().map(|(fraction, tolerance)| Check::Validity { fraction, tolerance }),
        raw.frames.map(Check::Frames),
        raw.same_as.map(|text| Check::SameAs(Tap { text, span: span_of("same_as") })),
        raw.phase.map(|phase| Check::Phase {
            at: phase.at.into_iter().collect(),
            radians: phase.radians,
            tolerance: phase.tolerance,
        }),
    ];
    if let Some(tolerance) = checks.iter().flatten().filter_map(tolerance).find(|t| !is_usable(*t))
    {
        let message = format!("`tolerance` must be finite and at least 0, got {tolerance}");
        problems.push(
            Diagnostic::error(codes::TEST, node.span, message)
                .label("in this expectation")
                .help("give the allowed deviation, for example `tolerance: 0.1`"),
        );
        return None;
    }
    let mut checks = checks.into_iter().flatten();
    match (checks.next(), checks.next()) {
        (Some(check), None) => Some(Expect { tap, check, span: node.span }),
        (first, _) => {
            let message = match first {
                None => "the expectation has no check",
                Some(_) => "the expectation has more than one check",
            };
            problems.push(
                Diagnostic::error(codes::TEST, node.span, message)
                    .label("needs exactly one check")
                    .help(format!("give one of {CHECKS}")),
            );
            None
        }
    }
}

fn tolerance(check: &Check) -> Option<f64> {
    match check {
        Check::Peak { tolerance, .. }
        | Check::Rms { tolerance, .. }
        | Check::Mean { tolerance, .. }
        | Check::CloseTo { tolerance, .. }
        | Check::Validity { tolerance, .. }
        | Check::Phase { tolerance, .. } => Some(*tolerance),
        Check::Equals(_) | Check::Frames(_) | Check::SameAs(_) => None,
    }
}

fn is_usable(tolerance: f64) -> bool {
    tolerance >= 0.0 && tolerance.is_finite()
}

fn diagnostic(error: &ReadError, owner: Span) -> Diagnostic {
    Diagnostic::error(error.code(), error.span.unwrap_or(owner), error.message.clone())
        .label(error.label.clone())
        .maybe_help(error.help.clone())
}
