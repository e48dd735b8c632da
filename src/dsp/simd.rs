//! Instruction sets of the CPU for inner loops, and numbers aligned to cache lines.

use bytemuck::{Pod, Zeroable};
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

/// Instruction set of an implementation. Functions accept only values of [`available`](InstructionSet::available).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InstructionSet {
    /// Any CPU: the reference implementation.
    Portable,
    /// AVX2 and FMA.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// AVX-512 with F, BW, DQ and VL, and a count of bits.
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl InstructionSet {
    /// Returns the instruction sets of this CPU, the fastest last.
    #[must_use]
    pub fn available() -> Vec<Self> {
        let mut sets = vec![Self::Portable];
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            sets.push(Self::Avx2);
            let has_all = is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("popcnt");
            if has_all {
                sets.push(Self::Avx512);
            }
        }
        sets
    }

    /// Returns the fastest instruction set of this CPU.
    #[must_use]
    pub fn best() -> Self {
        *Self::available().last().unwrap_or(&Self::Portable)
    }
}

/// Fetches `values` to the second-level cache.
#[inline]
#[allow(unsafe_code, reason = "fetches addresses of a slice")]
pub fn fetch<T>(values: &[T]) {
    #[cfg(target_arch = "x86_64")]
    for line in (0..size_of_val(values)).step_by(size_of::<Line>()) {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        // SAFETY: each x86-64 CPU has the instruction, and the address is within `values`.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(values.as_ptr().cast::<i8>().add(line)) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = values;
}

/// A cache line.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
struct Line([u8; 64]);

/// Numbers aligned to a cache line, so that no register is loaded from two lines.
#[derive(Clone)]
pub struct Lines<T> {
    memory: Vec<Line>,
    len: usize,
    numbers: PhantomData<T>,
}

impl<T: Pod> Lines<T> {
    /// Creates `len` zeros.
    #[must_use]
    pub fn new(len: usize) -> Self {
        let lines = (len * size_of::<T>()).div_ceil(size_of::<Line>());
        Self { memory: vec![Line::zeroed(); lines], len, numbers: PhantomData }
    }
}

impl<T: Pod> Deref for Lines<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        &bytemuck::cast_slice(&self.memory)[..self.len]
    }
}

impl<T: Pod> DerefMut for Lines<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        &mut bytemuck::cast_slice_mut(&mut self.memory)[..self.len]
    }
}

impl<T: Pod> FromIterator<T> for Lines<T> {
    fn from_iter<I: IntoIterator<Item = T>>(numbers: I) -> Self {
        let numbers: Vec<T> = numbers.into_iter().collect();
        let mut aligned = Self::new(numbers.len());
        aligned.copy_from_slice(&numbers);
        aligned
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_aligned_and_have_their_length() {
        for len in [0, 1, 33, 5000] {
            let lines: Lines<u16> = (0..len).collect();
            assert!(lines.iter().copied().eq(0..len));
            assert_eq!(lines.as_ptr().align_offset(64), 0);
            fetch(&lines);
        }
    }
}
