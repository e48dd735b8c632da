//! Metrics of all parts, each with the label `part`.

use crate::metrics::{PART_HEALTHY, PART_REJECTS, PART_SILENT};
use fxgraph_api::parts::PartInfo;
use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;

/// Suffixes of the samples of a histogram.
const HISTOGRAM: [&str; 3] = ["_bucket", "_sum", "_count"];

#[derive(Default)]
struct Family {
    help: String,
    kind: String,
    samples: String,
}

/// Metrics of several parts.
#[derive(Default)]
pub(super) struct Federation {
    families: BTreeMap<String, Family>,
    seen: HashSet<String>,
}

fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn is_name(name: &str) -> bool {
    let is_letter = |c: char| c.is_ascii_alphabetic() || c == '_' || c == ':';
    name.starts_with(is_letter) && name.chars().all(|c| is_letter(c) || c.is_ascii_digit())
}

/// Name, labels without braces, and value of a sample; `None` if `line` is none.
fn sample(line: &str) -> Option<(&str, &str, &str)> {
    let end = line.find(['{', ' '])?;
    let (name, rest) = line.split_at(end);
    let (labels, value) = match rest.strip_prefix('{') {
        None => ("", rest),
        Some(rest) => rest.split_at_checked(closing_brace(rest)?)?,
    };
    let value = value.strip_prefix('}').unwrap_or(value).trim();
    // The search for the brace has skipped values in quotes.
    let is_valid = is_name(name) && value.parse::<f64>().is_ok();
    let has_part = labels.starts_with("part=") || labels.contains(",part=");
    (is_valid && !has_part && are_labels(labels)).then_some((name, labels, value))
}

/// Position of the brace that closes the labels, outside quotes.
fn closing_brace(text: &str) -> Option<usize> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    text.char_indices().find_map(|(at, c)| {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' if is_quoted => is_escaped = true,
            '"' => is_quoted = !is_quoted,
            '}' if !is_quoted => return Some(at),
            _ => {}
        }
        None
    })
}

/// Whether `text` is a list of labels, `a="1",b="2"`.
fn are_labels(mut text: &str) -> bool {
    while !text.is_empty() {
        let Some((name, rest)) = text.split_once("=\"") else { return false };
        if !is_name(name) || name.contains(':') {
            return false;
        }
        let mut is_escaped = false;
        let end = rest.char_indices().find(|(_, c)| {
            let ends = *c == '"' && !is_escaped;
            is_escaped = *c == '\\' && !is_escaped;
            ends
        });
        let Some((end, _)) = end else { return false };
        text = &rest[end + 1..];
        match text.strip_prefix(',') {
            Some(rest) => text = rest,
            None => return text.is_empty(),
        }
    }
    true
}

/// A part at a scrape.
pub(super) struct PartState {
    pub info: PartInfo,
    /// Whether it is there.
    pub is_up: bool,
    /// Number of lines of its metrics that were rejected.
    pub rejected: usize,
}

impl Federation {
    /// Adds the samples in `text` of `part`; returns the number of lines that are no samples, or none that fit.
    pub fn add(&mut self, part: &str, text: &str) -> usize {
        let part = escape(part);
        let mut kinds: BTreeMap<&str, &str> = BTreeMap::new();
        let mut helps: BTreeMap<&str, &str> = BTreeMap::new();
        let mut rejected = 0;
        for line in text.lines().filter(|line| !line.is_empty()) {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                helps.extend(rest.split_once(' '));
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                kinds.extend(rest.split_once(' '));
            } else if self.add_sample(&part, line, &kinds, &helps).is_none() {
                rejected += 1;
            }
        }
        rejected
    }

    fn add_sample(
        &mut self,
        part: &str,
        line: &str,
        kinds: &BTreeMap<&str, &str>,
        helps: &BTreeMap<&str, &str>,
    ) -> Option<()> {
        let (name, labels, value) = sample(line)?;
        let of_histogram = || {
            let family = HISTOGRAM.iter().find_map(|suffix| name.strip_suffix(suffix))?;
            (kinds.get(family) == Some(&"histogram")).then_some(family)
        };
        let family = if kinds.contains_key(name) { name } else { of_histogram()? };
        let kind = kinds.get(family)?;
        let known = matches!(*kind, "counter" | "gauge" | "histogram");
        if !known || !self.seen.insert(format!("{name}{{part=\"{part}\",{labels}}}")) {
            return None;
        }
        let entry = self.families.entry(family.to_owned()).or_insert_with(|| Family {
            help: (*helps.get(family).unwrap_or(&"No help.")).to_owned(),
            kind: (*kind).to_owned(),
            samples: String::new(),
        });
        if entry.kind != **kind {
            return None;
        }
        let comma = if labels.is_empty() { "" } else { "," };
        let _ = writeln!(entry.samples, "{name}{{part=\"{part}\"{comma}{labels}}} {value}");
        Some(())
    }

    /// Adds the state of each part.
    pub fn add_parts(&mut self, flowgraph: &str, parts: &[PartState]) {
        let flowgraph = escape(flowgraph);
        let mut add = |name: &str, help: &str, value: &dyn Fn(&PartState) -> Option<f64>| {
            let mut samples = String::new();
            for part in parts {
                let Some(value) = value(part) else { continue };
                let label = escape(&part.info.name);
                let _ = writeln!(
                    samples,
                    "{name}{{part=\"{label}\",flowgraph=\"{flowgraph}\"}} {value}"
                );
            }
            let family = Family { help: help.to_owned(), kind: "gauge".to_owned(), samples };
            self.families.insert(name.to_owned(), family);
        };
        let flag = |is: bool| Some(f64::from(u8::from(is)));
        let rejects = |part: &PartState| part.info.contact == "rejects_token";
        let up = "1 if the part is there. 0: nothing listens at its address, or three requests in a row had no answer, see /api/v1/parts.";
        add("fxgraph_part_up", up, &|part| flag(part.is_up));
        let healthy = "1 if the part answers, has not failed, and frames pass all its blocks. 0: see /api/v1/parts. Without a sample if the part rejects the token.";
        add(PART_HEALTHY, healthy, &|part| flag(part.info.is_healthy).filter(|_| !rejects(part)));
        let silent = "Time since the last answer of a part that does not answer; 0 if it answers or is not there.";
        add(PART_SILENT, silent, &|part| Some(part.info.silent_seconds.unwrap_or(0.0)));
        let rejected = "1 if the part rejects the token of the deployment, so that nothing is known of its flowgraph.";
        add(PART_REJECTS, rejected, &|part| flag(rejects(part)));
        let rejected = "Lines of the part's metrics that are no samples, at this scrape. If not 0, its server is not fxgraph.";
        add("fxgraph_part_refused_lines", rejected, &|part| Some(part.rejected as f64));
    }

    pub fn finish(self) -> String {
        let mut text = String::new();
        for (name, Family { help, kind, samples }) in self.families {
            let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{samples}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn federation_has_one_head_per_family_and_a_part_in_each_sample() {
        let mut all = Federation::default();
        let text = "# HELP a_total A.\n# TYPE a_total counter\na_total{x=\"}\\\"\"} 1\n# HELP h H.\n# TYPE h histogram\nh_bucket{le=\"+Inf\"} 5\nh_sum 2\nh_count 5\n";
        assert_eq!(all.add("p[0]", text), 0);
        assert_eq!(all.add("q", text), 0);
        let expected = "# HELP a_total A.\n# TYPE a_total counter\na_total{part=\"p[0]\",x=\"}\\\"\"} 1\na_total{part=\"q\",x=\"}\\\"\"} 1\n# HELP h H.\n# TYPE h histogram\nh_bucket{part=\"p[0]\",le=\"+Inf\"} 5\nh_sum{part=\"p[0]\"} 2\nh_count{part=\"p[0]\"} 5\nh_bucket{part=\"q\",le=\"+Inf\"} 5\nh_sum{part=\"q\"} 2\nh_count{part=\"q\"} 5\n";
        assert_eq!(all.finish(), expected);
    }

    #[test]
    fn federation_rejects_lines_that_are_no_samples() {
        let mut all = Federation::default();
        let head = "# TYPE a gauge\n";
        let lines = [
            "<html>",
            "a",
            "a {",
            "a{x} 1",
            "a{x=\"1} 1",
            "a{x=\"1\"} one",
            "b 1",
            "a{part=\"z\"} 1",
            "a{x=\"1\"y} 2",
            "a{x=1} 2",
        ];
        for line in lines {
            assert_eq!(all.add("p", &format!("{head}{line}\n")), 1, "{line}");
        }
        assert_eq!(all.add("p", "# TYPE a gauge\na 1\na 2\n"), 1, "the same sample twice");
        assert_eq!(all.add("q", "# TYPE a counter\na 1\n"), 1, "two types of a family");
        assert_eq!(all.finish(), "# HELP a No help.\n# TYPE a gauge\na{part=\"p\"} 1\n");
    }
}
