//! Tests of hosts, and of the cut between them.

use super::kinds::registry;
use crate::{
    Load, Loaded, Loopback, MeasuredLoad, PartPlan, Plan, Work, estimate, load_text, schema,
};
use fxgraph_core::block::Block;
use fxgraph_core::diagnostic::{Style, render_all};
use fxgraph_core::error::BlockError;
use fxgraph_core::live_updates::Target;
use fxgraph_core::{
    Checked, Configured, Env, Implementation, Implementations, Kind, KindEntry, KindSpec, PortType,
    Registry, Rejection, Resources,
};
use fxgraph_recording::StreamType;
use std::fmt::Write as _;

/// The kinds of the other tests, and those that send and receive.
fn kinds() -> Registry {
    let more = vec![
        KindEntry::of::<StreamSink>(),
        KindEntry::of::<StreamSource>(),
        KindEntry::of::<Solver>(),
    ];
    registry().with(Registry::new(more))
}

#[allow(clippy::unnecessary_wraps, reason = "constructors may fail")]
fn none<K: KindSpec>(_: &Configured<K>, _: &Env) -> Result<Box<dyn Block>, BlockError> {
    Err(BlockError::new("is only planned"))
}

/// Sends frames of up to 64 elements.
#[derive(Clone, Kind)]
#[kind(name = "stream_sink", page = "../../core/kind/test_page.md", inputs("input"))]
struct StreamSink {
    /// Where to.
    #[allow(dead_code)]
    destination: String,
    /// Network interface.
    #[allow(dead_code)]
    interface: Option<String>,
    /// Whether it sends.
    #[allow(dead_code)]
    enabled: bool,
}

impl KindSpec for StreamSink {
    type Shape = ();
    const IMPLEMENTATIONS: Implementations<Self> = &[Implementation::cpu(none)];

    fn ports(&self, inputs: &[PortType]) -> Checked<()> {
        if inputs[0].elements() <= 64 {
            return Ok(((), vec![]));
        }
        Err(vec![Rejection::parameter("destination", "frames must have at most 64 elements")])
    }
}

/// Receives frames.
#[derive(Clone, Kind)]
#[kind(name = "stream_source", page = "../../core/kind/test_page.md", outputs("output"))]
struct StreamSource {
    /// Where from.
    #[allow(dead_code)]
    source: String,
    /// Network interface.
    #[allow(dead_code)]
    interface: Option<String>,
    /// Type of the frames.
    r#type: StreamType,
}

fn axis(name: &str) -> Option<&'static str> {
    ["channel", "pol", "other"].into_iter().find(|known| *known == name)
}

impl KindSpec for StreamSource {
    type Shape = ();
    const IMPLEMENTATIONS: Implementations<Self> = &[Implementation::cpu(none)];

    fn ports(&self, _: &[PortType]) -> Checked<()> {
        let port = self.r#type.port(axis).map_err(|why| vec![Rejection::parameter("type", why)])?;
        Ok(((), vec![port]))
    }
}

/// Changes `level` of another block.
#[derive(Clone, Kind)]
#[kind(name = "solver", page = "../../core/kind/test_page.md", inputs("input"))]
struct Solver {
    /// Name of the other block.
    block: String,
}

impl KindSpec for Solver {
    type Shape = ();
    const IMPLEMENTATIONS: Implementations<Self> = &[Implementation::cpu(none)];

    fn ports(&self, _: &[PortType]) -> Checked<()> {
        Ok(((), vec![]))
    }

    fn resources(block: &Configured<Self>) -> Resources {
        let updates = vec![Target {
            block: block.parameters.block.clone(),
            parameter: "level",
            named_by: "block".to_owned(),
        }];
        Resources { updates, ..Resources::default() }
    }
}

fn load(text: &str) -> Loaded {
    load_text("g.yaml", text, &[], &kinds())
}

fn plan(text: &str) -> Plan {
    let Loaded { sources, result, .. } = load(text);
    result.unwrap_or_else(|problems| panic!("{}", render_all(&problems, &sources, Style::Plain)))
}

/// Four stations on two hosts, and a sink for each of two joins on a third.
const ARRAY: &str = r#"
flowgraph: array
parameters: {stations: 4, hosts: 2}
hosts:
  f_host: {count: "${hosts}", constraint: digitiser, interface: eth1, spares: 1}
  x_host: {interface: "eth${1 + 1}"}
network: {multicast: 239.102.0.0/16, port: 7150, limit_gbit_per_second: 100}
templates:
  station:
    inputs: [x, y]
    blocks:
      filter: {kind: filter, inputs: [x, y], parameters: {taps: 2}}
      pass: {kind: pass, input: filter, host: "f_host[${1 - index // 2}]"}
    outputs: {output: pass}
blocks:
  dig: {kind: source, replicate: "${stations}", host: "f_host[${index // 2}]"}
  f:
    template: station
    replicate: "${stations}"
    host: "f_host[${index // 2}]"
    inputs: ["dig[${index}].pol0", "dig[${index}].pol1"]
  one: {kind: join, inputs: ["f[*]"], host: x_host}
  two: {kind: join, inputs: ["f[*]"], host: "x_host[0]"}
  a: {kind: sink, input: one, host: x_host}
  b: {kind: sink, input: two, host: x_host}
"#;

fn names(part: &PartPlan) -> Vec<&str> {
    part.blocks.iter().map(String::as_str).collect()
}

#[test]
fn host_of_a_template_is_that_of_its_blocks_unless_they_have_their_own() {
    let plan = plan(ARRAY);
    let hosts = plan.hosts.as_ref().unwrap();
    let host = |name: &str| hosts.name(plan.blocks[plan.block(name).unwrap()].host.unwrap());
    assert_eq!(host("dig[3]"), "f_host[1]");
    assert_eq!(host("f[0].filter"), "f_host[0]");
    assert_eq!(host("f[0].pass"), "f_host[1]");
    assert_eq!(host("f[3].pass"), "f_host[0]");
    assert_eq!(host("two"), "x_host");
    assert_eq!(hosts.classes[0].constraint.as_deref(), Some("digitiser"));
    assert_eq!((hosts.classes[0].count, hosts.classes[0].spares), (2, 1));
    assert_eq!(hosts.classes[1].interface.as_deref(), Some("eth2"));
}

#[test]
fn resolved_flowgraph_with_hosts_gives_the_same_plan() {
    let first = plan(ARRAY);
    let again = plan(first.resolved_yaml());
    assert_eq!(again.config_hash, first.config_hash);
    assert_eq!(again.streams().unwrap().len(), first.streams().unwrap().len());
}

#[test]
fn plan_without_hosts_has_neither_parts_nor_streams() {
    let plan = plan("flowgraph: g\nblocks:\n  s: {kind: source}\n  o: {kind: sink, input: s}\n");
    assert_eq!(plan.hosts, None);
    assert!(!plan.resolved_yaml().contains("host"));
    assert_eq!(plan.parts(None).unwrap(), []);
}

#[test]
fn each_output_read_elsewhere_is_sent_once_and_received_once_per_host() {
    let plan = plan(ARRAY);
    let streams = plan.streams().unwrap();
    let outputs: Vec<&str> = streams.iter().map(|stream| stream.output.as_str()).collect();
    let expected = [
        "f[0].filter.output",
        "f[0].pass.output",
        "f[1].filter.output",
        "f[1].pass.output",
        "f[2].filter.output",
        "f[2].pass.output",
        "f[3].filter.output",
        "f[3].pass.output",
    ];
    assert_eq!(outputs, expected, "in order of the file");
    let addresses: Vec<String> = streams.iter().map(|stream| stream.address.to_string()).collect();
    assert_eq!(addresses[0], "239.102.0.0:7150");
    assert_eq!(addresses[7], "239.102.0.7:7150");
    let parts = plan.parts(None).unwrap();
    assert_eq!(
        parts.iter().map(|part| part.name.as_str()).collect::<Vec<_>>(),
        ["f_host[0]", "f_host[1]", "x_host"]
    );
    assert_eq!(parts[1].file_name(), "f_host_1");
    assert_eq!(names(&parts[0])[..3], ["dig[0]", "dig[1]", "f[0].filter"]);
    assert_eq!(names(&parts[2]), ["one", "two", "a", "b"]);
    assert_eq!(parts[2].received.len(), 4, "one receiver for both joins");
    assert_eq!((parts[0].sent.len(), parts[0].received.len()), (4, 2));
    // 16 channels, 2 polarisations, ci8, one validity flag: 68 bytes and headers, every 16 ns.
    let rate = f64::from(64 + 4 + 186) / 16e-9 * 8.0 / 1e9;
    assert!((parts[2].gbit_in() - 4.0 * rate).abs() < 1e-9, "{}", parts[2].gbit_in());
    assert!((parts[0].gbit_out() - 4.0 * rate).abs() < 1e-9);
}

#[test]
fn parts_are_flowgraphs_without_hosts_and_keep_names_and_types() {
    let whole = plan(ARRAY);
    for part in whole.parts(None).unwrap() {
        let loaded = plan(&part.yaml);
        assert_eq!(loaded.hosts, None);
        assert_eq!(loaded.name, "array");
        for name in &part.blocks {
            let there = &loaded.blocks[loaded.block(name).unwrap()];
            let here = &whole.blocks[whole.block(name).unwrap()];
            assert_eq!(there.ports.inputs, here.ports.inputs, "{name}");
            assert_eq!(there.ports.outputs, here.ports.outputs, "{name}");
            assert_eq!(there.parameters, here.parameters, "{name}");
        }
        let more = part.sent.len() + part.received.len();
        assert_eq!(loaded.blocks.len(), part.blocks.len() + more);
    }
    let parts = whole.parts(None).unwrap();
    let receives = plan(&parts[2].yaml);
    let of = &receives.blocks[receives.block("receive.f[0].pass.output").unwrap()];
    assert_eq!(of.parameters["source"], "239.102.0.1:7150");
    assert_eq!(of.parameters["interface"], "eth2");
    let sends = plan(&parts[1].yaml);
    let of = &sends.blocks[sends.block("send.f[0].pass.output").unwrap()];
    assert_eq!(of.parameters["destination"], "239.102.0.1:7150");
    assert_eq!(of.parameters["interface"], "eth1");
}

#[test]
fn parts_for_one_machine_use_the_loopback_interface_and_the_given_port() {
    let whole = plan(ARRAY);
    let parts = whole.parts(Some(Loopback { port: 4321 })).unwrap();
    let receives = plan(&parts[2].yaml);
    let of = &receives.blocks[receives.block("receive.f[0].pass.output").unwrap()];
    assert_eq!(of.parameters["source"], "239.102.0.1:4321");
    assert_eq!(of.parameters["interface"], "127.0.0.1");
}

#[test]
fn ipv6_groups_divide_a_flowgraph_like_those_of_ipv4() {
    let range = "\"ff05::102:0/112\", groups: {\"f[1].pass\": \"ff05::102:0\"}";
    let text = ARRAY.replacen("239.102.0.0/16", range, 1);
    let whole = plan(&text);
    let addresses: Vec<String> =
        whole.streams().unwrap().iter().map(|stream| stream.address.to_string()).collect();
    assert_eq!(
        addresses[..4],
        ["[ff05::102:1]:7150", "[ff05::102:2]:7150", "[ff05::102:3]:7150", "[ff05::102:0]:7150"]
    );
    assert_eq!(plan(whole.resolved_yaml()).config_hash, whole.config_hash);
    let parts = whole.parts(None).unwrap();
    // 20 bytes more than with IPv4: 68 bytes and headers, every 16 ns.
    let rate = f64::from(64 + 4 + 206) / 16e-9 * 8.0 / 1e9;
    assert!((parts[0].gbit_out() - 4.0 * rate).abs() < 1e-9);
    let receives = plan(&parts[2].yaml);
    let of = &receives.blocks[receives.block("receive.f[0].pass.output").unwrap()];
    assert_eq!(of.parameters["source"], "[ff05::102:2]:7150");
    assert_eq!(of.parameters["interface"], "eth2");
    // The largest range has more groups than any list can hold.
    let all = plan(&ARRAY.replacen("239.102.0.0/16", "\"ff05::/16\"", 1));
    assert_eq!(all.hosts.as_ref().unwrap().network.as_ref().unwrap().group_count(), 1 << 112);
    assert_eq!(all.streams().unwrap()[7].address.to_string(), "[ff05::7]:7150");
    // Parts of one machine: Linux has no route for IPv6 groups on the loopback interface.
    let local = whole.parts(Some(Loopback { port: 4321 })).unwrap();
    let receives = plan(&local[2].yaml);
    let of = &receives.blocks[receives.block("receive.f[0].pass.output").unwrap()];
    assert_eq!(of.parameters["source"], "239.102.0.1:4321");
    assert_eq!(of.parameters["interface"], "127.0.0.1");
}

#[test]
fn pinned_groups_stay_and_are_left_out_of_the_range() {
    let groups = r#"groups: {"f[1].pass": 239.102.0.0, "f[0].filter.output": 239.1.2.3}, port"#;
    let plan = plan(&ARRAY.replacen("port", groups, 1));
    let streams = plan.streams().unwrap();
    let addresses: Vec<String> = streams.iter().map(|s| s.address.ip().to_string()).collect();
    assert_eq!(
        addresses[..5],
        ["239.1.2.3", "239.102.0.1", "239.102.0.2", "239.102.0.0", "239.102.0.3"]
    );
}

#[test]
fn rate_above_the_limit_is_reported_with_the_largest_streams() {
    let text = ARRAY.replace("limit_gbit_per_second: 100", "limit_gbit_per_second: 508.1");
    let loaded = load(&text);
    let plan = loaded.result.unwrap();
    assert_eq!(plan.overloads(&plan.parts(None).unwrap()), []);
    let text = ARRAY.replace("limit_gbit_per_second: 100", "limit_gbit_per_second: 507");
    let loaded = load(&text);
    let plan = loaded.result.unwrap();
    let problems = plan.overloads(&plan.parts(None).unwrap());
    assert!(!problems.is_empty());
    assert!(problems.iter().all(|problem| problem.code == "E0305"));
    assert_eq!(
        problems[0].message,
        "`f_host[0]` does not fit, because it sends 508 Gbit/s and `limit_gbit_per_second` is 507"
    );
    assert!(problems[0].help[0].contains("127 for `f[0].filter.output`"), "{:?}", problems[0].help);
}

#[test]
fn wrong_hosts_are_reported_where_they_are() {
    let of = |old: &str, new: &str| {
        assert!(ARRAY.contains(old), "{old}");
        ARRAY.replacen(old, new, 1)
    };
    let mut ledger = String::new();
    for (what, text) in [
        ("count of zero", of("count: \"${hosts}\"", "count: 0")),
        ("count too large", of("count: \"${hosts}\"", "count: 10001")),
        ("negative spares", of("spares: 1", "spares: -1")),
        ("unknown key of a class", of("spares", "spare")),
        ("class without cores", of("spares: 1", "cores: 0")),
        ("memory of zero", of("spares: 1", "memory_gbytes: 0")),
        ("memory in words", of("spares: 1", "gpu_memory_gbytes: 80 GB")),
        ("class without a name", of("x_host: {interface", "x-host: {interface")),
        ("constraint that is a number", of("constraint: digitiser", "constraint: 3")),
        ("no classes", "flowgraph: g\nhosts: {}\nblocks: {s: {kind: source, host: a}}\n".to_owned()),
        ("hosts that are a list", "flowgraph: g\nhosts: [a]\nblocks: {s: {kind: source}}\n".to_owned()),
        ("unknown class", of("host: x_host", "host: xhost")),
        ("index beyond count", of("\"${hosts}\"", "1")),
        ("no index", of("host: \"f_host[${index // 2}]\"", "host: f_host")),
        ("index that is no number", of("x_host[0]", "x_host[-1]")),
        ("host that is a number", of("host: x_host}", "host: 3}")),
        ("block without a host", of("a: {kind: sink, input: one, host: x_host}", "a: {kind: sink, input: one}")),
        ("host without hosts", "flowgraph: g\nblocks: {s: {kind: source, host: a}}\n".to_owned()),
        ("network without hosts", "flowgraph: g\nnetwork: {multicast: 239.0.0.0/8}\nblocks: {s: {kind: source}}\n".to_owned()),
        ("network without a range", of("multicast: 239.102.0.0/16, ", "")),
        ("range without prefix", of("239.102.0.0/16", "239.102.0.0")),
        ("range that is not multicast", of("239.102.0.0/16", "10.0.0.0/16")),
        ("prefix too short", of("239.102.0.0/16", "224.0.0.0/3")),
        ("prefix too long", of("239.102.0.0/16", "239.102.0.0/33")),
        ("host bits", of("239.102.0.0/16", "239.102.3.0/16")),
        ("too few groups", of("239.102.0.0/16", "239.102.0.0/30")),
        ("port of zero", of("port: 7150", "port: 0")),
        ("port too large", of("port: 7150", "port: 65536")),
        ("limit of zero", of("limit_gbit_per_second: 100", "limit_gbit_per_second: 0")),
        ("limit that is infinite", of("limit_gbit_per_second: 100", "limit_gbit_per_second: .inf")),
        ("group of an unknown block", of("port", "groups: {g: 239.1.1.1}, port")),
        ("group of an output on one host", of("port", "groups: {one: 239.1.1.1}, port")),
        ("two groups of one output", of("port", "groups: {\"f[0].pass\": 239.1.1.1, \"f[0].pass.output\": 239.1.1.2}, port")),
        ("one group of two outputs", of("port", "groups: {\"f[0].pass\": 239.1.1.1, \"f[1].pass\": 239.1.1.1}, port")),
        ("IPv6 range that is not multicast", of("239.102.0.0/16", "\"fd00::/112\"")),
        ("IPv6 range within a link", of("239.102.0.0/16", "\"ff02::/112\"")),
        ("IPv6 prefix too long", of("239.102.0.0/16", "\"ff05::/129\"")),
        ("IPv6 host bits", of("239.102.0.0/16", "\"ff05::1:0/96\"")),
        ("too few IPv6 groups", of("239.102.0.0/16", "\"ff05::/126\"")),
        ("group of the other IP version", of("port", "groups: {\"f[0].pass\": \"ff05::1\"}, port")),
        ("group that is not multicast", of("port", "groups: {\"f[0].pass\": 10.1.1.1}, port")),
        ("a stream that cannot be sent", "flowgraph: g\nhosts: {a: {}, b: {}}\nnetwork: {multicast: 239.0.0.0/8}\nblocks:\n  s: {kind: source, host: a, parameters: {channels: 64}}\n  o: {kind: sink, input: s, host: b}\n".to_owned()),
        ("live parameters on another host", "flowgraph: g\nhosts: {a: {}, b: {}}\nnetwork: {multicast: 239.0.0.0/8}\nblocks:\n  s: {kind: source, host: a}\n  o: {kind: sink, input: s.pol1, host: a}\n  v: {kind: solver, input: s, host: b, parameters: {block: s}}\n".to_owned()),
        ("a block with the name of a sender", of("  a: {", "  send.f[0].pass.output: {kind: sink, input: one, host: x_host}\n  a: {")),
        ("a GPU that the host lacks", of("interface: eth1", "interface: eth1, gpus: 1").replace("pass: {kind: pass, input: filter,", "pass: {kind: turner, device: \"cuda:1\", input: filter,")),
    ] {
        let loaded = load(&text);
        let _ = writeln!(ledger, "{what}");
        let problems = match loaded.result {
            Ok(plan) => plan.warnings.to_vec(),
            Err(problems) => problems,
        };
        for problem in problems {
            let place = problem.span.map(|span| loaded.sources.line_column(span));
            let help = problem.help.join("; ");
            let _ = writeln!(ledger, "    {} at {place:?}: {}; {help}", problem.code, problem.message);
        }
    }
    insta::assert_snapshot!("ledger_of_hosts", ledger);
}

#[test]
fn output_on_a_gpu_is_sent_from_the_host() {
    let text = "flowgraph: g\nhosts: {a: {gpus: 1}, b: {}}\nnetwork: {multicast: 239.0.0.0/8}\nblocks:\n  s: {kind: source, host: a}\n  t: {kind: turner, input: s.pol0, device: \"cuda:0\", host: a}\n  o: {kind: sink, input: t, host: b}\n  p: {kind: sink, input: s.pol1, host: a}\n";
    let whole = plan(text);
    assert_eq!(whole.streams().unwrap()[0].output, "t.output");
    let sends = plan(&whole.parts(None).unwrap()[0].yaml);
    let sender = &sends.blocks[sends.block("send.t.output").unwrap()];
    assert_eq!(sends.blocks[sender.inputs[0].0].kind, "download");
}

#[test]
fn drawing_names_hosts_and_marks_cut_edges() {
    let text = "flowgraph: g\nhosts: {a: {}, b: {}}\nnetwork: {multicast: 239.0.0.0/8}\nblocks:\n  s: {kind: source, host: a}\n  o: {kind: sink, input: s.pol0, host: b}\n  p: {kind: sink, input: s.pol1, host: a}\n";
    let drawing = crate::draw::Drawing::of(&plan(text));
    let mermaid = drawing.mermaid();
    assert!(mermaid.contains("source at a"), "{mermaid}");
    assert!(mermaid.contains("b0 -.->") && mermaid.contains("b0 -->"), "{mermaid}");
    assert_eq!(drawing.dot().matches("style=dashed").count(), 1);
    assert_eq!(drawing.json()["nodes"][1]["host"], "b");
}

#[test]
fn schema_has_hosts_network_and_host() {
    let schema = schema(&kinds());
    assert!(
        schema["properties"]["hosts"]["additionalProperties"]["properties"]["gpus"].is_object()
    );
    assert_eq!(schema["properties"]["network"]["required"][0], "multicast");
    assert!(schema["$defs"]["block"]["properties"]["host"].is_object());
}

/// Load of the `filter` of a station, measured with `taps` on a machine.
fn filter_load(plan: &Plan, taps: u64, cores: f64) -> MeasuredLoad {
    let block = &plan.blocks[plan.block("f[0].filter").unwrap()];
    MeasuredLoad {
        kind: block.kind.to_owned(),
        implementation: block.implementation.to_owned(),
        parameters: serde_json::json!({ "taps": taps }),
        work: Work::of(block),
        load: Load { cores, busiest_thread: cores / 2.0, gpu: 0.0 },
    }
}

#[test]
fn load_is_estimated_from_the_most_similar_block() {
    let plan = plan(ARRAY);
    let filter = &plan.blocks[plan.block("f[0].filter").unwrap()];
    let rows =
        [filter_load(&plan, 64, 9.0), filter_load(&plan, 2, 0.5), filter_load(&plan, 2, 0.7)];
    // The same parameters and the same work: the mean of what was measured.
    let found = estimate(filter, &rows).unwrap();
    assert!(found.is_measured);
    assert!((found.load.cores - 0.6).abs() < 1e-12, "{found:?}");
    assert!((found.load.busiest_thread - 0.3).abs() < 1e-12, "{found:?}");
    // Three times the samples per second: three times the load.
    let mut slower = rows.to_vec();
    for row in &mut slower {
        row.work.bytes_per_second /= 3.0;
        row.work.operations_per_second /= 3.0;
        row.work.frames_per_second /= 3.0;
    }
    let found = estimate(filter, &slower).unwrap();
    assert!(!found.is_measured);
    assert!((found.load.cores - 1.8).abs() < 1e-9, "{found:?}");
    // Nothing is known of other kinds, other implementations, and from blocks that did nothing.
    let pass = &plan.blocks[plan.block("f[0].pass").unwrap()];
    assert_eq!(estimate(pass, &rows), None);
    let other = MeasuredLoad { implementation: "other".to_owned(), ..rows[0].clone() };
    assert_eq!(estimate(filter, &[other]), None);
    let mut idle = rows[0].clone();
    idle.work = Work { operations_per_second: 0.0, bytes_per_second: 0.0, frames_per_second: 0.0 };
    assert_eq!(estimate(filter, &[idle]), None);
}
