//! A drawing as an SVG picture, in the colours of the reader's system.

use super::layout::{Place, layout};
use crate::units;
use fxgraph::flowgraph::draw::{Drawing, Edge, Node};
use std::collections::BTreeMap;
use std::fmt::Write as _;

const HEIGHT: f64 = 42.0;
const GAP: (f64, f64) = (26.0, 46.0);
const MARGIN: f64 = 16.0;
/// Width of a character of the two texts of a node, and the widths that a node may have.
const CHARACTER: (f64, f64) = (7.6, 6.4);
const WIDTHS: (f64, f64) = (110.0, 280.0);

const STYLE: &str = "
  svg { background: var(--page); --page: #fff; font: 12px system-ui, sans-serif; --ink: #1b1f24; --dim: #57606a; --line: #8c959f; --box: #f6f8fa; --gpu: #1a7f37; --cpu: #0969da; }
  @media (prefers-color-scheme: dark) { svg { --page: #0d1117; --ink: #e6edf3; --dim: #9198a1; --line: #656c76; --box: #151b23; --gpu: #3fb950; --cpu: #4493f8; } }
  text { fill: var(--dim); font-size: 11px; stroke: var(--page); stroke-width: 4; paint-order: stroke; } g[transform] text { stroke: none; } .name { fill: var(--ink); font-size: 13px; font-weight: 600; }
  .box { fill: var(--box); stroke: var(--line); } .cpu { fill: var(--cpu); } .gpu { fill: var(--gpu); }
  .edge { fill: none; stroke: var(--line); stroke-width: 1.3; } .cut { stroke-dasharray: 5 4; } .end { fill: var(--line); }
";

/// The picture of `drawing`.
pub fn picture(drawing: &Drawing) -> String {
    let mut between: BTreeMap<(usize, usize), Vec<&Edge>> = BTreeMap::new();
    for edge in &drawing.edges {
        between.entry((edge.from, edge.to)).or_default().push(edge);
    }
    let ends: Vec<(usize, usize)> = between.keys().copied().collect();
    let placed = layout(drawing.nodes.len(), &ends);
    let texts: Vec<(&str, String)> = drawing.nodes.iter().map(texts).collect();
    let widest = texts.iter().map(|(name, what)| {
        (CHARACTER.0 * name.chars().count() as f64).max(CHARACTER.1 * what.chars().count() as f64)
    });
    let width = (widest.fold(0.0, f64::max) + 26.0).clamp(WIDTHS.0, WIDTHS.1).ceil();
    let corner = |place: &Place| {
        let (x, y) = (place.column * (width + GAP.0), place.row as f64 * (HEIGHT + GAP.1));
        (MARGIN + x, MARGIN + y)
    };
    let across = placed.columns * (width + GAP.0) - GAP.0 + 2.0 * MARGIN;
    let down = placed.rows as f64 * (HEIGHT + GAP.1) - GAP.1 + 2.0 * MARGIN;
    let (across, down) = (across.ceil(), down.max(2.0 * MARGIN).ceil());
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {across} {down}\" width=\"{across}\" \
         height=\"{down}\" role=\"img\">\n<title>{}</title>\n<style>{STYLE}</style>\n\
         <defs><marker id=\"end\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"7\" \
         markerHeight=\"7\" orient=\"auto\"><path class=\"end\" d=\"M0 0 L8 4 L0 8 z\"/></marker></defs>\n",
        escaped(&drawing.name)
    );
    for (((from, to), edges), bends) in between.iter().zip(&placed.bends) {
        let ends = [&placed.nodes[*from], &placed.nodes[*to]];
        let corners: Vec<(f64, f64)> =
            [ends[0]].into_iter().chain(bends).chain([ends[1]]).map(corner).collect();
        wire(&mut text, drawing, edges, &corners, width);
    }
    for ((name, what), (node, place)) in texts.iter().zip(drawing.nodes.iter().zip(&placed.nodes)) {
        let (x, y) = corner(place);
        let class = if node.device.starts_with("cuda") { "gpu" } else { "cpu" };
        let (most_name, most_what) =
            (((width - 24.0) / CHARACTER.0) as usize, ((width - 24.0) / CHARACTER.1) as usize);
        let _ = writeln!(
            text,
            "<g transform=\"translate({x:.1} {y:.1})\"><title>{}: {}</title>\
             <rect class=\"box\" width=\"{width}\" height=\"{HEIGHT}\" rx=\"6\"/>\
             <rect class=\"{class}\" x=\"5\" y=\"8\" width=\"4\" height=\"26\" rx=\"2\"/>\
             <text class=\"name\" x=\"16\" y=\"18\">{}</text><text x=\"16\" y=\"33\">{}</text></g>",
            escaped(name),
            escaped(what),
            escaped(&clipped(name, most_name)),
            escaped(&clipped(what, most_what)),
        );
    }
    text.push_str("</svg>\n");
    text
}

/// Name of a block, and its kind with the device unless it is the CPU, and its host if any.
fn texts(node: &Node) -> (&str, String) {
    let device = Some(format!(" on {}", node.device)).filter(|_| node.device != "cpu");
    let host = node.host.as_ref().map(|host| format!(" at {host}"));
    (&node.name, format!("{}{}{}", node.kind, device.unwrap_or_default(), host.unwrap_or_default()))
}

/// Edges between two blocks as one through `corners`, the upper left corners of its start, of the rows that it passes, and
/// of its end.
fn wire(text: &mut String, drawing: &Drawing, edges: &[&Edge], corners: &[(f64, f64)], width: f64) {
    let middle: Vec<(f64, f64)> = corners.iter().map(|(x, y)| (x + width / 2.0, *y)).collect();
    let last = middle.len() - 1;
    let mut path = String::new();
    let (mut x, mut y) = (middle[0].0, middle[0].1 + HEIGHT);
    let _ = write!(path, "M{x:.1} {y:.1}");
    for (at, &(to_x, to_y)) in middle.iter().enumerate().skip(1) {
        let half = f64::midpoint(y, to_y);
        let _ = write!(path, " C{x:.1} {half:.1} {to_x:.1} {half:.1} {to_x:.1} {to_y:.1}");
        (x, y) = (to_x, to_y);
        if at < last {
            y += HEIGHT;
            let _ = write!(path, " V{y:.1}");
        }
    }
    let (from, to) = (&drawing.nodes[edges[0].from], &drawing.nodes[edges[0].to]);
    let cut = if from.host == to.host { "" } else { " cut" };
    let told = |edge: &&Edge| {
        let when_full = edge.when_full.map(|action| format!("; {action}")).unwrap_or_default();
        let (output, input, carries) = (&edge.output, &edge.input, &edge.carries);
        format!("{}.{output} to {}.{input}: {carries}{when_full}", from.name, to.name)
    };
    let told: Vec<String> = edges.iter().map(|edge| escaped(&told(edge))).collect();
    let rate: f64 = edges.iter().map(|edge| edge.bytes_per_second).sum();
    let label = (f64::midpoint(middle[0].0, middle[1].0), middle[0].1 + HEIGHT + 15.0);
    let _ = writeln!(
        text,
        "<g><title>{}</title><path class=\"edge{cut}\" d=\"{path}\" marker-end=\"url(#end)\"/>\
         <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text></g>",
        told.join("\n"),
        label.0,
        label.1,
        escaped(&units::scaled(8.0 * rate, "b/s")),
    );
}

/// `text` in at most `length` characters.
fn clipped(text: &str, length: usize) -> String {
    if text.chars().count() <= length {
        return text.to_owned();
    }
    text.chars().take(length.saturating_sub(1)).chain(['\u{2026}']).collect()
}

/// `text` for XML, which has no control characters.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars().filter(|character| !character.is_control()) {
        match character {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            _ => safe.push(character),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_escaped_and_clipped() {
        assert_eq!(escaped("a<b> & \"c\"\u{7}"), "a&lt;b&gt; &amp; &quot;c&quot;");
        assert_eq!(clipped("digitiser", 5), "digi\u{2026}");
        assert_eq!(clipped("pfb", 5), "pfb");
    }
}
