//! The table of contents: `SUMMARY.md` as mdBook reads it.

use std::borrow::Cow;
use std::collections::BTreeMap;

/// Where the pages of the kinds are.
const KINDS: &str = "reference/kinds/";

/// A page in the table of contents.
pub struct Chapter {
    pub title: String,
    /// Path of its Markdown.
    pub path: String,
    /// Heading of the part that begins with this page, if any.
    pub part: Option<String>,
    /// Whether it belongs to the last page before it that does not.
    pub is_nested: bool,
}

/// All pages, in their order.
pub struct Contents {
    pub chapters: Vec<Chapter>,
}

impl Contents {
    /// Reads `SUMMARY.md`: headings of parts, and lines with a link.
    pub fn read(summary: &str) -> Self {
        let mut chapters = Vec::new();
        let mut part = None;
        for line in summary.lines() {
            if let Some(heading) = line.strip_prefix("# ") {
                part = Some(heading.to_owned()).filter(|heading| heading != "Summary");
            } else if let Some((title, path)) = link(line) {
                let (title, path) = (title.to_owned(), path.to_owned());
                let is_nested = line.starts_with(' ');
                chapters.push(Chapter { title, path, part: part.take(), is_nested });
            }
        }
        Self { chapters }
    }
}

/// Title and path of a line like `- [First light](tutorials/first_light.md)`.
fn link(line: &str) -> Option<(&str, &str)> {
    line.split_once('[')?.1.split_once(')')?.0.split_once("](")
}

/// The table of contents, with a line for each kind below "Kinds".
pub fn with_kinds(pages: &BTreeMap<String, Cow<str>>) -> String {
    let mut contents = String::new();
    for line in pages.get(super::SUMMARY).map_or("", |text| text).lines() {
        contents.push_str(&format!("{line}\n"));
        if line.contains("(reference/kinds.md)") {
            for path in pages.keys().filter(|path| path.starts_with(KINDS)) {
                let name = path.trim_start_matches(KINDS).trim_end_matches(".md");
                contents.push_str(&format!("  - [{name}]({path})\n"));
            }
        }
    }
    contents
}
