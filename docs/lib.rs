//! The manual: pages in Markdown, and their HTML.
//!
//! The pages that people write are in `src/`, embedded in the program. The program adds the pages that it generates,
//! so that they always describe the running program, with kinds of other crates. Nothing is rendered before somebody
//! asks for it.
//!
//! # Layout
//! - `contents`: table of contents, from `src/SUMMARY.md`
//! - `render`: HTML of a page
//! - `search`: index for the search in the browser
//! - `theme/`: style and script of all pages

mod contents;
mod render;
mod search;

use contents::Contents;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// Path below `src` and content of each embedded file.
static EMBEDDED: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/files.rs"));

/// Path and content of files that all pages use.
const THEME: [(&str, &[u8]); 3] = [
    ("icon.svg", include_bytes!("../web/ui/icon.svg")),
    ("manual.css", include_bytes!("theme/manual.css")),
    ("manual.js", include_bytes!("theme/manual.js")),
];

/// Path of the table of contents.
const SUMMARY: &str = "SUMMARY.md";
/// Path of the index for the search: a script, which also a page read from a disk can load.
const SEARCH: &str = "search.js";

/// The pages that the program generates: path, like `reference/kinds/fft.md`, and Markdown.
pub type Generated = BTreeMap<String, String>;

/// All pages of the manual, rendered when they are asked for.
pub struct Manual {
    /// Path and Markdown of each page.
    pages: BTreeMap<String, Cow<'static, str>>,
    /// Path and content of pictures and of the theme.
    files: BTreeMap<&'static str, &'static [u8]>,
    contents: Contents,
    /// Path and HTML of each page, and the index for the search.
    rendered: BTreeMap<String, OnceLock<String>>,
}

impl Manual {
    /// The manual with the embedded pages and these. Pages in `reference/kinds/` get their entries in the table of
    /// contents.
    #[must_use]
    pub fn new(generated: Generated) -> Self {
        let mut files = BTreeMap::from(THEME);
        let mut pages = BTreeMap::new();
        for (path, content) in EMBEDDED {
            match std::str::from_utf8(content) {
                Ok(text) if html_path(path) != *path => {
                    pages.insert((*path).to_owned(), Cow::Borrowed(text));
                }
                _ => {
                    files.insert(path, content);
                }
            }
        }
        pages.extend(generated.into_iter().map(|(path, text)| (path, Cow::Owned(text))));
        let summary = contents::with_kinds(&pages);
        let contents = Contents::read(&summary);
        pages.insert(SUMMARY.to_owned(), Cow::Owned(summary));
        let chapters = contents.chapters.iter().filter(|chapter| pages.contains_key(&chapter.path));
        let chapters = chapters.map(|chapter| html_path(&chapter.path));
        let others = ["index.html".to_owned(), SEARCH.to_owned()];
        let rendered = chapters.chain(others).map(|path| (path, OnceLock::new())).collect();
        Self { pages, files, contents, rendered }
    }

    /// Path and text of each page in Markdown, with the table of contents.
    pub fn markdown(&self) -> impl Iterator<Item = (&str, &str)> {
        self.pages.iter().map(|(path, text)| (path.as_str(), text.as_ref()))
    }

    /// Path and content of each picture.
    pub fn pictures(&self) -> impl Iterator<Item = (&str, &[u8])> {
        let is_theme = |path: &str| THEME.iter().any(|(theme, _)| *theme == path);
        self.files
            .iter()
            .map(|(path, content)| (*path, *content))
            .filter(move |(path, _)| !is_theme(path))
    }

    /// Paths of all files of the HTML manual, for [`file`](Self::file).
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.rendered.keys().map(String::as_str).chain(self.files.keys().copied())
    }

    /// Content of the file at `path`, for example `index.html`.
    #[must_use]
    pub fn file(&self, path: &str) -> Option<&[u8]> {
        if let Some(content) = self.files.get(path) {
            return Some(content);
        }
        let rendered = self.rendered.get(path)?;
        Some(rendered.get_or_init(|| self.render(path)).as_bytes())
    }

    fn render(&self, path: &str) -> String {
        if path == SEARCH {
            let chapters = self.contents.chapters.iter();
            return search::index(
                chapters.filter_map(|each| Some((each, self.pages.get(&each.path)?.as_ref()))),
            );
        }
        let is_it = |path: &str| {
            self.contents.chapters.iter().position(|each| html_path(&each.path) == path)
        };
        // The first page is that at the root.
        let chapter = is_it(path).unwrap_or(0);
        let text = self.contents.chapters.get(chapter).and_then(|each| self.pages.get(&each.path));
        let has = |path: &str| self.pages.contains_key(path);
        render::page(&self.contents, chapter, text.map_or("", |text| text), has)
    }
}

/// `tutorials/gpu.md` as HTML: `tutorials/gpu.html`.
fn html_path(path: &str) -> String {
    path.strip_suffix(".md").map_or_else(|| path.to_owned(), |stem| format!("{stem}.html"))
}

#[cfg(test)]
mod tests;
