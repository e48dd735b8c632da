//! Input streams of samples: their sizes and checks.

use fxgraph::diagnostic::codes;
use fxgraph::{At, Dtype, PortType, Rejection, Sideband};
use fxgraph_dsp::packed::WIDTHS;

/// Sizes of windows and frames, in samples of the input unless stated otherwise.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Ticks of the clock from one sample to the next.
    pub ticks: usize,
    /// Samples from one spectrum to the next.
    pub step: usize,
    /// Samples per window of a spectrum.
    pub window: usize,
    /// Spectra per output frame.
    pub spectra: usize,
    /// Largest shift of a window in samples, of either sign; a multiple of 8.
    pub max_delay: usize,
    /// Sideband of the samples, which sets the sign of the phases of the delay models.
    pub sideband: Sideband,
}

impl Sizes {
    /// Number of samples that the windows of an output frame may cover, including alignment to 8.
    pub fn frame_samples(&self) -> usize {
        (self.spectra - 1) * self.step + self.window + 2 * self.max_delay + 8
    }
}

/// Ticks of the clock from one sample of the stream to the next: 1 for samples of a source.
pub fn ticks(input: &PortType) -> usize {
    input.samples_per("sample").unwrap_or(1) as usize
}

/// Samples of the stream per second.
pub fn rate_hz(input: &PortType) -> f64 {
    input.clock.adc_sample_rate_hz / ticks(input) as f64
}

/// Returns whether the stream has complex samples of a part of the band, centred at 0 Hz.
pub fn is_complex(input: &PortType) -> bool {
    input.dtype == Dtype::Cf32
}

/// Returns whether the stream has samples of an ADC.
fn is_digitised(input: &PortType) -> bool {
    let is_known = matches!(input.dtype, Dtype::Packed(bits) if WIDTHS.contains(&bits));
    is_known || input.dtype == Dtype::I16
}

/// Diagnostics for inputs that `pfb` cannot read.
pub fn rejections(inputs: &[PortType]) -> Vec<Rejection> {
    let reject = |(i, input)| reject_dtype("pfb", i, input);
    let mut rejections: Vec<_> = inputs.iter().enumerate().filter_map(reject).collect();
    if let Some(other) = inputs.iter().position(|input| is_complex(input) != is_complex(&inputs[0]))
    {
        let message = "one polarisation has real samples and the other one complex samples";
        let rejection = Rejection::new(codes::INPUTS_DIFFER, At::Input(other), message);
        rejections
            .push(rejection.help("insert a `ddc` before both polarisations, or before neither"));
    }
    for (i, input) in inputs.iter().enumerate() {
        rejections.extend(reject_frames("pfb", i, input));
        if ticks(input) != ticks(&inputs[0]) {
            let message = "the polarisations have different sample rates";
            let rejection = Rejection::new(codes::INPUTS_DIFFER, At::Input(i), message);
            rejections.push(rejection.help("give both `ddc` the same `decimation` and `mode`"));
        }
        let (clock, first) = (&input.clock, &inputs[0].clock);
        if !clock.counts_alike(first) {
            let message = "the polarisations have different clocks";
            let rejection = Rejection::new(codes::INPUTS_DIFFER, At::Input(i), message);
            rejections.push(rejection.help("use sources with the same sample rate and sync time"));
        }
    }
    rejections
}

/// Diagnostic if a block of `kind` cannot read real or complex samples from its input number `i`.
fn reject_dtype(kind: &str, i: usize, input: &PortType) -> Option<Rejection> {
    (!is_digitised(input) && !is_complex(input)).then(|| {
        let message = format!("`{kind}` cannot read {} samples", input.dtype);
        let help = "connect i16 or packed samples of 2 to 10, 12 or 16 bits (`i10p`), or cf32 \
                    (of `ddc`, or of `convert` from other types)";
        Rejection::new(codes::INPUT_DTYPE, At::Input(i), message).help(help)
    })
}

/// Diagnostics if a block of `kind` cannot read real or complex samples from its input number `i`.
pub fn sample_rejections(kind: &str, i: usize, input: &PortType) -> Vec<Rejection> {
    reject_frames(kind, i, input).into_iter().chain(reject_dtype(kind, i, input)).collect()
}

/// Diagnostics if a block of `kind` cannot read samples of an ADC from its input number `i`.
pub fn digitised_rejections(kind: &str, i: usize, input: &PortType) -> Vec<Rejection> {
    let mut rejections = reject_frames(kind, i, input);
    if !is_digitised(input) {
        let message = format!("`{kind}` cannot read {} samples", input.dtype);
        let help = "connect i16 or packed samples of 2 to 10, 12 or 16 bits (`i10p`)";
        rejections.push(Rejection::new(codes::INPUT_DTYPE, At::Input(i), message).help(help));
    }
    rejections
}

/// Diagnostics if the frames of `input` are not one contiguous series of samples.
fn reject_frames(kind: &str, i: usize, input: &PortType) -> Vec<Rejection> {
    let mut rejections = Vec::new();
    let samples = input.axis_len("sample").filter(|_| input.axes.len() == 1);
    let heaps = input.validity.units();
    match samples {
        Some(n) if n > 0 && heaps > 0 && n % (8 * heaps) == 0 => {
            let (step, every) = (ticks(input), input.clock.samples_per_frame);
            if step == 0 || every != (n * step) as u64 {
                let message = format!(
                    "the frames of the input of `{kind}` must join without gaps or overlaps, with the same number \
                     of ticks per sample: they have {n} samples and start every {every} ticks"
                );
                let help = format!(
                    "set `samples_per_frame: {n}` at the source: one tick for each sample, real or complex"
                );
                rejections.push(Rejection::new(codes::RATE, At::Input(i), message).help(help));
            }
        }
        Some(n) => rejections.push(
            Rejection::new(
                codes::INPUT_AXIS,
                At::InputAxis(i, "sample"),
                format!("`{kind}` cannot read frames of {n} samples in {heaps} heaps"),
            )
            .help("use heaps with a multiple of 8 samples"),
        ),
        None => rejections.push(
            Rejection::new(
                codes::INPUT_AXIS,
                At::Input(i),
                format!("the input of `{kind}` must have exactly one axis, `sample`"),
            )
            .help("connect a source of samples, for example `digitiser_simulator`"),
        ),
    }
    let rate_hz = input.clock.adc_sample_rate_hz;
    if !(rate_hz > 0.0 && rate_hz.is_finite()) {
        let message = format!("the sample rate must be positive and finite, got {rate_hz} Hz");
        rejections.push(Rejection::new(codes::RATE, At::Input(i), message));
    }
    rejections
}
