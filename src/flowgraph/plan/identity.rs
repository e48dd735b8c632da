//! Identity of a plan: a hash over the hashes of its blocks, and the text that is identified by it.
//!
//! Plans share their blocks, and blocks share the printed values of their parameters. So the identity of a changed plan
//! costs what has changed. The whole text is printed when it is read.

use crate::language::scope::plainly;
use crate::language::thread::Thread;
use crate::plan::block::{Identity, Planned, PlannedBlock};
use crate::plan::block_parameters::Printed;
use crate::plan::flowgraph::{Outline, ParameterInfo, Plan};
use crate::text::json::{Limits, json};
use fxgraph_core::flowgraph_texts::{FlowgraphText, TextPart};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Value as Json, json};
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::sync::Arc;

impl Identity {
    /// Identity of `block` with the parameters `printed`. The first text has everything but inputs and parameters.
    fn new(plan: &Plan, block: &Planned, printed: &[Printed]) -> Self {
        let mut value = resolved_block(block, Json::Null, Json::Null);
        if let (Some(hosts), Some(host)) = (&plan.hosts, block.host) {
            value["host"] = json!(hosts.name(host));
        }
        let head = json!({ "name": block.name, "outputs": block.output_names, "block": value });
        let head: Arc<str> = head.to_string().into();
        let mut sorted: Vec<_> = printed.iter().map(|one| (&one.name, &one.hash)).collect();
        sorted.sort_unstable();
        let mut hash = Sha256::new_with_prefix(Sha256::digest(head.as_bytes()));
        sorted.iter().for_each(|(_, of_value)| hash.update(of_value));
        let texts = printed.iter().map(|one| Arc::clone(&one.text));
        Self { hash: hash.finalize().into(), text: std::iter::once(head).chain(texts).collect() }
    }

    fn of(plan: &Plan, block: &PlannedBlock) -> Self {
        let identity = &block.0.identity;
        identity.get_or_init(|| Self::new(plan, block, block.parameters.printed())).clone()
    }
}

impl Outline {
    fn new(plan: &Plan) -> Self {
        // Copies between devices follow from the devices of the blocks.
        let mut numbers = vec![0; plan.blocks.len()];
        let indices = (0..plan.blocks.len()).filter(|index| !plan.blocks[*index].is_transfer());
        indices.zip(0..).for_each(|(index, number)| numbers[index] = number);
        let mut edges = String::new();
        for block in plan.blocks.iter().filter(|block| !block.is_transfer()) {
            for input in 0..block.inputs.len() {
                let (source, port) = plan.source(block, input);
                let _ = write!(edges, "{} {port},", numbers[source]);
            }
            edges.push('\n');
        }
        let texts = [head(plan).to_string(), edges];
        let hashes = texts.each_ref().map(|text| Sha256::digest(text.as_bytes()).into());
        Self { part: texts.map(Arc::from).into(), hashes }
    }
}

impl Plan {
    /// Computes the identity of this plan after a change.
    pub(crate) fn identify(&mut self) {
        self.text = self.text_with(|block| Identity::of(self, block));
        self.config_hash.clone_from(&self.text.config_hash);
        self.printed = Arc::default();
    }

    /// Text of this plan with the values in force at timestamp `at`.
    pub(crate) fn text_at(&self, at: u64) -> FlowgraphText {
        self.text_with(|block| match block.pending.printed_at(at) {
            Some(printed) => Identity::new(self, block, &printed),
            None => Identity::of(self, block),
        })
    }

    fn text_with(&self, identity: impl Fn(&PlannedBlock) -> Identity) -> FlowgraphText {
        let outline = self.outline.get_or_init(|| Outline::new(self));
        let mut hash = Sha256::new_with_prefix(outline.hashes.as_flattened());
        let mut parts = vec![Arc::clone(&outline.part)];
        let written = self.blocks.iter().filter(|block| !block.is_transfer());
        for Identity { hash: of_block, text } in written.map(identity) {
            hash.update(of_block);
            parts.push(text);
        }
        let mut config_hash = String::with_capacity(64);
        for byte in hash.finalize() {
            let _ = write!(config_hash, "{byte:02x}");
        }
        FlowgraphText::new(config_hash, parts, print)
    }

    /// The resolved flowgraph as YAML: expressions computed, templates expanded, defaults written out. Loading it gives
    /// the same plan.
    #[must_use]
    pub fn resolved_yaml(&self) -> &str {
        self.printed.get_or_init(|| self.text.yaml())
    }
}

/// The resolved flowgraph without its blocks.
fn head(plan: &Plan) -> Json {
    let mut head = json!({ "flowgraph": plan.name });
    if let Some(hosts) = &plan.hosts {
        head["hosts"] = hosts.to_json();
        if let Some(network) = &hosts.network {
            head["network"] = network.to_json();
        }
    }
    head["parameters"] = resolved_parameters(plan);
    head
}

/// A block as in a file, with all of its keys except `host`.
pub(crate) fn resolved_block(block: &Planned, inputs: Json, parameters: Json) -> Json {
    let thread = match block.thread {
        Thread::Shared => json!("shared"),
        Thread::Own { core: None } => json!("own"),
        Thread::Own { core: Some(core) } => json!({ "core": core }),
    };
    let mut value = json!({
        "kind": block.kind,
        "inputs": inputs,
        "parameters": parameters,
        "thread": thread,
        "queue": block.queue.to_json(),
        "device": block.device.to_string(),
        "implementation": block.implementation,
        "on_fault": block.on_fault.name(),
    });
    if let Some(when_full) = block.when_full_json() {
        value["when_full"] = when_full;
    }
    if let Some(shadow) = &block.shadow {
        value["shadow"] = plainly(shadow);
    }
    value
}

/// Prints the text of a plan: head and edges, then the blocks. Values are read one by one, so that a text with many
/// values takes little memory beside it.
fn print(parts: &[TextPart]) -> String {
    let Some(([head, edges], blocks)) =
        parts.split_first().and_then(|(first, blocks)| Some((first.first_chunk()?, blocks)))
    else {
        return String::new();
    };
    let heads: Vec<Json> = blocks.iter().map(|block| read(&block[0])).collect();
    let blocks = Blocks { edges, heads: &heads, texts: blocks };
    serde_yaml::to_string(&Whole { head: read(head), blocks }).unwrap_or_default()
}

/// Reads a text that this module has printed.
fn read(text: &str) -> Json {
    json(0, text, &Limits::NONE).map(|node| node.value.to_json()).unwrap_or_default()
}

struct Whole<'a> {
    head: Json,
    blocks: Blocks<'a>,
}

impl Serialize for Whole<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        for (key, value) in self.head.as_object().into_iter().flatten() {
            map.serialize_entry(key, value)?;
        }
        map.serialize_entry("blocks", &self.blocks)?;
        map.end()
    }
}

struct Blocks<'a> {
    edges: &'a str,
    heads: &'a [Json],
    texts: &'a [TextPart],
}

impl Blocks<'_> {
    /// Full name of the output `edge`: number of the block and of its port.
    fn output(&self, edge: &str) -> Option<String> {
        let (block, port) = edge.split_once(' ')?;
        let source = self.heads.get(block.parse::<usize>().ok()?)?;
        let port = source["outputs"].get(port.parse::<usize>().ok()?)?;
        Some(format!("{}.{}", source["name"].as_str()?, port.as_str()?))
    }
}

impl Serialize for Blocks<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(Some(self.texts.len()))?;
        for ((head, texts), edges) in self.heads.iter().zip(self.texts).zip(self.edges.lines()) {
            let inputs = edges.split_terminator(',').filter_map(|edge| self.output(edge)).collect();
            let block = OneBlock { keys: &head["block"], inputs, parameters: &texts[1..] };
            map.serialize_entry(&head["name"], &block)?;
        }
        map.end()
    }
}

struct OneBlock<'a> {
    keys: &'a Json,
    inputs: Vec<String>,
    parameters: &'a [Arc<str>],
}

impl Serialize for OneBlock<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        for (key, value) in self.keys.as_object().into_iter().flatten() {
            match key.as_str() {
                "inputs" => map.serialize_entry(key, &self.inputs)?,
                "parameters" => map.serialize_entry(key, &Entries(self.parameters))?,
                _ => map.serialize_entry(key, value)?,
            }
        }
        map.end()
    }
}

struct Entries<'a>(&'a [Arc<str>]);

impl Serialize for Entries<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(Some(self.0.len()))?;
        for text in self.0 {
            for (name, value) in plainly(&read(text)).as_object().into_iter().flatten() {
                map.serialize_entry(name, value)?;
            }
        }
        map.end()
    }
}

/// Values of the flowgraph's parameters, as in a file.
pub(crate) fn resolved_parameters(plan: &Plan) -> Json {
    let value = |parameter: &ParameterInfo| match plainly(&parameter.value) {
        // A bare mapping would be read as a declaration with `default`, `minimum`, ...
        mapping @ Json::Object(_) => json!({ "default": mapping }),
        other => other,
    };
    Json::Object(plan.parameters.iter().map(|p| (p.name.clone(), value(p))).collect())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::load_text;
    use crate::plan::block_parameters::PRINTED;
    use crate::tests::kinds::registry;
    use fxgraph_core::changes::When;

    fn plan(blocks: usize) -> Plan {
        let text = format!(
            "flowgraph: g\nblocks:\n  s: {{kind: source, replicate: {blocks}, parameters: {{level: 1.5}}}}\n"
        );
        load_text("example.yaml", &text, &[], &registry()).result.unwrap()
    }

    #[test]
    fn live_update_prints_the_parameters_of_the_changed_block_only() {
        let update = |blocks: usize| {
            let before = plan(blocks);
            let shared = |after: &Plan| {
                let pairs = before.blocks.iter().zip(&after.blocks);
                pairs.filter(|(before, after)| Arc::ptr_eq(&before.0, &after.0)).count()
            };
            PRINTED.set(0);
            let request = "\"s[3]\": {level: 2.5}";
            let after = before.live_update(&registry(), request, &When::at(100)).ok().unwrap().plan;
            let ids = after.config_ids(0);
            assert_ne!(ids.at(0), ids.at(100));
            assert_eq!((ids.at(0), ids.at(100)), (before.config_id(), after.config_id()));
            assert_eq!(shared(&after), blocks - 1);
            // The whole text is printed only when it is read.
            let text = after.texts.get(ids.at(100)).unwrap().yaml();
            assert!(text.contains("level: 2.5") && text == after.resolved_yaml());
            PRINTED.get()
        };
        assert_eq!(update(8), update(200));
        assert_eq!(update(8), "{\"level\":2.5}".len());
    }

    #[test]
    fn text_has_any_values_again() {
        let odd = json!({"${a}": ["${b}", 1.0, 1e16, -0.0, 18_446_744_073_709_551_615_u64, "1.10", "007", null, "a\n b\n"]});
        let block = &mut plan(1);
        block.blocks[0].parameters = json!({"level": odd, "name": {"deep": [[]]}}).into();
        block.identify();
        let read: Json = serde_yaml::from_str(block.resolved_yaml()).unwrap();
        let parameters = &read["blocks"]["s[0]"]["parameters"];
        assert_eq!(*parameters, plainly(&block.blocks[0].parameters));
        assert_eq!(parameters["level"].as_object().unwrap().len(), 1);
    }

    #[test]
    fn order_of_parameters_changes_the_text_only() {
        let with = |parameters: &str| {
            let text = format!(
                "flowgraph: g\nblocks:\n  s: {{kind: source, parameters: {{{parameters}}}}}\n"
            );
            load_text("example.yaml", &text, &[], &registry()).result.unwrap()
        };
        let [one, other] = ["level: 2.0, channels: 32", "channels: 32, level: 2.0"].map(with);
        assert_eq!(one.config_hash, other.config_hash);
        assert_ne!(one.resolved_yaml(), other.resolved_yaml());
        assert_ne!(one.config_hash, with("level: 2.0, channels: 64").config_hash);
    }
}
