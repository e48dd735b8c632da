//! Drawings of a plan: a model of nodes, groups and edges, written as Mermaid, DOT or JSON.

use crate::language::latency::SourceFrame;
use crate::plan::flowgraph::Plan;
use fxgraph_core::device::DeviceName;
use fxgraph_core::edge::WhenFull;
use serde::Serialize;
use std::collections::HashMap;
use std::fmt::Write as _;

/// Content of a drawing, independent of its format.
#[derive(Clone, Debug, Serialize)]
pub struct Drawing {
    /// Name of the flowgraph.
    pub name: String,
    /// Blocks.
    pub nodes: Vec<Node>,
    /// Uses of templates, each before those inside it.
    pub groups: Vec<Group>,
    /// Edges.
    pub edges: Vec<Edge>,
}

/// A block.
#[derive(Clone, Debug, Serialize)]
pub struct Node {
    /// Name in the flowgraph.
    pub name: String,
    /// Its kind.
    pub kind: String,
    /// Where it runs: `cpu`, `cuda:0`, ...
    pub device: String,
    /// Index of its group.
    pub group: Option<usize>,
    /// Host that runs it, if the flowgraph has hosts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Frame size and its reason, if it is a source in real time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frame: Option<SourceFrame>,
}

impl Node {
    /// Name of the block, and its kind with the device if not the CPU, its host and the duration of its frames if any.
    fn texts(&self) -> (&str, String) {
        let on_device = self.device != DeviceName::Cpu.to_string();
        let place = if on_device { format!(" on {}", self.device) } else { String::new() };
        let host = self.host.as_ref().map(|host| format!(" at {host}")).unwrap_or_default();
        let frame = self.frame.as_ref();
        let frame = frame.map(|frame| format!(", frames of {} ms", frame.milliseconds()));
        (&self.name, format!("{}{place}{host}{}", self.kind, frame.unwrap_or_default()))
    }
}

/// A use of a template.
#[derive(Clone, Debug, Serialize)]
pub struct Group {
    /// Name of the use.
    pub name: String,
    /// Name of the template.
    pub template: String,
    /// Index of the enclosing group.
    pub parent: Option<usize>,
}

/// An edge.
#[derive(Clone, Debug, Serialize)]
pub struct Edge {
    /// Index of the block that writes.
    pub from: usize,
    /// Name of its output.
    pub output: String,
    /// Index of the block that reads.
    pub to: usize,
    /// Name of its input.
    pub input: String,
    /// Data type, axes and rate of the frames.
    pub carries: String,
    /// Bytes per second of real time.
    pub bytes_per_second: f64,
    /// Action when the queue of the input is full, unless the writer waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub when_full: Option<&'static str>,
}

impl Edge {
    /// Type of the frames, and the action when the queue is full.
    fn text(&self) -> String {
        let when_full = self.when_full.map(|action| format!("; {action}")).unwrap_or_default();
        format!("{}{when_full}", self.carries)
    }
}

impl Drawing {
    /// Drawing of `plan`.
    #[must_use]
    pub fn of(plan: &Plan) -> Self {
        let mut groups: Vec<Group> = Vec::new();
        let mut known: HashMap<&str, usize> = HashMap::new();
        let mut nodes = Vec::new();
        let mut edges = Vec::new();
        for (to, block) in plan.blocks.iter().enumerate() {
            let mut group = None;
            for (name, template) in &block.templates {
                group = Some(*known.entry(name).or_insert_with(|| {
                    let (name, template) = (name.clone(), template.clone());
                    groups.push(Group { name, template, parent: group });
                    groups.len() - 1
                }));
            }
            nodes.push(Node {
                name: block.name.clone(),
                kind: block.kind.to_owned(),
                device: block.place(),
                group,
                frame: block.frame.clone(),
                host: block.host.and_then(|host| Some(plan.hosts.as_ref()?.name(host))),
            });
            for (input, (from, port)) in block.inputs.iter().enumerate() {
                let source = &plan.blocks[*from];
                let carries = &source.ports.outputs[*port];
                edges.push(Edge {
                    from: *from,
                    output: source.output_names[*port].clone(),
                    to,
                    input: block.input_names[input].clone(),
                    carries: carries.to_string(),
                    bytes_per_second: carries.bytes_per_second(),
                    when_full: Some(block.when_full[input])
                        .filter(|action| action.drops())
                        .map(WhenFull::name),
                });
            }
        }
        Self { name: plan.name.clone(), nodes, groups, edges }
    }

    /// The drawing as Mermaid, for Markdown pages.
    #[must_use]
    pub fn mermaid(&self) -> String {
        let mut text = String::from("flowchart LR\n");
        self.blocks(None, 1, &mut text, &|this, text, indent, what| match what {
            What::Open(group) => {
                let Group { name, template, .. } = &this.groups[group];
                let label = mermaid_text(&format!("{name}: {template}"));
                let _ = writeln!(text, "{indent}subgraph g{group}[\"{label}\"]");
            }
            What::Close => {
                let _ = writeln!(text, "{indent}end");
            }
            What::Block(block) => {
                let (name, what) = this.nodes[block].texts();
                let (name, what) = (mermaid_text(name), mermaid_text(&what));
                let _ = writeln!(text, "{indent}b{block}[\"{name}<br><i>{what}</i>\"]");
            }
        });
        for edge in &self.edges {
            let label = mermaid_text(&edge.text());
            let arrow = if self.is_cut(edge) { "-.->" } else { "-->" };
            let _ = writeln!(text, "  b{} {arrow}|\"{label}\"| b{}", edge.from, edge.to);
        }
        text
    }

    /// The drawing as DOT, for Graphviz.
    #[must_use]
    pub fn dot(&self) -> String {
        let mut text = format!("digraph {} {{\n", quoted(&self.name));
        text.push_str("  rankdir=LR;\n  node [shape=box];\n");
        self.blocks(None, 1, &mut text, &|this, text, indent, what| match what {
            What::Open(group) => {
                let Group { name, template, .. } = &this.groups[group];
                let label = quoted(&format!("{name}: {template}"));
                let _ =
                    writeln!(text, "{indent}subgraph cluster_{group} {{\n{indent}  label={label};");
            }
            What::Close => {
                let _ = writeln!(text, "{indent}}}");
            }
            What::Block(block) => {
                let (name, what) = this.nodes[block].texts();
                let label = quoted(&format!("{name}\n{what}"));
                let _ = writeln!(text, "{indent}b{block} [label={label}];");
            }
        });
        for edge in &self.edges {
            let label = quoted(&edge.text());
            let style = if self.is_cut(edge) { ", style=dashed" } else { "" };
            let _ = writeln!(text, "  b{} -> b{} [label={label}{style}];", edge.from, edge.to);
        }
        text.push_str("}\n");
        text
    }

    /// Whether `edge` goes from one host to another.
    fn is_cut(&self, edge: &Edge) -> bool {
        self.nodes[edge.from].host != self.nodes[edge.to].host
    }

    /// The drawing as JSON, for programs.
    #[must_use]
    pub fn json(&self) -> serde_json::Value {
        serde_json::to_value(self).unwrap_or_default()
    }

    /// Calls `write` for all groups and blocks in `group`, outer groups first.
    fn blocks(
        &self,
        group: Option<usize>,
        depth: usize,
        text: &mut String,
        write: &dyn Fn(&Self, &mut String, &str, What),
    ) {
        let indent = "  ".repeat(depth);
        for (index, _) in self.groups.iter().enumerate().filter(|(_, g)| g.parent == group) {
            write(self, text, &indent, What::Open(index));
            self.blocks(Some(index), depth + 1, text, write);
            write(self, text, &indent, What::Close);
        }
        for (index, _) in self.nodes.iter().enumerate().filter(|(_, node)| node.group == group) {
            write(self, text, &indent, What::Block(index));
        }
    }
}

enum What {
    Open(usize),
    Close,
    Block(usize),
}

/// `text` escaped for quotes in Mermaid.
fn mermaid_text(text: &str) -> String {
    text.replace('&', "&amp;").replace('"', "&quot;").replace('<', "&lt;").replace('>', "&gt;")
}

/// `text` as a quoted string of DOT.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}
