//! The web page at `/`, which works without a network.

use axum::Router;
use axum::http::{HeaderName, header};
use axum::response::IntoResponse;
use axum::routing::get;
use std::collections::BTreeMap;

pub(crate) const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; base-uri 'none'; frame-ancestors 'none'; form-action 'none'";

/// URL path and text of files, given by their paths in `web/ui`.
macro_rules! files {
    ($($path:literal,)*) => {
        [$((concat!("/", $path), include_str!(concat!("ui/", $path)))),*]
    };
}

/// Files of the page; a test compares them with the directory.
const FILES: [(&str, &str); 59] = files![
    "api.js",
    "block.js",
    "board.js",
    "card.js",
    "dialog.js",
    "dom.js",
    "edge.js",
    "editor.js",
    "fields.js",
    "figures.js",
    "find.js",
    "fold.js",
    "form.js",
    "format.js",
    "graph.js",
    "header.js",
    "history.js",
    "icon.svg",
    "index.html",
    "layout.js",
    "log.js",
    "main.js",
    "markdown.js",
    "node.js",
    "panel.js",
    "parameters.js",
    "plots/axis.js",
    "plots/chart.js",
    "plots/colourbar.js",
    "plots/colourmap.js",
    "plots/lines.js",
    "plots/matrix.js",
    "plots/pointer.js",
    "plots/range.js",
    "plots/sky.js",
    "plots/trend.js",
    "plots/waterfall.js",
    "plots/zoom.js",
    "record.js",
    "recorders.js",
    "request.js",
    "schema.js",
    "scope.js",
    "shadow.js",
    "style/base.css",
    "style/board.css",
    "style/graph.css",
    "style/header.css",
    "style/log.css",
    "style/panel.css",
    "swap.js",
    "theme.js",
    "themes.js",
    "tuner.js",
    "tuning.js",
    "update.js",
    "variant.js",
    "viewport.js",
    "whole.js",
];

/// Third-party libraries of the page, unmodified, with their licences.
const VENDORED: [(&str, &str); 3] = files![
    "vendor/uPlot-1.6.32/LICENSE",
    "vendor/uPlot-1.6.32/uPlot.esm.js",
    "vendor/uPlot-1.6.32/uPlot.min.css",
];

/// The manual and Swagger UI.
#[cfg(feature = "manual")]
fn docs(manual: fn() -> BTreeMap<String, String>) -> Router {
    crate::docs::router(manual)
}

/// Error that names the feature of the manual and Swagger UI.
#[cfg(not(feature = "manual"))]
fn docs(_: fn() -> BTreeMap<String, String>) -> Router {
    use crate::problem::Problem;
    use axum::http::StatusCode;
    let absent = async || {
        let detail = "this program was built without `manual`, which pages below `/docs/` need";
        Problem::new(StatusCode::NOT_FOUND, detail).help("build fxgraph with `--features manual`")
    };
    Router::new()
        .route("/docs", get(absent))
        .route("/docs/{*path}", get(absent))
        .route("/docs/", get(absent))
}

pub(crate) fn router(manual: fn() -> BTreeMap<String, String>) -> Router {
    FILES.into_iter().chain(VENDORED).fold(docs(manual), |router, (path, text)| {
        let path = if path == "/index.html" { "/" } else { path };
        let headers = headers(path);
        router.route(path, get(move || async move { (headers, text).into_response() }))
    })
}

fn headers(path: &str) -> [(HeaderName, &'static str); 3] {
    let media_type = match path.rsplit_once('.') {
        None if path == "/" => "text/html; charset=utf-8",
        Some((_, "js")) => "text/javascript; charset=utf-8",
        Some((_, "css")) => "text/css; charset=utf-8",
        Some((_, "svg")) => "image/svg+xml",
        _ => "text/plain; charset=utf-8",
    };
    [
        (header::CONTENT_TYPE, media_type),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        // The next response at this address may come from another version of the program.
        (header::CACHE_CONTROL, "no-cache"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::path::Path;

    #[test]
    fn every_file_in_ui_is_served() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("ui");
        let mut directories = vec![root.clone()];
        let mut there = BTreeSet::new();
        while let Some(directory) = directories.pop() {
            for entry in std::fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    directories.push(path);
                } else {
                    there.insert(format!("/{}", path.strip_prefix(&root).unwrap().display()));
                }
            }
        }
        let served: BTreeSet<String> =
            FILES.iter().chain(&VENDORED).map(|(path, _)| (*path).to_owned()).collect();
        assert_eq!(served, there);
    }

    #[test]
    fn vendored_libraries_have_an_allowed_licence() {
        let allowed = include_str!("../.deny.toml");
        let licences = VENDORED.iter().filter(|(path, _)| path.ends_with("/LICENSE"));
        for (path, text) in licences.clone() {
            assert!(text.starts_with("The MIT License (MIT)"), "{path}");
            assert!(allowed.contains("\"MIT\""));
        }
        let directory = |path: &'static str| path.rsplit_once('/').map(|(directory, _)| directory);
        let licensed: BTreeSet<_> = licences.map(|(path, _)| directory(path)).collect();
        assert!(VENDORED.iter().all(|(path, _)| licensed.contains(&directory(path))));
    }

    #[test]
    fn page_contains_no_urls_of_other_servers() {
        for (path, text) in FILES {
            let strange = text
                .lines()
                .find(|line| line.contains("://") && !line.contains("http://www.w3.org/2000/svg"));
            assert_eq!(strange, None, "{path}");
        }
    }
}
