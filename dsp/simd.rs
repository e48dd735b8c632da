//! Which form of an inner loop the processor has instructions for, and floats where its registers load them best.

use bytemuck::{Pod, Zeroable};
use std::ops::{Deref, DerefMut};

/// What the processor can do. Only a form of [`available`](Form::available) may be given to a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Anything: the definition of the others.
    Portable,
    /// AVX2 and FMA.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// AVX-512 with F, BW, DQ and VL, and a count of bits.
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Form {
    /// Those that this processor has, the fastest last.
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

    /// The fastest.
    #[must_use]
    pub fn best() -> Self {
        *Self::available().last().unwrap_or(&Self::Portable)
    }
}

/// A line of the cache.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
struct Line([f32; 16]);

/// Floats that begin on a line of the cache, so that no register is loaded from two.
#[derive(Clone)]
pub struct Lines(Vec<Line>);

impl Lines {
    /// At least `len` zeros.
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
