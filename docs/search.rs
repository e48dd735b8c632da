//! The index for the search in the browser.

use crate::contents::Chapter;
use crate::html_path;
use crate::render::sections;
use serde_json::json;

/// A script with the sections of all pages: address, title of the page, heading, text.
pub fn index<'a>(pages: impl Iterator<Item = (&'a Chapter, &'a str)>) -> String {
    let mut index = Vec::new();
    for (chapter, markdown) in pages {
        for section in sections(markdown) {
            let address = format!("{}#{}", html_path(&chapter.path), section.anchor);
            index.push(json!([
                address,
                chapter.title,
                section.heading.trim(),
                section.text.trim()
            ]));
        }
    }
    format!("globalThis.sections = {};\n", serde_json::Value::Array(index))
}
