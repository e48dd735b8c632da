//! The block on the CPU.

use super::{Products, Shape, spectra_missing};
use fxgraph::{BlockError, Counter, Env, Frame, FrameMut, Map, Sideband};
use num_complex::Complex32;

/// The running block.
pub(super) struct Cpu {
    shape: Shape,
    spectra_missing: Counter,
}

impl Cpu {
    pub(super) fn new(shape: Shape, env: &Env) -> Self {
        Self { shape, spectra_missing: spectra_missing(env) }
    }
}

/// Adds the products of one spectrum, `x` of polarisation 0 and `y` of polarisation 1, to the sums `[product][channel]`.
fn add(
    products: Products,
    sideband: Sideband,
    x: &[Complex32],
    y: Option<&[Complex32]>,
    sums: &mut [f32],
) {
    let power = |sums: &mut [f32], values: &[Complex32]| {
        sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value.norm_sqr());
    };
    let mut rows = sums.chunks_exact_mut(x.len());
    let mut row = || rows.next().unwrap_or_default();
    match (products, y) {
        (Products::Power, y) => {
            power(row(), x);
            y.into_iter().for_each(|y| power(row(), y));
        }
        (Products::Intensity, y) => {
            let sums = row();
            power(sums, x);
            y.into_iter().for_each(|y| power(sums, y));
        }
        (Products::Stokes, Some(y)) => {
            let [i, q, u, v] = [row(), row(), row(), row()];
            // Conjugation of both polarisations changes the sign of V only.
            let of_v = 2.0 * sideband.sign() as f32;
            for (n, (x, y)) in x.iter().zip(y).enumerate() {
                let (xx, yy, xy) = (x.norm_sqr(), y.norm_sqr(), x * y.conj());
                i[n] += xx + yy;
                q[n] += xx - yy;
                u[n] += 2.0 * xy.re;
                v[n] += of_v * xy.im;
            }
        }
        // Rejected by the check of the ports.
        (Products::Stokes, None) => {}
    }
}

impl Map for Cpu {
    fn map(&mut self, input: &Frame, output: &mut FrameMut) -> Result<(), BlockError> {
        let Shape { pols, channels, products, spectra, sideband, .. } = self.shape;
        let (header, sums) = output.parts_mut::<f32>()?;
        let values = input.as_slice::<Complex32>()?;
        let validity = &input.header().validity;
        let of_pol = validity.len() / pols;
        let sum_len = sums.len() / header.validity.len();
        for (number, sum) in sums.chunks_exact_mut(sum_len).enumerate() {
            sum.fill(0.0);
            for spectrum in number * spectra..(number + 1) * spectra {
                if (0..pols).any(|pol| validity[pol * of_pol + spectrum] == 0) {
                    continue;
                }
                let row = |pol: usize| &values[(pol * of_pol + spectrum) * channels..][..channels];
                add(products, sideband, row(0), (pols == 2).then(|| row(1)), sum);
            }
        }
        Ok(())
    }

    fn validity(&mut self, input: &[u32], output: &mut [u32]) {
        self.spectra_missing.add(self.shape.validity(input, output));
    }
}
