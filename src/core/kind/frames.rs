//! Frame sizes of a source in real time, from which the plan chooses.

/// Largest frame that the plan chooses, in bytes. A GPU reaches its full rate below this size.
pub const MAX_CHOSEN_BYTES: u64 = 32 << 20;

/// Frame sizes that a source in real time supports; see [`KindSpec::frame_sizes`](super::KindSpec::frame_sizes).
#[derive(Clone, Debug, PartialEq)]
pub struct FrameSizes {
    /// Parameter that sets the size, in ADC samples.
    pub parameter: &'static str,
    /// ADC sample rate in Hz.
    pub adc_sample_rate_hz: f64,
    /// Sizes in ADC samples, ascending.
    pub sizes: Vec<u64>,
}

impl FrameSizes {
    /// Powers of two of `heap` ADC samples, up to [`MAX_CHOSEN_BYTES`] at `bits` per ADC sample. One heap is always
    /// included. Powers of two fit the spectra and heaps of blocks downstream.
    ///
    /// Returns `None` if `heap` is 0 or the rate is not positive and finite; such parameters have an error of their own.
    #[must_use]
    pub fn of_heaps(
        parameter: &'static str,
        adc_sample_rate_hz: f64,
        heap: u64,
        bits: u64,
    ) -> Option<Self> {
        if heap == 0 || !(adc_sample_rate_hz > 0.0 && adc_sample_rate_hz.is_finite()) {
            return None;
        }
        let fits = |samples: &u64| {
            let bytes = samples.checked_mul(bits).map(|bits| bits / 8);
            *samples == heap || bytes.is_some_and(|bytes| bytes <= MAX_CHOSEN_BYTES)
        };
        let next = |samples: &u64| samples.checked_mul(2);
        let sizes = std::iter::successors(Some(heap), next).take_while(fits).collect();
        Some(Self { parameter, adc_sample_rate_hz, sizes })
    }
}
