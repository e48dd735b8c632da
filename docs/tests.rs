//! Tests of the manual with the embedded pages only.

#![allow(clippy::unwrap_used)]

use super::*;
use std::collections::HashSet;

const KIND: &str = "# my_kind\n\nA kind of another crate.\n\n## Ports\n\n| port |\n|---:|\n| `a` |\n\n## Ports\n\n\
                    ```yaml,file=a.yaml\na: 1 # <one>\n```\n[Time](../../explanation/time.md#top) [other](other_kind.md#ports)\n";

fn manual() -> Manual {
    let generated = [("reference/kinds.md", "# Kinds\n"), ("reference/kinds/my_kind.md", KIND)];
    Manual::new(generated.map(|(path, text)| (path.to_owned(), text.to_owned())).into())
}

fn html<'a>(manual: &'a Manual, path: &str) -> &'a str {
    std::str::from_utf8(manual.file(path).unwrap()).unwrap()
}

#[test]
fn page_of_the_manual_is_found_by_its_path() {
    let manual = manual();
    let introduction = html(&manual, "introduction.html");
    assert!(introduction.starts_with("<!DOCTYPE html>"));
    assert_eq!(introduction, html(&manual, "index.html"));
    assert!(manual.file("tutorials/nothing.html").is_none());
    assert!(manual.file("images/overview.png").unwrap().starts_with(b"\x89PNG"));
}

#[test]
fn generated_page_is_in_the_contents_and_has_neighbours() {
    let manual = manual();
    let page = html(&manual, "reference/kinds/my_kind.html");
    let entry = "<a href=\"../../reference/kinds/my_kind.html\" aria-current=\"page\">my_kind</a>";
    assert!(page.contains(entry));
    assert!(page.contains("<a rel=\"prev\" href=\"../../reference/kinds.html\">Kinds</a>"));
    assert!(
        html(&manual, "reference/kinds.html")
            .contains("<a rel=\"next\" href=\"../reference/kinds/my_kind.html\">")
    );
    let contents = manual.markdown().find(|(path, _)| *path == "SUMMARY.md").unwrap().1;
    assert!(
        contents
            .contains("- [Kinds](reference/kinds.md)\n  - [my_kind](reference/kinds/my_kind.md)\n")
    );
}

#[test]
fn markdown_becomes_html_with_anchors_links_and_languages() {
    let manual = manual();
    let page = html(&manual, "reference/kinds/my_kind.html");
    for part in [
        "<h1 id=\"my_kind\"><a class=\"header\" href=\"#my_kind\">my_kind</a></h1>",
        "<h2 id=\"ports\">",
        "<h2 id=\"ports-1\">",
        "<div class=\"table\"><table>",
        "<td class=\"right\"><code>a</code></td>",
        "<code class=\"language-yaml\">",
        "a: 1 <span class=\"comment\"># &lt;one&gt;</span>\n",
        // A program without that kind has no such page.
        "<a href=\"../../explanation/time.html#top\">Time</a> other</p>",
    ] {
        assert!(page.contains(part), "{part}\n{page}");
    }
}

#[test]
fn pages_have_no_styles_scripts_or_addresses_that_the_policy_forbids() {
    let manual = manual();
    for path in manual.rendered.keys().filter(|path| *path != SEARCH) {
        let page = html(&manual, path);
        for part in [" style=\"", "<style", "<script>", " src=\"http", " onclick="] {
            assert!(!page.contains(part), "{path}: {part}");
        }
    }
}

#[test]
fn every_embedded_page_is_in_the_contents() {
    let manual = manual();
    let listed: HashSet<&str> =
        manual.contents.chapters.iter().map(|each| each.path.as_str()).collect();
    for (path, _) in manual.markdown().filter(|(path, _)| *path != "SUMMARY.md") {
        assert!(listed.contains(path), "{path}");
    }
}

#[test]
fn index_of_the_search_has_the_sections_of_all_pages() {
    let manual = manual();
    let script = html(&manual, "search.js");
    let list =
        script.strip_prefix("globalThis.sections = ").unwrap().trim_end().trim_end_matches(';');
    let list: Vec<[String; 4]> = serde_json::from_str(list).unwrap();
    let section = list
        .iter()
        .find(|[address, ..]| address == "reference/kinds/my_kind.html#ports-1")
        .unwrap();
    assert_eq!(section[1..], ["my_kind", "Ports", "a: 1 # <one>\n Time other"]);
    let addresses: HashSet<&str> = list.iter().map(|[address, ..]| address.as_str()).collect();
    assert_eq!(addresses.len(), list.len());
    assert!(list.len() > 300, "{}", list.len());
}
