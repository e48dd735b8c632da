//! A block kept beside a running one, on the same frames, and what is different about its own.

use super::cell::Cell;
use super::companion::{Link, Order, launch};
use super::exchange::NotExchanged;
use super::hosted::Hosted;
use super::report::Unanswered;
use super::run::{Run, lock};
use super::running::Handle;
use fxgraph_core::counter::Counter;
use fxgraph_core::difference::{Difference, StreamDifference};
use fxgraph_core::edge::Tee;
use fxgraph_core::edge::{Edge, FrameReader};
use fxgraph_core::elements::Elements;
use fxgraph_core::error::BlockError;
use fxgraph_core::event::EventKind;
use fxgraph_core::kind::Waker;
use fxgraph_core::npy;
use fxgraph_core::port::PortType;
use fxgraph_cuda::{self as cuda, CudaError, Device, Readout};
use fxgraph_flowgraph::Part;
use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// What a thread that was told to end may take for it.
const PARTING: Duration = Duration::from_secs(10);

/// What a shadow's frames are, held against those of the block.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Compared {
    /// What is different in their frames.
    pub difference: StreamDifference,
    /// Frames that the shadow or the comparison was too slow for.
    pub frames_dropped: u64,
    /// The first pair that differs.
    pub first: Option<Arc<Pair>>,
    /// Time per frame of the block, while the shadow is there.
    pub block_time: Option<Duration>,
    /// Time per frame of the shadow.
    pub shadow_time: Option<Duration>,
    /// Why the shadow has ended, if it has.
    pub ended: Option<String>,
}

/// Two frames of one time that differ.
#[derive(Clone, Debug, PartialEq)]
pub struct Pair {
    /// Output port, by position.
    pub output: usize,
    /// What it carries.
    pub port: PortType,
    /// Their time.
    pub timestamp: u64,
    /// Payload of the block's frame.
    pub block: Vec<u8>,
    /// Payload of the shadow's.
    pub shadow: Vec<u8>,
}

impl Pair {
    /// The block's frame as a NumPy array, `.npy`.
    #[must_use]
    pub fn block_npy(&self) -> Vec<u8> {
        npy::array(&self.port, &self.block)
    }

    /// The shadow's frame as a NumPy array, `.npy`.
    #[must_use]
    pub fn shadow_npy(&self) -> Vec<u8> {
        npy::array(&self.port, &self.shadow)
    }
}

/// A shadow of a running block. It ends with the block, or when this is dropped.
pub(crate) struct Shadow {
    link: Arc<Link>,
    compared: Arc<Mutex<Compared>>,
    dropped: Vec<Counter>,
    main: Arc<Cell>,
    side: Arc<Cell>,
    /// Busy time and frames of the block when the shadow came.
    before: (Duration, u64),
    is_over: Arc<AtomicBool>,
    comparison: Thread,
}

impl Shadow {
    /// What was seen so far.
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

/// Busy time and frames taken, of the processor or, where that is at work, of the device.
fn spent(cell: &Cell) -> (Duration, u64) {
    let stats = cell.stats();
    (stats.busy.max(stats.device_busy), stats.frames_in)
}

impl Drop for Shadow {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        self.comparison.unpark();
        self.link.order(Order::End);
        self.link.wake_companion();
    }
}

impl Handle {
    /// Puts `part` beside the block of its name, to stay there. `part` has a tee before each input and
    /// one queue behind each output; its frames, and those of the block, lie on `device` if there is
    /// one. With `ends_at_difference` nothing is compared after the first pair that differs.
    pub(crate) fn shadow(
        &self,
        part: Part,
        device: Option<&Arc<Device>>,
        limit: Duration,
        ends_at_difference: bool,
    ) -> Result<Shadow, NotExchanged> {
        let name = part.name.clone();
        let Some(main) = self.run().cell(&name).map(Arc::clone) else {
            return Err(Unanswered::NoSuchBlock(name).into());
        };
        let not_started = |error: &dyn Error| NotExchanged::NotStarted(error.to_string());
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
        let side = launch(part, 0, self.run(), &link).map_err(|error| not_started(&error))?;
        let attached = self.attach_shadow(&name, &link, comparison, edges, limit);
        let (comparison, dropped) = attached.inspect_err(|_| {
            is_over.store(true, Ordering::Release);
            link.order(Order::End);
            link.wake_companion();
            let _ = link.wait_gone(Instant::now() + PARTING);
        })?;
        link.order(Order::Work);
        link.wake_companion();
        let before = spent(&main);
        Ok(Shadow { link, compared, dropped, main, side, before, is_over, comparison })
    }

    /// Once the shadow has started: starts the thread that compares, and has frames come to both. The
    /// thread, and what counts the frames that find no room.
    fn attach_shadow(
        &self,
        name: &str,
        link: &Link,
        comparison: Comparison,
        Edges { tees, kept, of_main }: Edges,
        limit: Duration,
    ) -> Result<(Thread, Vec<Counter>), NotExchanged> {
        link.wait_started(Instant::now() + limit).map_err(NotExchanged::NotStarted)?;
        let thread = thread::Builder::new().name(format!("{name} compared"));
        let thread = thread.spawn(move || comparison.run());
        let thread = thread.map_err(|error| NotExchanged::NotStarted(error.to_string()))?;
        for edge in kept.iter().chain(&of_main) {
            let comparison = thread.thread().clone();
            edge.reader.set(move || comparison.unpark());
        }
        let dropped = self.ask(name, limit, move |hosted| hosted.put_tees(tees, of_main))?;
        Ok((thread.thread().clone(), dropped.ok_or(NotExchanged::Busy)?))
    }

    /// Takes the tees of `block` away.
    pub(crate) fn end_shadow(&self, block: &str, limit: Duration) -> Result<(), Unanswered> {
        self.ask(block, limit, |hosted| {
            hosted.inputs.iter_mut().for_each(|input| input.reader.set_tee(None));
            hosted.outputs.iter_mut().for_each(|output| output.writer.set_tee(None));
        })
    }
}

/// Has the companion's thread woken by all that its block `part` waits for.
fn wake_through(link: &Arc<Link>, part: &Part) {
    let wake = || {
        let link = Arc::clone(link);
        move || link.wake_companion()
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

/// What leads frames to a shadow and its comparison.
struct Edges {
    /// Before each input of the shadow.
    tees: Vec<Arc<Edge>>,
    /// Behind each output of the shadow, and of the block.
    kept: Vec<Arc<Edge>>,
    of_main: Vec<Arc<Edge>>,
}

impl Hosted {
    /// Hands what the inputs take to `before` too, and what the outputs push to `behind`; what counts the
    /// frames that find no room there. `None` if another block has tees here.
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
    /// What brings frames from the device on which they lie.
    readout: Option<Readout>,
    /// Where it brings them.
    copies: [Vec<u8>; 2],
}

/// The outputs of both blocks, whose frames come by these edges of the block and of its shadow.
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

/// The thread that compares; so neither block does.
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
        self.link.wake_companion();
    }

    /// Takes the next frame of an output, or the next two; `false` if there is nothing to take.
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
                    "the frame of time {time} differs in {} of {} values, by up to {}",
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
