//! Tests beside the flowgraph: what to run and what to expect at which port.

pub(crate) mod read;

use crate::parameters::Setting;
use fxgraph_core::diagnostic::Span;
use std::path::PathBuf;

/// One entry of `tests:`.
#[derive(Clone, Debug, PartialEq)]
pub struct TestSpec {
    /// Its name, a property.
    pub name: String,
    /// Parameters to change; hand them to [`load`](crate::load) and take the test of
    /// this name from that plan, so that expressions in the expectations see them.
    pub set: Vec<Setting>,
    /// Flowgraphs that run at the same time, such as those that send what this one receives.
    pub alongside: Vec<Companion>,
    /// When to stop.
    pub run: Run,
    /// What must hold.
    pub expects: Vec<Expect>,
    /// Where it stands.
    pub span: Span,
}

/// Name and parameters of a test: what it takes to [`load`](crate::load) its plan.
#[derive(Clone, Debug, PartialEq)]
pub struct TestHead {
    /// Its name.
    pub name: String,
    /// Parameters to change.
    pub set: Vec<Setting>,
}

/// A flowgraph that runs beside the tested one, started after it in the order written.
#[derive(Clone, Debug, PartialEq)]
pub struct Companion {
    /// Its file, relative to the folder of the file with the test.
    pub flowgraph: PathBuf,
    /// Parameters to change in it.
    pub set: Vec<Setting>,
    /// Where it stands.
    pub span: Span,
}

/// When a test stops.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Run {
    /// After this many frames at every tapped port.
    Frames(u64),
    /// After this much time.
    Seconds(f64),
    /// When the sources end.
    ToTheEnd,
}

/// A port named in a test: `block` or `block.port`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tap {
    /// As written.
    pub text: String,
    /// Where.
    pub span: Span,
}

/// One expectation.
#[derive(Clone, Debug, PartialEq)]
pub struct Expect {
    /// The port to look at; [`Plan::find`](crate::Plan::find) finds it.
    pub tap: Tap,
    /// What must hold there.
    pub check: Check,
    /// Where it stands.
    pub span: Span,
}

/// What must hold at a port, over all valid elements of the frames of the run. Of complex
/// elements the magnitude counts, except for `equals`, `close_to`, `phase` and `same_as`.
#[derive(Clone, Debug, PartialEq)]
pub enum Check {
    /// Power summed over all other axes is greatest at `at` (+- `tolerance`) of `axis`.
    Peak {
        /// Name of the axis.
        axis: String,
        /// Index expected.
        at: f64,
        /// Indices it may be off.
        tolerance: f64,
    },
    /// The root of the mean square, over the elements with these indices.
    Rms {
        /// Axes held fixed: (name, index).
        at: Vec<(String, u64)>,
        /// Value expected.
        value: f64,
        /// Absolute deviation allowed.
        tolerance: f64,
    },
    /// The mean of the values (real parts of complex ones), over the elements with these indices.
    Mean {
        /// Axes held fixed: (name, index).
        at: Vec<(String, u64)>,
        /// Value expected.
        value: f64,
        /// Absolute deviation allowed.
        tolerance: f64,
    },
    /// Every element is this: (real, imaginary).
    Equals((f64, f64)),
    /// Every element is this, within `tolerance`: (real, imaginary).
    CloseTo {
        /// Value expected.
        value: (f64, f64),
        /// Largest magnitude of the difference.
        tolerance: f64,
    },
    /// The part of validity counts that are there, from 0 (none) to 1 (full).
    Validity {
        /// Part expected.
        fraction: f64,
        /// Deviation allowed.
        tolerance: f64,
    },
    /// Number of frames, exactly.
    Frames(u64),
    /// Bit for bit what another port carries.
    SameAs(Tap),
    /// The angle of the sum over all elements with `index` fixed, in radians.
    Phase {
        /// Axes held fixed: (name, index).
        at: Vec<(String, u64)>,
        /// Angle expected.
        radians: f64,
        /// Deviation allowed, on the circle.
        tolerance: f64,
    },
}
