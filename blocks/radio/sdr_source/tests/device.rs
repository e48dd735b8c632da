//! A device whose clock is that of the test: each read takes as long as its samples last.

use num_complex::Complex32;
use seify::{
    AntennaControl, Args, DeviceInfo, Direction, Driver, DynDevice, Error, FrequencyControl,
    GainControl, Range, RangeItem, RxDevice, RxStreamer, SampleRateControl,
};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Samples of a transfer.
const TRANSFER: usize = 256;

/// State of the device.
pub struct State {
    /// Samples that it may still deliver.
    pub allowed: usize,
    /// Number of the next sample, missing ones included.
    pub sample: u64,
    /// Overruns, and gaps without a report: numbers of the sample, and of the missing samples.
    pub overruns: Vec<(u64, u64)>,
    pub unreported: Vec<(u64, u64)>,
    /// Number of the sample at which it is disconnected.
    pub disconnects_at: Option<u64>,
    pub is_absent: bool,
    /// Difference of its rate from the requested one, as a fraction.
    pub rate_error: f64,
    /// Settings of the frequency, with the number of the next sample.
    pub tuned_at: Vec<(u64, f64)>,
    rate_hz: f64,
    began: Instant,
}

impl State {
    pub fn new(rate_hz: f64) -> Self {
        Self {
            allowed: 0,
            sample: 0,
            overruns: Vec::new(),
            unreported: Vec::new(),
            disconnects_at: None,
            is_absent: false,
            rate_error: 0.0,
            tuned_at: Vec::new(),
            rate_hz,
            began: Instant::now(),
        }
    }

    /// Leaves samples out as `gaps` say.
    fn leave_out(sample: &mut u64, gaps: &mut Vec<(u64, u64)>) -> bool {
        let Some(at) = gaps.iter().position(|(from, _)| *from <= *sample) else { return false };
        *sample += gaps.remove(at).1;
        true
    }
}

#[derive(Clone)]
pub struct Simulated(Arc<Mutex<State>>);

pub struct Stream {
    device: Simulated,
    channels: Vec<usize>,
}

impl Simulated {
    pub fn new(rate_hz: f64) -> Self {
        Self(Arc::new(Mutex::new(State::new(rate_hz))))
    }

    pub fn get<T>(&self, look: impl FnOnce(&State) -> T) -> T {
        look(&self.0.lock().unwrap())
    }

    pub fn set(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.0.lock().unwrap());
    }

    /// Allows it to deliver `samples` more samples.
    pub fn allow(&self, samples: usize) {
        self.set(|state| state.allowed += samples);
    }

    pub fn open(&self) -> Result<DynDevice, Error> {
        if self.get(|state| state.is_absent) {
            return Err(Error::DeviceNotFound);
        }
        Ok(DynDevice::from_impl(self.clone()))
    }

    pub fn now(&self) -> Instant {
        self.get(|state| state.began + Duration::from_secs_f64(state.sample as f64 / state.rate_hz))
    }
}

impl DeviceInfo for Simulated {
    fn driver(&self) -> Driver {
        Driver::RtlSdr
    }

    fn id(&self) -> Result<String, Error> {
        Ok("7".to_owned())
    }

    fn info(&self) -> Result<Args, Error> {
        Ok(Args::new())
    }

    fn num_channels(&self, direction: Direction) -> Result<usize, Error> {
        Ok(if direction == Direction::Rx { 2 } else { 0 })
    }

    fn full_duplex(&self) -> Result<bool, Error> {
        Ok(false)
    }
}

seify::impl_dyn_device_backend!(Simulated => [rx, antenna, gain, frequency, sample_rate]);

impl RxDevice for Simulated {
    type RxStreamer = Stream;

    fn rx_streamer(&self, channels: &[usize], _: Args) -> Result<Stream, Error> {
        Ok(Stream { device: self.clone(), channels: channels.to_vec() })
    }
}

impl RxStreamer for Stream {
    fn mtu(&self) -> Result<usize, Error> {
        Ok(TRANSFER)
    }

    fn activate_at(&mut self, _: Option<i64>) -> Result<(), Error> {
        Ok(())
    }

    fn deactivate_at(&mut self, _: Option<i64>) -> Result<(), Error> {
        Ok(())
    }

    fn read(&mut self, buffers: &mut [&mut [Complex32]], _: i64) -> Result<usize, Error> {
        let samples = buffers[0].len().min(TRANSFER);
        let is_allowed = |state: &State| {
            state.allowed >= samples || state.disconnects_at.is_some_and(|at| at <= state.sample)
        };
        if !self.device.get(is_allowed) {
            std::thread::sleep(Duration::from_millis(1));
            return Err(Error::Timeout);
        }
        let mut state = self.device.0.lock().unwrap();
        let state = &mut *state;
        if state.disconnects_at.is_some_and(|at| at <= state.sample) {
            return Err(Error::DeviceDisconnected);
        }
        if State::leave_out(&mut state.sample, &mut state.overruns) {
            return Err(Error::Overrun);
        }
        State::leave_out(&mut state.sample, &mut state.unreported);
        let centre = state.tuned_at.last().map_or(0.0, |(_, hz)| hz / 1e6);
        for (buffer, channel) in buffers.iter_mut().zip(&self.channels) {
            let im = (1000 * channel) as f32 + centre as f32;
            for (number, sample) in buffer[..samples].iter_mut().enumerate() {
                *sample = Complex32::new((state.sample + number as u64) as f32, im);
            }
        }
        state.sample += samples as u64;
        state.allowed -= samples;
        Ok(samples)
    }
}

impl AntennaControl for Simulated {
    fn antennas(&self, _: Direction, _: usize) -> Result<Vec<String>, Error> {
        Ok(vec!["RX".to_owned()])
    }

    fn antenna(&self, _: Direction, _: usize) -> Result<String, Error> {
        Ok("RX".to_owned())
    }

    fn set_antenna(&self, _: Direction, _: usize, _: &str) -> Result<(), Error> {
        Ok(())
    }
}

impl GainControl for Simulated {
    fn gain_elements(&self, _: Direction, _: usize) -> Result<Vec<String>, Error> {
        Ok(vec!["LNA".to_owned()])
    }

    fn set_gain(&self, _: Direction, _: usize, _: f64) -> Result<(), Error> {
        Ok(())
    }

    fn gain(&self, _: Direction, _: usize) -> Result<Option<f64>, Error> {
        Ok(None)
    }

    fn gain_range(&self, _: Direction, _: usize) -> Result<Range, Error> {
        Range::new(vec![RangeItem::Interval(0.0, 50.0)])
    }

    fn set_gain_element(&self, _: Direction, _: usize, _: &str, _: f64) -> Result<(), Error> {
        Ok(())
    }

    fn gain_element(&self, _: Direction, _: usize, _: &str) -> Result<Option<f64>, Error> {
        Ok(None)
    }

    fn gain_element_range(&self, _: Direction, _: usize, _: &str) -> Result<Range, Error> {
        Range::new(vec![RangeItem::Interval(0.0, 40.0)])
    }
}

impl FrequencyControl for Simulated {
    fn frequency_range(&self, _: Direction, _: usize) -> Result<Range, Error> {
        Range::new(vec![RangeItem::Interval(24e6, 1766e6)])
    }

    fn frequency(&self, _: Direction, _: usize) -> Result<f64, Error> {
        Ok(self.get(|state| state.tuned_at.last().map_or(0.0, |(_, hz)| *hz)))
    }

    fn set_frequency(&self, _: Direction, channel: usize, hz: f64, _: Args) -> Result<(), Error> {
        if channel == 0 {
            self.set(|state| state.tuned_at.push((state.sample, hz)));
        }
        Ok(())
    }

    fn frequency_components(&self, _: Direction, _: usize) -> Result<Vec<String>, Error> {
        Ok(Vec::new())
    }

    fn component_frequency_range(
        &self,
        direction: Direction,
        channel: usize,
        _: &str,
    ) -> Result<Range, Error> {
        self.frequency_range(direction, channel)
    }

    fn component_frequency(
        &self,
        direction: Direction,
        channel: usize,
        _: &str,
    ) -> Result<f64, Error> {
        self.frequency(direction, channel)
    }

    fn set_component_frequency(
        &self,
        direction: Direction,
        channel: usize,
        _: &str,
        hz: f64,
    ) -> Result<(), Error> {
        self.set_frequency(direction, channel, hz, Args::new())
    }
}

impl SampleRateControl for Simulated {
    fn sample_rate(&self, _: Direction, _: usize) -> Result<f64, Error> {
        Ok(self.get(|state| state.rate_hz * (1.0 + state.rate_error)))
    }

    fn set_sample_rate(&self, _: Direction, _: usize, rate_hz: f64) -> Result<(), Error> {
        let range = self.get_sample_rate_range(Direction::Rx, 0)?;
        if range.contains(rate_hz) {
            Ok(())
        } else {
            Err(Error::out_of_range("sample_rate", range, rate_hz))
        }
    }

    fn get_sample_rate_range(&self, _: Direction, _: usize) -> Result<Range, Error> {
        Range::new(vec![RangeItem::Interval(250e3, 3.2e6)])
    }
}
