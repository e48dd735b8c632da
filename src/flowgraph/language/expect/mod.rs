//! Tests in flowgraph files: settings, duration, and the expectations at ports.

pub(crate) mod read;

use crate::language::parameters::Setting;
use fxgraph_core::diagnostic::Span;
use std::path::PathBuf;

/// One entry of `tests:`.
#[derive(Clone, Debug, PartialEq)]
pub struct TestSpec {
    /// Its name, which states a property.
    pub name: String,
    /// Parameters to change; hand them to [`load`](crate::load) and take the test of
    /// this name from that plan, so that expressions in the expectations see them.
    pub set: Vec<Setting>,
    /// Flowgraphs that run at the same time, for example senders for a receiving flowgraph.
    pub alongside: Vec<Alongside>,
    /// When to stop.
    pub run: Run,
    /// Its expectations.
    pub expects: Vec<Expect>,
    /// Place in the file.
    pub span: Span,
}

/// Name and parameters of a test, which [`load`](crate::load) needs for its plan.
#[derive(Clone, Debug, PartialEq)]
pub struct TestHead {
    /// Its name.
    pub name: String,
    /// Parameters to change.
    pub set: Vec<Setting>,
}

/// A flowgraph that runs together with the tested one; started after it, in the order of the file.
#[derive(Clone, Debug, PartialEq)]
pub struct Alongside {
    /// Its file, relative to the directory of the file with the test.
    pub flowgraph: PathBuf,
    /// Parameters to change in it.
    pub set: Vec<Setting>,
    /// Place in the file.
    pub span: Span,
}

/// When a test stops.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Run {
    /// After this many frames at every port in the expectations.
    Frames(u64),
    /// After this time, in seconds.
    Seconds(f64),
    /// When the sources end.
    ToTheEnd,
}

/// A port named in a test: `block` or `block.port`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tap {
    /// Text of the file.
    pub text: String,
    /// Place in the file.
    pub span: Span,
}

/// One expectation.
#[derive(Clone, Debug, PartialEq)]
pub struct Expect {
    /// The port; [`Plan::find`](crate::Plan::find) resolves it.
    pub tap: Tap,
    /// Check of the data at this port.
    pub check: Check,
    /// Place in the file.
    pub span: Span,
}

/// Check of the data at a port, over all valid elements of the frames of the run. Complex elements count with their
/// magnitude, except for `mean`, `equals`, `close_to`, `phase` and `same_as`.
#[derive(Clone, Debug, PartialEq)]
pub enum Check {
    /// Power summed over all other axes is greatest at `at` (+- `tolerance`) of `axis`.
    Peak {
        /// Name of the axis.
        axis: String,
        /// Index expected.
        at: f64,
        /// Deviation allowed, in indices.
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
    /// Every element equals this value: (real, imaginary).
    Equals((f64, f64)),
    /// Every element is within `tolerance` of `value`.
    CloseTo {
        /// Value expected: (real, imaginary).
        value: (f64, f64),
        /// Largest magnitude of the difference.
        tolerance: f64,
    },
    /// Sum of the validity counts as a fraction of full counts, from 0 (none) to 1 (full).
    Validity {
        /// Fraction expected.
        fraction: f64,
        /// Deviation allowed.
        tolerance: f64,
    },
    /// Number of frames, exactly.
    Frames(u64),
    /// Bit-identical to the data of another port.
    SameAs(Tap),
    /// Angle of the sum over the elements with the indices `at`, in radians.
    Phase {
        /// Axes held fixed: (name, index).
        at: Vec<(String, u64)>,
        /// Angle expected.
        radians: f64,
        /// Deviation allowed in radians, modulo 2 pi.
        tolerance: f64,
    },
}
