//! Ports, sizes and launch of a kernel: its declaration with the numbers of one block.

use super::Kernel;
use super::declaration::{
    Buffer, Declaration, Declared, Expression, OutputAxis, Problem, Validity,
};
use super::file::KernelFile;
use super::numbers::integer_literal;
use super::prelude;
use crate::common::axes::{MAX_FRAME_BYTES, NAMES, known};
use crate::util::python::{Program, to_json};
use fxgraph::cuda::{Grid, Source};
use fxgraph::diagnostic::codes;
use fxgraph::dtype::UnknownDtype;
use fxgraph::flowgraph::compute;
use fxgraph::tree::Value;
use fxgraph::{At, Axis, Band, Dtype, PortType, Rejection, ValidityType};
use serde_json::{Map, Value as Json, json};
use std::collections::BTreeMap;

/// Limits of a launch, by dimension, and of the threads of a thread block.
const MOST_BLOCKS: [usize; 3] = [(1 << 31) - 1, 65_535, 65_535];
const MOST_THREADS: [usize; 3] = [1024, 1024, 64];
/// Dynamic shared memory that the largest GPUs have for a thread block, in bytes.
const MOST_SHARED_BYTES: usize = 227 << 10;
/// Longest expression.
const MAX_EXPRESSION_BYTES: usize = 1000;
/// Largest number of axes of a port.
const MAX_AXES: usize = 16;
/// Most bytes of the counts of units: the host writes and reads them for each frame.
const MAX_VALIDITY_BYTES: usize = 64 << 20;
/// Largest buffer in bytes. The plan compares all memory with that of the device.
const MAX_BUFFER_BYTES: usize = 1 << 40;

/// A kernel with the sizes of one block.
pub struct Layout {
    pub file: KernelFile,
    /// Values of all parameters.
    pub values: Map<String, Json>,
    pub grid: Grid,
    pub shared_bytes: usize,
    /// Name, data type and number of elements of each buffer.
    pub buffers: Vec<(String, Dtype, usize)>,
    /// The kernel for NVRTC.
    pub source: Source,
    /// The reference for the interpreter.
    pub program: Option<Program>,
}

impl Layout {
    pub fn new(parameters: &Kernel, input: &PortType) -> Result<(Self, PortType), Vec<Rejection>> {
        let file = KernelFile::read(parameters)?;
        let values = values(&file, &parameters.values.0)?;
        let declaration = &file.declared.declaration;
        let mut rejected = reject_input(&file, input);
        let mut names = Names { file: &file, known: input_names(input) };
        for (name, parameter) in &declaration.parameters {
            if let Some(value) = values.get(name).filter(|_| !parameter.live) {
                names.add(name, json_number(value));
            }
        }
        if !rejected.is_empty() {
            return Err(rejected);
        }
        let one = |problem| vec![file.rejection(problem)];
        let output = names.output(input).map_err(one)?;
        names.add_output(&output);
        let mut constants = BTreeMap::new();
        for (name, expression) in &declaration.constants {
            let value = names.number(&format!("constants.{name}"), expression).map_err(one)?;
            constants.insert(name.clone(), value);
        }
        constants.iter().for_each(|(name, value)| names.add(name, value.clone()));
        rejected.extend(names.broken().into_iter().map(|problem| file.rejection(problem)));
        let launch = &declaration.launch;
        let grid = names.sizes("launch.grid", &launch.grid, MOST_BLOCKS).map_err(one)?;
        let block = names.sizes("launch.block", &launch.block, MOST_THREADS).map_err(one)?;
        let threads: usize = block.iter().product();
        if threads > MOST_THREADS[0] {
            let message = format!(
                "a thread block must have at most {} threads, got {threads}",
                MOST_THREADS[0]
            );
            return Err(one(file.declared.problem("launch.block", message)));
        }
        let shared = launch.shared_bytes.as_ref();
        let shared =
            shared.map(|bytes| names.size("launch.shared_bytes", bytes, 0..=MOST_SHARED_BYTES));
        let shared_bytes = shared.transpose().map_err(one)?.unwrap_or(0);
        let buffers: Result<_, Problem> =
            declaration.buffers.iter().map(|(name, buffer)| names.buffer(name, buffer)).collect();
        let buffers: Vec<(String, Dtype, usize)> = buffers.map_err(one)?;
        if !rejected.is_empty() {
            return Err(rejected);
        }
        let source = prelude::source(&file, input, &output, &values, &constants, &buffers);
        let program = program(parameters, &file, &output, &buffers);
        let grid = Grid { blocks: grid, threads: block };
        Ok((Self { file, values, grid, shared_bytes, buffers, source, program }, output))
    }

    /// The declaration.
    pub fn declaration(&self) -> &Declaration {
        &self.file.declared.declaration
    }

    /// Size of all buffers in bytes.
    pub fn buffer_bytes(&self) -> usize {
        self.buffers.iter().map(|(_, dtype, length)| dtype.bytes(*length)).sum()
    }

    /// Whether the kernel reads the validity of its input. A copy to the device costs some microseconds, so kernels that
    /// do not name it get none.
    pub fn reads_validity(&self) -> bool {
        self.file.text.contains("input_validity")
    }

    /// Whether the kernel writes the validity of its output.
    pub fn writes_validity(&self) -> bool {
        matches!(self.declaration().output.validity, Validity::Units(_))
    }
}

/// The reference with the types of one block.
fn program(
    parameters: &Kernel,
    file: &KernelFile,
    output: &PortType,
    buffers: &[(String, Dtype, usize)],
) -> Option<Program> {
    let reference = file.reference.as_ref()?;
    let declaration = &file.declared.declaration;
    let declared = declaration.parameters.iter();
    let types: Vec<_> = declared
        .clone()
        .map(|(name, parameter)| json!([name, parameter.number.python_name()]))
        .collect();
    let live: Vec<_> =
        declared.filter(|(_, parameter)| parameter.live).map(|(name, _)| name).collect();
    let buffers: Map<String, Json> = buffers
        .iter()
        .map(|(name, dtype, length)| (name.clone(), json!([dtype.to_string(), length])))
        .collect();
    let function = json!({
        "parameters": types,
        "live": live,
        "output": to_json(output),
        "buffers": buffers,
        "counters": declaration.counters.keys().collect::<Vec<_>>(),
        "validity": match &declaration.output.validity {
            Validity::Same => "same",
            Validity::Whole => "whole",
            Validity::Units(_) => "units",
        },
    });
    Some(Program {
        python: parameters.interpreter.path(),
        name: reference.name.clone(),
        directory: reference.directory.clone(),
        text: reference.text.clone(),
        class: file.kernel.clone(),
        memory_limit_bytes: parameters.interpreter.memory_limit_bytes,
        function: Some(function),
    })
}

/// Values of all parameters of the kernel: the given ones, and the defaults of the others.
fn values(
    file: &KernelFile,
    given: &Map<String, Json>,
) -> Result<Map<String, Json>, Vec<Rejection>> {
    let parameters = &file.declared.declaration.parameters;
    let mut rejected = Vec::new();
    for name in given.keys().filter(|name| !parameters.contains_key(*name)) {
        let names: Vec<_> = parameters.keys().map(|name| format!("`{name}`")).collect();
        let has = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        let message = format!("`{}` has no parameter `{name}`; it has {has}", file.kernel);
        let at = At::Value(format!("values.{name}"));
        rejected.push(Rejection::new(codes::PARAMETER_OUT_OF_RANGE, at, message).help("remove it"));
    }
    let mut values = Map::new();
    for (name, parameter) in parameters {
        if parameter.range.is_some_and(|[least, greatest]| least.is_nan() || least > greatest) {
            let message =
                format!("the range of `{name}` must be from a number to one that is not less");
            rejected.push(
                file.rejection(file.declared.problem(&format!("parameters.{name}.range"), message)),
            );
            continue;
        }
        let rule = |rule: &str, value: &Json| format!("`{name}` must be {rule}, got {value:.60}");
        match (given.get(name), &parameter.default) {
            (Some(value), _) => match parameter.value(value) {
                Ok(value) => drop(values.insert(name.clone(), value)),
                Err(broken) => {
                    let at = At::Value(format!("values.{name}"));
                    let message = rule(&broken, value);
                    rejected.push(Rejection::new(codes::PARAMETER_OUT_OF_RANGE, at, message));
                }
            },
            (None, Some(default)) => match parameter.value(default) {
                Ok(value) => drop(values.insert(name.clone(), value)),
                Err(broken) => {
                    let path = format!("parameters.{name}.default");
                    let problem = file
                        .declared
                        .problem(&path, format!("the default of {}", rule(&broken, default)));
                    rejected.push(file.rejection(problem));
                }
            },
            (None, None) => {
                let message = format!("`{}` needs the parameter `{name}`", file.kernel);
                let help = format!("give it: `values: {{{name}: ...}}`");
                rejected.push(
                    Rejection::new(codes::MISSING_KEY, At::Parameter("values"), message).help(help),
                );
            }
        }
    }
    if rejected.is_empty() { Ok(values) } else { Err(rejected) }
}

/// Diagnostics for an input that the kernel does not accept.
fn reject_input(file: &KernelFile, input: &PortType) -> Vec<Rejection> {
    let rule = &file.declared.declaration.input;
    let mut rejected = Vec::new();
    let line = |path: &str| {
        let line = file.declared.problem(path, "").line;
        line.map_or_else(|| file.name.clone(), |line| format!("{}:{line}", file.name))
    };
    for (n, dtype) in rule.dtype.0.iter().enumerate() {
        if dtype.parse::<Dtype>().is_err() {
            let path = if rule.dtype.0.len() == 1 {
                "input.dtype".to_owned()
            } else {
                format!("input.dtype.{n}")
            };
            rejected.push(
                file.rejection(
                    file.declared.problem(&path, format!("`{dtype}` is not a data type")),
                ),
            );
        }
    }
    if rejected.is_empty()
        && !rule.dtype.0.is_empty()
        && !rule.dtype.0.contains(&input.dtype.to_string())
    {
        let wanted = rule.dtype.0.join(", ");
        let message =
            format!("the input must be {wanted} ({}), got {}", line("input.dtype"), input.dtype);
        let rejection = Rejection::new(codes::INPUT_DTYPE, At::Input(0), message);
        rejected
            .push(rejection.help(
                "insert a `convert` before the block, or accept the type in the declaration",
            ));
    }
    let found: Vec<&str> = input.axes.iter().map(|axis| axis.name).collect();
    if let Some(wanted) = rule.axes.as_ref().filter(|wanted| **wanted != found) {
        let shown = |names: &[&str]| format!("[{}]", names.join("]["));
        let wanted: Vec<&str> = wanted.iter().map(String::as_str).collect();
        let place = line("input.axes");
        let message = format!(
            "the input must have the axes {} ({place}), got {}",
            shown(&wanted),
            shown(&found)
        );
        let rejection = Rejection::new(codes::INPUT_AXIS, At::Input(0), message);
        rejected.push(rejection.help(
            "insert a `transpose` before the block, or change `input.axes` of the declaration",
        ));
    }
    rejected
}

fn json_number(value: &Json) -> Value {
    if let Json::Bool(value) = value {
        return Value::Bool(*value);
    }
    let integer = value.as_i64().map(i128::from).or(value.as_u64().map(i128::from));
    integer.map_or_else(|| Value::Float(value.as_f64().unwrap_or_default()), Value::Int)
}

fn integer(number: usize) -> Value {
    Value::Int(number as i128)
}

/// Names of the sizes of the input.
fn input_names(input: &PortType) -> BTreeMap<String, Value> {
    let mut names: BTreeMap<_, _> =
        input.axes.iter().map(|axis| (axis.name.to_owned(), integer(axis.len))).collect();
    names.insert("input_elements".to_owned(), integer(input.elements()));
    names.insert("input_units".to_owned(), integer(input.validity.units()));
    names.insert("samples_per_frame".to_owned(), Value::Int(input.clock.samples_per_frame.into()));
    names
}

/// Values of names in expressions.
struct Names<'a> {
    file: &'a KernelFile,
    known: BTreeMap<String, Value>,
}

impl Names<'_> {
    fn add(&mut self, name: &str, value: Value) {
        self.known.insert(name.to_owned(), value);
    }

    fn add_output(&mut self, output: &PortType) {
        for axis in &output.axes {
            self.add(&format!("output_{}", axis.name), integer(axis.len));
        }
        self.add("output_elements", integer(output.elements()));
        self.add("output_units", integer(output.validity.units()));
    }

    /// The value of the expression at `path` of the declaration.
    fn value(&self, path: &str, Expression(text): &Expression) -> Result<Value, Problem> {
        let declared = &self.file.declared;
        if text.len() > MAX_EXPRESSION_BYTES {
            let message =
                format!("an expression must have at most {MAX_EXPRESSION_BYTES} characters");
            return Err(declared.problem(path, message));
        }
        compute(text, &|name| self.known.get(name).cloned()).map_err(|(place, why)| {
            let wrong = text.get(place).unwrap_or_default();
            let parameter = declared.declaration.parameters.get(wrong);
            let problem = declared.problem(path, format!("`{text}`: {why}"));
            if parameter.is_some_and(|parameter| parameter.live) {
                let message = format!(
                    "`{text}` must not depend on `{wrong}`, which may change while the block runs"
                );
                return Problem { message, ..problem };
            }
            let names: Vec<_> = self.known.keys().map(|name| format!("`{name}`")).collect();
            if why.starts_with("unknown parameter") {
                problem.help(format!("use one of {}", names.join(", ")))
            } else {
                problem
            }
        })
    }

    /// A number.
    fn number(&self, path: &str, expression: &Expression) -> Result<Value, Problem> {
        let value = self.value(path, expression)?;
        let message = match &value {
            Value::Int(number) if integer_literal(*number).is_none() => {
                format!("`{}` must fit 64 bits, got {number}", expression.0)
            }
            Value::Float(number) if !number.is_finite() => {
                format!("`{}` must be finite, got {number}", expression.0)
            }
            Value::Int(_) | Value::Float(_) | Value::Bool(_) => return Ok(value),
            _ => format!("`{}` must be a number, got {}", expression.0, value.sort()),
        };
        Err(self.file.declared.problem(path, message))
    }

    /// A size.
    fn size(
        &self,
        path: &str,
        expression: &Expression,
        range: std::ops::RangeInclusive<usize>,
    ) -> Result<usize, Problem> {
        let value = self.value(path, expression)?;
        let size = value.whole().and_then(|size| usize::try_from(size).ok());
        size.filter(|size| range.contains(size)).ok_or_else(|| {
            let (least, most) = (range.start(), range.end());
            let message = format!(
                "`{}` must be an integer from {least} to {most}, got {}",
                expression.0,
                value.plain()
            );
            self.file.declared.problem(path, message)
        })
    }

    /// Up to 3 sizes; those that are not given are 1.
    fn sizes(
        &self,
        path: &str,
        given: &[Expression],
        most: [usize; 3],
    ) -> Result<[usize; 3], Problem> {
        let mut sizes = [1; 3];
        for (n, (size, expression)) in sizes.iter_mut().zip(given).enumerate() {
            *size = self.size(&format!("{path}.{n}"), expression, 1..=most[n])?;
        }
        Ok(sizes)
    }

    /// Conditions of the declaration that do not hold.
    fn broken(&self) -> Option<Problem> {
        let require = &self.file.declared.declaration.require;
        require.iter().enumerate().find_map(|(n, condition)| {
            let path = format!("require.{n}");
            match self.value(&path, condition) {
                Ok(Value::Bool(true)) => None,
                Ok(Value::Bool(false)) => {
                    let used =
                        self.known.iter().filter(|(name, _)| condition.0.contains(name.as_str()));
                    let used: Vec<_> =
                        used.map(|(name, value)| format!("`{name}` = {}", value.plain())).collect();
                    let message = format!("`{}` must hold, got {}", condition.0, used.join(", "));
                    Some(
                        self.file
                            .declared
                            .problem(&path, message)
                            .help("change the input or the parameters"),
                    )
                }
                Ok(value) => {
                    let message =
                        format!("`{}` must be true or false, got {}", condition.0, value.sort());
                    Some(self.file.declared.problem(&path, message))
                }
                Err(problem) => Some(problem),
            }
        })
    }

    fn buffer(&self, name: &str, buffer: &Buffer) -> Result<(String, Dtype, usize), Problem> {
        let declared = &self.file.declared;
        let dtype: Dtype = buffer.dtype.parse().map_err(|error: UnknownDtype| {
            declared.problem(&format!("buffers.{name}.dtype"), error.to_string())
        })?;
        let most = MAX_BUFFER_BYTES / dtype.bits().div_ceil(8);
        let length = self.size(&format!("buffers.{name}.length"), &buffer.length, 1..=most)?;
        Ok((name.to_owned(), dtype, length))
    }

    /// The output for `input`.
    fn output(&self, input: &PortType) -> Result<PortType, Problem> {
        let declared = &self.file.declared;
        let rule = &declared.declaration.output;
        let dtype = rule.dtype.as_ref().map(|dtype| dtype.parse());
        let dtype: Option<Dtype> = dtype
            .transpose()
            .map_err(|error: UnknownDtype| declared.problem("output.dtype", error.to_string()))?;
        let dtype = dtype.unwrap_or(input.dtype);
        let axes = match &rule.axes {
            None => input.axes.clone(),
            Some(axes) if axes.len() > MAX_AXES => {
                return Err(declared
                    .problem("output.axes", format!("a port must have at most {MAX_AXES} axes")));
            }
            Some(axes) => {
                let axes = axes.iter().enumerate();
                axes.map(|(n, axis)| self.axis(n, axis, input)).collect::<Result<_, _>>()?
            }
        };
        let names: Vec<&str> = axes.iter().map(|axis: &Axis| axis.name).collect();
        reject_repeated(declared, "output.axes", &names)?;
        let units = |names: &[String]| {
            reject_repeated(declared, "output.validity.units", names)?;
            let units = names.iter().enumerate().map(|(n, name)| {
                let path = format!("output.validity.units.{n}");
                let axis = axes.iter().find(|axis: &&Axis| axis.name == name);
                axis.cloned().ok_or_else(|| {
                    declared.problem(&path, format!("the output has no axis `{name}`"))
                })
            });
            Ok(ValidityType::flags(units.collect::<Result<_, _>>()?))
        };
        let validity = match &rule.validity {
            Validity::Same => input.validity.clone(),
            Validity::Whole => ValidityType::flags(Vec::new()),
            Validity::Units(names) => units(names)?,
        };
        let band = band(input, dtype, &axes);
        let output = PortType { dtype, axes, clock: input.clock, band, validity };
        let size =
            output.axes.iter().try_fold(dtype.bits(), |bits, axis| bits.checked_mul(axis.len));
        if size.is_none_or(|bits| bits.div_ceil(8) > MAX_FRAME_BYTES) {
            let message =
                format!("a frame must have at most {MAX_FRAME_BYTES} bytes, got {output}");
            return Err(declared.problem("output", message));
        }
        let bytes = output.validity.units().saturating_mul(size_of::<u32>());
        if matches!(rule.validity, Validity::Units(_)) && bytes > MAX_VALIDITY_BYTES {
            let most = MAX_VALIDITY_BYTES / size_of::<u32>();
            let message = format!(
                "the validity must have at most {most} units, got {}",
                bytes / size_of::<u32>()
            );
            return Err(declared.problem("output.validity", message).help("name fewer axes"));
        }
        Ok(output)
    }

    fn axis(&self, n: usize, axis: &OutputAxis, input: &PortType) -> Result<Axis, Problem> {
        let OutputAxis { name, length } = axis;
        let path = format!("output.axes.{n}");
        let same = input.axes.iter().find(|axis| axis.name == name);
        let Some(expression) = length else {
            return same.cloned().ok_or_else(|| {
                let problem =
                    self.file.declared.problem(&path, format!("the input has no axis `{name}`"));
                problem.help(format!("give its length: `{{{name}: 1024}}`"))
            });
        };
        let length = self.size(&format!("{path}.{name}"), expression, 1..=MAX_FRAME_BYTES)?;
        if let Some(same) = same.filter(|same| same.len == length) {
            return Ok(same.clone());
        }
        let name = same.map(|same| same.name).or_else(|| known(name)).ok_or_else(|| {
            let message =
                format!("an axis must have one of the names {}, got `{name}`", NAMES.join(", "));
            self.file.declared.problem(&path, message)
        })?;
        Ok(Axis::new(name, length))
    }
}

/// The error of a name that is twice in the list at `path`.
fn reject_repeated(
    declared: &Declared,
    path: &str,
    names: &[impl AsRef<str>],
) -> Result<(), Problem> {
    let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
    match names.iter().enumerate().find(|(n, name)| names[..*n].contains(name)) {
        Some((n, name)) => {
            let message = format!("the axis `{name}` must not be given twice");
            Err(declared.problem(&format!("{path}.{n}"), message))
        }
        None => Ok(()),
    }
}

/// Band of the output: that of the input if the kernel keeps its channels, or its samples.
fn band(input: &PortType, dtype: Dtype, axes: &[Axis]) -> Option<Band> {
    let length =
        |axes: &[Axis], name: &str| axes.iter().find(|axis| axis.name == name).map(|axis| axis.len);
    let keeps = |name: &str| length(&input.axes, name) == length(axes, name);
    // Powers of complex channels keep the frequencies; samples that become complex or real get others.
    let is_same =
        dtype.is_complex() == input.dtype.is_complex() || length(axes, "channel").is_some();
    input.band.filter(|_| keeps("channel") && keeps("sample") && is_same)
}
