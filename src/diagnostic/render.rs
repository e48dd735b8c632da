//! Diagnostics as text and as JSON.

use super::{Diagnostic, Severity};
use crate::flowgraph::Sources;
use annotate_snippets::renderer::DecorStyle;
use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};
use serde_json::json;
use std::fmt::Write as _;

/// How to write diagnostics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Plain text.
    Plain,
    /// With colours for a terminal.
    Coloured,
}

/// One diagnostic as it is shown to a user, without a newline at its end.
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
    for (span, _) in &diagnostic.notes {
        if !files.contains(&span.file) {
            files.push(span.file);
        }
    }
    for file in files {
        let Some(source) = sources.get(file) else { continue };
        let range = |span: super::Span| clamp(&source.text, span.start, span.end);
        let mut snippet =
            Snippet::source(source.text.as_str()).path(source.path.to_string_lossy().into_owned());
        if let Some(span) = diagnostic.span.filter(|span| span.file == file) {
            let mut mark = AnnotationKind::Primary.span(range(span));
            if !diagnostic.label.is_empty() {
                mark = mark.label(diagnostic.label.as_str());
            }
            snippet = snippet.annotation(mark);
        }
        for (span, text) in diagnostic.notes.iter().filter(|(span, _)| span.file == file) {
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

/// A range that lies in `text`, on character boundaries.
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

/// All of them, and a last line that counts.
#[must_use]
pub fn render_all(diagnostics: &[Diagnostic], sources: &Sources, style: Style) -> String {
    let mut text = String::new();
    for diagnostic in diagnostics {
        text.push_str(&render(diagnostic, sources, style));
        text.push_str("\n\n");
    }
    let count = |severity| diagnostics.iter().filter(|d| d.severity == severity).count();
    let (errors, warnings) = (count(Severity::Error), count(Severity::Warning));
    let plural = |n| if n == 1 { "" } else { "s" };
    let counted: Vec<String> = [(errors, "error"), (warnings, "warning")]
        .iter()
        .filter(|(n, _)| *n > 0)
        .map(|(n, word)| format!("{n} {word}{}", plural(*n)))
        .collect();
    if !counted.is_empty() {
        let _ = writeln!(text, "{}", counted.join(", "));
    }
    text
}

/// A diagnostic for programs: code, texts and places with file, line and column from 1.
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
