//! Places of spectra in a file whose spectra follow each other without a gap.

/// Place of a spectrum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// After this number of missing spectra.
    After(u64),
    /// The file has a spectrum at this time.
    Repeated,
    /// Not on the grid of the file, or too far from its end.
    NewFile,
}

/// Times of the spectra of a file.
#[derive(Clone, Copy, Debug)]
pub struct Grid {
    /// Timestamp of the next spectrum.
    pub next: u128,
    /// ADC samples from one spectrum to the next.
    pub step: u64,
    /// Longest gap that is filled, in spectra.
    pub max_gap: u64,
}

impl Grid {
    /// Returns the place of the spectrum at `timestamp`.
    pub fn place(&self, timestamp: u128) -> Place {
        let step = u128::from(self.step);
        let distance = timestamp.abs_diff(self.next);
        // At least one spectrum, so that a repeated frame begins no file.
        let longest = u128::from(self.max_gap).max(1) * step;
        if timestamp < self.next && distance <= longest {
            Place::Repeated
        } else if !distance.is_multiple_of(step) || distance > u128::from(self.max_gap) * step {
            Place::NewFile
        } else {
            // At most `max_gap`.
            Place::After((distance / step) as u64)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spectra_are_placed_on_the_grid_or_begin_a_file() {
        let grid = Grid { next: 1000, step: 10, max_gap: 5 };
        let places = [1000, 1010, 1050, 1060, 1005, 990, 950, 940, 995].map(|at| grid.place(at));
        use Place::{After, NewFile, Repeated};
        let expected =
            [After(0), After(1), After(5), NewFile, NewFile, Repeated, Repeated, NewFile, Repeated];
        assert_eq!(places, expected);
    }

    #[test]
    fn grid_without_gaps_begins_a_file_at_each() {
        let grid = Grid { next: 1000, step: 10, max_gap: 0 };
        let places = [1000, 1010, 990, 980].map(|at| grid.place(at));
        assert_eq!(places, [Place::After(0), Place::NewFile, Place::Repeated, Place::NewFile]);
    }
}
