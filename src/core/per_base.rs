//! Sinks that state the time of their data: a block for each time base.

use crate::block::{Block, Input, Io, Next};
use crate::changes::Change;
use crate::error::BlockError;
use crate::event::EventKind;
use crate::kind::{Build, Configured, Env, KindSpec};
use crate::patience::Patience;
use crate::port::PortType;
use crate::summary::Summary;
use crate::time_base::TimeBase;
use std::time::{Duration, Instant};

/// Time for which a block waits for the last frames of a time base from its other inputs, once one input has a frame of
/// the next base. Streams of different hosts are apart by less.
const LIMIT: Duration = Duration::from_secs(10);

/// A kind without outputs that states the time of its data, such as a sink that writes files.
pub trait TimedSink: KindSpec + Clone {
    /// Changes the parameters for the block of a later time base, the second one of the run or, by `number`, a later
    /// one: files that exist are kept, and the time is that of the input.
    fn continue_in_later_base(&mut self, number: u64);
}

/// A sink as one block for each time base of its inputs. When all inputs have reached the next base, or do not send, the
/// block ends as at the end of its inputs, and the next one begins with the clock of the new base: with a new file.
pub struct PerBase<K: TimedSink> {
    parameters: K,
    inputs: Vec<PortType>,
    env: Env,
    build: Build<K>,
    block: Box<dyn Block>,
    /// Number of the block, from 1.
    number: u64,
    /// Base of the block; `None` before the first frame.
    base: Option<TimeBase>,
    /// Wait for the other inputs, once one has reached a later base.
    patience: Patience,
    /// Summaries of the blocks before, and that of the present one.
    before: String,
    summary: Summary,
}

impl<K: TimedSink> PerBase<K> {
    /// Creates the block for `configured`; `build` creates the sink of one time base.
    pub fn block(
        configured: &Configured<K>,
        env: &Env,
        build: Build<K>,
    ) -> Result<Box<dyn Block>, BlockError> {
        let block = build(configured, env)?;
        let (before, summary) = (String::new(), env.summary.clone());
        let Configured { parameters, ports, .. } = configured;
        let (parameters, inputs) = (parameters.clone(), ports.inputs.clone());
        let env = env.clone();
        Ok(Box::new(Self {
            parameters,
            inputs,
            env,
            build,
            block,
            number: 1,
            base: None,
            patience: Patience::new(LIMIT),
            before,
            summary,
        }))
    }

    /// Ends the block, and begins that of `base`.
    fn change(&mut self, base: TimeBase) -> Result<(), BlockError> {
        self.block.finish()?;
        // A block that got no frame has no result to show.
        if self.base.is_some() {
            self.before += &self.summary.get();
        }
        let mut parameters = self.parameters.clone();
        let is_later = base.from > 0;
        if is_later {
            self.number += 1;
            parameters.continue_in_later_base(self.number);
        }
        let mut inputs = self.inputs.clone();
        inputs.iter_mut().for_each(|input| input.clock = input.clock.in_base(&base));
        let configured = Configured::new(parameters, &inputs).map_err(|rejections| {
            let messages: Vec<String> =
                rejections.into_iter().map(|rejection| rejection.message).collect();
            let text = messages.join("; ");
            BlockError::new(format!("cannot continue with the new sync time: {text}"))
        })?;
        if let Some(uncertainty) = base.uncertainty() {
            let measured =
                if is_later { "after a restart of the sender" } else { "as the stream began" };
            let text = format!(
                "the times of products from here on come from a sync time that was measured {measured} and is \
                 {uncertainty}: set `sync_time_seconds` of the source and start again"
            );
            self.env.events.add(EventKind::Warning, text);
        }
        self.summary = Summary::default();
        let env = Env { summary: self.summary.clone(), ..self.env.clone() };
        self.block = (self.build)(&configured, &env)?;
        self.base = Some(base);
        self.patience.renew();
        self.block.start()
    }

    /// Limits the inputs to the frames of the block's base. Returns the time until the next look if one input has reached
    /// the next base and others are waited for.
    fn limit(&mut self, inputs: &mut [Input]) -> Result<Option<Duration>, BlockError> {
        if self.base.is_none() {
            let bases = inputs.iter_mut().filter_map(|input| input.reader.next_base());
            let first = bases.min_by_key(|base| base.from);
            match first {
                Some(base) if base != TimeBase::default() => self.change(base)?,
                first => self.base = first,
            }
        }
        let Some(base) = self.base else { return Ok(None) };
        let limit = |inputs: &mut [Input], is_cut| -> u64 {
            inputs.iter_mut().map(|input| input.reader.limit_to(&base, is_cut)).sum()
        };
        let mut dropped = limit(inputs, false);
        let has_reached = inputs.iter().any(|input| input.reader.has_later_base());
        let left = if has_reached { self.patience.left(Instant::now()) } else { None };
        // An input that holds its writer back is not kept waiting.
        let is_full = |input: &Input| input.reader.has_later_base() && input.reader.is_full();
        if has_reached && (left.is_none() || inputs.iter().any(is_full)) {
            dropped += limit(inputs, true);
        }
        if dropped > 0 {
            let name = "frames_of_earlier_base";
            let help = "frames dropped because they came after those of the next time base; look for a late input";
            self.env.counters.loss(name, help).add(dropped);
        }
        Ok(has_reached.then(|| left.unwrap_or(Patience::LOOK)))
    }

    fn show_summary(&self) {
        self.env.summary.set(self.before.clone() + &self.summary.get());
    }
}

impl<K: TimedSink> Block for PerBase<K> {
    fn start(&mut self) -> Result<(), BlockError> {
        self.block.start()
    }

    fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        let left = self.limit(io.inputs)?;
        let next = self.block.work(io);
        io.inputs.iter_mut().for_each(|input| input.reader.end_limit());
        match next? {
            Next::Finished => {
                let bases = io.inputs.iter_mut().filter_map(|input| input.reader.next_base());
                let Some(next) = bases.min_by_key(|base| base.from) else {
                    return Ok(Next::Finished);
                };
                self.change(next)?;
                Ok(Next::Again)
            }
            Next::Wait => Ok(left.map_or(Next::Wait, Next::After)),
            next => Ok(next),
        }
    }

    fn update(&mut self, change: Change) -> Result<(), BlockError> {
        self.block.update(change)
    }

    fn finish(&mut self) -> Result<(), BlockError> {
        let finished = self.block.finish();
        self.show_summary();
        finished
    }
}
