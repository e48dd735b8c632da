//! Why the parameters of `postproc` are refused, and spectra that it cannot work on.

use super::{Gains, MAX_SPECTRA_PER_HEAP, PolGains, Postproc};
use crate::common::axes;
use crate::common::spectra::Shape;
use fxgraph::diagnostic::codes;
use fxgraph::retune::MAX_TIMESTAMP;
use fxgraph::{At, PortType, Refusal};

impl Postproc {
    /// Refuses what is wrong whatever the input is.
    pub(super) fn parameter_refusals(&self) -> Vec<Refusal> {
        let mut refusals = Vec::new();
        let mut refuse = |name, message: String, help: String| {
            refusals.push(Refusal::parameter(name, message).help(help));
        };
        if ![4, 8].contains(&self.bits) {
            refuse(
                "bits",
                format!("`postproc` cannot quantise to {} bits", self.bits),
                "8 and 4 are possible".to_owned(),
            );
        }
        if !(1..=MAX_SPECTRA_PER_HEAP).contains(&self.spectra_per_heap) {
            refuse(
                "spectra_per_heap",
                format!("a heap cannot have {} spectra", self.spectra_per_heap),
                format!("1 to {MAX_SPECTRA_PER_HEAP} are possible, 256 are usual"),
            );
        }
        if self.heaps_per_frame == 0 {
            refuse("heaps_per_frame", "a frame needs heaps".to_owned(), "1 is usual".to_owned());
        }
        if self.gains.values().iter().any(|gain| !gain.re.is_finite() || !gain.im.is_finite()) {
            refuse(
                "gains",
                "a gain is not a finite number".to_owned(),
                "gains must fit single precision".to_owned(),
            );
        }
        refusals
    }

    /// Refuses spectra that cannot be worked on.
    pub(super) fn shape_refusals(&self, input: &PortType, shape: Shape) -> Vec<Refusal> {
        let units = [("pol", shape.pols), ("spectrum", shape.spectra)];
        let mut refusals = Vec::from_iter(axes::refuse_validity(0, input, &units));
        let Shape { pols, channels, pitch, step, .. } = shape;
        if !channels.is_power_of_two() || channels < 4 || shape.spectra == 0 || pols == 0 {
            let message = format!("`postproc` cannot work on {channels} channels");
            let at =
                self.channels.map_or(At::InputAxis(0, "channel"), |_| At::Parameter("channels"));
            let help = "the number of channels must be a power of two, at least 4";
            refusals.push(Refusal::new(codes::INPUT_AXIS, at, message).help(help));
        } else if channels > pitch || (channels < pitch && shape.unzip > 1) {
            let message = format!("{channels} of {pitch} channels cannot be kept");
            let help = if channels > pitch {
                format!("up to {pitch} are possible; without `channels` all are kept")
            } else {
                "leave `channels` out, or `unzip` of `pfb`".to_owned()
            };
            refusals.push(Refusal::parameter("channels", message).help(help));
        } else if step == 0
            || step % (2 * pitch) != 0
            || input.clock.samples_per_frame != (shape.spectra * step) as u64
        {
            let message = format!(
                "spectra of {pitch} channels must be {} samples apart, or a multiple of that, not {step}",
                2 * pitch
            );
            refusals.push(Refusal::new(codes::RATE, At::Input(0), message));
        }
        refusals
    }

    /// Refuses frames of a size that cannot be, of spectra and parameters that are not refused.
    pub(super) fn refuse_frames(&self, shape: Shape) -> Option<Refusal> {
        let refuse = |name, message: String, help: String| {
            Some(Refusal::parameter(name, message).help(help))
        };
        let spectrum_bytes = 2 * shape.channels * shape.pols;
        let heap_bytes = spectrum_bytes * self.spectra_per_heap;
        if heap_bytes > axes::MAX_FRAME_BYTES {
            return refuse(
                "spectra_per_heap",
                format!("heaps of {} spectra are too large", self.spectra_per_heap),
                format!("{} fit into 4 GiB", axes::MAX_FRAME_BYTES / spectrum_bytes),
            );
        }
        if self.heaps_per_frame > axes::MAX_FRAME_BYTES / heap_bytes {
            return refuse(
                "heaps_per_frame",
                format!("frames of {} heaps are too large", self.heaps_per_frame),
                format!("{} fit into 4 GiB", axes::MAX_FRAME_BYTES / heap_bytes),
            );
        }
        let spectra = (self.heaps_per_frame * self.spectra_per_heap) as u64;
        (spectra > MAX_TIMESTAMP / shape.step as u64).then(|| {
            let step = shape.step;
            let message =
                format!("frames of spectra {step} samples apart go beyond all timestamps");
            Refusal::new(codes::RATE, At::Input(0), message)
        })
    }

    /// Refuses gains for other polarisations or channels than there are.
    pub(super) fn gain_refusals(&self, shape: Shape) -> Vec<Refusal> {
        let Shape { pols, channels, .. } = shape;
        let mut refusals = Vec::new();
        if let Gains::PerPol(gains) = &self.gains {
            let wrong = |gains: &PolGains| match gains {
                PolGains::One(_) => None,
                PolGains::PerChannel(gains) => Some(gains.len()).filter(|len| *len != channels),
            };
            let refuse =
                |message: String, help: String| Refusal::parameter("gains", message).help(help);
            if gains.len() != pols {
                refusals.push(refuse(
                    format!(
                        "there are gains for {} polarisations, but {pols} of them",
                        gains.len()
                    ),
                    "give one entry for each polarisation".to_owned(),
                ));
            }
            if let Some(len) = gains.iter().find_map(wrong) {
                refusals.push(refuse(
                    format!("there are gains for {len} channels, but {channels} of them"),
                    "give one gain for each channel, or one number for all".to_owned(),
                ));
            }
        }
        refusals
    }
}
