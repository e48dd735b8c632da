//! Text before a kernel: constants of the block, and the type of the kernel's argument.

use super::declaration::Validity;
use super::file::KernelFile;
use super::numbers::{NumberType, element, integer_literal, size_literal};
use fxgraph::cuda::Source;
use fxgraph::tree::Value;
use fxgraph::{Dtype, PortType};
use serde_json::{Map, Value as Json};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Words of 8 bytes at the start of `Fx`: addresses of the frames and of their validity, timestamp, sequence number.
pub const HEAD: usize = 6;

/// Place of a parameter in `Fx`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    pub name: String,
    pub number: NumberType,
    /// Byte of its start.
    pub offset: usize,
}

/// Places of the parameters, of `is_continuous` and of the end of `Fx`, in bytes.
pub struct Members {
    pub parameters: Vec<Member>,
    pub is_continuous: usize,
    pub bytes: usize,
}

/// Order of the members of `Fx`: [`HEAD`] words, addresses of the buffers and of the counters, and the parameters by size,
/// so that there are no gaps.
pub fn members(file: &KernelFile) -> Members {
    let declaration = &file.declared.declaration;
    let mut parameters: Vec<_> = declaration.parameters.iter().collect();
    parameters.sort_by_key(|(_, parameter)| std::cmp::Reverse(parameter.number.bytes()));
    let mut offset = 8 * (HEAD + declaration.buffers.len() + declaration.counters.len());
    let mut place = |(name, parameter): (&String, &super::declaration::Parameter)| {
        let member = Member { name: name.clone(), number: parameter.number, offset };
        offset += parameter.number.bytes();
        member
    };
    let parameters = parameters.into_iter().map(&mut place).collect();
    Members { parameters, is_continuous: offset, bytes: (offset + 1).next_multiple_of(8) }
}

/// The kernel for NVRTC: the text of the file, at its own lines, after the prelude.
pub fn source(
    file: &KernelFile,
    input: &PortType,
    output: &PortType,
    values: &Map<String, Json>,
    constants: &BTreeMap<String, Value>,
    buffers: &[(String, Dtype, usize)],
) -> Source {
    let mut text = "#include \"types.cuh\"\n".to_owned();
    let mut define = |name: &str, value: String| {
        let _ = writeln!(text, "#define FX_{name} {value}");
    };
    for (side, port) in [("INPUT", input), ("OUTPUT", output)] {
        for axis in &port.axes {
            define(&format!("{side}_{}", axis.name), size_literal(axis.len as u64));
        }
        define(&format!("{side}_ELEMENTS"), size_literal(port.elements() as u64));
        define(&format!("{side}_UNITS"), size_literal(port.validity.units() as u64));
        define(&format!("{side}_FULL"), size_literal(port.validity.full.into()));
        define(&format!("{side}_IS_{}", port.dtype), "1".to_owned());
    }
    let declaration = &file.declared.declaration;
    for (name, parameter) in declaration.parameters.iter().filter(|(_, parameter)| !parameter.live)
    {
        let value = values.get(name).map(|value| parameter.number.literal(value));
        define(&format!("PARAM_{name}"), value.unwrap_or_default());
    }
    for (name, value) in constants {
        let literal = match value {
            Value::Bool(value) => value.to_string(),
            // The layout has no others.
            Value::Int(number) => integer_literal(*number).unwrap_or_default(),
            other => format!("{:?}", other.float().unwrap_or_default()),
        };
        define(&format!("CONST_{name}"), literal);
    }
    // A kernel that may not write the validity does not compile if it does.
    let written = match declaration.output.validity {
        Validity::Units(_) => "output_validity",
        Validity::Same | Validity::Whole => "_unused",
    };
    let _ = writeln!(
        text,
        "using FxInput = {};\nusing FxOutput = {};\nstruct Fx {{\n  const FxInput *input;\n  FxOutput *output;\n  \
         const u32 *input_validity;\n  u32 *{written};\n  u64 timestamp;\n  u64 sequence;",
        element(input.dtype),
        element(output.dtype)
    );
    for (name, dtype, _) in buffers {
        let _ = writeln!(text, "  {} *{name};", element(*dtype));
    }
    for name in declaration.counters.keys() {
        let _ = writeln!(text, "  u64 *{name};");
    }
    for Member { name, number, .. } in members(file).parameters {
        let _ = writeln!(text, "  {} {name};", number.c_name());
    }
    // The declaration with C linkage gives the kernel its name, also if the file does not ask for it.
    let kernel = &file.kernel;
    let name = file.name.replace('\\', "\\\\").replace('"', "\\\"").replace(['\n', '\r'], " ");
    let _ = writeln!(
        text,
        "  bool is_continuous;\n}};\nextern \"C\" __global__ void {kernel}(Fx fx);\n#line 1 \"{name}\""
    );
    text.push_str(&file.text);
    text.push('\n');
    // Not the name of a file, so that `run --kernels DIR` does not put the file in the place of this text.
    Source { name: format!("{kernel} of a file").into(), text: text.into() }
}
