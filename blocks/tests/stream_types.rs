//! The page of the manual with the types of streams: the kinds that write each type, and the kinds that read it.
//!
//! Types and kinds come from the examples and the conformance cases: a kind reads a type if a block of an example
//! accepts it, with other values of its parameters if need be.

use super::examples::{directory, text};
use fxgraph::diagnostic::codes;
use fxgraph::flowgraph::{Plan, load_in};
use fxgraph::{AnyConfigured, Band, Clock, DeviceName, Dtype, PortType};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

/// Kinds that change the type of the elements or the order of the axes: they write any type, and read nearly all.
const REARRANGE: [&str; 2] = ["convert", "transpose"];
/// Kinds whose parameters state the type of the output: it is no type of theirs.
const ANY_OUTPUT: [&str; 5] = ["file_source", "kernel", "null_source", "python", "stream_source"];
/// Kinds whose code states their types.
const STATED: [&str; 2] = ["kernel", "python"];
const NOTE: &str =
    "<!-- Made from the kinds by blocks/tests/stream_types.rs; UPDATE_MANUAL=1 writes it. -->\n";
/// Types that no kind reads but those that read every type, each with the reason.
const RECORDED: [(&str, &str); 5] = [
    ("cf16 [spectrum][channel][pol][beam]", VOLTAGES_OF_BEAMS),
    (
        "cf32 [antenna][pol][channel]",
        "to watch and record the gains: `gain_solver` sets them in the F-engines itself",
    ),
    (
        "cf32 [epoch][satellite][antenna][tap]",
        "for programs that track: `gnss_tracker` correlates by itself",
    ),
    ("cf32 [spectrum][channel][pol][beam]", VOLTAGES_OF_BEAMS),
    ("f64 [value]", "to watch and record positions: `gnss_position` also writes RINEX and NMEA"),
];
const VOLTAGES_OF_BEAMS: &str =
    "for programs that read voltages of beams: `frb_beamformer` computes intensities by itself";
/// Types of each name that are tried: one of them has lengths that fit.
const TRIED: usize = 6;

/// Kinds that write a type, and some ports of the type.
#[derive(Default)]
struct Written {
    kinds: BTreeSet<&'static str>,
    ports: Vec<PortType>,
}

/// `cf32 [pol][spectrum][channel]`
fn name(port: &PortType) -> String {
    let dtype = match port.dtype {
        Dtype::Packed(_) => "packed".to_owned(),
        dtype => dtype.to_string(),
    };
    let axes: Vec<String> = port.axes.iter().map(|axis| format!("[{}]", axis.name)).collect();
    format!("{dtype} {}", axes.concat())
}

/// Plans of all examples, and of the reference block of conformance cases. The class of a `python` block and the file of a
/// `kernel` state its types.
fn plans() -> Vec<Plan> {
    let (registry, directory) = (crate::kinds(), directory());
    let examples = registry.examples(DeviceName::Cpu).into_iter();
    let examples = examples
        .filter(|example| !STATED.contains(&example.kind))
        .map(|example| text(&example.flowgraph, directory.path()));
    let cases = registry.iter().filter(|kind| !STATED.contains(&kind.name));
    let cases = cases.flat_map(|kind| (kind.cases)(DeviceName::Cuda(0)));
    let cases = cases.map(|case| {
        let is_reference = |line: &&str| !line.starts_with("  gpu: ");
        case.flowgraph.lines().filter(is_reference).collect::<Vec<_>>().join("\n") + "\n"
    });
    let plan = |text: String| {
        let name = Path::new("example.yaml");
        load_in(directory.path(), name, &text, &[], &registry).result.ok()
    };
    examples.chain(cases).filter_map(plan).collect()
}

/// Whether `block` reads `port` at any of its inputs, or at all of them.
fn reads(block: &dyn AnyConfigured, port: &PortType) -> bool {
    let own = &block.ports().inputs;
    let accepts = |inputs: &[PortType]| match block.connect(inputs) {
        Ok(_) => true,
        // Other values of the parameters are possible, or another rate.
        Err(rejections) => rejections.iter().all(|rejection| {
            ![codes::INPUT_DTYPE, codes::INPUT_AXIS, codes::INPUTS_DIFFER].contains(&rejection.code)
        }),
    };
    let channels = port.axis_len("channel").unwrap_or(1);
    let mut banded = port.clone();
    banded.band = Some(Band::signed(channels, 0, 1.4e9, 1e6));
    // Frames of many samples at a rate for codes of satellites.
    let mut long = port.clone();
    if let Some(samples) = long.axes.iter_mut().find(|axis| axis.name == "sample") {
        samples.len *= 64;
        long.clock = Clock::new(4.096e6, 64 * port.clock.samples_per_frame);
    }
    [port.clone(), banded, long].into_iter().any(|port| {
        let at = |input: usize| {
            let mut inputs = own.clone();
            inputs.iter_mut().for_each(|other| other.clock = port.clock);
            inputs[input] = port.clone();
            inputs
        };
        accepts(&vec![port.clone(); own.len()])
            || own.len() > 1 && (0..own.len()).any(|input| accepts(&at(input)))
    })
}

/// Returns the page.
fn page() -> String {
    let plans = plans();
    let mut written: BTreeMap<String, Written> = BTreeMap::new();
    let mut readers: BTreeMap<&'static str, Vec<Arc<dyn AnyConfigured>>> = BTreeMap::new();
    for block in plans.iter().flat_map(|plan| &plan.blocks) {
        if block.name == "block" && !block.ports.inputs.is_empty() {
            readers.entry(block.kind).or_default().push(Arc::clone(&block.configured));
        }
        if ANY_OUTPUT.contains(&block.kind) || REARRANGE.contains(&block.kind) {
            continue;
        }
        for port in &block.ports.outputs {
            let of_type = written.entry(name(port)).or_default();
            of_type.kinds.insert(block.kind);
            if of_type.ports.len() < TRIED && !of_type.ports.contains(port) {
                of_type.ports.push(port.clone());
            }
        }
    }
    let mut rows: Vec<(&String, &Written, BTreeSet<&str>)> = Vec::new();
    for (name, of_type) in &written {
        let reads_it = |blocks: &[Arc<dyn AnyConfigured>]| {
            of_type.ports.iter().any(|port| blocks.iter().any(|block| reads(&**block, port)))
        };
        let kinds = readers.iter().filter(|(_, blocks)| reads_it(blocks)).map(|(kind, _)| *kind);
        rows.push((name, of_type, kinds.collect()));
    }
    let reads_all = |kind: &&&str| rows.iter().all(|(_, _, kinds)| kinds.contains(**kind));
    let mut of_all: BTreeSet<&str> = readers.keys().filter(reads_all).copied().collect();
    let rearranging = |kind: &&str| REARRANGE.contains(kind);
    let named_once: Vec<&str> = of_all.iter().copied().filter(|kind| !rearranging(kind)).collect();
    let link = |kind: &&str| format!("[`{kind}`](kinds/{kind}.md)");
    let links = |kinds: &mut dyn Iterator<Item = &&str>| {
        let all: Vec<String> = kinds.map(link).collect();
        if all.is_empty() { "-".to_owned() } else { all.join(", ") }
    };
    let mut page = format!(
        "# Types of streams\n\n{NOTE}\nEvery output has a type: the type of its elements, and its axes, the slowest first \
         (`packed`: integers of 2 to 16 bits without padding).\nThe table lists the types that kinds write in their \
         examples and conformance cases, and for each the kinds that read it, or its purpose if no other kind than those below reads it.\nLengths and rates must fit as well: \
         `fxgraph validate` names those that do not.\n\nThese kinds read every type: {}, and [`kernel`](kinds/kernel.md) \
         and [`python`](kinds/python.md) with code for it.\n{} change the type of the elements and the order of the axes of nearly every type, and are \
         not repeated, either.\nThe types of {} are those that their parameters state.\n\n\
         | type | written by | read by |\n|---|---|---|\n",
        links(&mut named_once.iter()),
        links(&mut REARRANGE.iter()),
        links(&mut ANY_OUTPUT.iter())
    );
    of_all.extend(REARRANGE);
    for (name, of_type, kinds) in &rows {
        let mut readers = links(&mut kinds.iter().filter(|kind| !of_all.contains(*kind)));
        let reason = RECORDED.iter().find(|(recorded, _)| recorded == name);
        assert_eq!(
            reason.is_some(),
            readers == "-",
            "{name}: a kind reads it, or there is a reason: {readers}"
        );
        if let Some((_, reason)) = reason {
            readers = (*reason).to_owned();
        }
        let _ = writeln!(page, "| `{name}` | {} | {readers} |", links(&mut of_type.kinds.iter()));
    }
    assert!(rows.len() > 20, "{} types", rows.len());
    page
}

#[test]
fn types_of_streams_in_the_manual_are_those_of_the_kinds() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/src/reference/types.md");
    let page = page();
    if std::env::var_os("UPDATE_MANUAL").is_some() {
        std::fs::write(&file, &page).unwrap();
    }
    let written = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(written == page, "write docs/src/reference/types.md with UPDATE_MANUAL=1");
}
