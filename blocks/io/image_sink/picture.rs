//! Averages by row and column, and their colours.

/// Colours from dark to bright, red, green and blue.
const COLOURS: [[u8; 3]; 5] =
    [[0, 0, 0], [80, 10, 90], [200, 40, 60], [250, 150, 20], [255, 255, 200]];
/// Colour of pixels without data.
const NOTHING: [u8; 3] = [96, 96, 96];

/// Sums of values by row and column, for a growing number of columns.
pub struct Picture {
    rows: usize,
    most_columns: usize,
    /// Columns in use, and the binary logarithm of the number of columns of the stream in each.
    columns: usize,
    log2_merged: u32,
    /// `[column][row]`.
    sums: Vec<f64>,
    counts: Vec<u64>,
}

impl Picture {
    /// Returns the memory for this number of pixels, in bytes.
    pub const fn bytes(pixels: usize) -> usize {
        pixels * (size_of::<f64>() + size_of::<u64>())
    }

    /// Creates an empty picture.
    pub fn new(rows: usize, most_columns: usize) -> Self {
        Self {
            rows,
            most_columns,
            columns: 0,
            log2_merged: 0,
            sums: vec![0.0; rows * most_columns],
            counts: vec![0; rows * most_columns],
        }
    }

    /// Makes room for column `column` of the stream.
    pub fn reach(&mut self, column: u64) {
        while self.place(column) >= self.most_columns as u64 {
            for to in 0..self.columns.div_ceil(2) {
                for row in 0..self.rows {
                    let [a, b] = [2 * to, 2 * to + 1].map(|column| column * self.rows + row);
                    let is_pair = 2 * to + 1 < self.columns;
                    let (sum, count) =
                        if is_pair { (self.sums[b], self.counts[b]) } else { (0.0, 0) };
                    self.sums[to * self.rows + row] = self.sums[a] + sum;
                    self.counts[to * self.rows + row] = self.counts[a] + count;
                }
            }
            let kept = self.columns.div_ceil(2);
            self.sums[kept * self.rows..self.columns * self.rows].fill(0.0);
            self.counts[kept * self.rows..self.columns * self.rows].fill(0);
            self.columns = kept;
            self.log2_merged += 1;
        }
        self.columns = self.columns.max(self.place(column) as usize + 1);
    }

    /// Returns the column of the picture for column `column` of the stream.
    fn place(&self, column: u64) -> u64 {
        column.checked_shr(self.log2_merged).unwrap_or(0)
    }

    /// Adds a value to a column made by [`Self::reach`].
    pub fn add(&mut self, row: usize, column: u64, value: f64) {
        let at = self.place(column) as usize * self.rows + row;
        self.sums[at] += value;
        self.counts[at] += 1;
    }

    /// Returns the number of columns in use, and the number of columns of the stream in each.
    pub fn columns(&self) -> (usize, u128) {
        (self.columns, 1 << self.log2_merged)
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Returns the average of a pixel; `None` without data.
    pub fn average(&self, row: usize, column: usize) -> Option<f64> {
        let at = column * self.rows + row;
        (self.counts[at] > 0).then(|| self.sums[at] / self.counts[at] as f64)
    }

    /// Returns row, column and value of the brightest pixel; `None` if no pixel has a finite value.
    pub fn brightest(&self) -> Option<(usize, usize, f64)> {
        let pixels = (0..self.columns * self.rows).map(|at| (at % self.rows, at / self.rows));
        pixels
            .filter_map(|(row, column)| Some((row, column, self.average(row, column)?)))
            .filter(|(.., value)| !value.is_nan())
            .max_by(|a, b| a.2.total_cmp(&b.2))
    }

    /// Returns the lowest and highest value of the colour scale; `None` if no pixel has a finite level.
    pub fn range(&self, decibels: bool) -> Option<[f64; 2]> {
        let all = (0..self.columns).flat_map(|column| (0..self.rows).map(move |row| (row, column)));
        let levels =
            all.filter_map(|(row, column)| Some(level(self.average(row, column)?, decibels)));
        let mut levels: Vec<f64> = levels.filter(|level| level.is_finite()).collect();
        levels.sort_by(f64::total_cmp);
        Some([*levels.get(levels.len() / 100)?, *levels.last()?])
    }

    /// Returns the pixels as red, green and blue bytes, the highest row first.
    pub fn paint(&self, decibels: bool, row_pixels: usize, column_pixels: usize) -> Vec<u8> {
        let [low, high] = self.range(decibels).unwrap_or([0.0, 1.0]);
        let mut pixels =
            Vec::with_capacity(3 * self.rows * row_pixels * self.columns * column_pixels);
        for row in (0..self.rows).rev().flat_map(|row| std::iter::repeat_n(row, row_pixels)) {
            for column in 0..self.columns {
                let colour = self.average(row, column).map_or(NOTHING, |average| {
                    colour((level(average, decibels) - low) / (high - low).max(f64::MIN_POSITIVE))
                });
                (0..column_pixels).for_each(|_| pixels.extend(colour));
            }
        }
        pixels
    }
}

/// Returns the position of a value on the colour scale: the value, or its decibels.
fn level(value: f64, decibels: bool) -> f64 {
    if decibels { 10.0 * value.log10() } else { value }
}

/// Returns the colour for 0 (dark) to 1 (bright).
fn colour(part: f64) -> [u8; 3] {
    let steps = part.clamp(0.0, 1.0) * (COLOURS.len() - 1) as f64;
    let below = (steps as usize).min(COLOURS.len() - 2);
    let mix = steps - below as f64;
    std::array::from_fn(|i| {
        let [a, b] = [COLOURS[below][i], COLOURS[below + 1][i]].map(f64::from);
        (a + (b - a) * mix).round() as u8
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn average_counts_more_than_32_bits() {
        let mut picture = Picture::new(1, 1);
        picture.reach(0);
        picture.counts[0] = u32::MAX.into();
        picture.sums[0] = 2.0 * f64::from(u32::MAX);
        picture.add(0, 0, 2.0);
        assert_eq!(picture.average(0, 0), Some(2.0));
    }
}
