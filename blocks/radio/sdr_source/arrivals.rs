//! Arrival of samples by the clock of the host: the time of the first sample, and samples that are missing.
//!
//! Sample n of a stream without gaps arrives `n / rate` after the first one, plus a delay in buffers that is never less than
//! some minimum. So the least lateness of many reads changes by the error of the oscillators only, and by missing samples.

use std::time::{Duration, Instant};

/// Largest difference of the rates of device and host, as a fraction: two oscillators of 100 ppm.
const DRIFT: f64 = 200e-6;
/// Time in which at least one read is not delayed by the host. A gap is noticed after at most twice this time.
const WINDOW: Duration = Duration::from_millis(250);
/// Lateness of all reads of a window that is a gap: several transfers over USB.
const LATE_SECONDS: f64 = 0.01;
/// Part of the earlier scatter that each window keeps.
const KEPT: f64 = 0.9;

/// Arrivals of a stream.
pub struct Arrivals {
    rate_hz: f64,
    /// Host time before which the device did not sample.
    began: Instant,
    /// Least lateness so far, in seconds after `began`.
    least_seconds: f64,
    /// Least lateness of the windows before the present one, which rises by [`DRIFT`] at most.
    reference_seconds: f64,
    window: Window,
    /// Lateness of windows without a gap, in seconds.
    scatter_seconds: f64,
}

struct Window {
    began: Instant,
    /// Least lateness in the window, in seconds after the stream began.
    least_seconds: f64,
}

impl Window {
    fn new(began: Instant) -> Self {
        Self { began, least_seconds: f64::INFINITY }
    }
}

impl Arrivals {
    /// Arrivals of a stream at `rate_hz` that begins at `began` at the earliest.
    pub fn new(rate_hz: f64, began: Instant) -> Self {
        Self {
            rate_hz,
            began,
            least_seconds: f64::INFINITY,
            reference_seconds: f64::INFINITY,
            window: Window::new(began),
            scatter_seconds: 0.0,
        }
    }

    /// Notes that `samples` samples, those that are known to be missing included, were there at `now`.
    pub fn note(&mut self, samples: u64, now: Instant) {
        let elapsed = now.saturating_duration_since(self.began).as_secs_f64();
        let late = elapsed - samples as f64 / self.rate_hz;
        self.least_seconds = self.least_seconds.min(late);
        self.window.least_seconds = self.window.least_seconds.min(late);
    }

    /// Ends the window, if it was long enough to tell whether samples are missing before or in it. Returns their number.
    pub fn missing(&mut self, now: Instant) -> Option<u64> {
        let length = now.saturating_duration_since(self.window.began);
        if length < WINDOW {
            return None;
        }
        let late = self.window.least_seconds - self.reference_seconds;
        // Infinite in a window without samples.
        let is_gap = late.is_finite() && late > LATE_SECONDS;
        if !is_gap {
            let drifted = self.reference_seconds + DRIFT * length.as_secs_f64();
            self.reference_seconds = drifted.min(self.window.least_seconds);
            let scatter = if late.is_finite() { late.max(0.0) } else { 0.0 };
            self.scatter_seconds = scatter.max(KEPT * self.scatter_seconds);
        }
        self.window = Window::new(now);
        is_gap.then(|| self.samples(late))
    }

    /// Notes an overrun: the arrivals from `now` on show how many samples are missing.
    pub fn overrun(&mut self, now: Instant) {
        self.reference_seconds = self.reference_seconds.min(self.window.least_seconds);
        self.window = Window::new(now);
    }

    /// Returns the number of samples that are missing after an [`overrun`](Self::overrun), and begins a new window.
    pub fn missing_in_overrun(&mut self, now: Instant) -> u64 {
        let late = self.window.least_seconds - self.reference_seconds;
        self.window = Window::new(now);
        // No sample came before or after it.
        if late.is_finite() { self.samples(late.max(0.0)) } else { 0 }
    }

    /// Number of samples in `seconds`.
    fn samples(&self, seconds: f64) -> u64 {
        (seconds * self.rate_hz).round() as u64
    }

    /// Time of the first sample, in seconds after the stream was begun, and its largest error: the sample was taken after
    /// the begin, and before the earliest read of it can have ended. If that was before the begin, older samples were in
    /// buffers.
    pub fn first(&self) -> (f64, f64) {
        match self.least_seconds {
            // No sample came.
            latest if latest.is_infinite() => (0.0, 0.0),
            latest if latest < 0.0 => (latest, -latest),
            latest => (latest / 2.0, latest / 2.0),
        }
    }

    /// Largest error of the number of missing samples, in seconds: the lateness that windows have without a gap.
    pub fn scatter_seconds(&self) -> f64 {
        self.scatter_seconds
    }

    /// Samples per second since the begin, of which `samples` arrived by `now`; `None` within the first seconds.
    pub fn measured_hz(&self, samples: u64, now: Instant) -> Option<f64> {
        let elapsed = now.saturating_duration_since(self.began).as_secs_f64() - self.first().0;
        (elapsed > 10.0).then(|| samples as f64 / elapsed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE_HZ: f64 = 1e6;

    /// A stream that is read every 10 ms from `from` to `until` seconds, with a jitter of up to 3 ms, and whose oscillator
    /// is 50 ppm slow. `gap` samples are missing. Adds those that are found to `found`.
    fn read(arrivals: &mut Arrivals, from: f64, until: f64, gap: u64, found: &mut u64) {
        let mut k = (from * 100.0) as u64;
        while (k as f64) < until * 100.0 {
            let sampled = 0.01 * k as f64 * RATE_HZ * (1.0 - 50e-6);
            let jitter = 1e-3 * ((k * 7) % 4) as f64;
            let now = arrivals.began + Duration::from_secs_f64(0.02 + 0.01 * k as f64 + jitter);
            arrivals.note(sampled as u64 - gap + *found, now);
            *found += arrivals.missing(now).unwrap_or(0);
            k += 1;
        }
    }

    #[test]
    fn gap_is_found_with_its_length_and_drift_and_jitter_are_none() {
        let mut arrivals = Arrivals::new(RATE_HZ, Instant::now());
        let mut found = 0;
        read(&mut arrivals, 0.0, 600.0, 0, &mut found);
        assert_eq!(found, 0);
        // 0.1 s are missing.
        read(&mut arrivals, 600.0, 602.0, 100_000, &mut found);
        assert!(found.abs_diff(100_000) < 300, "{found}");
        let before = found;
        read(&mut arrivals, 602.0, 900.0, 100_000, &mut found);
        assert_eq!(found, before);
    }

    #[test]
    fn first_sample_is_between_begin_and_earliest_arrival() {
        let began = Instant::now();
        let mut arrivals = Arrivals::new(RATE_HZ, began);
        assert_eq!(arrivals.first(), (0.0, 0.0));
        arrivals.note(10_000, began + Duration::from_millis(50));
        arrivals.note(20_000, began + Duration::from_millis(40));
        arrivals.note(30_000, began + Duration::from_millis(90));
        let (time, error) = arrivals.first();
        assert!((time - 0.01).abs() < 1e-5 && (error - 0.01).abs() < 1e-5, "{time} {error}");
        // 0.5 s of samples were in buffers.
        arrivals.note(600_000, began + Duration::from_millis(100));
        let (time, error) = arrivals.first();
        assert!((time + 0.5).abs() < 1e-5 && (error - 0.5).abs() < 1e-5, "{time} {error}");
    }

    #[test]
    fn window_without_samples_has_no_gap() {
        let began = Instant::now();
        let mut arrivals = Arrivals::new(RATE_HZ, began);
        assert_eq!(arrivals.missing(began + 2 * WINDOW), None);
        arrivals.overrun(began + 3 * WINDOW);
        assert_eq!(arrivals.missing_in_overrun(began + 4 * WINDOW), 0);
    }
}
