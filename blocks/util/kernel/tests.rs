//! Tests of declarations, sizes and the reference. Those with an interpreter need NumPy.

use super::compile::{compiled, errors};
use super::conformance::{FLAGGER, GAIN, SUM, TRANSPOSE};
use super::declaration::Declared;
use super::layout::Layout;
use super::prelude::members;
use super::{Kernel, Live};
use crate::tests::chain::{self, Plain};
use crate::util::python::tests::has_numpy;
use fxgraph::edge::Harness;
use fxgraph::frame::Annotations;
use fxgraph::{
    At, Axis, Clock, Configured, Dtype, Env, KindSpec, LiveKind, PortType, Rejection, ValidityType,
};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::time::Duration;

/// Port of 4 spectra of 8 channels in 2 heaps.
fn port() -> PortType {
    PortType {
        dtype: Dtype::F32,
        axes: vec![Axis::new("spectrum", 4), Axis::new("channel", 8)],
        clock: Clock::new(1e6, 8),
        band: None,
        validity: ValidityType::flags(vec![Axis::new("heap", 2)]),
    }
}

/// Block with this declaration and kernel.
fn declared(declaration: &str) -> Kernel {
    let code =
        format!("// A kernel.\n/* fxgraph\n{declaration}\n*/\n__global__ void k(Fx fx) {{}}\n");
    chain::kind(json!({"code": code}))
}

fn layout(kernel: &Kernel) -> Result<(Layout, PortType), Vec<Rejection>> {
    Layout::new(kernel, &port())
}

/// The only diagnostic of the declaration.
fn problem(declaration: &str) -> String {
    let rejections = layout(&declared(declaration)).err().unwrap();
    assert_eq!(rejections.len(), 1, "{rejections:?}");
    assert!(rejections[0].help.is_some(), "{rejections:?}");
    rejections[0].message.clone()
}

const LAUNCH: &str = "launch: {grid: [1], block: [32]}";

#[test]
fn sizes_follow_from_axes_and_parameters() {
    let kernel = declared(
        "kernel: k\nparameters:\n  taps: {type: u32, default: 4}\n  level: {type: f32, default: 0.5, live: true}\n\
         output: {dtype: cf32, axes: [{channel: channel // 2}, spectrum, {value: taps}], validity: whole}\n\
         constants: {tile: 2 * taps, part: taps / 8}\nrequire: [channel % tile == 0]\n\
         buffers: {sums: {dtype: f64, length: output_elements + tile}}\n\
         launch: {grid: [ceil(output_elements / 32), spectrum], block: [8, 4], shared_bytes: 4 * tile}",
    );
    let (layout, output) = layout(&kernel).unwrap();
    let axes: Vec<_> = output.axes.iter().map(|axis| (axis.name, axis.len)).collect();
    assert_eq!(axes, [("channel", 4), ("spectrum", 4), ("value", 4)]);
    assert_eq!((output.dtype, output.validity.units()), (Dtype::Cf32, 1));
    assert_eq!((layout.grid.blocks, layout.grid.threads), ([2, 4, 1], [8, 4, 1]));
    assert_eq!((layout.shared_bytes, layout.buffer_bytes()), (32, 8 * 72));
    let text = &layout.source.text;
    for line in [
        "#define FX_INPUT_channel 8u",
        "#define FX_OUTPUT_channel 4u",
        "#define FX_OUTPUT_ELEMENTS 64u",
        "#define FX_PARAM_taps 4u",
        "#define FX_CONST_tile 8\n",
        "#define FX_CONST_part 0.5",
        "using FxOutput = float2;",
        "  double *sums;",
        "  float level;",
        "extern \"C\" __global__ void k(Fx fx);",
        "#line 1 \"<code>\"\n// A kernel.",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    assert!(!text.contains("FX_PARAM_level"), "it may change while the kernel runs");
}

#[test]
fn members_have_no_gaps_and_hold_the_values() {
    let kernel = declared(&format!(
        "kernel: k\nparameters:\n  a: {{type: bool, default: true}}\n  b: {{type: f64, default: 2.5}}\n  \
         c: {{type: i32, default: -1}}\nbuffers: {{d: {{dtype: f32, length: 1}}}}\ncounters: {{e: some}}\n{LAUNCH}"
    ));
    let (layout, _) = layout(&kernel).unwrap();
    let places = members(&layout.file);
    let offsets: Vec<_> = places.parameters.iter().map(|m| (m.name.as_str(), m.offset)).collect();
    // 6 words of the frame, a buffer and a counter before them.
    assert_eq!(offsets, [("b", 64), ("c", 72), ("a", 76)]);
    assert_eq!((places.is_continuous, places.bytes), (77, 80));
    let bytes = |n: usize| {
        let member = &places.parameters[n];
        member.number.device_bytes(&layout.values[&member.name])
    };
    assert_eq!(bytes(0), 2.5_f64.to_le_bytes());
    assert_eq!(bytes(1), [255, 255, 255, 255, 0, 0, 0, 0]);
    assert_eq!(bytes(2), [1, 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
#[allow(clippy::too_many_lines, reason = "one table")]
fn errors_of_a_declaration_name_the_line() {
    let launch = |grid: &str| format!("kernel: k\nlaunch: {{grid: [{grid}], block: [32]}}");
    for (declaration, message) in [
        ("kernel: k".to_owned(), "<code>:3: the key `launch` is missing"),
        (format!("kernel: k\nlunch: 1\n{LAUNCH}"), "<code>:4: unknown key `lunch`"),
        (launch("chanel"), "<code>:4: `chanel`: unknown parameter `chanel`"),
        (
            launch("channel / 3"),
            "<code>:4: `channel / 3` must be an integer from 1 to 2147483647, got 2.66",
        ),
        (launch("0"), "<code>:4: `0` must be an integer from 1 to"),
        (launch("1, 70000"), "<code>:4: `70000` must be an integer from 1 to 65535, got 70000"),
        (launch("1, 1, 1, 1"), "<code>:4: `grid` must have 1 to 3 numbers, got 4"),
        (launch("'1 + '"), "<code>:4: `1 + `: the expression ends too early"),
        (
            "kernel: k\nlaunch: {grid: [1], block: [64, 64]}".to_owned(),
            "<code>:4: a thread block must have at most 1024",
        ),
        (format!("kernel: 9\n{LAUNCH}"), "<code>:3: "),
        (
            format!("kernel: k\nreference: ../x.py\n{LAUNCH}"),
            "<code>:4: `reference` must be a file beside this one",
        ),
        (
            format!("kernel: k\nparameters:\n  channel: {{type: f32, default: 1}}\n{LAUNCH}"),
            "<code>:5: the name `channel` is in use",
        ),
        (
            format!(
                "kernel: k\nparameters:\n  a: {{type: f32, default: 1}}\ncounters: {{a: x}}\n{LAUNCH}"
            ),
            "<code>:6: the name `a` is in use",
        ),
        (
            format!("kernel: k\nparameters:\n  a: {{type: u32, default: -1}}\n{LAUNCH}"),
            "<code>:5: the default of `a` must be an integer from 0",
        ),
        (
            format!(
                "kernel: k\nparameters:\n  a: {{type: f32, default: 1, range: [2, 1]}}\n{LAUNCH}"
            ),
            "<code>:5: the range of `a`",
        ),
        (
            format!("kernel: k\nrequire: [channel == 7]\n{LAUNCH}"),
            "<code>:4: `channel == 7` must hold, got `channel` = 8",
        ),
        (
            format!("kernel: k\nrequire: [channel]\n{LAUNCH}"),
            "<code>:4: `channel` must be true or false",
        ),
        (
            format!("kernel: k\noutput: {{axes: [pol]}}\n{LAUNCH}"),
            "<code>:4: the input has no axis `pol`",
        ),
        (
            format!("kernel: k\noutput: {{axes: [{{colour: 3}}]}}\n{LAUNCH}"),
            "<code>:4: an axis must have one of the names",
        ),
        (
            format!("kernel: k\noutput: {{axes: [channel, spectrum, {{channel: 2}}]}}\n{LAUNCH}"),
            "<code>:4: the axis `channel` must not be given twice",
        ),
        (
            format!("kernel: k\noutput: {{validity: {{units: [channel, channel]}}}}\n{LAUNCH}"),
            "<code>:4: the axis `channel` must not be given twice",
        ),
        (
            format!(
                "kernel: k\noutput: {{dtype: u8, axes: [{{sample: 2 ** 24 + 1}}], validity: {{units: [sample]}}}}\n{LAUNCH}"
            ),
            "<code>:4: the validity must have at most 16777216 units, got 16777217",
        ),
        (
            format!("kernel: k\ncounters: {{frames_computed: x}}\n{LAUNCH}"),
            "<code>:4: the process of the reference counts `frames_computed` itself",
        ),
        (
            format!("kernel: k\nconstants: {{a: 2 ** 62 * 4.0 ** 600}}\n{LAUNCH}"),
            "<code>:4: `2 ** 62 * 4.0 ** 600`",
        ),
        (
            format!("kernel: k\noutput: {{dtype: f17}}\n{LAUNCH}"),
            "<code>:4: `f17` is not a data type",
        ),
        (
            format!("kernel: k\noutput: {{axes: [{{sample: 2 ** 40}}]}}\n{LAUNCH}"),
            "<code>:4: `2 ** 40` must be an integer from 1",
        ),
        (
            format!("kernel: k\noutput: {{validity: {{units: [pol]}}}}\n{LAUNCH}"),
            "<code>:4: the output has no axis `pol`",
        ),
        (
            format!("kernel: k\nbuffers: {{b: {{dtype: f32, length: 2 ** 60}}}}\n{LAUNCH}"),
            "<code>:4: `2 ** 60` must be an integer",
        ),
        (
            format!("kernel: k\ninput: {{dtype: [f32, x]}}\n{LAUNCH}"),
            "<code>:4: `x` is not a data type",
        ),
    ] {
        let said = problem(&declaration);
        assert!(said.contains(message), "{declaration}\n{said}");
    }
    let live = "kernel: k\nparameters:\n  a: {type: u32, default: 1, live: true}\nlaunch: {grid: [a], block: [1]}";
    assert!(
        problem(live).contains("must not depend on `a`, which may change"),
        "{}",
        problem(live)
    );
}

#[test]
fn names_that_the_languages_or_expressions_have_are_rejected() {
    for name in ["_a", "class", "lambda", "None", "u32", "a-b"] {
        let said = problem(&format!("kernel: k\ncounters: {{{name}: x}}\n{LAUNCH}"));
        assert!(said.contains(&format!("`{name}` must be a name")), "{said}");
        let said = problem(&format!("kernel: {name}\n{LAUNCH}"));
        assert!(said.starts_with("<code>:3: `kernel` must be a name"), "{said}");
    }
    for name in ["samples_per_frame", "output_units", "input_channel", "output_sample"] {
        let said = problem(&format!(
            "kernel: k\nparameters: {{{name}: {{type: i32, default: 1}}}}\n{LAUNCH}"
        ));
        assert!(said.contains(&format!("the name `{name}` is in use")), "{said}");
    }
}

#[test]
fn numbers_have_the_declared_type_in_the_kernel() {
    let kernel = declared(&format!(
        "kernel: k\nparameters:\n  a: {{type: i32, default: 4}}\n  b: {{type: i32, default: -2147483648}}\n  \
         c: {{type: u32, default: 4}}\n  d: {{type: i64, default: 4}}\n  e: {{type: u64, default: 4}}\n  \
         f: {{type: bool, default: true}}\n  g: {{type: i64, default: -9223372036854775808}}\n\
         constants: {{h: 2 - 4, i: 2 ** 40, j: spectrum}}\n{LAUNCH}"
    ));
    let text = layout(&kernel).unwrap().0.source.text;
    for define in [
        "PARAM_a 4",
        "PARAM_b (-2147483647 - 1)",
        "PARAM_c 4u",
        "PARAM_d 4ll",
        "PARAM_e 4ull",
        "PARAM_f true",
        "PARAM_g (-9223372036854775807ll - 1)",
        "CONST_h (-1 - 1)",
        "CONST_i 1099511627776ll",
        "CONST_j 4",
        "INPUT_spectrum 4u",
    ] {
        assert!(text.contains(&format!("#define FX_{define}\n")), "{define}: {text}");
    }
}

#[test]
fn range_is_that_of_the_value_as_given() {
    let parameters = "parameters:\n  a: {type: f32, default: 0.1, range: [0.1, 0.3]}";
    let with = |a: f64| {
        let text = format!("/* fxgraph\nkernel: k\n{parameters}\n{LAUNCH}\n*/");
        let kernel: Kernel = chain::kind(json!({"code": text, "values": {"a": a}}));
        layout(&kernel).map(|(layout, _)| layout.values["a"].clone())
    };
    // In single precision, 0.3 is greater.
    assert_eq!(with(0.3).unwrap(), json!(f64::from(0.3_f32)));
    assert!(with(0.300_000_001).is_err() && with(0.099_999_999_9).is_err());
}

#[test]
fn validity_is_a_member_of_kernels_that_may_write_it() {
    for (rule, is_member) in [("same", false), ("whole", false), ("{units: []}", true)] {
        let kernel = declared(&format!("kernel: k\noutput: {{validity: {rule}}}\n{LAUNCH}"));
        let text = layout(&kernel).unwrap().0.source.text;
        assert_eq!(text.contains("output_validity"), is_member, "{text}");
    }
}

#[test]
fn only_headers_of_fxgraph_are_included() {
    let include = |line: &str| {
        let code = format!("\u{feff}/* fxgraph\nkernel: k\n{LAUNCH}\n*/\n{line}\n");
        layout(&chain::kind(json!({"code": code})))
            .map(|(layout, _)| layout.source.text.to_string())
    };
    for line in
        ["#include \"transpose.cuh\"  // tiles", "# include <transpose.cuh>", "// #include \"a.h\""]
    {
        let text = include(line).unwrap();
        assert!(!text.contains('\u{feff}'), "NVRTC takes no byte-order mark");
    }
    for (line, message) in [
        (
            "#include \"/etc/hosts\"",
            "<code>:5: `#include` must name a header of fxgraph, got `/etc/hosts`",
        ),
        ("#include <a.h>", "<code>:5: `#include` must name a header of fxgraph, got `a.h`"),
        ("#include \\\n\"a.h\"", "<code>:5: `#include` must have the name of a header in its line"),
    ] {
        assert_eq!(include(line).unwrap_err()[0].message, message);
    }
}

#[test]
fn file_without_a_declaration_is_rejected() {
    for (text, line) in [
        ("", 1),
        ("__global__ void k(Fx fx) {}", 1),
        ("// fxgraph\n", 1),
        ("/* fxgraph */", 1),
        ("/* other\n*/", 1),
        ("\n\n/* fxgraph\nlaunch: 1", 3),
    ] {
        assert_eq!(Declared::read(text).unwrap_err().line, Some(line), "{text}");
    }
}

#[test]
fn input_and_values_must_fit_the_declaration() {
    let needs = |input: &str| {
        let kernel = declared(&format!("kernel: k\ninput: {input}\n{LAUNCH}"));
        layout(&kernel).err().map(|mut rejected| rejected.remove(0))
    };
    assert!(needs("{dtype: [f32, f64], axes: [spectrum, channel]}").is_none());
    let rejected = needs("{dtype: [f64, ci8]}").unwrap();
    assert_eq!(rejected.at, At::Input(0));
    assert_eq!(rejected.message, "the input must be f64, ci8 (<code>:4), got f32");
    let rejected = needs("{axes: [channel, spectrum]}").unwrap();
    assert_eq!(
        rejected.message,
        "the input must have the axes [channel][spectrum] (<code>:4), got [spectrum][channel]"
    );
    let text = "/* fxgraph\nkernel: k\nparameters:\n  a: {type: i32, range: [-3, 3], unit: dB}\nlaunch: {grid: [1], block: [1]}\n*/";
    let with = |values: Value| {
        let kernel: Kernel = chain::kind(json!({"code": text, "values": values}));
        layout(&kernel).err().map(|mut rejected| rejected.remove(0))
    };
    assert!(with(json!({"a": -3})).is_none());
    for (values, at, message) in [
        (
            json!({"a": 4}),
            At::Value("values.a".to_owned()),
            "`a` must be between -3 and 3 dB, got 4",
        ),
        (json!({"a": 0.5}), At::Value("values.a".to_owned()), "`a` must be an integer, got 0.5"),
        (json!({"a": "1"}), At::Value("values.a".to_owned()), "`a` must be an integer, got \"1\""),
        (
            json!({"a": 1, "b": 1}),
            At::Value("values.b".to_owned()),
            "`k` has no parameter `b`; it has `a`",
        ),
        (json!({}), At::Parameter("values"), "`k` needs the parameter `a`"),
    ] {
        let rejected = with(values).unwrap();
        assert_eq!((rejected.at, rejected.message.as_str()), (at, message));
    }
}

#[test]
fn errors_of_the_compiler_are_at_their_lines() {
    let (layout, _) = layout(&declared(&format!("kernel: k\n{LAUNCH}"))).unwrap();
    let log = "<code>(7): warning #177-D: variable \"a\" was declared but never referenced\n\
               <code>(12): error: identifier \"b\" is undefined\n          ^\n\n\
               <code>(13): catastrophic error: cannot open source file \"c.cuh\"\n2 errors detected";
    let found: Vec<_> =
        errors(&layout.file, log).map(|problem| (problem.line, problem.message)).collect();
    assert_eq!(
        found,
        [
            (Some(12), "identifier \"b\" is undefined".to_owned()),
            (Some(13), "cannot open source file \"c.cuh\"".to_owned())
        ]
    );
    let other: Vec<_> = errors(&layout.file, "types.cuh(3): error: no").collect();
    assert_eq!((other[0].line, other.len()), (None, 1));
}

proptest! {
    #[test]
    fn any_declaration_is_read_or_rejected(text in "(/\\* fxgraph\n)?[-a-z0-9:{}\\[\\], *+/%.\"'#&!\n]{0,200}(\\*/)?") {
        let _ = Declared::read(&text);
    }

    #[test]
    fn any_expressions_are_computed_or_rejected(
        grid in "[-+*/%() a-z0-9.]{0,30}", length in "[-+*/%() a-z0-9._]{0,30}", number in any::<i64>()
    ) {
        let declaration = format!(
            "kernel: k\nparameters:\n  a: {{type: i64, default: {number}}}\n\
             output: {{axes: [{{channel: {length:?}}}]}}\nbuffers: {{b: {{dtype: f32, length: {length:?}}}}}\n\
             constants: {{c: a - 1, d: {length:?}}}\nlaunch: {{grid: [{grid:?}], block: [{grid:?}]}}"
        );
        let _ = layout(&declared(&declaration));
    }
}

/// Block of an example.
fn example((name, code, reference): (&str, &str, &str), values: Value) -> Kernel {
    let code = code.replacen("/* fxgraph\n", &format!("/* fxgraph\nkernel: {name}\n"), 1);
    chain::kind(json!({"code": code, "reference_code": reference, "values": values}))
}

/// Frames whose samples are their places plus 100 times the number of the frame; frame 2 lacks a heap.
fn frames(count: u64) -> Vec<Plain> {
    let frame = |n: u64| Plain {
        timestamp: 800 + 8 * n,
        validity: vec![1, u32::from(n != 2)],
        annotations: Annotations::default(),
        payload: (0..32).flat_map(|at| (at as f32 + 100.0 * n as f32).to_le_bytes()).collect(),
    };
    (0..count).map(frame).collect()
}

#[test]
fn reference_computes_the_frames_and_passes_validity_on() {
    if !has_numpy() {
        return;
    }
    let out = chain::drive(&example(GAIN, json!({"gain": -0.1})), &[port()], vec![frames(4)]);
    for (n, frame) in out.frames.iter().enumerate() {
        assert_eq!(frame.validity, [1, u32::from(n != 2)]);
        let expected = (0..32).map(|at| -0.1_f32 * (at as f32 + 100.0 * n as f32));
        assert!(expected.eq(frame.values::<f32>()), "frame {n}");
    }
    assert_eq!((out.frames.len(), out.count("frames_computed")), (4, 4));
    let out = chain::drive(&example(TRANSPOSE, json!({"scale": 2})), &[port()], vec![frames(1)]);
    let values = out.frames[0].values::<f32>();
    assert_eq!(values[..5], [0.0, 16.0, 32.0, 48.0, 2.0]);
}

/// Block with this declaration, and this body of the reference.
fn with_reference(declaration: &str, body: &str) -> Kernel {
    let code = format!("/* fxgraph\nkernel: k\n{declaration}\n{LAUNCH}\n*/\n");
    chain::kind(
        json!({"code": code, "reference_code": format!("def k(frame, out, fx):\n{body}\n")}),
    )
}

#[test]
fn flags_of_units_begin_as_the_whole_input_also_with_its_shape() {
    if !has_numpy() {
        return;
    }
    let kernel = with_reference(
        "output: {axes: [{heap: 2}, channel], validity: {units: [heap]}}",
        "    out.data[...] = out.validity[:, None]\n    out.validity[0] = 0",
    );
    let out = chain::drive(&kernel, &[port()], vec![frames(4)]);
    for (n, frame) in out.frames.iter().enumerate() {
        let is_complete = u8::from(n != 2);
        assert_eq!(frame.values::<f32>(), [f32::from(is_complete); 16], "frame {n}");
        assert_eq!(frame.validity, [0, is_complete.into()], "frame {n}");
    }
}

#[test]
fn reference_writes_the_validity_only_with_units() {
    if !has_numpy() {
        return;
    }
    let body = "    try:\n        out.validity[...] = 0\n    except ValueError:\n        out.data[...] = 7";
    for rule in ["same", "whole"] {
        let kernel = with_reference(&format!("output: {{validity: {rule}}}"), body);
        let out = chain::drive(&kernel, &[port()], vec![frames(2)]);
        for frame in &out.frames {
            assert_eq!((frame.values::<f32>()[0], frame.validity[0]), (7.0, 1), "{rule}");
        }
        assert_eq!(out.frames.len(), 2);
    }
}

#[test]
fn negative_sum_of_a_counter_is_an_error() {
    if !has_numpy() {
        return;
    }
    let kernel = with_reference("counters: {flagged: x}", "    fx.flagged -= 3");
    let env = Env::detached("block");
    let configured = Configured::new(kernel.clone(), &[port()]).unwrap();
    let block = kernel.build(&[port()], &env).unwrap();
    let mut harness = Harness::new(block, &configured.ports, 2).unwrap();
    Harness::block_on(harness.start()).unwrap();
    assert!(harness.send(0, |frame| frames(1)[0].copy_to(frame)));
    harness.end(0);
    // The process answers later.
    let next = |_| {
        std::thread::sleep(Duration::from_millis(10));
        Harness::block_on(harness.run()).err()
    };
    let error = (0..3000).find_map(next).unwrap();
    let said = fxgraph::error::with_causes(&error);
    assert!(said.contains("the sum of the counter `flagged` must be an integer"), "{said}");
}

#[test]
fn flagger_counts_and_keeps_channels_flagged() {
    if !has_numpy() {
        return;
    }
    let mut input = frames(5);
    input.iter_mut().for_each(|frame| frame.payload.fill(0));
    input[2].validity.fill(1);
    input[3].validity[0] = 0;
    // Channel 3 of spectrum 1 in frame 0.
    input[0].payload[4 * (8 + 3)..][..4].copy_from_slice(&9.0_f32.to_le_bytes());
    input[0].payload[..4].copy_from_slice(&5.0_f32.to_le_bytes());
    let out =
        chain::drive(&example(FLAGGER, json!({"threshold": 6, "hold": 1})), &[port()], vec![input]);
    let flags: Vec<_> = out.frames.iter().map(|frame| frame.validity.clone()).collect();
    let flagged = [1, 1, 1, 0, 1, 1, 1, 1].to_vec();
    assert_eq!(flags[..3], [flagged.clone(), flagged, vec![1; 8]]);
    assert_eq!(
        flags[3..],
        [vec![0; 8], vec![1; 8]],
        "a missing heap flags all channels of its frame only"
    );
    let values = out.frames[0].values::<f32>();
    assert_eq!((values[0], values[11]), (5.0, 0.0));
    assert_eq!(out.count("channels_flagged"), 2);
}

#[test]
fn sum_takes_delayed_samples_from_the_frame_before_and_flags_without_it() {
    if !has_numpy() {
        return;
    }
    let wide = PortType { axes: vec![Axis::new("spectrum", 8), Axis::new("channel", 4)], ..port() };
    let mut input = frames(7);
    input.remove(4);
    let out = chain::drive(&example(SUM, json!({"step": 2})), &[wide], vec![input]);
    let flags: Vec<_> = out.frames.iter().map(|frame| frame.validity[0]).collect();
    // The first frame, one with a missing heap and the one behind it, and one behind a gap.
    assert_eq!(flags, [0, 1, 0, 0, 0, 1]);
    let sample = |frame: f32, spectrum: f32, channel: f32| 100.0 * frame + 4.0 * spectrum + channel;
    let values = out.frames[1].values::<f32>();
    // Channel c is 2 c spectra late.
    let expected = sample(1.0, 3.0, 0.0)
        + sample(1.0, 1.0, 1.0)
        + sample(0.0, 7.0, 2.0)
        + sample(0.0, 5.0, 3.0);
    assert_eq!((out.frames[0].values::<f32>()[3], values[3]), (0.0, expected));
}

#[test]
fn live_values_are_those_of_the_declaration() {
    let with = |values: Value| Configured::new(example(FLAGGER, values), &[port()]).unwrap();
    let live = |new: &Configured<Kernel>, running| {
        Kernel::live_value(new, super::KernelLive::Values, running)
    };
    let running = with(json!({}));
    let Live::Values(values) = live(&with(json!({"threshold": 0.1})), &running).unwrap();
    // In single precision, as the kernel has it.
    assert_eq!(json!(values), json!({"threshold": f64::from(0.1_f32)}));
    let fixed = live(&with(json!({"hold": 3})), &running).err().unwrap().to_string();
    assert!(
        fixed.contains("`hold` of `threshold_flagger` cannot change while the block runs"),
        "{fixed}"
    );
    let text = FLAGGER.1.replace("0.99", "0.5");
    let edited = example((FLAGGER.0, &text, FLAGGER.2), json!({}));
    let edited = Configured::new(edited, &[port()]).unwrap();
    assert_ne!(Kernel::content(&edited), Kernel::content(&running));
    assert!(live(&edited, &running).err().unwrap().to_string().contains("was edited"));
}

#[test]
fn compiler_that_exceeds_its_limit_is_left_to_itself() {
    if fxgraph::cuda::compiler_version().is_err() {
        return;
    }
    let (layout, _) = layout(&declared(&format!("kernel: k\n{LAUNCH}"))).unwrap();
    let late = compiled(&layout.source, "sm_80".to_owned(), Duration::ZERO);
    let problem = late.err().unwrap();
    assert_eq!(problem.message, "the file must compile within 0 s, and the compiler goes on");
    let cubin = compiled(&layout.source, "sm_80".to_owned(), Duration::from_mins(2));
    assert!(cubin.unwrap().is_ok());
}
