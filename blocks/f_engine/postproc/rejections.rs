//! Diagnostics for the parameters and the input of `postproc`.

use super::{Gains, MAX_SPECTRA_PER_HEAP, PolGains, Postproc};
use crate::common::axes;
use crate::common::spectra::{MIN_CHANNELS, Shape, can_be_channels};
use fxgraph::changes::MAX_TIMESTAMP;
use fxgraph::diagnostic::codes;
use fxgraph::{At, PortType, Rejection};
use num_complex::Complex32;

impl Postproc {
    /// Diagnostics that do not depend on the input.
    pub(super) fn parameter_rejections(&self) -> Vec<Rejection> {
        let mut rejections = Vec::new();
        let mut reject = |name, message: String, help: String| {
            rejections.push(Rejection::parameter(name, message).help(help));
        };
        if ![4, 8].contains(&self.bits) {
            reject(
                "bits",
                format!("`bits` must be 8 or 4, got {}", self.bits),
                "omit it for the default of 8".to_owned(),
            );
        }
        if !(1..=MAX_SPECTRA_PER_HEAP).contains(&self.spectra_per_heap) {
            reject(
                "spectra_per_heap",
                format!(
                    "`spectra_per_heap` must be between 1 and {MAX_SPECTRA_PER_HEAP}, got {}",
                    self.spectra_per_heap
                ),
                "omit it for the default of 256".to_owned(),
            );
        }
        if self.heaps_per_frame == 0 {
            reject(
                "heaps_per_frame",
                "`heaps_per_frame` must be at least 1, got 0".to_owned(),
                "omit it for the default of 1".to_owned(),
            );
        }
        let is_finite = |gain: &Complex32| gain.re.is_finite() && gain.im.is_finite();
        if let Some(gain) = self.gains.values().into_iter().find(|gain| !is_finite(gain)) {
            reject(
                "gains",
                format!("`gains` must be finite in single precision, got {gain}"),
                "set for example `gains: 0.5`".to_owned(),
            );
        }
        rejections
    }

    /// Diagnostics for the shape of the input's spectra.
    pub(super) fn shape_rejections(&self, input: &PortType, shape: Shape) -> Vec<Rejection> {
        let units = [("pol", shape.pols), ("spectrum", shape.spectra)];
        let mut rejections = Vec::from_iter(axes::reject_validity(0, input, &units));
        let Shape { pols, channels, pitch, step, .. } = shape;
        let is_known =
            can_be_channels(pitch) && channels >= MIN_CHANNELS && channels.is_multiple_of(2);
        if !is_known || shape.spectra == 0 || pols == 0 {
            let message = format!(
                "the number of channels must be even, at least {MIN_CHANNELS}, and that of the input with the prime factors \
                 2, 3 and 5, got {channels} of {pitch}"
            );
            let at =
                self.channels.map_or(At::InputAxis(0, "channel"), |_| At::Parameter("channels"));
            let help = "set `channels` of the `pfb` upstream, for example to 1024";
            rejections.push(Rejection::new(codes::INPUT_AXIS, at, message).help(help));
        } else if channels > pitch || (channels < pitch && shape.unzip > 1) {
            let (message, help) = if channels > pitch {
                let message =
                    format!("`channels` must be at most the input's {pitch}, got {channels}");
                (message, "omit `channels` to keep all of them")
            } else {
                let message = format!("`channels` must be {pitch} for an unzipped input");
                (message, "omit `channels`, or omit `unzip` of `pfb`")
            };
            rejections.push(Rejection::parameter("channels", message).help(help));
        } else if step == 0
            || step % (2 * pitch) != 0
            || input.clock.samples_per_frame != (shape.spectra * step) as u64
        {
            let message = format!(
                "the step between spectra of {pitch} channels must be a multiple of {} samples, got {step}",
                2 * pitch
            );
            rejections.push(Rejection::new(codes::RATE, At::Input(0), message));
        }
        rejections
    }

    /// Diagnostic for the size of an output frame, given a valid shape and valid parameters.
    pub(super) fn reject_frames(&self, shape: Shape) -> Option<Rejection> {
        let reject = |name, message: String, help: String| {
            Some(Rejection::parameter(name, message).help(help))
        };
        let spectrum_bytes = 2 * shape.channels * shape.pols;
        let heap_bytes = spectrum_bytes * self.spectra_per_heap;
        if heap_bytes > axes::MAX_FRAME_BYTES {
            return reject(
                "spectra_per_heap",
                format!("heaps of {} spectra take more than 4 GiB", self.spectra_per_heap),
                format!("use at most {}", axes::MAX_FRAME_BYTES / spectrum_bytes),
            );
        }
        if self.heaps_per_frame > axes::MAX_FRAME_BYTES / heap_bytes {
            return reject(
                "heaps_per_frame",
                format!("frames of {} heaps take more than 4 GiB", self.heaps_per_frame),
                format!("use at most {}", axes::MAX_FRAME_BYTES / heap_bytes),
            );
        }
        let spectra = (self.heaps_per_frame * self.spectra_per_heap) as u64;
        (spectra > MAX_TIMESTAMP / shape.step as u64).then(|| {
            let step = shape.step;
            let message = format!(
                "a frame of {spectra} spectra, {step} samples apart, exceeds the range of timestamps"
            );
            Rejection::new(codes::RATE, At::Input(0), message)
        })
    }

    /// Diagnostics for gains of a wrong number of polarisations or channels.
    pub(super) fn gain_rejections(&self, shape: Shape) -> Vec<Rejection> {
        let Shape { pols, channels, .. } = shape;
        let mut rejections = Vec::new();
        if let Gains::PerPol(gains) = &self.gains {
            let wrong = |gains: &PolGains| match gains {
                PolGains::One(_) => None,
                PolGains::PerChannel(gains) => Some(gains.len()).filter(|len| *len != channels),
            };
            let reject =
                |message: String, help: String| Rejection::parameter("gains", message).help(help);
            if gains.len() != pols {
                rejections.push(reject(
                    format!(
                        "`gains` must have one entry for each of {pols} polarisations, got {}",
                        gains.len()
                    ),
                    "write one number for all, or for example `gains: [0.5, 0.4]`".to_owned(),
                ));
            }
            if let Some(len) = gains.iter().find_map(wrong) {
                rejections.push(reject(
                    format!(
                        "`gains` must have one entry for each of {channels} channels, got {len}"
                    ),
                    "write one gain for each channel, or one number for all".to_owned(),
                ));
            }
        }
        rejections
    }
}
