//! Frames of equal length over stretches of samples with gaps between them.

use fxgraph_formats::sigmf::Segment;

/// Part of a frame that is in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Number of its first sample in the frame.
    pub first: usize,
    /// Number of its samples.
    pub count: usize,
    /// Offset of its first sample in the file, in bytes.
    pub offset: u64,
}

/// Frames of a recording, in the order of time.
pub struct Grid {
    segments: Vec<Segment>,
    /// Stretches of missing samples: index and number.
    missing: Vec<(u64, u64)>,
    /// Bytes of a sample of all channels.
    sample_bytes: u64,
    /// Samples of a frame.
    len: u64,
    /// Index of the first sample of the next frame.
    start: u64,
    /// Numbers of the first segment, and of the first missing stretch, that end after `start`.
    segment: usize,
    stretch: usize,
}

impl Grid {
    /// Creates frames of `len` samples from the first sample on.
    pub fn new(
        segments: &[Segment],
        missing: &[(u64, u64)],
        sample_bytes: usize,
        len: usize,
    ) -> Self {
        let segments: Vec<Segment> =
            segments.iter().filter(|segment| segment.count > 0).copied().collect();
        let start = segments.first().map_or(0, |first| first.index);
        Self {
            segments,
            missing: missing.to_vec(),
            sample_bytes: sample_bytes as u64,
            len: len as u64,
            start,
            segment: 0,
            stretch: 0,
        }
    }

    /// Returns the index of the first sample of the next frame that has samples; `None` at the end.
    pub fn next(&mut self) -> Option<u64> {
        while self.segments.get(self.segment).is_some_and(|one| one.index + one.count <= self.start)
        {
            self.segment += 1;
        }
        let index = self.segments.get(self.segment)?.index;
        if index >= self.start + self.len {
            // Frames in a gap are left out.
            self.start += (index - self.start) / self.len * self.len;
        }
        let stretches = &self.missing;
        while stretches.get(self.stretch).is_some_and(|(at, count)| at + count <= self.start) {
            self.stretch += 1;
        }
        Some(self.start)
    }

    /// Iterates over the parts of the next frame that are in the file.
    pub fn parts(&self) -> impl Iterator<Item = Part> + '_ {
        let end = self.start + self.len;
        let of_frame = self.segments[self.segment..].iter().take_while(move |one| one.index < end);
        of_frame.map(move |one| {
            let first = one.index.max(self.start);
            let last = (one.index + one.count).min(end);
            Part {
                first: (first - self.start) as usize,
                count: (last - first) as usize,
                offset: one.offset + (first - one.index) * self.sample_bytes,
            }
        })
    }

    /// Iterates over the first sample and the number of samples of the next frame that are marked as missing.
    pub fn missing(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        let end = self.start + self.len;
        let of_frame = self.missing[self.stretch..].iter().take_while(move |(at, _)| *at < end);
        of_frame.filter_map(move |(at, count)| {
            let first = (*at).max(self.start);
            let last = (at + count).min(end).max(first);
            (last > first).then_some(((first - self.start) as usize, (last - first) as usize))
        })
    }

    /// Goes on to the frame after the next.
    pub fn advance(&mut self) {
        self.start += self.len;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_cover_all_segments_and_leave_out_gaps() {
        let segment = |index, count, offset| Segment { index, count, offset };
        let segments =
            [segment(100, 25, 8), segment(128, 4, 108), segment(130, 0, 0), segment(175, 5, 124)];
        let mut grid = Grid::new(&segments, &[(103, 2), (118, 4), (178, 1)], 4, 10);
        let mut frames = Vec::new();
        while let Some(index) = grid.next() {
            let parts: Vec<_> = grid.parts().map(|p| (p.first, p.count, p.offset)).collect();
            frames.push((index, parts, grid.missing().collect::<Vec<_>>()));
            grid.advance();
        }
        assert_eq!(
            frames,
            [
                (100, vec![(0, 10, 8)], vec![(3, 2)]),
                (110, vec![(0, 10, 48)], vec![(8, 2)]),
                (120, vec![(0, 5, 88), (8, 2, 108)], vec![(0, 2)]),
                (130, vec![(0, 2, 116)], vec![]),
                (170, vec![(5, 5, 124)], vec![(8, 1)]),
            ]
        );
    }
}
