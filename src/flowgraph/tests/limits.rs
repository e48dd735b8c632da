//! Small files that expand beyond the limits, and large files with many errors.

use super::kinds::registry;
use crate::{Loaded, load_text};
use fxgraph_core::device::DeviceName;
use fxgraph_core::diagnostic::{SHOWN, Style, first, render_all};
#[cfg(debug_assertions)]
use fxgraph_core::steps::steps;
use std::fmt::Write as _;

fn loaded(text: &str) -> Loaded {
    assert!(text.len() <= 1 << 20);
    load_text("limits.yaml", text, &[], &registry())
}

fn is_over_the_limit(text: &str) {
    let problems = loaded(text).result.err().unwrap();
    assert!(problems.iter().any(|problem| problem.code == "E0102"), "{}", problems[0].message);
}

#[test]
fn load_rejects_lists_that_double() {
    let mut text = "flowgraph: g\nblocks: {s: {kind: source}}\nparameters:\n  p0: [1]\n".to_owned();
    for level in 1..40 {
        let _ = writeln!(text, "  p{level}: '${{[p{0}, p{0}]}}'", level - 1);
    }
    is_over_the_limit(&text);
}

#[test]
fn load_rejects_long_texts_joined_many_times() {
    let (long, uses) = ("x".repeat(4000), "${p0}".repeat(180_000));
    is_over_the_limit(&format!(
        "flowgraph: g\nblocks: {{s: {{kind: source}}}}\nparameters: {{p0: {long}, p1: '{uses}'}}\n"
    ));
}

#[test]
fn load_rejects_many_copies_of_large_block() {
    let axes = vec!["7"; 20_000].join(", ");
    is_over_the_limit(&format!(
        "flowgraph: g\nblocks:\n  s: {{kind: source, replicate: 10000, parameters: {{x: [{axes}]}}}}\n"
    ));
}

#[test]
fn load_rejects_many_copies_with_long_name() {
    let name = "x".repeat(900_000);
    is_over_the_limit(&format!(
        "flowgraph: g\nblocks:\n  ? {name}\n  : {{kind: source, replicate: 10000}}\n"
    ));
}

#[test]
fn load_rejects_all_to_all_connections_of_4000_blocks() {
    is_over_the_limit(
        "flowgraph: g
blocks:
  s: {kind: source, replicate: 4000}
  j: {kind: join, replicate: 4000, inputs: ['s[*]']}
",
    );
}

#[test]
fn load_computes_chain_of_1000_parameters() {
    let mut text = "flowgraph: g\nblocks: {s: {kind: source}}\nparameters:\n".to_owned();
    for level in 0..999 {
        let _ = writeln!(text, "  p{level}: '${{p{} + 1}}'", level + 1);
    }
    text.push_str("  p999: 1\n");
    let plan = loaded(&text).result.ok().unwrap();
    assert_eq!(plan.parameters[0].value, 1000);
}

#[test]
fn render_shows_first_errors_and_counts_all() {
    let mut text = "flowgraph: g\nblocks: {s: {kind: source}}\n".to_owned();
    (0..60_000).for_each(|key| {
        let _ = writeln!(text, "k{key}: ");
    });
    let Loaded { sources, result, .. } = loaded(&text);
    let problems = result.err().unwrap();
    assert_eq!((problems.len(), first(&problems).count()), (60_000, SHOWN));
    let shown = render_all(&problems, &sources, Style::Plain);
    assert_eq!(shown.matches("error[E0106]").count(), SHOWN);
    assert!(shown.contains("\n102 | k99:"), "{}", &shown[shown.len() - 500..]);
    assert!(shown.ends_with("60000 errors, the first of them shown\n"));
}

#[test]
fn load_reports_5000_wrong_references() {
    let mut text = "flowgraph: g\nblocks:\n".to_owned();
    for block in 0..5000 {
        let _ = writeln!(text, "  b{block}: {{kind: pass, input: c{block}}}");
    }
    let problems = loaded(&text).result.err().unwrap();
    assert_eq!(problems.len(), 5000);
    assert_eq!(problems[0].help.len(), 1);
}

#[test]
fn message_of_cycle_with_5000_blocks_is_short() {
    let mut text = "flowgraph: g\nblocks:\n".to_owned();
    for block in 0..5000 {
        let _ = writeln!(text, "  b{block}: {{kind: pass, input: b{}}}", (block + 1) % 5000);
    }
    let Loaded { sources, result, .. } = loaded(&text);
    let shown = render_all(&result.err().unwrap(), &sources, Style::Plain);
    assert!(shown.contains(" -> ... -> "), "{shown}");
    assert!(shown.len() < 10_000, "{}", shown.len());
}

#[test]
fn message_truncates_long_quotation() {
    let text = format!("flowgraph: g\nblocks: {{s: {{kind: {}}}}}\n", "x".repeat(900_000));
    let problems = loaded(&text).result.err().unwrap();
    assert_eq!(problems[0].code, "E0114");
    assert!(problems[0].message.len() < 300);
    assert!(problems[0].message.ends_with("...`"), "the quotation is closed");
}

#[test]
fn load_plans_chain_of_9000_blocks() {
    let mut text = "flowgraph: g\nblocks:\n  b0: {kind: source}\n".to_owned();
    for block in 1..9000 {
        let _ = writeln!(text, "  b{block}: {{kind: pass, input: b{}}}", block - 1);
    }
    let plan = loaded(&text).result.ok().unwrap();
    // Each pass-through block adds its queue of 4 and the frame at work to the pool of the source.
    assert_eq!(plan.memory().blocks[0].pools[0].frames, 1 + 8999 * 5);
}

/// Number of steps to read and check a chain of `blocks` pass-through blocks, and to count the frames of its pools and
/// the memory of its swaps.
#[cfg(debug_assertions)]
fn steps_of_chain(blocks: usize) -> usize {
    let mut text = String::from("flowgraph: chain\nblocks:\n  b0: {kind: source}\n");
    for block in 1..blocks {
        let input = if block == 1 { "b0.pol0".to_owned() } else { format!("b{}", block - 1) };
        let _ = writeln!(text, "  b{block}: {{kind: pass, input: {input}}}");
    }
    steps(|| {
        let plan = load_text("chain.yaml", &text, &[], &registry()).result.unwrap();
        assert_eq!(plan.pool_frames().len(), blocks);
        assert!(plan.swap_bytes(&plan.memory())[&DeviceName::Cpu] > 0);
    })
}

#[test]
#[cfg(debug_assertions)]
fn steps_grow_linearly_with_length_of_chain() {
    let (short, long) = (steps_of_chain(100), steps_of_chain(1000));
    assert!(short >= 100 && long <= 11 * short, "{short} steps, then {long}");
}

#[test]
fn load_rejects_files_that_are_too_large_together() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    // Comments count: they are read.
    let comment = format!("parameters: {{}}\n# {}\n", "x".repeat(15 << 20));
    for name in ["a.yaml", "b.yaml", "c.yaml", "d.yaml"] {
        std::fs::write(path(name), &comment).unwrap();
    }
    let text = |files: &str| {
        format!(
            "flowgraph: g\ninclude: [{files}]\nblocks: {{s: {{kind: source, parameters: {{}}}}}}\n"
        )
    };
    let load = |files: &str| load_text(path("main.yaml"), &text(files), &[], &registry());
    assert!(load("a.yaml, b.yaml").result.is_ok());
    let loaded = load("a.yaml, b.yaml, c.yaml, d.yaml");
    // The files after it are not kept.
    assert_eq!(loaded.sources.iter().count(), 3);
    let problems = loaded.result.err().unwrap();
    let all = 3 * comment.len() + text("a.yaml, b.yaml, c.yaml, d.yaml").len();
    assert_eq!(problems[0].code, "E0102");
    let message =
        format!("the files of a flowgraph must have at most 33554432 bytes together, got {all}");
    assert_eq!(problems[0].message, message);
    assert_eq!(problems[0].help, ["put arrays into NumPy files: `{npy: FILE}`"]);
}
