//! Instruction sets of the CPU for inner loops, and floats aligned to cache lines.

use bytemuck::{Pod, Zeroable};
use std::ops::{Deref, DerefMut};

/// Instruction set of an implementation. Functions accept only values of [`available`](Form::available).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Any CPU: the reference implementation.
    Portable,
    /// AVX2 and FMA.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// AVX-512 with F, BW, DQ and VL, and a count of bits.
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Form {
    /// Returns the instruction sets of this CPU, the fastest last.
    #[must_use]
    pub fn available() -> Vec<Self> {
        let mut forms = vec![Self::Portable];
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            forms.push(Self::Avx2);
            let has_all = is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("popcnt");
            if has_all {
                forms.push(Self::Avx512);
            }
        }
        forms
    }

    /// Returns the fastest instruction set of this CPU.
    #[must_use]
    pub fn best() -> Self {
        *Self::available().last().unwrap_or(&Self::Portable)
    }
}

/// A cache line.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
struct Line([f32; 16]);

/// Floats aligned to a cache line, so that no register is loaded from two lines.
#[derive(Clone)]
pub struct Lines(Vec<Line>);

impl Lines {
    /// Creates at least `len` zeros.
    #[must_use]
    pub fn new(len: usize) -> Self {
        Self(vec![Line([0.0; 16]); len.div_ceil(16)])
    }
}

impl Deref for Lines {
    type Target = [f32];

    #[inline]
    fn deref(&self) -> &[f32] {
        bytemuck::cast_slice(&self.0)
    }
}

impl DerefMut for Lines {
    #[inline]
    fn deref_mut(&mut self) -> &mut [f32] {
        bytemuck::cast_slice_mut(&mut self.0)
    }
}
