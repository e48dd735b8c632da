//! Streams of spectra between `pfb`, `fft` and `postproc`.

use fxgraph::{Band, Dtype, PortType, Sideband};

/// Least number of channels.
pub const MIN_CHANNELS: usize = 4;

/// Whether spectra can have this number of channels: an even number, from [`MIN_CHANNELS`] on, whose prime factors are 2, 3
/// and 5. Their transforms are fast on CPUs and GPUs.
#[must_use]
pub const fn can_be_channels(channels: usize) -> bool {
    if channels < MIN_CHANNELS || !channels.is_multiple_of(2) {
        return false;
    }
    let (mut rest, mut n) = (channels, 0);
    while n < 3 {
        let factor = [2, 3, 5][n];
        while rest.is_multiple_of(factor) {
            rest /= factor;
        }
        n += 1;
    }
    rest == 1
}

/// Help that names the numbers of channels nearest to `value`, up to `most`.
#[must_use]
pub fn nearest_channels(value: usize, most: usize) -> String {
    let value = value.clamp(MIN_CHANNELS, most);
    let below = (MIN_CHANNELS..=value).rev().find(|n| can_be_channels(*n)).unwrap_or(MIN_CHANNELS);
    match (value..=most).find(|n| can_be_channels(*n)) {
        Some(above) if above != below => {
            format!("use {below} or {above}, the nearest such numbers")
        }
        _ => format!("use {below}, the nearest such number"),
    }
}

/// Lengths of the axes of such a stream.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Polarisations.
    pub pols: usize,
    /// Spectra of a frame.
    pub spectra: usize,
    /// Interleaved series into which each spectrum is divided, 1 for none.
    pub unzip: usize,
    /// Channels of the whole spectrum, or selected channels in its middle.
    pub channels: usize,
    /// Channels from one spectrum to the next in memory.
    pub pitch: usize,
    /// Ticks from one spectrum to the next.
    pub step: usize,
    /// ADC samples per second.
    pub adc_sample_rate_hz: f64,
    /// Sideband of the values.
    pub sideband: Sideband,
}

impl Shape {
    fn new(port: &PortType, pols: usize, spectra: usize, unzip: usize, channels: usize) -> Self {
        let step = port.samples_per("spectrum").unwrap_or(0) as usize;
        let adc_sample_rate_hz = port.clock.adc_sample_rate_hz;
        let sideband = port.sideband();
        Self { pols, spectra, unzip, channels, pitch: channels, step, adc_sample_rate_hz, sideband }
    }

    /// Returns the shape of filtered samples, if `port` carries them: `f32` or `cf32`
    /// \[pol\]\[spectrum\]\[sample\], or `cf32` \[pol\]\[spectrum\]\[unzip\]\[sample\], where complex numbers are
    /// pairs of real samples.
    #[must_use]
    pub fn of_samples(port: &PortType) -> Option<Self> {
        match (port.dtype, lengths(port).as_slice()) {
            (Dtype::F32, &[("pol", pols), ("spectrum", spectra), ("sample", samples)]) => {
                Some(Self::new(port, pols, spectra, 1, samples / 2))
            }
            _ => Self::of_complex(port, "sample"),
        }
    }

    /// Returns the shape of transformed spectra, if `port` carries them: `cf32` \[pol\]\[spectrum\]\[channel\] or
    /// \[pol\]\[spectrum\]\[unzip\]\[channel\].
    #[must_use]
    pub fn of_channels(port: &PortType) -> Option<Self> {
        Self::of_complex(port, "channel")
    }

    /// Returns the shape of `cf32` \[pol\]\[spectrum\]\[`last`\] or \[pol\]\[spectrum\]\[unzip\]\[`last`\].
    fn of_complex(port: &PortType, last: &str) -> Option<Self> {
        let lengths = lengths(port);
        let (lengths, unzip) = match lengths[..] {
            [pol, spectrum, ("unzip", unzip), part] => ([pol, spectrum, part], unzip),
            [pol, spectrum, points] => ([pol, spectrum, points], 1),
            _ => return None,
        };
        let [("pol", pols), ("spectrum", spectra), (name, part)] = lengths else { return None };
        (port.dtype == Dtype::Cf32 && name == last)
            .then(|| Self::new(port, pols, spectra, unzip, unzip * part))
    }

    /// Returns the shape with only the middle `channels` channels selected.
    #[must_use]
    pub fn middle(self, channels: usize) -> Self {
        Self { channels, ..self }
    }

    /// Returns the part of `band` that the selected channels cover.
    #[must_use]
    pub fn band(&self, band: Band) -> Band {
        if self.channels == self.pitch {
            return band;
        }
        let bandwidth_hz = band.bandwidth_hz * self.channels as f64 / self.pitch as f64;
        Band { channels: self.channels, bandwidth_hz, ..band }
    }

    /// Returns the index of the first selected channel.
    #[must_use]
    pub fn first(&self) -> usize {
        (self.pitch - self.channels) / 2
    }
}

/// Whether the filtered samples of `port` are complex samples of a part of the band, not pairs of real samples.
#[must_use]
pub fn are_complex(port: &PortType) -> bool {
    port.dtype == Dtype::Cf32 && port.axis_len("unzip").is_none()
}

fn lengths(port: &PortType) -> Vec<(&'static str, usize)> {
    port.axes.iter().map(|axis| (axis.name, axis.len)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_channels_are_even_with_factors_2_3_and_5() {
        let found: Vec<usize> = (0..=50).filter(|n| can_be_channels(*n)).collect();
        assert_eq!(found, [4, 6, 8, 10, 12, 16, 18, 20, 24, 30, 32, 36, 40, 48, 50]);
        assert!([1000, 1024, 1536, 24_576, 1 << 20].into_iter().all(can_be_channels));
        assert!(![0, 2, 15, 1001, 1002, 1023].into_iter().any(can_be_channels));
    }

    #[test]
    fn help_names_the_nearest_numbers_of_channels() {
        for (value, expected) in [
            (1001, "use 1000 or 1024, the nearest such numbers"),
            (0, "use 4, the nearest such number"),
            (usize::MAX, "use 1048576, the nearest such number"),
            (1000, "use 1000, the nearest such number"),
        ] {
            assert_eq!(nearest_channels(value, 1 << 20), expected);
        }
    }
}
