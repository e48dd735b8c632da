//! Tests of plans made from whole flowgraph files.

use super::kinds::registry;
use crate::{Check, Plan, Run, SetTo, Setting, Tap, Thread, load_text};
use fxgraph_core::device::DeviceName;
use fxgraph_core::diagnostic::{Span, Style, render_all};
use fxgraph_core::tree::Value;
use proptest::prelude::*;
use serde_json::json;
use std::fmt::Write as _;

pub(super) const ARRAY: &str = r#"
flowgraph: array
doc: Four antennas.
parameters:
  antennas: 4
  channels: {default: 1024, doc: of the band, minimum: 16, maximum: "${2 ** 16}"}
templates:
  station:
    inputs: [x, y]
    parameters: {taps: 16, factor: }
    blocks:
      filter: {kind: filter, inputs: [x, y], parameters: {taps: "${taps * factor}", window: hann}}
      pass: {kind: pass, input: filter}
    outputs: {output: pass, raw: filter.output}
blocks:
  dig:
    kind: source
    replicate: "${antennas}"
    parameters: {channels: "${channels}", level: "${index / 2}"}
  f:
    template: station
    replicate: "${antennas}"
    inputs: ["dig[${index}].pol0", "dig[${index}].pol1"]
    parameters: {factor: 2}
  stack: {kind: join, inputs: ["f[*]"], thread: {core: 1}}
  out: {kind: sink, input: stack, queue: 9}
tests:
  - name: it peaks
    run: {frames: 4}
    expect:
      - {tap: "f[0].filter", peak: {axis: channel, at: "${channels / 4}"}}
      - {tap: "stack.output", validity: full}
      - {tap: "f[1].pass", same_as: "f[0].pass"}
      - {tap: stack, phase: {at: {pol: 1}, radians: 0.5, tolerance: 0.1}}
  - name: fewer
    set: {antennas: 1}
    alongside: [{flowgraph: Cargo.toml, set: {rate: "${channels / 2}"}}]
    run: {seconds: 0.5}
    expect: [{tap: stack, equals: [1, 2]}]
"#;

pub(super) fn plan(text: &str, set: &[(&str, &str)]) -> Plan {
    let set: Vec<Setting> = set.iter().map(|(name, value)| Setting::typed(*name, *value)).collect();
    let loaded = load_text("array.yaml", text, &set, &registry());
    loaded.result.unwrap_or_else(|problems| {
        panic!("{}", render_all(&problems, &loaded.sources, Style::Plain))
    })
}

#[test]
fn digits_after_a_leading_zero_keep_their_spelling() {
    let text = "flowgraph: g
parameters: {source: 0437, list: [0021], any: {doc: no default}}
blocks:
  s: {kind: source}
  a: {kind: writer, input: s.pol0, parameters: {path: \"J${source}_${any}_${list[0]}.npy\"}}
  b: {kind: writer, input: s.pol1, parameters: {path: 007}}
";
    let set = [Setting::typed("any", "0534")];
    let plan = load_text("g.yaml", text, &set, &registry()).result.unwrap();
    assert_eq!(plan.blocks[1].parameters["path"], "J0437_0534_0021.npy");
    assert_eq!(plan.blocks[2].parameters["path"], "007");
    let again = load_text("g.yaml", plan.resolved_yaml(), &[], &registry()).result.unwrap();
    assert_eq!(again.config_hash, plan.config_hash);
    let text = text.replace("{kind: source}", "{kind: source, parameters: {channels: 016}}");
    let problems = load_text("g.yaml", &text, &set, &registry()).result.err().unwrap();
    assert_eq!(problems[0].help, ["give the number without leading zeros"]);
}

#[test]
fn numbers_with_zeros_at_their_end_keep_their_spelling_in_text() {
    let text = "flowgraph: g
parameters: {release: 1.10, list: [2.0], any: {doc: no default}}
templates:
  t:
    parameters: {version: 0.5}
    inputs: [x]
    blocks: {w: {kind: writer, input: x, parameters: {path: \"v${version}.npy\"}}}
blocks:
  s: {kind: source, parameters: {level: \"${release}\", channels: 1024.00}}
  a: {kind: writer, input: s.pol0, parameters: {path: \"r${release}_${any}_${list[0]}_${min(release, 2)}_${text(any)}.npy\"}}
  b: {template: t, input: s.pol1, parameters: {version: \"${any}\"}}
";
    let set = [Setting::typed("any", "3.250")];
    let plan = load_text("g.yaml", text, &set, &registry()).result.unwrap();
    let path = |name: &str| plan.blocks[plan.block(name).unwrap()].parameters["path"].clone();
    assert_eq!(path("a"), "r1.10_3.250_2.0_1.1_3.250.npy");
    assert_eq!(path("b.w"), "v3.250.npy");
    // Parameters that are numbers remain numbers.
    assert_eq!(plan.blocks[0].parameters["level"], 1.1);
    let again = load_text("g.yaml", plan.resolved_yaml(), &[], &registry()).result.unwrap();
    assert_eq!(again.config_hash, plan.config_hash);
    let short = text.replace("1.10", "1.1");
    let plan = load_text("g.yaml", &short, &set, &registry()).result.unwrap();
    assert_eq!(plan.blocks[1].parameters["path"], "r1.1_3.250_2.0_1.1_3.250.npy");
}

#[test]
fn load_expands_templates_and_copies() {
    let plan = plan(ARRAY, &[]);
    let names: Vec<&str> = plan.blocks.iter().map(|block| block.name.as_str()).collect();
    assert_eq!(names.len(), 4 + 8 + 2);
    assert_eq!(names[4..6], ["f[0].filter", "f[0].pass"]);
    let filter = &plan.blocks[plan.block("f[2].filter").unwrap()];
    assert_eq!(filter.inputs, [(2, 0), (2, 1)]);
    assert_eq!(filter.parameters["taps"], 32);
    assert_eq!(filter.templates, [("f[2]".to_owned(), "station".to_owned())]);
    let stack = &plan.blocks[plan.block("stack").unwrap()];
    let passes: Vec<(usize, usize)> =
        (0..4).map(|n| (plan.block(&format!("f[{n}].pass")).unwrap(), 0)).collect();
    assert_eq!(stack.inputs, passes);
    assert_eq!(stack.thread, Thread::Own { core: Some(1) });
    assert_eq!(stack.ports.inputs[0].axis_len("channel"), Some(1024));
    assert_eq!(plan.blocks[3].parameters["level"], 1.5);
}

#[test]
fn set_changes_parameters_and_hash() {
    let before = plan(ARRAY, &[]);
    let after = plan(ARRAY, &[("antennas", "2"), ("channels", "512")]);
    assert_eq!(after.blocks.len(), 2 + 4 + 2);
    assert_eq!(after.blocks[0].ports.outputs[0].axis_len("channel"), Some(512));
    assert_ne!(before.config_hash, after.config_hash);
    assert_eq!(before.config_hash, plan(ARRAY, &[]).config_hash);
    assert_eq!(before.config_hash.len(), 64);
    assert!(after.parameters[0].is_set);
}

#[test]
fn load_evaluates_expressions_in_mappings() {
    let text = ARRAY.replace(
        "  antennas: 4\n",
        "  antennas: 4\n  models: [[{start: 0, delay: \"${antennas / 8}\"}], []]\n  last: \"${models[1]}\"\n",
    );
    let value = |plan: &Plan, name: &str| {
        plan.parameters.iter().find(|parameter| parameter.name == name).unwrap().value.clone()
    };
    let defaulted = plan(&text, &[]);
    assert_eq!(value(&defaulted, "models"), json!([[{"start": 0, "delay": 0.5}], []]));
    let set = plan(&text, &[("models", "[[], [{delay: -1e-6, name: late}]]")]);
    assert_eq!(value(&set, "last"), json!([{"delay": -1e-6, "name": "late"}]));
}

#[test]
fn expectation_accepts_fixed_indices_of_known_axes() {
    let expectation = |axis: &str| {
        let at = format!("rms: {{at: {{{axis}: 1}}, value: 2, tolerance: 0.5}}");
        ARRAY.replace("validity: full", &at)
    };
    let expected = Check::Rms { at: vec![("channel".to_owned(), 1)], value: 2.0, tolerance: 0.5 };
    assert_eq!(plan(&expectation("channel"), &[]).tests[0].expects[1].check, expected);
    let loaded = load_text("array.yaml", &expectation("chanel"), &[], &registry());
    let problems = loaded.result.err().unwrap();
    assert_eq!(problems.len(), 1);
    assert_eq!(problems[0].code, fxgraph_core::diagnostic::codes::TEST);
}

#[test]
fn resolved_yaml_resolves_to_itself() {
    let written = plan(ARRAY, &[]);
    let read: serde_yaml::Value = serde_yaml::from_str(written.resolved_yaml()).unwrap();
    assert_eq!(read["blocks"]["f[1].filter"]["parameters"]["taps"], 32);
    assert_eq!(read["blocks"]["out"]["inputs"][0], "stack.output");
    let again = plan(written.resolved_yaml(), &[]);
    assert_eq!(again.resolved_yaml(), written.resolved_yaml());
    let odd = r#"{flowgraph: g, parameters: {site: {default: {east: 1}}, text: "$${x}"}, blocks: {a: {kind: source}}}"#;
    let odd = plan(odd, &[]);
    let again = plan(odd.resolved_yaml(), &[]);
    assert_eq!(again.parameters[1].value, "${x}");
    assert_eq!(again.resolved_yaml(), odd.resolved_yaml());
}

#[test]
fn load_rejects_duplicate_and_invalid_full_names() {
    let text = ARRAY.replace("  out: {", "  \"dig[2]\": {kind: source}\n  out: {");
    let problems = load_text("array.yaml", &text, &[], &registry()).result.err().unwrap();
    assert!(problems.iter().any(|one| one.message == "the block `dig[2]` is defined twice"));
    let text = ARRAY.replace("  out: {", "  \"dig[02]\": {kind: source}\n  out: {");
    let problems = load_text("array.yaml", &text, &[], &registry()).result.err().unwrap();
    assert!(problems.iter().any(|one| one.message == "`dig[02]` is not a name"));
}

#[test]
fn pool_frames_count_readers_behind_pass_through_ports() {
    let plan = plan(ARRAY, &[]);
    let memory = plan.memory();
    let filter = plan.block("f[0].filter").unwrap();
    // 1 being filled + (queue 4 + 1 at work) of the pass + (queue 4 + 1 at work) of the join behind it.
    assert_eq!(memory.blocks[filter].pools[0].frames, 11);
    let pass = plan.block("f[0].pass").unwrap();
    assert!(memory.blocks[pass].pools.is_empty());
    // 3 being filled + (queue 9 + 1 at work).
    let frames = plan.pool_frames();
    assert_eq!(frames[plan.block("stack").unwrap()], [13]);
    // The filter holds two frames of its first input.
    assert_eq!(frames[0], [1 + 4 + 1 + 2, 1 + 4 + 1]);
    // One validity count per frame.
    assert_eq!(memory.blocks[0].bytes(), 1000 + (8 + 6) * (1024 * 2 * 2 + 4));
}

#[test]
fn shortage_names_largest_pools() {
    let text = "flowgraph: g
blocks:
  a: {kind: source, parameters: {channels: 1000000}}
  o: {kind: sink, input: a.pol1, queue: 4000}
";
    let plan = plan(text, &[]);
    let needed = plan.memory().bytes_on(DeviceName::Cpu);
    assert_eq!(plan.shortage(DeviceName::Cpu, needed), None);
    let problem = plan.shortage(DeviceName::Cpu, needed - 1).unwrap();
    assert_eq!(problem.message, "the flowgraph needs 16 GB of memory, 16 GB are available");
    assert_eq!(problem.help[0], "largest parts: 16 GB for 4002 frames of 4 MB of `a.pol1`");
}

#[test]
fn load_evaluates_expressions_in_tests() {
    let plan = plan(ARRAY, &[]);
    let test = &plan.tests[0];
    assert_eq!(test.run, Run::Frames(4));
    let peak = Check::Peak { axis: "channel".into(), at: 256.0, tolerance: 0.0 };
    assert_eq!(test.expects[0].check, peak);
    assert_eq!(plan.find(&test.expects[0].tap).unwrap(), (plan.block("f[0].filter").unwrap(), 0));
    let set = |name: &str, value| Setting { name: name.to_owned(), value: SetTo::Value(value) };
    assert_eq!(plan.tests[1].set, [set("antennas", Value::Int(1))]);
    let other = &plan.tests[1].alongside[0];
    assert_eq!(other.flowgraph.to_str(), Some("Cargo.toml"));
    assert_eq!(other.set, [set("rate", Value::Int(512))]);
    assert_eq!(plan.tests[1].expects[0].check, Check::Equals((1.0, 2.0)));
    let tap = Tap { text: "f[0].filter.outptu".into(), span: Span::default() };
    assert_eq!(plan.find(&tap).unwrap_err().help, ["did you mean `output`?"]);
}

#[test]
fn expression_alone_keeps_type_and_mixed_text_is_text() {
    let text = "
flowgraph: g
parameters: {hosts: [a, b], name: x, n: 1}
blocks:
  r: {kind: receiver, replicate: 2, parameters: {address: '${hosts[index]}-${name}$${n}', port: '${7148 + index}'}}
  s: {kind: sink, replicate: 2, input: 'r[${index}].stream0'}
";
    let plan = plan(text, &[("name", "12")]);
    assert_eq!(plan.blocks[1].parameters["address"], "b-12${n}");
    assert_eq!(plan.blocks[1].parameters["port"], 7149);
}

#[test]
fn defaults_may_use_later_parameters() {
    let text = "flowgraph: g
parameters:
  escaped: \"${later + \\\"x\\\"}\"
  shared: &shared '${later}'
  alias: *shared
  later: a
  copies: 2
blocks:
  s: {kind: source, replicate: 2e0, queue: 4.0}
  t: {kind: sink, replicate: '${copies}', input: 's[${index}].pol1'}
";
    let plan = plan(text, &[]);
    let values: Vec<_> = plan.parameters.iter().map(|parameter| &parameter.value).collect();
    assert_eq!(
        values,
        ["ax", "a", "a", "a"]
            .map(serde_json::Value::from)
            .iter()
            .chain(&[2.into()])
            .collect::<Vec<_>>()
    );
    assert_eq!(plan.blocks.len(), 4);
}

#[test]
fn include_adds_templates_and_parameters() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).unwrap();
    file(
        "part.yaml",
        "parameters: {n: 3}\ntemplates: {t: {blocks: {s: {kind: source}}, outputs: {o: s}}}",
    );
    file("other.yaml", "include: [part.yaml]\nparameters: {m: '${n + 1}'}");
    file(
        "main.yaml",
        "flowgraph: g\ninclude: [part.yaml, other.yaml]\nblocks:\n  a: {template: t}\n  \
         b: {kind: sink, input: a, queue: '${m}'}\n",
    );
    let loaded = crate::load(&directory.path().join("main.yaml"), &[], &registry());
    let plan = loaded.result.unwrap();
    assert_eq!(plan.blocks[1].queue_frames(0), 4);
    assert_eq!(loaded.sources.iter().count(), 3);
}

#[test]
fn load_rejects_multiplying_aliases() {
    let mut text = String::from("flowgraph: g\na0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..12 {
        let uses = vec![format!("*a{}", level - 1); 10].join(", ");
        let _ = writeln!(text, "a{level}: &a{level} [{uses}]");
    }
    let problems = load_text("bomb.yaml", &text, &[], &registry()).result.err().unwrap();
    assert_eq!(problems[0].code, "E0102");
    // Few values, and gigabytes of text.
    let uses = vec!["*long"; 50_000].join(", ");
    let text = format!("flowgraph: g\nlong: &long {}\nall: [{uses}]\n", "x".repeat(500_000));
    let problems = load_text("bomb.yaml", &text, &[], &registry()).result.err().unwrap();
    assert_eq!(problems[0].code, "E0102");
    assert!(problems[0].message.contains("with all aliases written out"), "{:?}", problems[0]);
}

#[test]
fn load_rejects_deep_nesting() {
    for text in ["[".repeat(100_000), "- ".repeat(100_000), "{a: ".repeat(50_000)] {
        assert!(load_text("deep.yaml", &text, &[], &registry()).result.is_err());
    }
    let deep =
        format!("flowgraph: g\nparameters: {{n: '${{{}1}}'}}\nblocks: {{}}\n", "(".repeat(50_000));
    assert!(load_text("deep.yaml", &deep, &[], &registry()).result.is_err());
    let minus =
        format!("flowgraph: g\nparameters: {{n: '${{{}1}}'}}\nblocks: {{}}\n", "-".repeat(50_000));
    assert!(load_text("deep.yaml", &minus, &[], &registry()).result.is_err());
}

/// Files made of valid pieces in any order.
fn pieces() -> impl Strategy<Value = String> {
    let words = prop::sample::select(vec![
        "flowgraph: g\n",
        "blocks:\n",
        "  a:",
        "  b:",
        " {kind: source}\n",
        " {kind: sink, input: a}\n",
        "kind: filter",
        "template: t",
        "templates:\n",
        "  t:\n",
        "    blocks:\n",
        "replicate: 3",
        "input: ",
        "inputs: [",
        "]",
        "{",
        "}",
        "\"${index}\"",
        "'${n + 1}'",
        "parameters:\n",
        "  n: 4\n",
        "\n",
        "  ",
        ": ",
        ", ",
        "- ",
        "a[*]",
        "a.pol0",
        "&x ",
        "*x",
        "tests:\n",
        "  - name: x\n",
        "taps: 16",
        "# c\n",
        "include: [array.yaml]\n",
        "\t",
        "é",
        "|",
        ">",
        "!!str ",
        "---\n",
        "outputs: {o: a}\n",
    ]);
    prop::collection::vec(words, 0..40).prop_map(|words| words.concat())
}

fn never_panics(text: &str) {
    let loaded = load_text("any.yaml", text, &[Setting::typed("n", "2")], &registry());
    let problems = match &loaded.result {
        Ok(plan) => &*plan.warnings,
        Err(problems) => {
            assert!(!problems.is_empty());
            problems
        }
    };
    let text = render_all(problems, &loaded.sources, Style::Coloured);
    assert!(!text.contains("serde"));
    for problem in problems {
        let _ = fxgraph_core::diagnostic::to_json(problem, &loaded.sources);
        assert!(fxgraph_core::diagnostic::explain(problem.code).is_some());
    }
}

proptest! {
    #[test]
    fn load_of_any_text_never_panics(text in "\\PC{0,200}") {
        never_panics(&text);
    }

    #[test]
    fn load_of_shuffled_pieces_never_panics(text in pieces()) {
        never_panics(&text);
    }

    #[test]
    fn load_of_damaged_file_never_panics(
        at in 0usize..ARRAY.len(),
        length in 0usize..12,
        with in "[\\PC\n]{0,6}",
    ) {
        let before: String = ARRAY.chars().take(at).collect();
        let after: String = ARRAY.chars().skip(at + length).collect();
        never_panics(&format!("{before}{with}{after}"));
    }
}

#[test]
fn build_makes_planned_edges_and_pools() {
    let plan = plan(ARRAY, &[]);
    let assembly = plan.build().unwrap();
    assert_eq!(assembly.parts.len(), plan.blocks.len());
    for (index, part) in assembly.parts.iter().enumerate() {
        assert_eq!(part.name, plan.blocks[index].name);
        for (input, edge) in part.inputs.iter().enumerate() {
            assert_eq!(edge.depth(), plan.blocks[index].queue_frames(input));
        }
        for (port, output) in part.outputs.iter().enumerate() {
            assert_eq!(output.edges.len(), plan.readers(index, port).count());
            let frames = output.pool.as_ref().map(|pool| pool.size());
            let is_own = plan.pool_of(index, port) == fxgraph_core::PortPool::Own;
            assert_eq!(frames, is_own.then(|| plan.pool_frames()[index][port]));
        }
    }
}

#[test]
fn drawing_has_templates_as_groups_and_types_on_edges() {
    let plan = plan(ARRAY, &[("antennas", "1")]);
    let drawing = crate::draw::Drawing::of(&plan);
    insta::assert_snapshot!("drawing_mermaid", drawing.mermaid());
    insta::assert_snapshot!("drawing_dot", drawing.dot());
    assert_eq!(drawing.json()["edges"][0]["input"], "pol0");
}

#[test]
fn schema_allows_expressions_for_numbers() {
    let schema = crate::schema(&registry());
    let taps = &schema["$defs"]["filter_parameters"]["properties"]["taps"];
    assert_eq!(taps["anyOf"][1]["$ref"], "#/$defs/expression");
    assert_eq!(schema["$defs"]["filter_parameters"]["additionalProperties"], false);
}
