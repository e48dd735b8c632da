//! The message of every code as the user sees it, and a list of messages for single wrong values.

use std::fmt::Write as _;

use super::kinds::registry;
use crate::{OnFault, SetTo, Setting, load_text};
use fxgraph_core::changes::When;
use fxgraph_core::diagnostic::{Severity, Style, all_explanations, render_all};
use fxgraph_core::tree::Value;

/// A file for each code that triggers it.
const EXAMPLES: [(&str, &str); 45] = [
    ("E0101", "flowgraph: g\nblocks:\n  a: {kind: source\n  b: {kind: sink, input: a}\n"),
    (
        "E0102",
        "flowgraph: g\nblocks:\n  a: {kind: source, replicate: 200}\ntemplates: {t: {blocks: {b: {kind: source, replicate: 200}}}}\n",
    ),
    ("E0103", "flowgraph: g\ninclude: [no_such_file.yaml]\nblocks: {a: {kind: source}}\n"),
    (
        "E0105",
        "flowgraph: g\nblocks:\n  a:\n    kind: source\n    parameters:\n      channels: 16\n      level: 1\n      channels: 32\n",
    ),
    (
        "E0106",
        "flowgraph: g\nblock: {}\nblocks:\n  a:\n    kind: filter\n    input: s\n    parameter: {}\n    parameters: {tabs: 16, taps: 16, implementation: cuda}\n  s: {kind: source}\n",
    ),
    (
        "E0107",
        "flowgraph: g\nblocks:\n  s: {kind: source}\n  a:\n    kind: filter\n    input: s\n    parameters:\n      window: hann\n  b: {input: a}\n",
    ),
    (
        "E0108",
        "flowgraph: g\nblocks:\n  s: {kind: source, parameters: {channels: many, level: yes}, queue: deep}\n  o: {kind: sink, input: {a: s}, thread: mine}\n",
    ),
    ("E0109", "flowgraph: g\nparameters: {n-1: 3, index: 4}\nblocks:\n  2nd: {kind: source}\n"),
    (
        "E0110",
        "flowgraph: g\nparameters: {n: 0}\nblocks:\n  a: {kind: source, parameters: {channels: \"${2 * (8 // n)}\"}}\n  b: {kind: source, parameters: {channels: \"${2 +}\", level: \"${1 + 2\"}}\n",
    ),
    (
        "E0111",
        "flowgraph: g\nparameters: {channels: 16}\nblocks:\n  a: {kind: source, parameters: {channels: \"${chanels}\", level: \"${index}\"}}\n",
    ),
    (
        "E0112",
        "flowgraph: g\nparameters:\n  channels: {default: 8, minimum: 16}\nblocks:\n  a: {kind: source, parameters: {channels: \"${channels}\"}}\n",
    ),
    (
        "E0113",
        "flowgraph: g\nparameters:\n  a: \"${b + 1}\"\n  b: \"${a * 2}\"\nblocks:\n  s: {kind: source, parameters: {channels: \"${a}\"}}\n",
    ),
    ("E0114", "flowgraph: g\nblocks:\n  s: {kind: sauce}\n  o: {kind: sink, input: s}\n"),
    ("E0115", "flowgraph: g\ntemplates: {station: {}}\nblocks:\n  s: {template: stations}\n"),
    (
        "E0116",
        "flowgraph: g\ntemplates:\n  a: {blocks: {x: {template: b}}}\n  b: {blocks: {x: {template: a}}}\nblocks:\n  s: {template: a}\n",
    ),
    (
        "E0117",
        "flowgraph: g\nblocks:\n  s: {kind: source, replicate: 0}\n  t: {kind: source, replicate: \"${1 / 2}\"}\n",
    ),
    (
        "E0118",
        "flowgraph: g\nblocks:\n  dig: {kind: source, replicate: 2}\n  a: {kind: sink, input: dug}\n  b: {kind: sink, input: dig}\n  c: {kind: sink, input: \"dig[2]\"}\n  d: {kind: sink, input: \"a[0]\"}\n",
    ),
    (
        "E0119",
        "flowgraph: g\ntemplates:\n  t: {inputs: [x], blocks: {p: {kind: pass, input: x.y}}, outputs: {vis: p}}\nblocks:\n  s: {kind: source}\n  a: {kind: sink, input: s.pol2}\n  t: {template: t, input: s}\n  b: {kind: sink, input: t.viz}\n  c: {kind: sink, input: a}\n",
    ),
    (
        "E0120",
        "flowgraph: g\ntemplates:\n  t: {inputs: [x, y], blocks: {p: {kind: join, inputs: [x, y]}}, outputs: {vis: p}}\nblocks:\n  s: {kind: source}\n  o: {kind: sink}\n  u: {template: t, input: s}\n",
    ),
    (
        "E0121",
        "flowgraph: g\nblocks:\n  s: {kind: source, input: o}\n  t: {kind: source, replicate: 3}\n  o: {kind: sink, inputs: [\"t[*]\"]}\n",
    ),
    (
        "E0122",
        "flowgraph: g\nblocks:\n  s: {kind: source}\n  f: {kind: filter, inputs: [s.pol0, s.pol0], parameters: {taps: 2}}\n",
    ),
    (
        "E0123",
        "flowgraph: g\nblocks:\n  a: {kind: pass, input: c}\n  b: {kind: pass, input: a}\n  c: {kind: pass, input: b}\n  o: {kind: sink, input: c}\n",
    ),
    ("E0124", "flowgraph: g\nblocks:\n  s: {kind: source, device: \"gpu:0\"}\n"),
    ("E0125", "flowgraph: g\nblocks:\n  s: {kind: source, implementation: fused}\n"),
    (
        "E0126",
        "flowgraph: g\nblocks:\n  s: {kind: source}\ntests:\n  - {name: one, run: {frames: 0}, expect: [{tap: s, frames: 1, equals: 0}]}\n  - {name: two, expect: []}\n  - {name: three, expect: [{tap: s, peek: {axis: channel, at: 1}}]}\n",
    ),
    (
        "E0127",
        "flowgraph: g\nblocks:\n  s: {kind: source, on_fault: restart}\n  r: {kind: receiver, on_fault: skip, parameters: {port: 2, address: here}}\n  a: {kind: sink, input: s, on_fault: ignore}\n  b: {kind: sink, input: s, on_fault: skip}\n",
    ),
    (
        "E0128",
        "flowgraph: g\nhosts:\n  f: {count: 2}\n  x: {gpus: 1, count: none}\nnetwork: {multicast: 239.102.1.0/16}\nblocks:\n  s: {kind: source, replicate: 3, host: \"f[${index}]\"}\n  o: {kind: sink, input: \"s[0]\", host: y}\n",
    ),
    (
        "E0129",
        "flowgraph: g\nhosts: {a: {}, b: {}}\nblocks:\n  s: {kind: source, host: a}\n  o: {kind: sink, input: s.pol1, host: b}\n",
    ),
    (
        "E0201",
        "flowgraph: g\nparameters: {taps: 12}\nblocks:\n  s: {kind: source, replicate: 3}\n  f: {kind: filter, replicate: 3, input: \"s[${index}]\", parameters: {taps: \"${taps}\"}}\n  o: {kind: sink, replicate: 3, input: \"f[${index}]\"}\n",
    ),
    (
        "E0202",
        "flowgraph: g\nblocks:\n  r: {kind: receiver, parameters: {port: 1, address: here}}\n  o: {kind: sink, input: r}\n",
    ),
    (
        "E0203",
        "flowgraph: g\nblocks:\n  s:\n    kind: source\n    parameters:\n      channels: 999\n  f:\n    kind: filter\n    input: s\n    parameters: {taps: 16}\n",
    ),
    (
        "E0204",
        "flowgraph: g\nblocks:\n  s: {kind: source, replicate: 3}\n  j: {kind: join, inputs: [\"s[*]\"]}\n",
    ),
    (
        "E0205",
        "flowgraph: g\nblocks:\n  a: {kind: source}\n  b: {kind: source, parameters: {channels: 32}}\n  j: {kind: join, inputs: [a, b]}\n",
    ),
    (
        "E0206",
        "flowgraph: g\ndevice: \"cuda:0\"\nblocks:\n  s: {kind: source, parameters: {channels: 32}}\n  t:\n    kind: turner\n    input: s\n    implementation: quicker\n",
    ),
    (
        "E0301",
        "flowgraph: g\nblocks:\n  a: {kind: receiver, parameters: {port: 7148, address: 127.0.0.1}}\n  b: {kind: receiver, parameters: {port: 7148, address: 127.0.0.1}}\n",
    ),
    (
        "E0302",
        "flowgraph: g\nblocks:\n  a: {kind: source, parameters: {channels: 1000000000000000}}\n",
    ),
    ("E0303", "flowgraph: g\nblocks:\n  a: {kind: source}\n  o: {kind: sink, input: a}\n"),
    (
        "E0304",
        "flowgraph: g\nblocks:\n  s: {kind: source}\n  a: {kind: writer, input: s.pol0, parameters: {path: out/a.npy}}\n  b: {kind: writer, input: s.pol1, parameters: {path: ./out//a.npy}}\n",
    ),
    (
        "E0306",
        "flowgraph: g\nlatency_seconds: 0.001\nblocks:\n  a: {kind: live, parameters: {rate: 1000000}}\n  f: {kind: spectra, input: a, parameters: {spectra: 16}}\n  s: {kind: source, latency_seconds: 0.02}\n  o: {kind: sink, input: f}\n",
    ),
    (
        "E0307",
        "flowgraph: g\nblocks:\n  a: {kind: live, parameters: {samples: 8192}}\n  f: {kind: spectra, input: a, parameters: {spectra: 16, seconds: 0.00001}}\n  o: {kind: sink, input: f}\n",
    ),
    ("E0305", "flowgraph: g\nblocks: {s: {kind: source}}\n"),
    // A change of `f` in the flowgraph of `change_reports_errors_with_places`.
    ("E0401", "kind: pass\nparameters: {taps: 3}\nqueue: 7\nreplicat: 2\n"),
    ("E0104", "flowgraph: g\ninclude: [circle.yaml]\nblocks: {}\n"),
    ("E0402", "flowgraph: g\nblocks: {s: {kind: source}}\n"),
    ("E0403", "flowgraph: g\nblocks: {s: {kind: source}}\n"),
];

fn shown(text: &str) -> (String, Vec<String>) {
    let loaded = load_text("example.yaml", text, &[], &registry());
    let problems = match loaded.result {
        Ok(plan) => plan.warnings.to_vec(),
        Err(problems) => problems,
    };
    let codes = problems.iter().map(|problem| problem.code.to_owned()).collect();
    (render_all(&problems, &loaded.sources, Style::Plain), codes)
}

#[test]
fn every_code_has_message_and_explanation() {
    for (code, text) in EXAMPLES {
        let text = match code {
            "E0102" => format!("flowgraph: g\nparameters: {}1{}\n", "[".repeat(70), "]".repeat(70)),
            // These need files or a flowgraph of their own: see below, `live_update.rs` and `hosts.rs`.
            "E0104" | "E0305" | "E0401" | "E0402" | "E0403" => continue,
            _ => text.to_owned(),
        };
        let (message, codes) = shown(&text);
        assert!(codes.iter().any(|found| found == code), "{code} is not in\n{message}");
        insta::assert_snapshot!(code, message);
    }
    for (code, _) in all_explanations() {
        assert!(EXAMPLES.iter().any(|(known, _)| *known == code), "{code} has no example");
    }
    assert_eq!(all_explanations().count(), EXAMPLES.len());
    let declared = include_str!("../../core/diagnostic/mod.rs").matches("&str = \"E0").count();
    assert_eq!(declared, EXAMPLES.len(), "every declared code has an example");
}

#[test]
fn change_reports_errors_with_places() {
    let text = "flowgraph: g
parameters: {taps: 16}
blocks:
  s: {kind: source}
  f: {kind: filter, input: s, parameters: {taps: \"${taps}\"}}
  o: {kind: sink, input: f}
  w: {kind: writer, input: f, parameters: {path: a.npy}}
  v: {kind: writer, input: f, parameters: {path: b.npy}}
";
    let plan = load_text("example.yaml", text, &[], &registry()).result.unwrap();
    let mut shown = String::new();
    let (_, change) = EXAMPLES.into_iter().find(|(code, _)| *code == "E0401").unwrap();
    for (block, change) in [
        ("f", change),
        ("f", "parameters: {taps: 3}"),
        ("f", "{kind: source}"),
        ("f", "device: \"cuda:0\""),
        ("s", "parameters: {channels: 32}"),
        ("v", "parameters: {path: a.npy}"),
        ("fir", ""),
    ] {
        let changed = plan.change(block, change, &registry());
        let problems = changed.result.err().unwrap();
        let _ = writeln!(shown, "-- {block}: {change}");
        shown.push_str(&render_all(&problems, &changed.sources, Style::Plain));
    }
    insta::assert_snapshot!("E0401", shown);
}

#[test]
fn load_checks_shadows_of_blocks() {
    let graph = |source: &str, filter: &str, sink: &str| {
        let text = format!(
            "flowgraph: g
parameters: {{taps: 16}}
blocks:
  s: {{kind: source{source}}}
  f: {{kind: filter, input: s, parameters: {{taps: 8, window: hann}}{filter}}}
  o: {{kind: sink, input: f{sink}}}
"
        );
        load_text("example.yaml", &text, &[], &registry())
    };
    let plan = graph("", ", shadow: {parameters: {taps: \"${taps}\"}}", "").result.unwrap();
    let shadow = plan.blocks[1].shadow.as_ref().unwrap();
    assert_eq!(*shadow, serde_json::json!({"parameters": {"taps": 16}}));
    assert!(plan.resolved_yaml().contains("shadow"));
    let Err(problems) = graph(
        ", shadow: {}",
        ", shadow: {parameters: {taps: 3}, queue: 4}",
        ", shadow: {kind: sink}",
    )
    .result
    else {
        panic!("taken")
    };
    let errors = problems.iter().filter(|problem| problem.severity == Severity::Error);
    let found: Vec<_> = errors.map(|problem| (problem.code, &*problem.message)).collect();
    assert_eq!(
        found,
        [
            ("E0401", "`s` must have inputs and outputs to have a shadow"),
            ("E0201", "`filter` needs a power of two of taps, not 3"),
            ("E0401", "`queue` cannot change while the flowgraph runs"),
            ("E0401", "`o` must have inputs and outputs to have a shadow"),
        ]
    );
    assert!(graph(", shadow: 3", "", "").result.is_err());
}

#[test]
fn change_keeps_parameters_that_are_not_given() {
    let text = "flowgraph: g
parameters: {taps: 16}
blocks:
  s: {kind: source}
  f: {kind: filter, input: s, on_fault: skip, parameters: {taps: \"${taps}\", window: hann}}
  o: {kind: sink, input: f}
";
    let plan = load_text("example.yaml", text, &[], &registry()).result.unwrap();
    let parameters = |change: &str| {
        let new = plan.change("f", change, &registry()).result.unwrap();
        assert_ne!(new.config_hash, plan.config_hash);
        (new.blocks[1].parameters.to_string(), new.blocks[1].on_fault, new.blocks[1].kind)
    };
    let skip = OnFault::Skip;
    let changed = parameters("parameters: {taps: \"${2 * taps}\"}");
    assert_eq!(changed, (r#"{"taps":32,"window":"hann"}"#.to_owned(), skip, "filter"));
    let changed = parameters("{\"parameters\": {\"window\": null}, \"on_fault\": \"stop\"}");
    assert_eq!(changed, (r#"{"taps":16}"#.to_owned(), OnFault::Stop, "filter"));
    assert_eq!(parameters("kind: pass"), ("{}".to_owned(), skip, "pass"));
    let same = plan.change("f", "", &registry()).result.unwrap();
    assert_eq!(same.config_hash, plan.config_hash);
}

#[test]
fn change_to_a_kind_without_outputs_is_rejected() {
    let text = "flowgraph: g\nblocks:\n  s: {kind: source}\n  f: {kind: filter, input: s, parameters: \
                {taps: 2}}\n  o: {kind: sink, input: f}\n";
    let plan = load_text("example.yaml", text, &[], &registry()).result.unwrap();
    let problems = plan.change("f", "kind: sink", &registry()).result.err().unwrap();
    assert!(problems[0].message.contains("would have 0 outputs, not 1"), "{}", problems[0].message);
}

#[test]
fn rejected_update_of_parameters_too_long_to_quote_changes_nothing() {
    // 0.8 MB in YAML, 1.2 MB as JSON.
    let note = "\\x01".repeat(200_000);
    let text = format!(
        "flowgraph: g\nblocks:\n  s: {{kind: source, parameters: {{note: \"{note}\"}}}}\n  \
         t: {{kind: source}}\n  o: {{kind: sink, input: s.pol0}}\n"
    );
    let plan = load_text("example.yaml", &text, &[], &registry()).result.unwrap();
    let request = r#"{"s": {"level": -1}, "t": {"level": 2}}"#;
    let rejected = plan.live_update(&registry(), request, &When::at(7)).err().unwrap();
    let messages: Vec<_> = rejected.problems.iter().map(|p| p.message.as_str()).collect();
    assert_eq!(messages, ["`level` must be at least 0, got -1"]);
    let accepted = r#"{"s": {"level": 1}, "t": {"level": 2}}"#;
    assert_eq!(plan.live_update(&registry(), accepted, &When::at(7)).unwrap().blocks.len(), 2);
}

#[test]
fn load_rejects_files_that_include_each_other() {
    let directory = tempfile::tempdir().unwrap();
    let main = directory.path().join("main.yaml");
    std::fs::write(&main, "flowgraph: g\ninclude: [part.yaml]\nblocks: {s: {kind: source}}\n")
        .unwrap();
    std::fs::write(directory.path().join("part.yaml"), "include: [main.yaml]\n").unwrap();
    let loaded = crate::load(&main, &[], &registry());
    let problems = loaded.result.err().unwrap();
    let text = render_all(&problems, &loaded.sources, Style::Plain);
    let place = directory.path().to_string_lossy().into_owned();
    insta::assert_snapshot!("E0104", text.replace(&place, "DIRECTORY"));
}

#[test]
fn unread_output_of_a_block_whose_reader_has_room_for_it_is_named_in_the_help() {
    let help = |blocks: &str| -> Vec<String> {
        let text = format!("flowgraph: g\nblocks:\n{blocks}  o: {{kind: sink, input: 'f[0]'}}\n");
        let text = if blocks.contains("replicate") { text } else { text.replace("'f[0]'", "f") };
        let plan = load_text("example.yaml", &text, &[], &registry()).result.unwrap();
        let warnings = plan.warnings.iter().filter(|w| w.message.contains("pol"));
        warnings.flat_map(|w| w.help.clone()).collect()
    };
    let sink = "connect it to a `null_sink` if this is intended";
    let both =
        |outputs: &str| format!("to connect all outputs to `f`, write `inputs: [{outputs}]` there");
    let one = "  s: {kind: source}\n  f: {kind: filter, input: s, parameters: {taps: 16}}\n";
    assert_eq!(help(one), [&both("s.pol0, s.pol1"), sink]);
    let second = one.replace("input: s,", "input: s.pol1,");
    assert_eq!(help(&second), [&both("s.pol0, s.pol1"), sink]);
    // Replicas have one warning, with the expression of the file.
    let replicas = "  s: {kind: source, replicate: 2}\n  \
                    f: {kind: filter, replicate: 2, input: 's[${index}]', parameters: {taps: 16}}\n";
    assert_eq!(help(replicas), [&both(r#""s[${index}].pol0", "s[${index}].pol1""#), sink]);
    // No input is free.
    let full = "  s: {kind: source}\n  f: {kind: pass, input: s}\n";
    assert_eq!(help(full), [sink]);
}

/// Wrong values of the parameters of `filter`, and their messages. Add values whose message was
/// unclear.
#[test]
fn ledger_of_values_that_cannot_be_read() {
    let mut ledger = String::new();
    for parameters in [
        "{taps: many}",
        "{taps: -1}",
        "{taps: 1.5}",
        "{taps: 99999999999}",
        "{taps: }",
        "{taps: [1]}",
        "{taps: \"16\"}",
        "{taps: 16 taps}",
        "{taps: $taps}",
        "{taps: 1e3}",
        "{taps: 16, window: han}",
        "{taps: 16, window: 3}",
        "{taps: 16, window: {hann: 2}}",
        "{tap: 16, windows: hann}",
        "{taps: x, windows: hann}",
        "[16]",
        "16",
        "",
    ] {
        let text = format!(
            "flowgraph: g\nblocks:\n  s: {{kind: source}}\n  f:\n    kind: filter\n    input: s\n    parameters: {parameters}\n"
        );
        let loaded = load_text("example.yaml", &text, &[], &registry());
        let _ = writeln!(ledger, "{parameters}");
        for problem in loaded.result.err().unwrap_or_default() {
            let at = problem.span.map(|span| loaded.sources.text(span).to_owned());
            let _ = writeln!(
                ledger,
                "    {} at `{}`: {}; {}",
                problem.code,
                at.unwrap_or_default(),
                problem.message,
                problem.help.join("; ")
            );
        }
    }
    insta::assert_snapshot!("ledger", ledger);
    for phrase in
        ["usize", "u32", "struct", "variant", "untagged", "invalid type", "serde", "field"]
    {
        assert!(!ledger.contains(phrase), "the ledger says `{phrase}`");
    }
}

/// Files that were once read wrongly, or whose message was misleading.
#[test]
fn ledger_of_files_that_cannot_be_read() {
    let blocks = "blocks: {s: {kind: source}}";
    let mut ledger = String::new();
    for (what, text) in [
        ("NUL ends nothing", format!("flowgraph: g\n{blocks}\n\0\nnonsense: 1\n")),
        ("places behind a byte order mark", format!("\u{feff}flowgraph: g\nflow: 1\n{blocks}\n")),
        ("a name of a later default", format!("flowgraph: g\nparameters:\n  a: \"${{c + \\\"x\\\"}}\"\n{blocks}\n")),
        ("deep nesting", "[".repeat(5000)),
        ("a reference without quotes", "flowgraph: g\nblocks: {o: {kind: sink, input: t[3]}}\n".to_owned()),
        ("references without quotes", "flowgraph: g\nblocks: {o: {kind: sink, inputs: [\"a\", f[*].pol0, 'b']}}\n".to_owned()),
        ("an expression without quotes", "flowgraph: g\nblocks: {o: {kind: sink, parameters: {taps: ${taps + 1}}}}\n".to_owned()),
        ("letters of several bytes", "flowgraph: g\nblocks: {o: {kind: sink, input: \u{3bb}\u{2192}f[*]}}\n".to_owned()),
        ("a list of blocks", "flowgraph: g\nblocks:\n  - name: s\n    kind: source\n".to_owned()),
        (
            "an output that is a number",
            "flowgraph: g\ntemplates: {t: {outputs: {o: \"${1}\"}}}\nblocks: {u: {template: t}, o: {kind: sink, input: u}}\n".to_owned(),
        ),
        ("no blocks", "flowgraph: g\nblocks: {}\n".to_owned()),
        ("unending tolerance", format!("flowgraph: g\n{blocks}\ntests: [{{name: t, expect: [{{tap: s, mean: {{value: 0, tolerance: 1e999}}}}]}}]\n")),
    ] {
        let loaded = load_text("example.yaml", &text, &[], &registry());
        let _ = writeln!(ledger, "{what}");
        for problem in loaded.result.err().unwrap_or_default() {
            let place = problem.span.map(|span| loaded.sources.line_column(span));
            let help = problem.help.join("; ");
            let _ = writeln!(ledger, "    {} at {place:?}: {}; {help}", problem.code, problem.message);
        }
    }
    insta::assert_snapshot!("ledger_of_files", ledger);
}

#[test]
fn errors_of_set_point_at_declaration() {
    let text = "flowgraph: g\nparameters: {antennas: {default: 4, maximum: 8}}\nblocks: {s: {kind: source}}\n";
    let mut shown = String::new();
    for (name, value) in
        [("antennas", "four"), ("antennas", "9"), ("antenas", "2"), ("antennas", "[")]
    {
        let set = [Setting::typed(name, value)];
        let loaded = load_text("example.yaml", text, &set, &registry());
        let problems = loaded.result.err().unwrap();
        shown.push_str(&render_all(&problems, &loaded.sources, Style::Plain));
    }
    insta::assert_snapshot!("set", shown);
}

#[test]
fn error_of_a_value_that_set_gives_names_the_set() {
    let notes = |templates: &str, set: Setting| {
        let text = format!(
            "flowgraph: g
parameters: {{channels: {{default: 16}}, frames: {{default: 1}}}}
{templates}blocks:
  s: {{kind: source, parameters: {{channels: \"${{channels * frames}}\"}}}}
  o: {{kind: sink, input: s.pol0}}
  p: {{kind: sink, input: s.pol1}}
"
        );
        let loaded = load_text("example.yaml", &text, &[set], &registry());
        let [problem] = &loaded.result.err().unwrap()[..] else { panic!("one error") };
        let notes = problem.notes.iter();
        notes
            .map(|(span, note)| format!("{}: {note}", loaded.sources.text(*span)))
            .collect::<Vec<_>>()
    };
    let zero = || Setting::typed("channels", "0");
    assert_eq!(notes("", zero()), ["channels: set by `--set channels`"]);
    let by_default = load_text(
        "example.yaml",
        "flowgraph: g
parameters: {channels: {default: 16}, all: {default: \"${channels * 2}\"}, more: {default: \"${all}\"}}
templates: {t: {parameters: {channels: {default: 1}}, blocks: {a: {kind: sink, input: x}}, inputs: [x]}}
blocks:
  s: {kind: source, parameters: {channels: \"${more}\"}}
  o: {kind: sink, input: s.pol0}
  p: {kind: sink, input: s.pol1}
",
        &[zero()],
        &registry(),
    );
    let [problem] = &by_default.result.err().unwrap()[..] else { panic!("one error") };
    assert_eq!(problem.notes[0].1, "set by `--set channels`");
    let of_test = Setting { name: "channels".to_owned(), value: SetTo::Value(Value::Int(0)) };
    assert!(notes("", of_test).is_empty());
    assert!(notes("", Setting::text("channels", "0")).is_empty());
    // The name may be that of the template.
    let template = "templates: {t: {parameters: {channels: {default: 1}}, blocks: {a: {kind: sink, input: x}}, inputs: [x]}}\n";
    assert!(notes(template, zero()).is_empty());
}

#[test]
fn load_reports_all_errors_once() {
    let text = "flowgraph: g
blocks:
  a: {kind: source, parameters: {channels: 12}}
  b: {kind: filter, input: a, parameters: {taps: 3}}
  c: {kind: filter, input: b, parameters: {taps: 5}}
  d: {kind: sink, input: c}
  e: {kind: sink, input: nothing}
  f: {kind: pass, input: e}
";
    let loaded = load_text("example.yaml", text, &[], &registry());
    let problems = loaded.result.err().unwrap();
    // Both errors of `b`, none of `c` and `d` downstream of it, then `e`, then `f`, which reads a sink.
    let found: Vec<&str> = problems.iter().map(|problem| problem.code).collect();
    assert_eq!(found, ["E0203", "E0201", "E0118", "E0119"]);
    assert!(problems.is_sorted_by_key(|problem| problem.span));
    assert!(problems.iter().all(|problem| problem.severity == Severity::Error));
}

#[test]
fn coloured_output_has_same_text_as_plain() {
    let (_, text) = EXAMPLES[5];
    let loaded = load_text("example.yaml", text, &[], &registry());
    let problems = loaded.result.err().unwrap();
    let plain = render_all(&problems, &loaded.sources, Style::Plain);
    let coloured = render_all(&problems, &loaded.sources, Style::Coloured);
    assert!(coloured.contains('\u{1b}'));
    let mut stripped = String::new();
    let mut rest = coloured.as_str();
    while let Some(start) = rest.find('\u{1b}') {
        stripped.push_str(&rest[..start]);
        let end = rest[start..].find('m').unwrap();
        rest = &rest[start + end + 1..];
    }
    stripped.push_str(rest);
    assert_eq!(stripped, plain);
    let json = fxgraph_core::diagnostic::to_json(&problems[0], &loaded.sources);
    assert_eq!(json["code"], problems[0].code);
    assert_eq!(json["place"]["file"], "example.yaml");
}
