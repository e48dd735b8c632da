//! Explanations of the codes, for `fxgraph explain`.

/// One section per code, `# E0101: title`.
const PAGES: &str = include_str!("explain.md");

/// Explanation of `code` with its heading; case is ignored.
#[must_use]
pub fn explain(code: &str) -> Option<&'static str> {
    all().find(|(known, _)| known.eq_ignore_ascii_case(code)).map(|(_, page)| page)
}

/// All explanations: (code, text).
pub fn all() -> impl Iterator<Item = (&'static str, &'static str)> {
    let starts: Vec<usize> = PAGES
        .match_indices("# E0")
        .map(|(start, _)| start)
        .filter(|start| *start == 0 || PAGES[..*start].ends_with('\n'))
        .collect();
    let ends: Vec<usize> = starts.iter().skip(1).copied().chain([PAGES.len()]).collect();
    starts.into_iter().zip(ends).map(|(start, end)| {
        let page = PAGES[start..end].trim_end();
        (&page[2..7], page)
    })
}
