//! Declarations about GPUs that kinds make before a GPU is opened: properties, CUDA programs as text, and kernels with
//! several launch configurations. `fxgraph::cuda` opens GPUs, compiles the programs and launches the kernels.

use std::borrow::Cow;

/// Properties of a GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Properties {
    /// The vendor's name: `NVIDIA H200`.
    pub name: String,
    /// Compute capability, major and minor.
    pub capability: (usize, usize),
    /// Number of streaming multiprocessors.
    pub multiprocessors: usize,
    /// Size of the device memory in bytes.
    pub memory_bytes: usize,
    /// Limit of the shared memory of one thread block, in bytes.
    pub shared_bytes_per_block: usize,
    /// Shared memory of one multiprocessor, in bytes.
    pub shared_bytes_per_multiprocessor: usize,
    /// Size of the L2 cache in bytes.
    pub l2_bytes: usize,
}

impl Properties {
    /// NVRTC's name of the architecture, for example `sm_90a`. Instructions specific to Hopper need the `a`.
    #[must_use]
    pub fn architecture(&self) -> String {
        let (major, minor) = self.capability;
        let suffix = if (major, minor) == (9, 0) { "a" } else { "" };
        format!("sm_{major}{minor}{suffix}")
    }
}

/// A source file in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// File name, for `#include` and for the compiler's messages.
    pub name: Cow<'static, str>,
    /// Its text.
    pub text: Cow<'static, str>,
}

impl Source {
    /// The file at `path` in a crate, with its text embedded: `Source::embedded("a/b.cu", include_str!("a/b.cu"))`.
    /// The name is the path without the directory.
    #[must_use]
    pub const fn embedded(path: &'static str, text: &'static str) -> Self {
        let mut at = path.len();
        while at > 0 && path.as_bytes()[at - 1] != b'/' {
            at -= 1;
        }
        Self { name: Cow::Borrowed(path.split_at(at).1), text: Cow::Borrowed(text) }
    }
}

/// Macros of a program with their values.
pub type Defines = Vec<(&'static str, String)>;

/// A kernel of a block with several launch configurations, which all have the same result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tunable {
    /// File name of the program.
    pub program: &'static str,
    /// Macros with the sizes of the problem.
    pub shape: Defines,
    /// Macros of each launch configuration; the first one is the default.
    pub ways: Vec<Defines>,
}

/// Macros as text: `NAME=VALUE NAME=VALUE`.
fn text(defines: &Defines) -> String {
    let words: Vec<_> = defines.iter().map(|(name, value)| format!("{name}={value}")).collect();
    words.join(" ")
}

impl Tunable {
    /// Value of the macro `name` in launch configuration `way`; 0 if it is not set or not a number.
    #[must_use]
    pub fn number(&self, way: usize, name: &str) -> usize {
        let found = self.ways[way].iter().find(|(known, _)| *known == name);
        found.and_then(|(_, value)| value.parse().ok()).unwrap_or(0)
    }

    /// All macros for launch configuration `way`.
    #[must_use]
    pub fn defines(&self, way: usize) -> Defines {
        [self.shape.as_slice(), &self.ways[way]].concat()
    }

    /// Sizes of the problem as text, the key in the file of `fxgraph tune`.
    #[must_use]
    pub fn shape_text(&self) -> String {
        text(&self.shape)
    }

    /// Launch configuration `way` as text, the value in the file of `fxgraph tune`.
    #[must_use]
    pub fn way_text(&self, way: usize) -> String {
        text(&self.ways[way])
    }
}

/// Compute capability that a program needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// 8.0 or later.
    Ampere,
    /// 9.0 exactly: `wgmma` exists on Hopper only.
    Hopper,
}

impl Needs {
    /// Whether a GPU of this compute capability (major, minor) is supported.
    #[must_use]
    pub fn fits(self, capability: (usize, usize)) -> bool {
        match self {
            Self::Ampere => capability.0 >= 8,
            Self::Hopper => capability == (9, 0),
        }
    }

    /// The required compute capability as text.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Ampere => "8.0 or later",
            Self::Hopper => "9.0",
        }
    }
}

/// A CUDA program as text: one or several `extern "C"` kernels. When a block is built, NVRTC compiles the program for
/// the GPU of the block, with the block's parameters as macros.
/// [`Implementation::programs`](crate::Implementation::programs) lists the programs of a kind, so that
/// `fxgraph kernels` can compile them without a GPU.
///
/// ```
/// use fxgraph_core::gpu::{Needs, ProgramSource, Source};
///
/// static SCALE: ProgramSource = ProgramSource {
///     // In a crate: `Source::embedded("scale.cu", include_str!("scale.cu"))`.
///     source: Source::embedded(
///         "scale.cu",
///         r#"extern "C" __global__ void scale(float *x) { x[threadIdx.x] *= FACTOR; }"#,
///     ),
///     headers: &[],
///     needs: Needs::Ampere,
///     cases: &["FACTOR=2"],
/// };
/// # let _ = &SCALE;
/// // In a constructor: Program::compile(&SCALE, device, vec![("FACTOR", "2".to_owned())])?.kernel("scale", 0)?
/// ```
#[derive(Debug)]
pub struct ProgramSource {
    /// The file. Its name must be unique in a program: `--kernels DIR` replaces files by name.
    pub source: Source,
    /// Files that it may include; NVRTC finds no others.
    pub headers: &'static [Source],
    /// Compute capability that it needs.
    pub needs: Needs,
    /// Sets of macros that `fxgraph kernels` compiles it with: `NAME=VALUE`, separated by spaces.
    pub cases: &'static [&'static str],
}
