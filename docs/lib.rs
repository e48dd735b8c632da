//! The manual as HTML: built from `docs/src` by mdBook when this crate is compiled.

/// Path (`tutorials/first_light.html`) and content of every file of the manual, sorted by path.
pub static FILES: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/files.rs"));

/// Index in [`FILES`] of the file at `path`, for example `index.html`.
#[must_use]
pub fn index(path: &str) -> Option<usize> {
    FILES.binary_search_by_key(&path, |(path, _)| path).ok()
}

/// Content of the file at `path`.
#[must_use]
pub fn file(path: &str) -> Option<&'static [u8]> {
    Some(FILES[index(path)?].1)
}

#[cfg(test)]
mod tests {
    #[test]
    fn page_of_the_manual_is_found_by_its_path() {
        let page = super::file("introduction.html").unwrap_or_default();
        assert!(page.starts_with(b"<!DOCTYPE HTML>"));
        assert!(super::file("tutorials/nothing.html").is_none());
    }
}
