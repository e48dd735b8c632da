//! A shadow: a second block on the inputs of a running one, whose output frames are compared with the block's.

use super::cell::Cell;
use super::hosted::Hosted;
use super::report::Unanswered;
use super::run::Run;
use super::running::Handle;
use super::swap::NotSwapped;
use super::swap::candidate::{Link, Order, launch};
use fxgraph_core::changes::{Change, ConfigIds};
use fxgraph_core::counter::Counter;
use fxgraph_core::difference::{Difference, StreamDifference};
use fxgraph_core::edge::Tee;
use fxgraph_core::edge::{Edge, FrameReader};
use fxgraph_core::elements::Elements;
use fxgraph_core::error::BlockError;
use fxgraph_core::event::EventKind;
use fxgraph_core::kind::Waker;
use fxgraph_core::lock::lock;
use fxgraph_core::npy;
use fxgraph_core::port::PortType;
use fxgraph_cuda::{self as cuda, CudaError, Device, Readout};
use fxgraph_flowgraph::Part;
use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// Time limit for a thread to end after the order to.
const PARTING: Duration = Duration::from_secs(10);

/// Result of the comparison of a shadow's frames with those of the block.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Compared {
    /// Statistics of the differences.
    pub difference: StreamDifference,
    /// Frames dropped because the shadow or the comparison was too slow.
    pub frames_dropped: u64,
    /// The first two frames that differ.
    pub first: Option<Arc<Pair>>,
    /// Time per frame of the block, since the start of the shadow.
    pub block_time: Option<Duration>,
    /// Time per frame of the shadow.
    pub shadow_time: Option<Duration>,
    /// Reason why the shadow has ended, if it has.
    pub ended: Option<String>,
}

/// Two frames with the same timestamp that differ.
#[derive(Clone, Debug, PartialEq)]
pub struct Pair {
    /// Output port, by position.
    pub output: usize,
    /// Type of the port: data type, axes, clock.
    pub port: PortType,
    /// Timestamp of both frames.
    pub timestamp: u64,
    /// Payload of the block's frame.
    pub block: Vec<u8>,
    /// Payload of the shadow's frame.
    pub shadow: Vec<u8>,
}

impl Pair {
    /// Returns the block's frame as a NumPy array (`.npy`).
    #[must_use]
    pub fn block_npy(&self) -> Vec<u8> {
        npy::array(&self.port, &self.block)
    }

    /// Returns the shadow's frame as a NumPy array (`.npy`).
    #[must_use]
    pub fn shadow_npy(&self) -> Vec<u8> {
        npy::array(&self.port, &self.shadow)
    }
}

/// A shadow of a running block. It ends with the block, or when this value is dropped.
pub(crate) struct Shadow {
    link: Arc<Link>,
    compared: Arc<Mutex<Compared>>,
    dropped: Vec<Counter>,
    main: Arc<Cell>,
    side: Arc<Cell>,
    /// Busy time and frames of the block at the start of the shadow.
    before: (Duration, u64),
    is_over: Arc<AtomicBool>,
    comparison: Thread,
}

impl Shadow {
    /// Offers the shadow new values of its live parameters; `false` if it has ended.
    pub fn offer(&self, change: Change) -> bool {
        self.link.offer(change)
    }

    /// Result of the comparison so far.
    pub fn compared(&self) -> Compared {
        let mut compared = lock(&self.compared).clone();
        compared.frames_dropped = self.dropped.iter().map(Counter::get).sum();
        let per_frame =
            |busy: Duration, frames: u64| (frames > 0).then(|| busy.div_f64(frames as f64));
        let (busy, frames) = spent(&self.main);
        compared.block_time = per_frame(busy.saturating_sub(self.before.0), frames - self.before.1);
        let (busy, frames) = spent(&self.side);
        compared.shadow_time = per_frame(busy, frames);
        let has_ended = self.is_over.load(Ordering::Acquire);
        let differs = || has_ended.then(|| "a frame differs".to_owned());
        compared.ended = compared.ended.or_else(|| self.link.fault()).or_else(differs);
        compared
    }
}

/// Returns the larger of CPU and GPU busy time, and the number of consumed frames.
fn spent(cell: &Cell) -> (Duration, u64) {
    let stats = cell.stats();
    (stats.longest_busy().max(stats.device_busy), stats.frames_in)
}

impl Drop for Shadow {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        self.comparison.unpark();
        self.link.order(Order::End);
    }
}

impl Handle {
    /// Runs `part` as a shadow of the block with its name. `part` has a tee before each input and one
    /// queue after each output. `device` is the GPU that holds the frames of both blocks, if any. With
    /// `ends_at_difference` the comparison ends at the first frame that differs.
    pub(crate) fn shadow(
        &self,
        part: Part,
        device: Option<&Arc<Device>>,
        limit: Duration,
        ends_at_difference: bool,
    ) -> Result<Shadow, NotSwapped> {
        let name = part.name.clone();
        let Some(main) = self.run().cell(&name).map(Arc::clone) else {
            return Err(Unanswered::NoSuchBlock(name).into());
        };
        let not_started = |error: &dyn Error| NotSwapped::NotStarted(error.to_string());
        let link = Link::new(Waker::default());
        wake_through(&link, &part);
        let kept: Vec<Arc<Edge>> =
            part.outputs.iter().flat_map(|output| output.edges.iter().cloned()).collect();
        let of_main: Vec<Arc<Edge>> = kept.iter().map(|edge| Edge::new(edge.depth())).collect();
        let outputs = outputs(&part.ports.outputs, [&of_main, &kept], device);
        let compared = Arc::new(Mutex::new(Compared::default()));
        let is_over = Arc::new(AtomicBool::new(false));
        let comparison = Comparison {
            name: name.clone(),
            outputs: outputs.map_err(|error| not_started(&error))?,
            compared: Arc::clone(&compared),
            is_over: Arc::clone(&is_over),
            link: Arc::clone(&link),
            run: Arc::clone(self.run()),
            ends_at_difference,
        };
        let edges = Edges { tees: part.inputs.clone(), kept, of_main };
        let side = launch(part, &ConfigIds::from(0), self.run(), &link)
            .map_err(|error| not_started(&error))?;
        let attached = self.attach_shadow(&name, &link, comparison, edges, limit);
        let (comparison, dropped) = attached.inspect_err(|_| {
            is_over.store(true, Ordering::Release);
            link.order(Order::End);
            let _ = link.wait_gone(Instant::now() + PARTING);
        })?;
        link.order(Order::Work);
        let before = spent(&main);
        Ok(Shadow { link, compared, dropped, main, side, before, is_over, comparison })
    }

    /// Waits for the start of the shadow, starts the comparison thread, and connects both to the running
    /// block. Returns the thread, and the counters of dropped frames.
    fn attach_shadow(
        &self,
        name: &str,
        link: &Link,
        comparison: Comparison,
        Edges { tees, kept, of_main }: Edges,
        limit: Duration,
    ) -> Result<(Thread, Vec<Counter>), NotSwapped> {
        link.wait_started(Instant::now() + limit).map_err(NotSwapped::NotStarted)?;
        let thread = thread::Builder::new().name(format!("{name} compared"));
        let thread = thread.spawn(move || comparison.run());
        let thread = thread.map_err(|error| NotSwapped::NotStarted(error.to_string()))?;
        for edge in kept.iter().chain(&of_main) {
            let comparison = thread.thread().clone();
            edge.reader.set(move || comparison.unpark());
        }
        let dropped = self.ask(name, limit, move |hosted| hosted.put_tees(tees, of_main))?;
        Ok((thread.thread().clone(), dropped.ok_or(NotSwapped::Busy)?))
    }

    /// Removes the tees of `block`, which ends its shadow.
    pub(crate) fn end_shadow(&self, block: &str, limit: Duration) -> Result<(), Unanswered> {
        self.ask(block, limit, |hosted| {
            hosted.inputs.iter_mut().for_each(|input| input.reader.set_tee(None));
            hosted.outputs.iter_mut().for_each(|output| output.writer.set_tee(None));
        })
    }
}

/// Lets every event that the block of `part` waits for wake the shadow's thread.
fn wake_through(link: &Arc<Link>, part: &Part) {
    let wake = || {
        let link = Arc::clone(link);
        move || link.wake_candidate()
    };
    part.wake.set(wake());
    part.inputs.iter().for_each(|tee| {
        tee.reader.set(wake());
    });
    for output in &part.outputs {
        output.edges.iter().for_each(|kept| {
            kept.writer.set(wake());
        });
        if let Some(pool) = &output.pool {
            pool.on_return(wake());
        }
    }
}

/// Edges of a shadow and its comparison.
struct Edges {
    /// Before each input of the shadow.
    tees: Vec<Arc<Edge>>,
    /// After each output of the shadow.
    kept: Vec<Arc<Edge>>,
    /// After each output of the running block.
    of_main: Vec<Arc<Edge>>,
}

impl Hosted {
    /// Copies the input frames to the edges `before`, and the output frames to the edges `behind`. Returns the
    /// counters of frames that found no room there, or `None` if a swap or shadow has tees already.
    fn put_tees(&mut self, before: Vec<Arc<Edge>>, behind: Vec<Arc<Edge>>) -> Option<Vec<Counter>> {
        if self.inputs.iter().any(|input| input.reader.has_tee()) {
            return None;
        }
        let from = self.next_time();
        let mut dropped = Vec::new();
        let mut tee = |edge, from| {
            let tee = Tee::new(edge, from, false);
            dropped.push(tee.dropped().clone());
            Some(tee)
        };
        for (input, edge) in self.inputs.iter_mut().zip(before) {
            input.reader.set_tee(tee(edge, from));
        }
        for (output, edge) in self.outputs.iter_mut().zip(behind) {
            output.writer.set_tee(tee(edge, 0));
        }
        Some(dropped)
    }
}

/// One output of both blocks.
struct Output {
    main: FrameReader,
    shadow: FrameReader,
    elements: Elements,
    port: PortType,
    /// Copies frames from the GPU that holds them.
    readout: Option<Readout>,
    /// Buffers for the copies, of the block's and of the shadow's frame.
    copies: [Vec<u8>; 2],
}

/// Creates the outputs of both blocks, from the edges of the block and those of its shadow.
fn outputs(
    ports: &[PortType],
    [of_main, kept]: [&[Arc<Edge>]; 2],
    device: Option<&Arc<Device>>,
) -> Result<Vec<Output>, CudaError> {
    let all = of_main.iter().zip(kept).zip(ports).map(|((main, shadow), port)| {
        let bytes = port.frame_bytes();
        Ok(Output {
            main: FrameReader::new(Arc::clone(main)),
            shadow: FrameReader::new(Arc::clone(shadow)),
            elements: Elements::new(port),
            port: port.clone(),
            readout: device.map(|device| Readout::new(device, bytes)).transpose()?,
            copies: [const { Vec::new() }; 2],
        })
    });
    all.collect()
}

/// Comparison thread, so that the comparison delays neither block.
struct Comparison {
    name: String,
    outputs: Vec<Output>,
    compared: Arc<Mutex<Compared>>,
    is_over: Arc<AtomicBool>,
    link: Arc<Link>,
    run: Arc<Run>,
    ends_at_difference: bool,
}

impl Comparison {
    fn run(mut self) {
        while !self.is_over.load(Ordering::Acquire) {
            let mut has_compared = false;
            for number in 0..self.outputs.len() {
                match self.step(number) {
                    Ok(has) => has_compared |= has,
                    Err(error) => {
                        lock(&self.compared).ended = Some(error.to_string());
                        self.is_over.store(true, Ordering::Release);
                    }
                }
            }
            let has_ended = |output: &Output| output.main.ended();
            if !has_compared && self.outputs.iter().all(has_ended) && self.link.fault().is_some() {
                break;
            }
            if !has_compared {
                thread::park_timeout(Duration::from_millis(100));
            }
        }
        self.link.order(Order::End);
    }

    /// Consumes the next frame of both blocks at an output, or the older one if their timestamps differ;
    /// `false` if a frame is missing.
    fn step(&mut self, number: usize) -> Result<bool, BlockError> {
        let Output { main, shadow, elements, port, readout, copies } = &mut self.outputs[number];
        let (Some(a), Some(b)) = (main.peek().cloned(), shadow.peek().cloned()) else {
            return Ok(false);
        };
        let (time, other) = (a.header().timestamp, b.header().timestamp);
        if time <= other {
            main.pop();
        }
        if other <= time {
            shadow.pop();
        }
        if time != other || a.header().validity != b.header().validity {
            lock(&self.compared).difference.frames_alone += 1;
            return Ok(true);
        }
        let [copy_a, copy_b] = copies;
        let a_payload = cuda::payload(&a, readout.as_mut(), copy_a)?;
        let b_payload = cuda::payload(&b, readout.as_mut(), copy_b)?;
        let found = Difference::of(elements, &a.header().validity, [a_payload, b_payload]);
        let mut compared = lock(&self.compared);
        compared.difference.see(found);
        if found.values_different > 0 {
            if compared.first.is_none() {
                let pair = Pair {
                    output: number,
                    port: port.clone(),
                    timestamp: time,
                    block: a_payload.to_vec(),
                    shadow: b_payload.to_vec(),
                };
                compared.first = Some(Arc::new(pair));
                let text = format!(
                    "the frame with timestamp {time} differs in {} of {} values, by up to {}",
                    found.values_different, found.values, found.max
                );
                self.run.events.add(EventKind::ShadowDiffers, Some(&self.name), text);
            }
            if self.ends_at_difference {
                self.is_over.store(true, Ordering::Release);
            }
        }
        Ok(true)
    }
}
