//! Files of `kernel` that are wrong in ways that harm: each gets a message of its own at its line. Those that only a GPU
//! shows are not here. Needs NVRTC, and no GPU.

use crate::support::{needs, python};
use std::path::Path;
use std::process::{Command, Output};

const LAUNCH: &str = "launch: {grid: [\"ceil(input_elements / 256)\"], block: [256]}";

/// A kernel with this declaration, text before it and body.
fn kernel(name: &str, [declaration, before, body]: [&str; 3]) -> String {
    format!(
        "/* fxgraph\n{declaration}\n*/\n{before}__global__ void {name}(Fx fx) {{\n    {body}\n}}\n"
    )
}

/// A declaration with these lines before the launch.
fn declared(lines: &str) -> String {
    format!("{lines}\n{LAUNCH}")
}

/// Files with name, content and message.
#[allow(clippy::too_many_lines, reason = "one table")]
fn files() -> Vec<(&'static str, Vec<u8>, &'static str)> {
    let good = "fx.output[threadIdx.x] = 0;";
    let mut files: Vec<(&str, Vec<u8>, &str)> = Vec::new();
    let parameter = |text: &str| declared(&format!("parameters:\n  {text}"));
    for (name, declaration, before, body, message) in [
        ("no_semicolon", LAUNCH, "", "fx.output[0] = 1", ".cu:6: expected a \";\""),
        (
            "wrong_type",
            &*declared("input: {dtype: cf32}"),
            "",
            good,
            "the input must be cf32 (wrong_type.cu:2), got f32",
        ),
        (
            "wrong_axes",
            &declared("input: {axes: [antenna, channel]}"),
            "",
            good,
            "the input must have the axes [antenna][channel] (wrong_axes.cu:2), got [spectrum][channel]",
        ),
        (
            "unknown_type",
            &parameter("a: {type: f16, default: 1}"),
            "",
            good,
            ".cu:3: `f16` is not one of the choices",
        ),
        (
            "zero_grid",
            "launch: {grid: [0], block: [256]}",
            "",
            good,
            ".cu:2: `0` must be an integer from 1 to 2147483647, got 0",
        ),
        (
            "negative_grid",
            "launch: {grid: [1 - channel], block: [256]}",
            "",
            good,
            ".cu:2: `1 - channel` must be an integer from 1 to 2147483647, got -63",
        ),
        (
            "large_grid",
            "launch: {grid: [2 ** 40], block: [256]}",
            "",
            good,
            ".cu:2: `2 ** 40` must be an integer from 1 to 2147483647, got 1099511627776",
        ),
        (
            "many_threads",
            "launch: {grid: [1], block: [64, 64]}",
            "",
            good,
            ".cu:2: a thread block must have at most 1024 threads, got 4096",
        ),
        (
            "shared_memory",
            "launch: {grid: [1], block: [32], shared_bytes: 1000000}",
            "",
            good,
            ".cu:2: `1000000` must be an integer from 0 to 232448, got 1000000",
        ),
        (
            "shared_array",
            LAUNCH,
            "",
            "__shared__ float a[100000]; a[threadIdx.x] = 1; __syncthreads(); fx.output[0] = a[fx.sequence];",
            ".cu: the kernel does not compile: ptxas error   : Entry function 'shared_array' uses too much shared data",
        ),
        (
            "includes_file",
            LAUNCH,
            "#include \"/etc/passwd\"\n",
            good,
            ".cu:4: `#include` must name a header of fxgraph, got `/etc/passwd`",
        ),
        (
            "includes_parent",
            LAUNCH,
            "#include <../../secret.cuh>\n",
            good,
            ".cu:4: `#include` must name a header of fxgraph, got `../../secret.cuh`",
        ),
        (
            "endless_macro",
            LAUNCH,
            "#define A B\n#define B A\n",
            "fx.output[0] = A;",
            ".cu:7: identifier \"A\" is undefined",
        ),
        (
            "endless_template",
            LAUNCH,
            "template<int N> struct A { static const int v = A<N + 1>::v; };\n",
            "fx.output[0] = A<0>::v;",
            ".cu:4: excessive recursion at instantiation of class",
        ),
        (
            "endless_constant",
            LAUNCH,
            "constexpr int sum() { int s = 0; for (long n = 0; n < 1000000000000; n++) s ^= n; return s; }\n",
            "constexpr int s = sum(); fx.output[0] = s;",
            ".cu:6: expression must have a constant value",
        ),
        (
            "doubled_parameter",
            &parameter("a: {type: f32, default: 1}\n  a: {type: f32, default: 2}"),
            "",
            good,
            ".cu:4: the key `a` is given twice",
        ),
        (
            "quoted_name",
            &parameter("'a\"b': {type: f32, default: 1}"),
            "",
            good,
            ".cu:3: `a\"b` must be a name of letters",
        ),
        (
            "name_in_use",
            &parameter("channel: {type: f32, default: 1}"),
            "",
            good,
            ".cu:3: the name `channel` is in use",
        ),
        (
            "word_of_cpp",
            &parameter("while: {type: f32, default: 1}"),
            "",
            good,
            ".cu:3: `while` must be a name of letters",
        ),
        (
            "large_output",
            &declared("output: {axes: [{sample: 2 ** 36}]}"),
            "",
            good,
            ".cu:2: `2 ** 36` must be an integer from 1 to 4294967296, got 68719476736",
        ),
        (
            "no_divisor",
            &parameter("n: {type: u32, default: 0}").replace("256)\"]", "n)\"]"),
            "",
            good,
            "cu:4: `ceil(input_elements / n)`: division by 0",
        ),
        (
            "long_history",
            &declared("buffers: {history: {dtype: f32, length: 10 ** 9 * input_elements}}"),
            "",
            good,
            ".cu:2: `10 ** 9 * input_elements` must be an integer from 1 to 274877906944, got 512000000000",
        ),
        (
            "static_memory",
            LAUNCH,
            "__device__ char everything[1ull << 44];\n",
            "everything[fx.sequence] = 1; fx.output[0] = everything[7];",
            ".cu:4: the variables of the file must have at most 67108864 bytes, got 17592186044416",
        ),
        (
            "endless_alias",
            &declared("parameters: &a\n  a: *a"),
            "",
            good,
            ".cu:3: an alias must not be inside its own anchor",
        ),
        (
            "deep_declaration",
            &declared(&format!("parameters: {}{}", "[".repeat(3000), "]".repeat(3000))),
            "",
            good,
            ".cu:2: values must be nested at most 64 deep",
        ),
    ] {
        files.push((name, kernel(name, [declaration, before, body]).into_bytes(), message));
    }
    let plain = |name: &str| kernel(name, [LAUNCH, "", good]);
    let other = plain("other");
    files.extend([
        (
            "wrong_name",
            other.clone().into_bytes(),
            ".cu:4: the file must have the kernel `wrong_name`",
        ),
        (
            "two_kernels",
            format!("{other}__global__ void third(Fx fx) {{}}\n").into_bytes(),
            ".cu:4: the file must have the kernel `two_kernels`",
        ),
        (
            "own_arguments",
            plain("own_arguments")
                .replace("Fx fx", "float *output, int n")
                .replace("fx.", "")
                .into_bytes(),
            ".cu:4: the file must have the kernel `own_arguments`",
        ),
        (
            "no_end",
            plain("no_end").replace("*/", "").into_bytes(),
            ".cu:1: the comment with the declaration does not end",
        ),
        (
            "large",
            [plain("large").as_bytes(), &vec![b'/'; 2 << 20]].concat(),
            "cannot read `large.cu`: it must have at most 1048576 bytes",
        ),
        (
            "binary",
            (0..=u8::MAX).cycle().take(10_000).collect(),
            "cannot read `binary.cu`: stream did not contain valid UTF-8",
        ),
        (
            "zero_byte",
            (plain("zero_byte") + "// \0\n").into_bytes(),
            ".cu:7: the file must be text, and has a zero byte",
        ),
    ]);
    files
}

/// References in Python: name, text, message.
const REFERENCES: [(&str, &str, &str); 3] = [
    (
        "no_import",
        "import nothing_of_this_name\n",
        "`no_import.py` cannot be imported (no_import.py, line 1): ModuleNotFoundError",
    ),
    (
        "no_function",
        "def other(frame, out, fx):\n    pass\n",
        "`no_function.py` has no function `no_function`",
    ),
    (
        "two_arguments",
        "def two_arguments(frame, out):\n    pass\n",
        "`two_arguments` of `two_arguments.py` must be `two_arguments(frame, out, fx)`",
    ),
];

/// References that fail at the first frame: name, text, message.
const FAILING: [(&str, &str, &str); 3] = [
    (
        "returns",
        "def returns(frame, out, fx):\n    return frame.data\n",
        "`returns` must return None, got ndarray: fill `out.data` in place",
    ),
    (
        "other_shape",
        "import numpy as np\n\n\ndef other_shape(frame, out, fx):\n    out.data[...] = np.zeros((3, 5))\n",
        "(other_shape.py, line 5): ValueError: could not broadcast input array from shape (3,5)",
    ),
    (
        "never_ends",
        "def never_ends(frame, out, fx):\n    while True:\n        pass\n",
        "`never_ends` must answer within `timeout_seconds`, got no answer for 1",
    ),
];

/// Writes a flowgraph in which each of `names` is a block, and returns its text.
fn flowgraph<'a>(names: impl Iterator<Item = &'a str>, device: &str) -> String {
    let mut text = "flowgraph: hostile
blocks:
  source:
    kind: null_source
    parameters:
      dtype: f32
      axes: [{name: spectrum, len: 8}, {name: channel, len: 64}]
      samples_per_frame: 512
      frames: 4
"
    .to_owned();
    for name in names {
        text += &format!(
            "  {name}: {{kind: kernel, input: source, device: '{device}', parameters: {{file: {name}.cu, timeout_seconds: 1}}}}
  end_{name}: {{kind: null_sink, input: {name}}}\n"
        );
    }
    text
}

/// Runs `fxgraph COMMAND` with the flowgraph in `directory`.
fn fxgraph(directory: &Path, command: &str, flowgraph: &str) -> Output {
    std::fs::write(directory.join("hostile.yaml"), flowgraph).unwrap();
    let python = python::python();
    Command::new(env!("CARGO_BIN_EXE_fxgraph"))
        .args([command, "hostile.yaml"])
        .env("LD_LIBRARY_PATH", python::nvrtc())
        .env("VIRTUAL_ENV", python.parent().unwrap().parent().unwrap())
        // Nothing is left in the cache of the user.
        .env("XDG_CACHE_HOME", directory)
        .current_dir(directory)
        .output()
        .unwrap()
}

#[test]
fn each_hostile_kernel_has_a_message_at_its_line() {
    if !needs::nvrtc() || !needs::python() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let files = files();
    assert!(files.len() >= 30, "{}", files.len());
    for (name, content, _) in &files {
        std::fs::write(directory.path().join(format!("{name}.cu")), content).unwrap();
    }
    let text = flowgraph(files.iter().map(|(name, _, _)| *name), "cuda:0");
    let output = fxgraph(directory.path(), "validate", &text);
    assert_eq!(output.status.code(), Some(78), "the program ends with its errors");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!said.contains('\0') && !said.contains("root:"), "no text of other files: {said}");
    let errors: Vec<&str> = said.split("error[").collect();
    for (name, _, message) in &files {
        let whole = if message.starts_with('.') {
            format!("{name}{message}")
        } else {
            (*message).to_owned()
        };
        let own = errors.iter().find(|error| error.contains(&whole));
        let own = own.unwrap_or_else(|| panic!("{whole}: {said}"));
        assert!(own.contains("= help: ") && own.contains(&format!("in block `{name}`")), "{own}");
    }
}

#[test]
fn reference_that_is_wrong_has_a_message_of_its_own() {
    if !needs::nvrtc() || !needs::python() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    for (name, text, _) in REFERENCES.iter().chain(&FAILING) {
        let kernel = kernel(name, [LAUNCH, "", ""]);
        std::fs::write(directory.join(format!("{name}.cu")), kernel).unwrap();
        std::fs::write(directory.join(format!("{name}.py")), text).unwrap();
    }
    let text = flowgraph(REFERENCES.iter().map(|(name, _, _)| *name), "cpu");
    let said = String::from_utf8(fxgraph(directory, "validate", &text).stderr).unwrap();
    for (_, _, message) in REFERENCES {
        assert!(said.contains(message), "{message}: {said}");
    }
    assert!(said.contains("write `def no_function(frame, out, fx):` into the reference"), "{said}");
    for (name, _, message) in FAILING {
        let output = fxgraph(directory, "run", &flowgraph([name].into_iter(), "cpu"));
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(message), "{message}: {said}");
    }
}
