//! The streams of spectra between `pfb`, `fft` and `postproc`.

use fxgraph::{Dtype, PortType};

/// The lengths of such a stream's axes.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Polarisations.
    pub pols: usize,
    /// Spectra of a frame.
    pub spectra: usize,
    /// Interleaved series that each spectrum is cut into, 1 for none.
    pub unzip: usize,
    /// Channels of the whole spectrum.
    pub channels: usize,
}

impl Shape {
    /// The shape of filtered samples, if `port` carries such: `f32` \[pol\]\[spectrum\]\[sample\] or
    /// `cf32` \[pol\]\[spectrum\]\[unzip\]\[sample\].
    #[must_use]
    pub fn of_samples(port: &PortType) -> Option<Self> {
        match (port.dtype, lengths(port).as_slice()) {
            (Dtype::F32, &[("pol", pols), ("spectrum", spectra), ("sample", samples)]) => {
                Some(Self { pols, spectra, unzip: 1, channels: samples / 2 })
            }
            (
                Dtype::Cf32,
                &[("pol", pols), ("spectrum", spectra), ("unzip", unzip), ("sample", part)],
            ) => Some(Self { pols, spectra, unzip, channels: unzip * part }),
            _ => None,
        }
    }

    /// The shape of transformed spectra, if `port` carries such: `cf32` \[pol\]\[spectrum\]\[channel\] or
    /// \[pol\]\[spectrum\]\[unzip\]\[channel\].
    #[must_use]
    pub fn of_channels(port: &PortType) -> Option<Self> {
        match (port.dtype, lengths(port).as_slice()) {
            (Dtype::Cf32, &[("pol", pols), ("spectrum", spectra), ("channel", channels)]) => {
                Some(Self { pols, spectra, unzip: 1, channels })
            }
            (
                Dtype::Cf32,
                &[("pol", pols), ("spectrum", spectra), ("unzip", unzip), ("channel", part)],
            ) => Some(Self { pols, spectra, unzip, channels: unzip * part }),
            _ => None,
        }
    }

    /// ADC samples from one spectrum to the next.
    #[must_use]
    pub fn step(&self) -> usize {
        2 * self.channels
    }
}

fn lengths(port: &PortType) -> Vec<(&'static str, usize)> {
    port.axes.iter().map(|axis| (axis.name, axis.len)).collect()
}
