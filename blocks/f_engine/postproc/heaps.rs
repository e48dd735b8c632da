//! Assignment of spectra to heaps, and headers of the output frames, for all implementations.

use super::Postproc;
use crate::common::gaps::Gaps;
use crate::common::output_level::{MEASURED_SPECTRA, OutputLevels};
use crate::common::spectra::Shape;
use fxgraph::changes::MAX_TIMESTAMP;
use fxgraph::{Counter, Env, Header};

/// Collects the spectra of input frames in the heaps of output frames.
///
/// Until it is complete, the validity of an output frame counts the valid spectra of each heap.
pub struct Collector {
    /// Shape of the input.
    shape: Shape,
    /// Heaps of an output frame.
    heaps: usize,
    pub spectra_per_heap: usize,
    /// Spectra before this number are rejected.
    next_spectrum: u64,
    /// Sums of the inputs' power and clipping since the last output frame.
    adc_power: Vec<f64>,
    adc_clipped: Vec<f64>,
    /// Number of the last valid heap since sync time.
    last_heap: Option<u64>,
    gaps: Gaps,
    heaps_missing: Counter,
    values_saturated: Counter,
    frames_misplaced: Counter,
    levels: OutputLevels,
}

/// Adjacent spectra of an input frame that go to adjacent places of an output frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Index of the first spectrum within the input frame.
    pub from: usize,
    /// Index of the first spectrum among the spectra of all heaps of the output frame.
    pub place: usize,
    pub count: usize,
}

impl Collector {
    /// Creates a collector for an input of this shape.
    pub fn new(postproc: &Postproc, shape: Shape, env: &Env) -> Self {
        let counters = &env.counters;
        let spectra_per_heap = postproc.spectra_per_heap;
        let levels = OutputLevels::new(
            (0..shape.pols).map(|pol| format!("pol{pol}")),
            2 * shape.channels * MEASURED_SPECTRA.min(spectra_per_heap),
            shape.adc_sample_rate_hz / (shape.step * spectra_per_heap) as f64,
            "raise `gains`",
            env,
        );
        Self {
            levels,
            shape,
            heaps: postproc.heaps_per_frame,
            spectra_per_heap,
            next_spectrum: 0,
            adc_power: vec![0.0; 2 * shape.pols],
            adc_clipped: vec![0.0; shape.pols],
            last_heap: None,
            gaps: Gaps::new(shape.adc_sample_rate_hz),
            heaps_missing: counters.loss(
                "heaps_missing",
                "heaps between valid ones that lack a spectrum; look for missing data upstream",
            ),
            values_saturated: counters.count(
                "values_saturated",
                "complex values that were clamped; lower the gains",
            ),
            frames_misplaced: counters.loss(
                "frames_misplaced",
                "input frames that were late, not at a multiple of the spectrum length, or beyond the range of timestamps; look for a faulty source",
            ),
        }
    }

    /// Spectra of an output frame.
    fn frame_spectra(&self) -> usize {
        self.heaps * self.spectra_per_heap
    }

    /// Number, since sync time, of the first spectrum of a frame.
    pub fn number(&self, frame: &Header) -> u64 {
        frame.timestamp / self.shape.step as u64
    }

    /// Returns whether an input frame can be used. Counts misplaced frames, and adds up power and clipping.
    pub fn accept(&mut self, input: &Header) -> bool {
        let number = self.number(input);
        // Within this range of timestamps no implementation overflows.
        let is_placed = input.timestamp < MAX_TIMESTAMP
            && input.timestamp.is_multiple_of(self.shape.step as u64);
        if !is_placed || number < self.next_spectrum {
            self.frames_misplaced.add(1);
            return false;
        }
        let add = |sums: &mut [f64], values: &[f64]| {
            sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
        };
        add(&mut self.adc_power, input.annotations.get("adc_power"));
        add(&mut self.adc_clipped, input.annotations.get("adc_clipped"));
        self.next_spectrum = number + self.shape.spectra as u64;
        true
    }

    /// Number of the first spectrum of the output frame that spectrum `from` of an input frame is
    /// in.
    pub fn frame_of(&self, input: &Header, from: usize) -> u64 {
        let number = self.number(input) + from as u64;
        number - number % self.frame_spectra() as u64
    }

    /// Begins an output frame with spectrum number `first`.
    pub fn begin(&self, first: u64, output: &mut Header) {
        output.timestamp = first * self.shape.step as u64;
        output.validity.fill(0);
    }

    /// Spectra of an input frame, from `from` on and at most `most`, that belong to the output frame being filled.
    /// Spectrum `from` must belong to it. Adds the number of valid spectra to the output's validity.
    pub fn piece(&self, input: &Header, from: usize, most: usize, output: &mut Header) -> Piece {
        let place = (self.number(input) + from as u64 - self.number(output)) as usize;
        let count = (self.shape.spectra - from).min(self.frame_spectra() - place).min(most);
        let Shape { pols, spectra, .. } = self.shape;
        let is_valid = |n: usize| (0..pols).all(|pol| input.validity[pol * spectra + n] > 0);
        // Mostly all are valid; this check is vectorised.
        let are_valid = |first: usize, count: usize| {
            (0..pols).all(|pol| {
                let of_pol = &input.validity[pol * spectra + first..][..count];
                of_pol.iter().fold(u32::MAX, |least, valid| least.min(*valid)) > 0
            })
        };
        let mut next = 0;
        while next < count {
            let heap = (place + next) / self.spectra_per_heap;
            let end = count.min((heap + 1) * self.spectra_per_heap - place);
            output.validity[heap] += if are_valid(from + next, end - next) {
                (end - next) as u32
            } else {
                (next..end).filter(|n| is_valid(from + n)).count() as u32
            };
            next = end;
        }
        Piece { from, place, count }
    }

    /// Returns whether a piece ends with the output frame.
    pub fn is_last(&self, piece: &Piece) -> bool {
        piece.place + piece.count == self.frame_spectra()
    }

    /// Heaps that lack a valid spectrum and must be zero, of an output frame that gets no more spectra. Call it
    /// before [`Collector::complete`].
    pub fn invalid(&self, output: &Header) -> impl Iterator<Item = usize> {
        let lacks = |valid: &u32| *valid as usize != self.spectra_per_heap;
        output.validity.iter().enumerate().filter(move |(_, valid)| lacks(valid)).map(|(n, _)| n)
    }

    /// Completes the header of an output frame: validity flags, power and clipping. Returns whether the frame has
    /// a valid heap.
    pub fn complete(&mut self, header: &mut Header) -> bool {
        let first_heap = self.number(header) / self.spectra_per_heap as u64;
        let heap_samples = (self.shape.step * self.spectra_per_heap) as u64;
        for valid in &mut header.validity {
            *valid = u32::from(*valid as usize == self.spectra_per_heap);
        }
        for (heap, _) in header.validity.iter().enumerate().filter(|(_, validity)| **validity > 0) {
            let number = first_heap + heap as u64;
            let missing = self.last_heap.map_or(0, |last| number - last - 1);
            let samples = missing.saturating_mul(heap_samples);
            self.heaps_missing.add(self.gaps.missing(samples, heap_samples));
            self.last_heap = Some(number);
        }
        if !header.validity.contains(&1) {
            return false;
        }
        for (name, sums) in
            [("adc_power", &mut self.adc_power), ("adc_clipped", &mut self.adc_clipped)]
        {
            header.annotations.reset(name, sums.len()).copy_from_slice(sums);
            sums.fill(0.0);
        }
        true
    }

    /// Writes the annotations of a complete frame: `saturated` `[heap][pol]`, counts of clamped values, and
    /// `output_power` `[heap][pol]`, from the sums of squares of the measured values. Both are 0 for invalid heaps.
    pub fn annotate_quantised(
        &mut self,
        header: &mut Header,
        saturated: impl ExactSizeIterator<Item = u64>,
        squares: impl ExactSizeIterator<Item = u64>,
    ) {
        let pols = self.shape.pols;
        let table = header.annotations.reset("saturated", saturated.len());
        for (i, (to, count)) in table.iter_mut().zip(saturated).enumerate() {
            let count = if header.validity[i / pols] > 0 { count } else { 0 };
            *to = count as f64;
            self.values_saturated.add(count);
        }
        let is_valid = |validity: &[u32], unit: usize| validity[unit / pols] > 0;
        let is_silent = |header: &Header, pol: usize| {
            // Sum of squares and number of samples.
            let adc_power = header.annotations.get("adc_power").get(2 * pol..2 * pol + 2);
            adc_power.is_some_and(|power| power[0] == 0.0 && power[1] > 0.0)
        };
        self.levels.annotate(header, squares, is_valid, is_silent);
    }
}
