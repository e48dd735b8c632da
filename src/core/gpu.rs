//! GPUs as kinds speak of them before one is opened: what a GPU is, CUDA programs as text, and kernels that can be
//! launched in several ways. `fxgraph::cuda` opens GPUs, compiles the programs and launches the kernels.

use std::borrow::Cow;

/// What a GPU is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Properties {
    /// The vendor's name: `NVIDIA H200`.
    pub name: String,
    /// Compute capability, major and minor.
    pub capability: (usize, usize),
    /// Streaming multiprocessors.
    pub multiprocessors: usize,
    /// Memory in bytes.
    pub memory_bytes: usize,
    /// Largest shared memory of one block of threads, in bytes.
    pub shared_bytes_per_block: usize,
    /// Shared memory of one multiprocessor, in bytes.
    pub shared_bytes_per_multiprocessor: usize,
    /// Cache shared by all multiprocessors, in bytes.
    pub l2_bytes: usize,
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
    /// The file at `path` in a crate, which carries its text: `Source::embedded("a/b.cu", include_str!("a/b.cu"))`.
    /// Its name is the path without its directory.
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

/// A kernel of a block that can be cut in several ways, all with the same result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tunable {
    /// File of the program.
    pub program: &'static str,
    /// What is computed.
    pub shape: Defines,
    /// How it can be cut, the way that suits most cases first.
    pub ways: Vec<Defines>,
}

/// `NAME=VALUE NAME=VALUE`.
fn text(defines: &Defines) -> String {
    let words: Vec<_> = defines.iter().map(|(name, value)| format!("{name}={value}")).collect();
    words.join(" ")
}

impl Tunable {
    /// The macro `name` in the way of this number; 0 if it is none, or no number.
    #[must_use]
    pub fn number(&self, way: usize, name: &str) -> usize {
        let found = self.ways[way].iter().find(|(known, _)| *known == name);
        found.and_then(|(_, value)| value.parse().ok()).unwrap_or(0)
    }

    /// All macros for the way of this number.
    #[must_use]
    pub fn defines(&self, way: usize) -> Defines {
        [self.shape.as_slice(), &self.ways[way]].concat()
    }

    /// What is computed, in words that name it in the file of `fxgraph tune`.
    #[must_use]
    pub fn shape_text(&self) -> String {
        text(&self.shape)
    }

    /// How the work is cut in the way of this number, in words that name it in the file of `fxgraph tune`.
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
    /// Whether a GPU of this compute capability, major and minor, will do.
    #[must_use]
    pub fn fits(self, capability: (usize, usize)) -> bool {
        match self {
            Self::Ampere => capability.0 >= 8,
            Self::Hopper => capability == (9, 0),
        }
    }

    /// The same in words.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Ampere => "8.0 or later",
            Self::Hopper => "9.0",
        }
    }
}

/// A CUDA program as text: one or several `extern "C"` kernels, compiled by NVRTC for the GPU at hand when a block is
/// built, with the block's parameters as macros. [`Implementation::programs`](crate::Implementation::programs)
/// names those of a kind, so that `fxgraph kernels` compiles them without a GPU.
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
    /// The file. Its name is unique in a program: `--kernels DIR` replaces files by their names.
    pub source: Source,
    /// Files that it may include. NVRTC has no others.
    pub headers: &'static [Source],
    /// GPUs it runs on.
    pub needs: Needs,
    /// Parameter sets that `fxgraph kernels` compiles it with: `NAME=VALUE`, separated by blanks.
    pub cases: &'static [&'static str],
}
