//! Streams with flagged units and without some frames: every complete unit of an output is that of the undisturbed
//! stream, bit by bit.
//!
//! Each block of an example gets the frames that the blocks before it make, once as they are and once disturbed. A new
//! kind is tested with its example.

use super::chain::Plain;
use super::examples::{can_run, directory, text};
use fxgraph::edge::Harness;
use fxgraph::elements::value;
use fxgraph::flowgraph::{Plan, load_in};
use fxgraph::{AnyConfigured, DeviceName, Env, Next, PortType, TimeBase};
use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};

/// Kinds whose output depends on the samples before by intention, so that it differs after a gap, each with the reason.
const WITH_MEMORY: &[(&str, &str)] = &[
    ("gnss_acquisition", "searches every n-th of the frames that it gets"),
    ("gnss_position", "its filter goes on from the epochs before"),
    ("gnss_tracker", "its loops go on from the samples before"),
];

/// Numbers of input frames to try, until there are [`ENOUGH`] output frames.
const COUNTS: [usize; 4] = [12, 48, 192, 768];
const ENOUGH: usize = 8;
/// Largest number of bytes of the input frames of a test.
const MOST_BYTES: usize = 64 << 20;
/// Depth of the queues.
const DEPTH: usize = 4;

/// Frames of each port, oldest first.
pub type Streams = Vec<Vec<Plain>>;

/// A disturbance of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Disturbance {
    /// Every third unit of some frames is flagged as missing, and zero.
    Flags,
    /// Some frames are missing, one of them in the first input only.
    Drops,
    /// A frame, and later two in a row, are missing at other times in each input, as after full queues that drop frames.
    FullQueues,
}

/// Returns the unit of an element; `None` if the axes of the payload do not tell.
fn unit_of(port: &PortType, element: usize) -> Option<usize> {
    let mut places = HashMap::new();
    let mut rest = element;
    for axis in port.axes.iter().rev() {
        places.insert(axis.name, (rest % axis.len, axis.len));
        rest /= axis.len;
    }
    port.validity.axes.iter().try_fold(0, |unit, axis| {
        // Heaps that the payload does not name are parts of its time axis.
        let names = [axis.name, "sample", "spectrum"];
        let (place, len) = names.iter().find_map(|name| places.get(name))?;
        Some(unit * axis.len + place * axis.len / len)
    })
}

/// Sets the bits of an element to 0.
fn clear(payload: &mut [u8], port: &PortType, element: usize) {
    let bits = port.dtype.bytes(8);
    for bit in element * bits..(element + 1) * bits {
        payload[bit / 8] &= !(0x80 >> (bit % 8));
    }
}

/// Flags every third unit of a frame, from the second on; a frame of one unit is flagged as a whole.
fn flag(port: &PortType, frame: &mut Plain) {
    let units = frame.validity.len();
    let is_flagged = |unit: usize| units == 1 || unit % 3 == 1;
    for unit in (0..units).filter(|unit| is_flagged(*unit)) {
        frame.validity[unit] = 0;
    }
    for element in 0..port.elements() {
        // Without a known place of the units, all of them are flagged.
        match unit_of(port, element) {
            Some(unit) if !is_flagged(unit) => {}
            Some(_) => clear(&mut frame.payload, port, element),
            None => {
                frame.validity.fill(0);
                clear(&mut frame.payload, port, element);
            }
        }
    }
}

fn disturbed(ports: &[PortType], streams: &Streams, how: Disturbance) -> Streams {
    let disturb = |(input, (port, frames)): (usize, (&PortType, &Vec<Plain>))| {
        let (first, second) = (frames.len() / 3, frames.len() / 2);
        let mut frames = frames.clone();
        match how {
            Disturbance::Flags => {
                flag(port, &mut frames[first]);
                flag(port, &mut frames[second]);
            }
            Disturbance::Drops => {
                frames.remove(second);
                if input == 0 {
                    frames.remove(first);
                }
            }
            Disturbance::FullQueues => {
                for place in [second + input + 1, second + input, first + input] {
                    frames.remove(place.min(frames.len() - 1));
                }
            }
        }
        frames
    };
    ports.iter().zip(streams).enumerate().map(disturb).collect()
}

pub fn env(directory: &Path) -> Env {
    Env { output_directory: directory.to_owned(), ..Env::detached("block") }
}

/// Runs a block over frames of its inputs, or a source until it has made `count` frames.
pub fn run(
    configured: &dyn AnyConfigured,
    inputs: &Streams,
    count: usize,
    env: &Env,
) -> Result<Streams, String> {
    run_in_bases(configured, inputs, count, env, |_| TimeBase::default())
}

/// [`run`] over frames with the time base that `base_of` returns for their timestamps. A frame of an output with another
/// base is an error.
pub fn run_in_bases(
    configured: &dyn AnyConfigured,
    inputs: &Streams,
    count: usize,
    env: &Env,
    base_of: impl Fn(u64) -> TimeBase,
) -> Result<Streams, String> {
    let ports = configured.ports();
    let block = configured.build(env).map_err(|error| error.to_string())?;
    let mut harness = Harness::new(block, ports, DEPTH).unwrap();
    Harness::block_on(harness.start()).map_err(|error| error.to_string())?;
    let mut queues: Vec<_> = inputs.iter().map(|frames| frames.iter().peekable()).collect();
    let mut outputs: Streams = vec![Vec::new(); ports.outputs.len()];
    let mut moved = Instant::now();
    loop {
        for (input, queue) in queues.iter_mut().enumerate() {
            while let Some(plain) = queue.peek() {
                let is_sent = harness.send(input, |frame| {
                    plain.copy_to(frame);
                    frame.header_mut().base = base_of(plain.timestamp);
                });
                if !is_sent {
                    break;
                }
                queue.next();
                moved = Instant::now();
            }
            if queue.peek().is_none() {
                harness.end(input);
            }
        }
        let next = Harness::block_on(harness.step()).map_err(|error| error.to_string())?;
        for (output, frames) in outputs.iter_mut().enumerate() {
            while let Some(frame) = harness.receive(output) {
                let (timestamp, base) = (frame.header().timestamp, frame.header().base);
                if base != base_of(timestamp) {
                    return Err(format!("output {output} has the base {base:?} at {timestamp}"));
                }
                frames.push(Plain::of(&frame));
                moved = Instant::now();
            }
        }
        let is_enough = inputs.is_empty() && outputs.iter().all(|frames| frames.len() >= count);
        if next == Next::Finished {
            Harness::block_on(harness.finish()).map_err(|error| error.to_string())?;
        }
        if next == Next::Finished || is_enough {
            outputs
                .iter_mut()
                .for_each(|frames| frames.truncate(if is_enough { count } else { usize::MAX }));
            return Ok(outputs);
        }
        if let Next::Wait | Next::After(_) = next {
            std::thread::sleep(Duration::from_micros(200));
        }
        assert!(moved.elapsed() < Duration::from_mins(1), "no frame moves");
    }
}

/// Returns the frames of the inputs of a block, from `count` frames of each source.
fn inputs_of(plan: &Plan, block: usize, count: usize, directory: &Path) -> Result<Streams, String> {
    let mut made: HashMap<usize, Streams> = HashMap::new();
    let mut streams = Vec::new();
    for (source, output) in &plan.blocks[block].inputs {
        if !made.contains_key(source) {
            let inputs = inputs_of(plan, *source, count, directory)?;
            let configured = &*plan.blocks[*source].configured;
            made.insert(*source, run(configured, &inputs, count, &env(directory))?);
        }
        streams.push(made[source][*output].clone());
    }
    Ok(streams)
}

/// Compares the complete units of `got` with those of the undisturbed stream. Returns their number in frames from
/// `timestamp` on.
pub fn compare(
    port: &PortType,
    expected: &[Plain],
    got: &[Plain],
    timestamp: u64,
) -> Result<u64, String> {
    let by_time: HashMap<u64, &Plain> =
        expected.iter().map(|frame| (frame.timestamp, frame)).collect();
    let full = port.validity.full;
    let mut compared = 0;
    for frame in got {
        let complete = |unit: usize| frame.validity[unit] == full;
        if !(0..frame.validity.len()).any(complete) {
            continue;
        }
        let at = frame.timestamp;
        let Some(other) = by_time.get(&at) else {
            return Err(format!("the undisturbed stream has no frame at {at}"));
        };
        for unit in (0..frame.validity.len()).filter(|unit| complete(*unit)) {
            if other.validity[unit] != full {
                return Err(format!(
                    "unit {unit} at {at} is complete only in the disturbed stream"
                ));
            }
            compared += u64::from(at >= timestamp);
        }
        for element in 0..port.elements() {
            let is_complete = match unit_of(port, element) {
                Some(unit) => complete(unit),
                None => (0..frame.validity.len()).all(complete),
            };
            let [a, b] = [other, frame].map(|frame| value(&frame.payload, port.dtype, element));
            let bits = |z: num_complex::Complex<f64>| [z.re, z.im].map(f64::to_bits);
            if is_complete && bits(a) != bits(b) {
                return Err(format!("element {element} at {at} is {b} instead of {a}"));
            }
        }
    }
    Ok(compared)
}

/// Runs the block `block` of the plan with `run`, over enough frames of its inputs for [`ENOUGH`] frames of each
/// output. Returns the frames of the inputs and of the outputs.
pub fn run_enough(
    plan: &Plan,
    directory: &Path,
    mut run: impl FnMut(&Streams) -> Result<Streams, String>,
) -> Result<(Streams, Streams), String> {
    let block = plan.block("block").unwrap();
    let ports = plan.blocks[block].configured.ports();
    let bytes: usize = ports.inputs.iter().map(PortType::frame_bytes).sum();
    let counts =
        COUNTS.into_iter().filter(|count| *count == COUNTS[0] || count * bytes <= MOST_BYTES);
    let mut last = Err("no frame was tried".to_owned());
    for count in counts {
        let inputs = inputs_of(plan, block, count, directory)?;
        let outputs = run(&inputs)?;
        let is_enough = outputs.iter().all(|frames| frames.len() >= ENOUGH);
        last = Ok((inputs, outputs));
        if is_enough {
            break;
        }
    }
    last
}

/// Tests one block; returns the number of complete units compared after the disturbances.
fn test(plan: &Plan, how: Disturbance, directory: &Path) -> Result<u64, String> {
    let configured = &*plan.blocks[plan.block("block").unwrap()].configured;
    let ports = configured.ports();
    let run = |inputs: &Streams| run(configured, inputs, 0, &env(directory));
    let (inputs, expected) = run_enough(plan, directory, run)?;
    if inputs.iter().any(|frames| frames.len() < 6) {
        return Err("the frames of a source are too few".to_owned());
    }
    let got = run(&disturbed(&ports.inputs, &inputs, how))?;
    let after = inputs[0][inputs[0].len() / 3].timestamp;
    let mut compared = 0;
    for (port, (expected, got)) in ports.outputs.iter().zip(expected.iter().zip(&got)) {
        compared += compare(port, expected, got, after)?;
    }
    Ok(compared)
}

#[test]
fn complete_units_of_disturbed_streams_are_those_of_undisturbed_ones() {
    let (registry, directory) = (crate::kinds(), directory());
    let mut found = Vec::new();
    for example in registry.examples(DeviceName::Cpu).into_iter().filter(can_run) {
        if WITH_MEMORY.iter().any(|(kind, _)| *kind == example.kind) {
            continue;
        }
        let name = Path::new("example.yaml");
        let text = text(&example.flowgraph, directory.path());
        let plan = load_in(directory.path(), name, &text, &[], &registry).result.unwrap();
        let block = &plan.blocks[plan.block("block").unwrap()];
        if block.ports.inputs.is_empty() || block.ports.outputs.is_empty() {
            continue;
        }
        for how in [Disturbance::Flags, Disturbance::Drops, Disturbance::FullQueues] {
            match test(&plan, how, directory.path()) {
                Ok(0) => found.push(format!("{example}, {how:?}: no complete unit was compared")),
                Ok(_) => {}
                Err(why) => found.push(format!("{example}, {how:?}: {why}")),
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}
