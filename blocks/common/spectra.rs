//! Streams of spectra between `pfb`, `fft` and `postproc`.

use fxgraph::{Band, Dtype, PortType, Sideband};

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
        let (pols, spectra, unzip, channels) = match (port.dtype, lengths(port).as_slice()) {
            (Dtype::F32, &[("pol", pols), ("spectrum", spectra), ("sample", samples)]) => {
                (pols, spectra, 1, samples / 2)
            }
            (Dtype::Cf32, &[("pol", pols), ("spectrum", spectra), ("sample", samples)]) => {
                (pols, spectra, 1, samples)
            }
            (
                Dtype::Cf32,
                &[("pol", pols), ("spectrum", spectra), ("unzip", unzip), ("sample", part)],
            ) => (pols, spectra, unzip, unzip * part),
            _ => return None,
        };
        Some(Self::new(port, pols, spectra, unzip, channels))
    }

    /// Returns the shape of transformed spectra, if `port` carries them: `cf32` \[pol\]\[spectrum\]\[channel\] or
    /// \[pol\]\[spectrum\]\[unzip\]\[channel\].
    #[must_use]
    pub fn of_channels(port: &PortType) -> Option<Self> {
        let (pols, spectra, unzip, channels) = match (port.dtype, lengths(port).as_slice()) {
            (Dtype::Cf32, &[("pol", pols), ("spectrum", spectra), ("channel", channels)]) => {
                (pols, spectra, 1, channels)
            }
            (
                Dtype::Cf32,
                &[("pol", pols), ("spectrum", spectra), ("unzip", unzip), ("channel", part)],
            ) => (pols, spectra, unzip, unzip * part),
            _ => return None,
        };
        Some(Self::new(port, pols, spectra, unzip, channels))
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
