//! The block: opens the device, and lends empty frames to the thread that reads it.

use super::SdrSource;
use super::device::{self, Open, Radio, Setting};
use super::reader::{Causes, HostClock, Pending, Reader, Sizes, lock};
use fxgraph::changes::{Change, MAX_TIMESTAMP};
use fxgraph::runtime::EventKind;
use fxgraph::{Block, BlockError, Env, Io, Next, TimeBase};
use fxgraph_common::link::Lender;
use std::sync::Arc;
use std::time::Instant;

/// Samples from one time base to the next: bits of their number.
const BASE_BITS: u32 = 48;

/// A running source.
pub(super) struct Source {
    parameters: SdrSource,
    sizes: Sizes,
    env: Env,
    open: Open,
    clock: HostClock,
    pending: Pending,
    radio: Option<Radio>,
    running: Option<Lender>,
}

impl Source {
    pub fn new(parameters: SdrSource, sizes: Sizes, env: &Env) -> Self {
        Self {
            parameters,
            sizes,
            env: env.clone(),
            open: device::open(),
            clock: Arc::new(Instant::now),
            pending: Pending::default(),
            radio: None,
            running: None,
        }
    }

    /// The source with a device of the test, and a clock that the device sets.
    #[cfg(test)]
    pub fn with_device(self, open: Open, clock: HostClock) -> Self {
        Self { open, clock, ..self }
    }

    /// Opens the device with the parameters of the block.
    fn device(&self, causes: &Causes) -> Result<Radio, BlockError> {
        let parameters = &self.parameters;
        let radio = Radio::open(&parameters.device, &parameters.channels, &self.open)?;
        let requested_hz = parameters.adc_sample_rate_hz;
        let rounding = radio.set_rate(requested_hz)?;
        let rate_hz = rounding.map_or(requested_hz, |rounding| rounding.actual);
        causes.rate_hz.set(rate_hz);
        if rounding.is_some() {
            let text = format!(
                "`{}` samples at {rate_hz} Hz, requested were {requested_hz} Hz; times follow the requested rate",
                radio.name()
            );
            self.env.events.add(EventKind::Warning, text);
        }
        for setting in parameters.settings() {
            radio.check(&setting)?;
            let rounding = radio.apply(&setting)?;
            if let Setting::CentreHz(hz) = setting {
                causes.centre_hz.set(rounding.map_or(hz, |rounding| rounding.actual));
            }
            if let Some(rounding) = rounding.filter(device::Rounding::is_large) {
                self.env.events.add(EventKind::Warning, radio.tuned_elsewhere(rounding));
            }
        }
        Ok(radio)
    }

    /// Time base of the stream: a later one for each time that the device is opened.
    fn base(&self, causes: &Causes) -> Result<TimeBase, BlockError> {
        let from = causes.opened.get() << BASE_BITS;
        causes.opened.add(1);
        if from >= MAX_TIMESTAMP {
            return Err(BlockError::new(
                "the device was opened too often; start the flowgraph again",
            ));
        }
        Ok(TimeBase { from, ..TimeBase::default() })
    }
}

impl Block for Source {
    fn start(&mut self) -> Result<(), BlockError> {
        let causes = Causes::new(&self.env.counters);
        let radio = self.device(&causes)?;
        let stream = radio.stream()?;
        let base = self.base(&causes)?;
        let services = (self.env.clone(), causes, Arc::clone(&self.clock));
        let reader = Reader::new(
            (radio.clone(), stream),
            self.sizes,
            Arc::clone(&self.pending),
            services,
            base,
        );
        let frames = self.parameters.frames;
        let run = move |link| reader.run(link, frames);
        self.running = Some(Lender::start(&self.env, self.sizes.lent_frames(), run)?);
        self.radio = Some(radio);
        Ok(())
    }

    fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        match &mut self.running {
            Some(running) => running.work(io, |_| ()),
            None => Err(BlockError::new("the source was not started")),
        }
    }

    fn update(&mut self, change: Change) -> Result<(), BlockError> {
        if let Some(radio) = &self.radio {
            let settings = change.parameters().filter_map(|name| change.value::<Setting>(name));
            settings.into_iter().try_for_each(|setting| radio.check(setting))?;
        }
        lock(&self.pending).offer(change)
    }

    fn finish(&mut self) -> Result<(), BlockError> {
        (self.running, self.radio) = (None, None);
        Ok(())
    }
}
