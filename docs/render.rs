//! HTML of a page.

use crate::contents::{Chapter, Contents};
use crate::html_path;
use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd, html};
use std::collections::HashSet;
use std::fmt::Write as _;

/// A heading with the text below it, up to the next one.
pub struct Section {
    pub heading: String,
    pub anchor: String,
    pub text: String,
}

/// The events of a page in Markdown.
pub fn parse(markdown: &str) -> Vec<Event<'_>> {
    let options = Options::ENABLE_TABLES
        | Options::ENABLE_FOOTNOTES
        | Options::ENABLE_STRIKETHROUGH
        | Options::ENABLE_TASKLISTS
        | Options::ENABLE_HEADING_ATTRIBUTES;
    let mut events: Vec<Event> = Parser::new_ext(markdown, options).collect();
    let mut used = HashSet::new();
    for start in 0..events.len() {
        let Event::Start(Tag::Heading { .. }) = events[start] else { continue };
        let text = text_of(&events[start + 1..]);
        if let Event::Start(Tag::Heading { id, .. }) = &mut events[start] {
            let wanted = id.as_deref().map_or_else(|| anchor(&text), str::to_owned);
            *id = Some(unused(wanted, &mut used).into());
        }
    }
    events
}

/// Text of a heading, up to its end.
fn text_of(events: &[Event]) -> String {
    let own = events.iter().take_while(|event| !matches!(event, Event::End(TagEnd::Heading(_))));
    own.filter_map(text).collect()
}

/// Text of an event, if it has any.
fn text<'a>(event: &'a Event) -> Option<&'a str> {
    match event {
        Event::Text(text) | Event::Code(text) => Some(text),
        Event::SoftBreak | Event::HardBreak => Some(" "),
        _ => None,
    }
}

/// Anchor of a heading: `Time and timestamps` has `time-and-timestamps`.
fn anchor(heading: &str) -> String {
    let heading = heading.trim().to_lowercase();
    let fits = heading.chars().filter(|c| c.is_alphanumeric() || "_- ".contains(*c));
    fits.map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// The anchor, with a number if another heading of the page has it.
fn unused(anchor: String, used: &mut HashSet<String>) -> String {
    let numbered = (1..).map(|number| format!("{anchor}-{number}"));
    let mut all = std::iter::once(anchor.clone()).chain(numbered);
    all.find(|each| used.insert(each.clone())).unwrap_or(anchor)
}

/// The sections of a page.
pub fn sections(markdown: &str) -> Vec<Section> {
    let mut sections: Vec<Section> = Vec::new();
    let mut is_heading = false;
    for event in parse(markdown) {
        match &event {
            Event::Start(Tag::Heading { id, .. }) => {
                let anchor = id.as_deref().unwrap_or_default().to_owned();
                sections.push(Section { heading: String::new(), anchor, text: String::new() });
                is_heading = true;
            }
            Event::End(TagEnd::Heading(_)) => is_heading = false,
            event => {
                let Some(section) = sections.last_mut() else { continue };
                let to = if is_heading { &mut section.heading } else { &mut section.text };
                match event {
                    Event::End(end) if is_block(*end) && !to.ends_with(' ') => to.push(' '),
                    event => to.push_str(text(event).unwrap_or_default()),
                }
            }
        }
    }
    sections
}

/// Whether other text begins after this end.
fn is_block(end: TagEnd) -> bool {
    !matches!(end, TagEnd::Link | TagEnd::Emphasis | TagEnd::Strong | TagEnd::Strikethrough)
}

/// The HTML document of the page number `index` in the table of contents.
pub fn page(
    contents: &Contents,
    index: usize,
    markdown: &str,
    has: impl Fn(&str) -> bool,
) -> String {
    let Some(chapter) = contents.chapters.get(index) else { return String::new() };
    let root = "../".repeat(chapter.path.matches('/').count());
    let title = escaped(&chapter.title);
    let neighbour = |index: Option<usize>, rel: &str| {
        let Some(other) = index.and_then(|index| contents.chapters.get(index)) else {
            return String::new();
        };
        format!(
            "<a rel=\"{rel}\" href=\"{root}{}\">{}</a>",
            html_path(&other.path),
            escaped(&other.title)
        )
    };
    let previous = neighbour(index.checked_sub(1), "prev");
    let next = neighbour(Some(index + 1), "next");
    format!(
        include_str!("theme/page.html"),
        body = body(markdown, |target| !is_missing(&chapter.path, target, &has)),
        contents = list(contents, chapter, &root),
        next = next,
        previous = previous,
        root = root,
        title = title,
    )
}

/// The table of contents, as a list with the current page marked. Nested pages fold.
fn list(contents: &Contents, current: &Chapter, root: &str) -> String {
    let mut list = String::new();
    let mut chapters = contents.chapters.iter().peekable();
    let entry = |chapter: &Chapter| {
        let mark = if chapter.path == current.path { " aria-current=\"page\"" } else { "" };
        format!(
            "<a href=\"{root}{}\"{mark}>{}</a>\n",
            html_path(&chapter.path),
            escaped(&chapter.title)
        )
    };
    while let Some(chapter) = chapters.next() {
        if let Some(part) = &chapter.part {
            let _ = writeln!(list, "<h2>{}</h2>", escaped(part));
        }
        let nested: Vec<&Chapter> =
            std::iter::from_fn(|| chapters.next_if(|next| next.is_nested)).collect();
        if nested.is_empty() {
            list.push_str(&entry(chapter));
            continue;
        }
        let is_inside =
            std::iter::once(&chapter).chain(&nested).any(|each| each.path == current.path);
        let open = if is_inside { " open" } else { "" };
        let nested: String = nested.into_iter().map(entry).collect();
        let _ = write!(
            list,
            "<details{open}><summary>{}</summary>\n{nested}</details>\n",
            entry(chapter).trim_end()
        );
    }
    list
}

/// Whether `target`, a link of the page at `from`, is a page that the manual does not have: those of kinds and commands
/// depend on the features of the program.
fn is_missing(from: &str, target: &str, has: &impl Fn(&str) -> bool) -> bool {
    let path = target.split('#').next().unwrap_or_default();
    if target.contains("://") || path.strip_suffix(".md").is_none() {
        return false;
    }
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in path.split('/') {
        match part {
            "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    !has(&parts.join("/"))
}

/// HTML of the text of a page. Links for which `leads` is false are their text only.
fn body(markdown: &str, leads: impl Fn(&str) -> bool) -> String {
    let mut events = Vec::new();
    // Links do not nest.
    let mut is_dropped = false;
    // Language and text of the code block that has begun.
    let mut code: Option<(String, String)> = None;
    for event in parse(markdown) {
        match event {
            Event::Start(Tag::Heading { level, id, classes, attrs }) => {
                let link =
                    format!("<a class=\"header\" href=\"#{}\">", id.as_deref().unwrap_or_default());
                events.push(Event::Start(Tag::Heading { level, id, classes, attrs }));
                events.push(Event::InlineHtml(link.into()));
            }
            Event::End(TagEnd::Heading(level)) => {
                events.push(Event::InlineHtml("</a>".into()));
                events.push(Event::End(TagEnd::Heading(level)));
            }
            Event::Start(Tag::Link { dest_url, .. }) if !leads(&dest_url) => is_dropped = true,
            Event::End(TagEnd::Link) if std::mem::take(&mut is_dropped) => {}
            Event::Start(Tag::Link { link_type, dest_url, title, id }) => {
                let dest_url = linked(&dest_url).into();
                events.push(Event::Start(Tag::Link { link_type, dest_url, title, id }));
            }
            Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(info))) => {
                // The options after a comma are for tests.
                let language = info.split(',').next().unwrap_or_default().to_owned();
                code = Some((language, String::new()));
            }
            Event::End(TagEnd::CodeBlock) if code.is_some() => {
                let (language, text) = code.take().unwrap_or_default();
                events.push(Event::Html(code_block(&language, &text).into()));
            }
            Event::Text(text) if code.is_some() => {
                code.iter_mut().for_each(|(_, code)| code.push_str(&text));
            }
            Event::Start(Tag::Table(alignments)) => {
                events.push(Event::Html("<div class=\"table\">".into()));
                events.push(Event::Start(Tag::Table(alignments)));
            }
            Event::End(TagEnd::Table) => {
                events.push(Event::End(TagEnd::Table));
                events.push(Event::Html("</div>\n".into()));
            }
            event => events.push(event),
        }
    }
    let mut body = String::with_capacity(2 * markdown.len());
    html::push_html(&mut body, events.into_iter());
    // The server's Content-Security-Policy allows no style in a page.
    body.replace(" style=\"text-align: right\"", " class=\"right\"")
        .replace(" style=\"text-align: left\"", "")
        .replace(" style=\"text-align: center\"", " class=\"centre\"")
}

/// HTML of a code block, with its comments and strings marked.
fn code_block(language: &str, text: &str) -> String {
    let comment = match language {
        "yaml" | "sh" | "console" | "python" | "toml" | "ini" => Some("#"),
        "rust" => Some("//"),
        _ => None,
    };
    let mut html = format!("<pre><code class=\"language-{}\">", escaped(language));
    for line in text.split_inclusive('\n') {
        match comment {
            Some(comment) => marked(line, comment, &mut html),
            None => html.push_str(&escaped(line)),
        }
    }
    html + "</code></pre>\n"
}

/// Adds a line of code.
fn marked(line: &str, comment: &str, html: &mut String) {
    // Beginning of the text that is not added yet.
    let mut start = 0;
    let mut at = 0;
    while let Some(first) = line[at..].chars().next() {
        let rest = &line[at..];
        let is_comment =
            rest.starts_with(comment) && (at == 0 || line[..at].ends_with(char::is_whitespace));
        let (class, length) = if is_comment {
            ("comment", rest.trim_end().len())
        } else if let Some(end) = rest.strip_prefix('"').and_then(|inner| inner.find('"')) {
            ("string", end + 2)
        } else {
            at += first.len_utf8();
            continue;
        };
        let (before, part) = (escaped(&line[start..at]), escaped(&rest[..length]));
        let _ = write!(html, "{before}<span class=\"{class}\">{part}</span>");
        at += length;
        start = at;
    }
    html.push_str(&escaped(&line[start..]));
}

/// The target of a link, with pages as HTML.
fn linked(target: &str) -> String {
    if target.contains("://") {
        return target.to_owned();
    }
    let (path, anchor) = target.split_at(target.find('#').unwrap_or(target.len()));
    html_path(path) + anchor
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
