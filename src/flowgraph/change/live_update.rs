//! Live updates of a running flowgraph: new values of live parameters, read and checked like those of a file.

use crate::change::request::{Rejected, Request, laid_over};
use crate::language::arrays;
use crate::plan::bands::{seal, take_labels};
use crate::plan::block::PlannedBlock;
use crate::plan::configure::{configure, rejection};
use crate::plan::flowgraph::Plan;
use crate::plan::pending::Version;
use crate::text::document::wrong_type;
use crate::text::parse::parse;
use fxgraph_core::access::FileAccess;
use fxgraph_core::changes::{LiveValue, MAX_QUEUED, When};
use fxgraph_core::diagnostic::Sources;
use fxgraph_core::diagnostic::{Diagnostic, Span, codes, suggest, tidy};
use fxgraph_core::error::BlockError;
use fxgraph_core::error::panic_text;
use fxgraph_core::kind::{AnyConfigured, At, KindEntry, Ports, Registry, Resources};
use fxgraph_core::port::PortType;
use fxgraph_core::tree::{Key, Node, Value};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// File name of a request in its diagnostics.
const REQUEST: &str = "request";

/// Limit of the parameters of all scheduled updates, in bytes of JSON text. In memory they take up to about 30 times
/// as much.
const MAX_PENDING_BYTES: usize = 4 << 20;

/// A plan after a live update.
pub struct LiveUpdate {
    /// The plan.
    pub plan: Plan,
    /// Name and new values of each block that changes.
    pub blocks: Vec<(String, Vec<(&'static str, LiveValue)>)>,
}

impl Plan {
    /// This plan with the live parameters in `request` scheduled for timestamp `at`, as in a running flowgraph.
    pub fn with_change(
        &self,
        registry: &Registry,
        request: impl Into<Request>,
        at: u64,
    ) -> Result<Self, Rejected> {
        Ok(self.live_update(registry, request, &When::at(at))?.plan)
    }

    /// This plan with the live parameters in `request`, which take effect at `when`. `request` is a mapping from names
    /// of blocks to parameters.
    pub fn live_update(
        &self,
        registry: &Registry,
        request: impl Into<Request>,
        when: &When,
    ) -> Result<LiveUpdate, Rejected> {
        let (mut sources, request) = request.into().read_as(REQUEST);
        let request = match request {
            Ok(request) => request,
            Err(problems) => return Err(Rejected { sources, problems: tidy(problems) }),
        };
        if let Some(updated) = self.with_parameters(registry, &request, when, None, &mut Vec::new())
        {
            return Ok(updated);
        }
        // Read again with `sources`, so that the diagnostics can quote the running parameters.
        let mut problems = Vec::new();
        let sought = Some(&mut sources);
        match self.with_parameters(registry, &request, when, sought, &mut problems) {
            Some(updated) => Ok(updated),
            None => Err(Rejected { sources, problems: tidy(problems) }),
        }
    }

    /// The plan with the parameters in `request`, or `None` with diagnostics in `problems`. If `sources` is given, it
    /// gets the texts of the running parameters, so that diagnostics can point into them.
    fn with_parameters(
        &self,
        registry: &Registry,
        request: &Node,
        when: &When,
        mut sources: Option<&mut Sources>,
        problems: &mut Vec<Diagnostic>,
    ) -> Option<LiveUpdate> {
        let Value::Map(entries) = &request.value else {
            problems.push(wrong_type(request, "a mapping of blocks to their parameters"));
            return None;
        };
        let mut plan = self.clone();
        let mut blocks = Vec::new();
        let mut room = Some(arrays::MAX_ALL_BYTES);
        let mut pending: usize = self.blocks.iter().map(|block| block.pending.bytes()).sum();
        for (key, node) in entries {
            let found = self
                .block(&key.text)
                .and_then(|index| Some((index, registry.get(self.blocks[index].kind)?)));
            let Some((index, kind)) = found else {
                problems.push(self.unknown_block(key));
                continue;
            };
            let running = &self.blocks[index];
            let Some(mut given) = may_change(running, kind, node, problems) else { continue };
            arrays::load(&mut given, &mut room, &self.access, problems);
            let in_force = match &mut sources {
                Some(sources) => {
                    let text = running.parameters.to_string();
                    let file = sources.add(format!("{} as it runs", running.name), &text);
                    // Text that is too long to parse has no places.
                    let read = parse(file, &text);
                    read.unwrap_or_else(|_| Node::of_json(&running.parameters, key.span))
                }
                None => Node::of_json(&running.parameters, key.span),
            };
            let parameters = laid_over(in_force, given.clone(), Some(kind));
            let before = problems.len();
            let Some(configured) =
                checked(running, kind, key.span, (&parameters, &self.access), problems)
            else {
                arrays::describe(&given, &mut problems[before..]);
                continue;
            };
            let values = live_values(configured.as_ref(), running, kind, &given, problems);
            if !running.pending.has_room(values.len()) {
                problems.push(too_many(running, key));
                continue;
            }
            let names: Vec<_> = values.iter().map(|(name, _)| *name).collect();
            let parameters =
                running.parameters.with(parameters.value.to_json(), &given_names(&given));
            let version = Version { parameters, configured };
            let bytes = if names.is_empty() { 0 } else { version.parameters.bytes() };
            // The first scheduled update of a block is at most as large as the parameters that the block has anyway.
            if bytes > 0 && running.pending.bytes() > 0 && pending + bytes > MAX_PENDING_BYTES {
                problems.push(too_large(running, pending, key));
                continue;
            }
            pending += bytes;
            let block = &mut plan.blocks[index];
            take_labels(&mut block.ports.outputs, &version.configured.ports().outputs);
            (block.parameters, block.configured) =
                (version.parameters.clone(), Arc::clone(&version.configured));
            block.pending = running.pending.with(running, when, names, version);
            blocks.push((key.text.clone(), values));
        }
        if blocks.is_empty() && problems.is_empty() {
            let message = "the request must name at least one block";
            let problem = Diagnostic::error(codes::MISSING_KEY, request.span, message)
                .label("no block")
                .help("name a block and its parameters: `{\"f[0].postproc\": {\"gains\": 2}}`");
            problems.push(problem);
        }
        if !problems.is_empty() {
            return None;
        }
        seal(&mut plan);
        problems.extend(self.unfollowed_bands(&plan, entries.first()?.0.span));
        problems.is_empty().then_some(LiveUpdate { plan, blocks })
    }

    fn unknown_block(&self, key: &Key) -> Diagnostic {
        let known: Vec<&str> = self.blocks.iter().map(|block| block.name.as_str()).collect();
        let message = format!("there is no block `{}`", key.text);
        Diagnostic::error(codes::UNKNOWN_BLOCK, key.span, message)
            .label("no such block")
            .maybe_help(suggest(&key.text, "block", &known))
    }
}

/// Names of the parameters in a request.
fn given_names(given: &Node) -> Vec<&str> {
    let Value::Map(entries) = &given.value else { return Vec::new() };
    entries.iter().map(|(name, _)| name.text.as_str()).collect()
}

/// The given parameters of a running block, without those that are not live, which are reported.
fn may_change(
    running: &PlannedBlock,
    kind: &KindEntry,
    given: &Node,
    problems: &mut Vec<Diagnostic>,
) -> Option<Node> {
    let Value::Map(entries) = &given.value else {
        problems.push(wrong_type(given, "a mapping of parameters to values"));
        return None;
    };
    let may_change = |(name, value): &&(Key, Node)| {
        // Clients may send all parameters of a block; unchanged ones are accepted.
        if kind.live.contains(&&*name.text)
            || running.parameters.get(&name.text) == Some(&value.value.to_json())
        {
            return true;
        }
        let is_fixed = (kind.schema)().pointer(&format!("/properties/{}", name.text)).is_some();
        if is_fixed {
            problems.push(not_live(kind, name));
        }
        !is_fixed
    };
    let entries = entries.iter().filter(may_change).cloned().collect();
    Some(Node::new(Value::Map(entries), given.span))
}

fn too_large(running: &PlannedBlock, pending: usize, key: &Key) -> Diagnostic {
    let message = format!(
        "the update of `{}` is too large: {pending} bytes of parameters are scheduled already, the \
         limit is {MAX_PENDING_BYTES}",
        running.name
    );
    Diagnostic::error(codes::CHANGE, key.span, message)
        .label("too large")
        .help("send it again after scheduled values have taken effect")
}

fn too_many(running: &PlannedBlock, key: &Key) -> Diagnostic {
    let message = format!("`{}` must have at most {MAX_QUEUED} scheduled values", running.name);
    Diagnostic::error(codes::CHANGE, key.span, message)
        .label("too many values")
        .help("send it again after scheduled values have taken effect")
}

fn not_live(kind: &KindEntry, name: &Key) -> Diagnostic {
    let message = format!("`{}` of `{}` cannot change while the block runs", name.text, kind.name);
    let live: Vec<String> = kind.live.iter().map(|name| format!("`{name}`")).collect();
    let problem =
        Diagnostic::error(codes::NOT_LIVE, name.span, message).label("not a live parameter");
    let problem = if live.is_empty() {
        problem
    } else {
        problem.help(format!("live parameters: {}", live.join(", ")))
    };
    problem.help("swap the block for one with the new value")
}

/// The block with these parameters, if its ports and resources are those of the running one.
fn checked(
    running: &PlannedBlock,
    kind: &KindEntry,
    key: Span,
    (parameters, access): (&Node, &FileAccess),
    problems: &mut Vec<Diagnostic>,
) -> Option<Arc<dyn AnyConfigured>> {
    let mut report = |mut problem: Diagnostic| {
        problem.blocks.push(running.name.clone());
        problems.push(problem);
    };
    let read = match configure(kind, running.implementation, parameters, key, access) {
        Ok(read) => read,
        Err(errors) => {
            errors.into_iter().for_each(report);
            return None;
        }
    };
    let place = |at: &At| match at {
        At::Parameter(path) => parameters.at(path).map_or(key, |node| node.span),
        At::Value(path) => parameters.at(path).map_or(key, |node| node.span),
        _ => key,
    };
    let Ports { inputs, outputs } = &running.ports;
    let configured = match read.connect(inputs) {
        Ok(configured) => configured,
        Err(rejections) => {
            let rejections = rejections.into_iter();
            problems.extend(rejections.map(|each| rejection(each, &running.name, place)));
            return None;
        }
    };
    let ports = &configured.ports().outputs;
    let needs = |configured: &dyn AnyConfigured| {
        let Resources { holds, fills, pools, binds, sockets, writes, .. } = configured.resources();
        (holds, fills, pools, binds, sockets, writes)
    };
    let is_other = |(port, output): (&PortType, &PortType)| !output.is_read_like(port);
    let what = if ports.len() != outputs.len() || ports.iter().zip(outputs).any(is_other) {
        "have other outputs"
    } else if needs(configured.as_ref()) != needs(running.configured.as_ref()) {
        "need other frames, sockets or files"
    } else {
        return Some(configured);
    };
    let message = format!("`{}` would {what} with these parameters", kind.name);
    let problem = Diagnostic::error(codes::NOT_LIVE, parameters.span, message)
        .label("needs a swap")
        .help("swap the block for one with the new values");
    report(problem);
    None
}

fn live_values(
    configured: &dyn AnyConfigured,
    running: &PlannedBlock,
    kind: &KindEntry,
    given: &Node,
    problems: &mut Vec<Diagnostic>,
) -> Vec<(&'static str, LiveValue)> {
    let mut values = Vec::new();
    for name in &kind.live {
        let Some((_, node)) = given.entry(name) else { continue };
        let value = || configured.live_value(name, running.configured.as_ref());
        let value = catch_unwind(AssertUnwindSafe(value)).unwrap_or_else(|cause| {
            let text = format!("`{name}` cannot be computed: {}", panic_text(cause.as_ref()));
            Err(BlockError::new(text))
        });
        match value {
            Ok(value) => values.push((*name, value)),
            Err(error) => {
                let message = error.to_string();
                let problem = Diagnostic::error(codes::PARAMETER_OUT_OF_RANGE, node.span, message);
                problems.push(problem.label("invalid"));
            }
        }
    }
    values
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::load_text;
    use crate::tests::kinds::registry;
    use fxgraph_core::diagnostic::{Style, render_all};

    fn plan(level: f64) -> Plan {
        let text = format!(
            "flowgraph: g\nblocks:\n  s: {{kind: source, replicate: 2, parameters: {{level: {level:?}}}}}\n  \
             f: {{kind: filter, input: \"s[0]\", parameters: {{taps: 16}}}}\n  \
             o: {{kind: sink, inputs: [f]}}\n"
        );
        load_text("example.yaml", &text, &[], &registry()).result.unwrap()
    }

    fn rejected(request: &str) -> String {
        let rejected = plan(0.5).live_update(&registry(), request, &When::default()).err().unwrap();
        render_all(&rejected.problems, &rejected.sources, Style::Plain)
    }

    #[test]
    fn live_update_gives_hash_of_file_with_new_values() {
        let live_update =
            |plan: &Plan, request| plan.live_update(&registry(), request, &When::default());
        let updated = live_update(&plan(0.5), "{\"s[0]\": {level: 2}, \"s[1]\": {level: 2.0}}");
        let LiveUpdate { plan: changed, blocks } = updated.unwrap();
        assert_eq!(changed.blocks[0].parameters, serde_json::json!({"level": 2}));
        let names: Vec<_> = blocks.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["s[0]", "s[1]"]);
        let value = blocks[1].1[0].1.downcast_ref::<f64>().copied();
        assert_eq!((blocks[1].1[0].0, value), ("level", Some(2.0)));
        let back = live_update(&changed, "{\"s[0]\": {level: 2.0}}").unwrap().plan;
        assert_eq!(back.config_hash, plan(2.0).config_hash);
        assert_ne!(back.config_hash, plan(0.5).config_hash);
    }

    #[test]
    fn live_update_accepts_unchanged_fixed_parameters() {
        let request = "f: {taps: 16}\ns[1]: {level: 0.5}\n";
        let updated = plan(0.5).live_update(&registry(), request, &When::default()).unwrap();
        assert_eq!(updated.plan.config_hash, plan(0.5).config_hash);
        assert_eq!(updated.blocks[0].1.len(), 0);
        assert_eq!(updated.blocks[1].1.len(), 1);
    }

    #[test]
    fn live_update_reports_all_errors_with_places() {
        let request = "{\n  \"s[0]\": {\"level\": -1},\n  \"s[1]\": {\"levle\": 1, \"channels\": 32},\n  \
                       \"f\": {\"taps\": 32},\n  \"s\": {\"level\": 1},\n  \"o\": 3\n}\n";
        insta::assert_snapshot!("E0402", rejected(request));
        for (request, code) in [
            ("s[0]: {level: loud}", "E0108"),
            ("{", "E0101"),
            ("[]", "E0108"),
            ("{}", "E0107"),
            ("s[0]: {level: 1, level: 2}", "E0105"),
        ] {
            let text = rejected(request);
            assert!(text.contains(code), "{request}: {text}");
        }
    }
}
