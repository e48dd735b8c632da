//! Block that hosts a sub-flowgraph.

use crate::ends::{Inlet, Outlet};
use crate::executor::Executor;
use crate::graph::{Build, Graph, INPUT, OUTPUT};
use crate::timeline::{LAST_TIMESTAMP, Timeline};
use crate::watched::Cause;
use crate::{Sample, Timing, lock};
use futuresdr::runtime::Runtime;
use futuresdr::runtime::scheduler::Scheduler;
use fxgraph::kind::Waker;
use fxgraph::{Block, BlockError, Counter, Counters, Env, Frame, Input, Io, Next, Output, Ports};
use std::marker::PhantomData;
use std::sync::{Arc, Mutex};

/// Block with one input and one output that hosts a sub-flowgraph of FutureSDR, from samples of type `I` to samples
/// of type `O`. The [crate's page](crate) describes timestamps, missing data, ends and faults.
pub struct Host<I, O> {
    build: Build,
    /// The sub-flowgraph that runs next, already built.
    ready: Option<Graph>,
    running: Option<Running>,
    inlet: Arc<Mutex<Inlet>>,
    outlet: Arc<Mutex<Outlet>>,
    timeline: Timeline,
    /// Timestamp of the next input frame, if no frame is missing.
    expected: u64,
    /// Timestamp of the output frame being filled.
    filling: u64,
    samples: usize,
    wake: Waker,
    count: Count,
    types: PhantomData<fn(I) -> O>,
}

struct Count {
    gaps: Counter,
    misplaced: Counter,
    flagged: Counter,
}

impl Count {
    fn new(counters: &Counters) -> Self {
        Self {
            gaps: counters.count(
                "gaps",
                "gaps between the timestamps of input frames; a new stream begins after each gap",
            ),
            misplaced: counters.loss(
                "frames_misplaced",
                "input frames dropped because of a late timestamp or one beyond 2^62",
            ),
            flagged: counters.loss(
                "heaps_missing",
                "output heaps that depend on missing samples or contain an end of the stream",
            ),
        }
    }
}

/// A sub-flowgraph that processes one stream without gaps.
struct Running {
    executor: Executor,
    cause: Cause,
    outcome: Arc<Mutex<Option<Result<(), String>>>>,
}

impl Running {
    fn start(graph: Graph, wake: Waker) -> Self {
        let Graph { flowgraph, cause } = graph;
        let executor = Executor::new(wake);
        let outcome = Arc::new(Mutex::new(None));
        let (tasks, result) = (executor.tasks(), Arc::clone(&outcome));
        let life = async move {
            let runtime = Runtime::with_scheduler(tasks);
            let ended = match runtime.start_async(flowgraph).await {
                Ok(running) => running.wait_async().await.map(drop),
                Err(error) => Err(error),
            };
            *lock(&result) = Some(ended.map_err(|error| error.to_string()));
        };
        executor.tasks().spawn(life).detach();
        Self { executor, cause, outcome }
    }
}

impl<I: Sample, O: Sample> Host<I, O> {
    /// Creates a block for `ports`: one input, and one output from [`Timing::output`]. `build` adds the blocks of the
    /// sub-flowgraph and connects them from [`INPUT`] to [`OUTPUT`]; it is called at once, and again for each stream
    /// after a gap in the timestamps or a fault.
    pub fn new(
        timing: &Timing,
        ports: &Ports,
        env: &Env,
        build: impl FnMut(&mut Graph) -> Result<(), BlockError> + Send + 'static,
    ) -> Result<Self, BlockError> {
        timing.check()?;
        let mut build: Build = Box::new(build);
        let (inlet, outlet) = (Arc::default(), Arc::default());
        let ready = Some(Graph::new::<I, O>(&inlet, &outlet, &mut build)?);
        Ok(Self {
            build,
            ready,
            running: None,
            inlet,
            outlet,
            timeline: Timeline::new(timing, ports),
            expected: 0,
            filling: 0,
            samples: ports.outputs[0].elements(),
            wake: env.wake.clone(),
            count: Count::new(&env.counters),
            types: PhantomData,
        })
    }

    /// Starts a stream at this timestamp.
    fn begin(&mut self, timestamp: u64) -> Result<(), BlockError> {
        let graph = match self.ready.take() {
            Some(graph) => graph,
            None => Graph::new::<I, O>(&self.inlet, &self.outlet, &mut self.build)?,
        };
        lock(&self.inlet).begin(self.timeline.begin(timestamp));
        lock(&self.outlet).made = 0;
        self.expected = timestamp;
        self.running = Some(Running::start(graph, self.wake.clone()));
        Ok(())
    }

    /// Gives the sub-flowgraph the next input frame, or the end of its stream; returns `false` if there is neither.
    fn feed(&mut self, input: &mut Input) -> bool {
        let mut inlet = lock(&self.inlet);
        if inlet.frame.is_some() || inlet.ended {
            return false;
        }
        match input.peek().map(|frame| frame.header().timestamp) {
            Some(timestamp) if timestamp == self.expected => {
                let Some(frame) = input.pop() else { return false };
                self.timeline.note_input(timestamp, &frame.header().validity);
                self.expected = timestamp + self.timeline.input_frame;
                inlet.put(frame);
            }
            Some(_) => {
                self.count.gaps.add(1);
                inlet.ended = true;
            }
            None if input.ended() => inlet.ended = true,
            None => return false,
        }
        true
    }

    /// Advances the output frame to the position of the next sample of the stream; returns `false` without a frame.
    fn align(&mut self, output: &mut Output) -> Result<bool, BlockError> {
        let next = self.timeline.time(lock(&self.outlet).made);
        let (start, sample) = self.timeline.place(next);
        if start != self.filling {
            self.complete(output)?;
        }
        let mut outlet = lock(&self.outlet);
        if start != self.filling || outlet.frame.is_none() {
            outlet.frame = outlet.frame.take().or_else(|| output.take());
            (outlet.at, outlet.has_samples, self.filling) = (0, false, start);
        }
        if outlet.frame.is_some() && outlet.at < sample {
            let from = next - (sample - outlet.at) as u64 * self.timeline.output_step();
            self.timeline.note(from..next);
            outlet.fill::<O>(sample)?;
        }
        Ok(outlet.frame.is_some())
    }

    /// Sends the output frame; samples that were not filled are missing. A frame without any sample is kept.
    fn complete(&mut self, output: &mut Output) -> Result<(), BlockError> {
        let mut outlet = lock(&self.outlet);
        if !outlet.has_samples {
            return Ok(());
        }
        let unfilled = (self.samples - outlet.at) as u64 * self.timeline.output_step();
        let end = self.filling + self.timeline.output_frame;
        self.timeline.note(end - unfilled..end);
        outlet.fill::<O>(self.samples)?;
        outlet.has_samples = false;
        let Some(mut frame) = outlet.frame.take() else { return Ok(()) };
        let header = frame.header_mut();
        header.timestamp = self.filling;
        self.count.flagged.add(self.timeline.flag(self.filling, &mut header.validity));
        output.push(frame);
        Ok(())
    }

    /// Drops input frames at the front of the queue with timestamps that were already read.
    fn drop_misplaced(&mut self, input: &mut Input) {
        let is_misplaced = |frame: &Arc<Frame>| {
            let timestamp = frame.header().timestamp;
            timestamp < self.expected || timestamp > LAST_TIMESTAMP
        };
        while input.peek().is_some_and(is_misplaced) {
            input.pop();
            self.count.misplaced.add(1);
        }
    }

    /// Reads at most one frame, runs the blocks, and sends at most one frame.
    fn round(&mut self, input: &mut Input, output: &mut Output) -> Result<Next, BlockError> {
        self.drop_misplaced(input);
        if self.running.is_none() {
            match input.peek().map(|frame| frame.header().timestamp) {
                Some(timestamp) => self.begin(timestamp)?,
                None if input.ended() => {
                    self.complete(output)?;
                    return Ok(Next::Finished);
                }
                None => return Ok(Next::Wait),
            }
        }
        let is_fed = self.feed(input);
        let has_frame = self.align(output)?;
        let Some(running) = &self.running else { return Ok(Next::Again) };
        let is_idle = running.executor.run(&[(INPUT, is_fed), (OUTPUT, has_frame)]);
        let made = lock(&self.outlet).made;
        if made > self.timeline.most(lock(&self.inlet).fed) {
            let text = "the FutureSDR flowgraph output more samples than its `Timing` allows";
            return Err(BlockError::new(text));
        }
        let ended = lock(&running.outcome).take();
        if let Some(Err(said)) = ended {
            return Err(Graph::error(&running.cause, said));
        }
        let is_full = has_frame && lock(&self.outlet).at == self.samples;
        if is_full {
            self.complete(output)?;
        }
        if ended.is_some() {
            self.running = None;
            if !lock(&self.inlet).ended {
                // The blocks finished early, like `Head`: the stream ends here.
                self.complete(output)?;
                return Ok(Next::Finished);
            }
        }
        let has_moved = is_fed || is_full || !is_idle || ended.is_some();
        Ok(if has_moved { Next::Again } else { Next::Wait })
    }
}

impl<I: Sample, O: Sample> Block for Host<I, O> {
    fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        let next = self.round(&mut io.inputs[0], &mut io.outputs[0]);
        if next.is_err() {
            // The next frame begins a new stream.
            self.running = None;
        }
        next
    }
}
