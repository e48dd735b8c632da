//! Weighted least squares in few unknowns.

/// Largest number of unknowns.
pub const UNKNOWNS: usize = 10;
/// A row of coefficients; those after the unknowns in use are ignored.
pub type Row = [f64; UNKNOWNS];
/// A symmetric matrix.
pub type Matrix = [Row; UNKNOWNS];

/// Normal equations `A^T W A x = A^T W y`.
#[derive(Clone, Debug)]
pub struct Normal {
    unknowns: usize,
    matrix: Matrix,
    right: Row,
}

impl Normal {
    /// Equations in `unknowns` unknowns, at most [`UNKNOWNS`].
    #[must_use]
    pub fn new(unknowns: usize) -> Self {
        let unknowns = unknowns.min(UNKNOWNS);
        Self { unknowns, matrix: [[0.0; UNKNOWNS]; UNKNOWNS], right: [0.0; UNKNOWNS] }
    }

    /// Adds the equation `row . x = value` with the weight `1 / sigma^2`.
    pub fn add(&mut self, row: &Row, value: f64, weight: f64) {
        for i in 0..self.unknowns {
            for j in 0..self.unknowns {
                self.matrix[i][j] += weight * row[i] * row[j];
            }
            self.right[i] += weight * row[i] * value;
        }
    }

    /// Returns the inverse of the matrix, the covariance of the solution; `None` if equations are too few or dependent.
    #[must_use]
    pub fn inverse(&self) -> Option<Matrix> {
        let n = self.unknowns;
        let lower = self.cholesky()?;
        let mut inverse = [[0.0; UNKNOWNS]; UNKNOWNS];
        for column in 0..n {
            let mut x = [0.0; UNKNOWNS];
            x[column] = 1.0;
            for i in 0..n {
                let sum: f64 = (0..i).map(|k| lower[i][k] * x[k]).sum();
                x[i] = (x[i] - sum) / lower[i][i];
            }
            for i in (0..n).rev() {
                let sum: f64 = (i + 1..n).map(|k| lower[k][i] * x[k]).sum();
                x[i] = (x[i] - sum) / lower[i][i];
            }
            (0..n).for_each(|i| inverse[i][column] = x[i]);
        }
        Some(inverse)
    }

    fn cholesky(&self) -> Option<Matrix> {
        let mut lower = [[0.0; UNKNOWNS]; UNKNOWNS];
        for i in 0..self.unknowns {
            for j in 0..=i {
                let sum: f64 = (0..j).map(|k| lower[i][k] * lower[j][k]).sum();
                let rest = self.matrix[i][j] - sum;
                if i == j {
                    // Relative to the diagonal, so that units do not matter.
                    if rest.is_nan() || rest <= 1e-12 * self.matrix[i][i] {
                        return None;
                    }
                    lower[i][i] = rest.sqrt();
                } else {
                    lower[i][j] = rest / lower[j][j];
                }
            }
        }
        Some(lower)
    }

    /// Returns the solution and its covariance; `None` as [`inverse`](Self::inverse).
    #[must_use]
    pub fn solve(&self) -> Option<(Row, Matrix)> {
        let inverse = self.inverse()?;
        let mut solution = [0.0; UNKNOWNS];
        for (value, row) in solution.iter_mut().zip(&inverse).take(self.unknowns) {
            *value = row.iter().zip(&self.right).map(|(a, b)| a * b).sum();
        }
        solution.iter().all(|value| value.is_finite()).then_some((solution, inverse))
    }
}
