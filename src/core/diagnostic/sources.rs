//! The files of a flowgraph.

use crate::diagnostic::Span;
use std::path::{Path, PathBuf};

/// One loaded file.
#[derive(Clone, Debug)]
pub struct Source {
    /// Path as given, or as joined from an include.
    pub path: PathBuf,
    /// Its text.
    pub text: String,
}

/// Files of a flowgraph, the main one first; [`Span::file`] is an index into them.
#[derive(Clone, Debug, Default)]
pub struct Sources(Vec<Source>);

impl Sources {
    /// Adds a file; returns its index.
    pub fn add(&mut self, path: impl Into<PathBuf>, text: impl Into<String>) -> u32 {
        let text = text.into();
        // A byte order mark has no meaning in UTF-8, and places are counted without it.
        let text = match text.strip_prefix('\u{feff}') {
            Some(rest) => rest.to_owned(),
            None => text,
        };
        self.0.push(Source { path: path.into(), text });
        (self.0.len() - 1) as u32
    }

    /// The file with index `file`.
    #[must_use]
    pub fn get(&self, file: u32) -> Option<&Source> {
        self.0.get(file as usize)
    }

    /// All files.
    pub fn iter(&self) -> impl Iterator<Item = &Source> {
        self.0.iter()
    }

    /// Index of the file at `path`.
    #[must_use]
    pub fn position(&self, path: &Path) -> Option<u32> {
        self.0.iter().position(|source| source.path == path).map(|index| index as u32)
    }

    /// Text at `span`; empty if `span` is outside the files.
    #[must_use]
    pub fn text(&self, span: Span) -> &str {
        self.get(span.file)
            .and_then(|source| source.text.get(span.start as usize..span.end as usize))
            .unwrap_or_default()
    }

    /// Line and column, from 1, of the start of `span`; the column counts characters.
    #[must_use]
    pub fn line_column(&self, span: Span) -> (usize, usize) {
        let Some(source) = self.get(span.file) else { return (1, 1) };
        let before = source.text.get(..span.start as usize).unwrap_or(&source.text);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().map_or(0, |text| text.chars().count()) + 1;
        (line, column)
    }
}
