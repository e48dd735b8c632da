//! Diagnostics as text and as JSON.

use super::{Diagnostic, Severity};
use crate::diagnostic::Sources;
use annotate_snippets::renderer::DecorStyle;
use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};
use serde_json::json;
use std::fmt::Write as _;

/// Limit of the other places that one diagnostic shows.
const NOTES_SHOWN: usize = 20;

/// Format of rendered diagnostics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Plain text.
    Plain,
    /// With colours for a terminal.
    Coloured,
}

/// Renders one diagnostic for a user, without a newline at its end.
#[must_use]
pub fn render(diagnostic: &Diagnostic, sources: &Sources, style: Style) -> String {
    let renderer = match style {
        Style::Plain => Renderer::plain(),
        Style::Coloured => Renderer::styled(),
    };
    renderer.decor_style(DecorStyle::Ascii).render(&[group(diagnostic, sources)])
}

fn group<'a>(diagnostic: &'a Diagnostic, sources: &'a Sources) -> Group<'a> {
    let level = match diagnostic.severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
    };
    let title = level.primary_title(diagnostic.message.as_str()).id(diagnostic.code);
    let mut group = Group::with_title(title);
    let mut files: Vec<u32> = diagnostic.span.iter().map(|span| span.file).collect();
    for (span, _) in diagnostic.notes.iter().take(NOTES_SHOWN) {
        if !files.contains(&span.file) {
            files.push(span.file);
        }
    }
    for file in files {
        let Some(source) = sources.get(file) else { continue };
        let notes = || diagnostic.notes.iter().map(|(span, _)| span).take(NOTES_SHOWN);
        let spans = diagnostic.span.iter().chain(notes()).filter(|span| span.file == file);
        let (lines, line_start) = lines(&source.text, spans);
        let range = |span: super::Span| {
            let range = clamp(&source.text, span.start, span.end);
            range.start - lines.start..range.end - lines.start
        };
        let mut snippet = Snippet::source(&source.text[lines.clone()])
            .line_start(line_start)
            .path(source.path.to_string_lossy().into_owned());
        if let Some(span) = diagnostic.span.filter(|span| span.file == file) {
            let mut mark = AnnotationKind::Primary.span(range(span));
            if !diagnostic.label.is_empty() {
                mark = mark.label(diagnostic.label.as_str());
            }
            snippet = snippet.annotation(mark);
        }
        let notes = diagnostic.notes.iter().take(NOTES_SHOWN);
        for (span, text) in notes.filter(|(span, _)| span.file == file) {
            let mark = AnnotationKind::Context.span(range(*span)).label(text.as_str());
            snippet = snippet.annotation(mark);
        }
        group = group.element(snippet);
    }
    if let Some(blocks) = shared_by(&diagnostic.blocks) {
        group = group.element(Level::NOTE.message(blocks));
    }
    for help in &diagnostic.help {
        group = group.element(Level::HELP.message(help.as_str()));
    }
    group
}

/// Byte range of the lines of `text` from the first of `spans` to the last, and the number of the first line. The
/// renderer is slow for long texts.
fn lines<'s>(
    text: &str,
    spans: impl Iterator<Item = &'s super::Span>,
) -> (std::ops::Range<usize>, usize) {
    let (first, last) = spans
        .fold((u32::MAX, 0), |(first, last), span| (first.min(span.start), last.max(span.end)));
    let std::ops::Range { start, end } = clamp(text, first.min(last), last);
    let start = text[..start].rfind('\n').map_or(0, |at| at + 1);
    let end = text[end..].find('\n').map_or(text.len(), |at| end + at + 1);
    (start..end, 1 + text[..start].bytes().filter(|byte| *byte == b'\n').count())
}

/// Limits a range to `text`, on character boundaries.
fn clamp(text: &str, start: u32, end: u32) -> std::ops::Range<usize> {
    let floor = |at: usize| (0..=at.min(text.len())).rev().find(|i| text.is_char_boundary(*i));
    let start = floor(start as usize).unwrap_or(0);
    let end = floor(end as usize).unwrap_or(0).max(start);
    start..end
}

fn shared_by(blocks: &[String]) -> Option<String> {
    match blocks {
        [] => None,
        [one] => Some(format!("in block `{one}`")),
        [first, second] => Some(format!("in blocks `{first}` and `{second}`")),
        [first, .., last] => Some(format!("in {} blocks, `{first}` to `{last}`", blocks.len())),
    }
}

/// Limit of the diagnostics that are shown at once.
pub const SHOWN: usize = 100;

/// Returns the first [`SHOWN`] diagnostics in their order; if not all fit, errors go before warnings.
pub fn first(diagnostics: &[Diagnostic]) -> impl Iterator<Item = &Diagnostic> {
    let (mut errors, mut warnings) = (SHOWN, SHOWN.saturating_sub(count(diagnostics).0));
    diagnostics.iter().filter(move |diagnostic| {
        let room = match diagnostic.severity {
            Severity::Error => &mut errors,
            Severity::Warning => &mut warnings,
        };
        let fits = *room > 0;
        *room = room.saturating_sub(1);
        fits
    })
}

/// Number of errors and of warnings.
fn count(diagnostics: &[Diagnostic]) -> (usize, usize) {
    let errors = diagnostics.iter().filter(|d| d.severity == Severity::Error).count();
    (errors, diagnostics.len() - errors)
}

/// Renders the [`first`] diagnostics, and a last line with the number of all.
#[must_use]
pub fn render_all(diagnostics: &[Diagnostic], sources: &Sources, style: Style) -> String {
    let mut text = String::new();
    for diagnostic in first(diagnostics) {
        text.push_str(&render(diagnostic, sources, style));
        text.push_str("\n\n");
    }
    let (errors, warnings) = count(diagnostics);
    let plural = |n| if n == 1 { "" } else { "s" };
    let counted: Vec<String> = [(errors, "error"), (warnings, "warning")]
        .iter()
        .filter(|(n, _)| *n > 0)
        .map(|(n, word)| format!("{n} {word}{}", plural(*n)))
        .collect();
    if !counted.is_empty() {
        let part = if diagnostics.len() > SHOWN { ", the first of them shown" } else { "" };
        let _ = writeln!(text, "{}{part}", counted.join(", "));
    }
    text
}

/// Converts a diagnostic to JSON: code, texts, and places with file, line and column from 1.
#[must_use]
pub fn to_json(diagnostic: &Diagnostic, sources: &Sources) -> serde_json::Value {
    let place = |span: super::Span, label: &str| {
        let (line, column) = sources.line_column(span);
        let end = sources.line_column(super::Span { start: span.end, ..span });
        json!({
            "file": sources.get(span.file).map(|source| source.path.to_string_lossy()),
            "line": line,
            "column": column,
            "end_line": end.0,
            "end_column": end.1,
            "label": label,
        })
    };
    json!({
        "severity": match diagnostic.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        },
        "code": diagnostic.code,
        "message": diagnostic.message,
        "place": diagnostic.span.map(|span| place(span, &diagnostic.label)),
        "notes": diagnostic.notes.iter().map(|(span, text)| place(*span, text)).collect::<Vec<_>>(),
        "help": diagnostic.help,
        "blocks": diagnostic.blocks,
    })
}
