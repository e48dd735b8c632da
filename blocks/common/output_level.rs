//! Level of quantised outputs: as annotation, as gauges, and a warning where a gain makes nearly all values 0.

use fxgraph::event::{BlockEvents, EventKind};
use fxgraph::{Env, Gauge, Header};

/// Spectra at the start of each heap whose values are measured. A measurement of all values would read the output
/// again; these are enough for the level, and the same for every implementation.
pub const MEASURED_SPECTRA: usize = 4;

/// Rms, in steps of the quantiser, below which a part of the output has a low level: 68 % or more of its numbers are 0.
const LOW_STEPS: f64 = 0.5;
/// Rms from which on the level is not low any more, so that noise about the limit does not repeat the warning.
const ENOUGH_STEPS: f64 = 0.75;

impl Part {
    fn add(&mut self, squares: u64) {
        self.squares = self.squares.saturating_add(squares);
        self.heaps += 1;
    }
}

/// Levels of the parts of an output: polarisations, or beams.
pub struct OutputLevels {
    parts: Vec<Part>,
    /// Numbers (real or imaginary parts of values) that are measured in each heap of a part.
    numbers_per_heap: u64,
    /// Heaps of a part in a second of the stream.
    heaps_per_second: f64,
    /// Subject of the measured numbers of a part, before its name.
    of: &'static str,
    /// Action of the user that raises the level: "raise `gains`".
    action: &'static str,
    events: BlockEvents,
}

/// Level of one part.
struct Part {
    /// `pol0`, `beam3`
    name: String,
    gauge: Gauge,
    /// Sum of squares since the gauge was set, and its heaps.
    squares: u64,
    heaps: u64,
    /// Whether the gauge has been set.
    is_known: bool,
    is_low: bool,
}

impl OutputLevels {
    /// Creates the levels of parts with these names. `numbers_per_heap` are measured in each heap of a part, and
    /// `heaps_per_second` of a part come in a second of the stream; `action` raises the level.
    pub fn new(
        names: impl Iterator<Item = String>,
        numbers_per_heap: usize,
        heaps_per_second: f64,
        action: &'static str,
        env: &Env,
    ) -> Self {
        let help = "rms of the real and imaginary parts of the quantised output in the last second, in steps of the \
                    quantiser, measured in the first 4 spectra of each heap; below 0.5 raise the gain";
        let rates = (numbers_per_heap, heaps_per_second);
        Self::measuring(("", help), names, rates, action, env)
    }

    /// [`new`](Self::new) for other numbers: `of` is their subject, before the name of a part, and `help` describes the
    /// gauge.
    pub fn measuring(
        (of, help): (&'static str, &'static str),
        names: impl Iterator<Item = String>,
        (numbers_per_heap, heaps_per_second): (usize, f64),
        action: &'static str,
        env: &Env,
    ) -> Self {
        let part = |name: String| Part {
            gauge: env.counters.measurement_of("output_rms", help, "output", name.clone()),
            name,
            squares: 0,
            heaps: 0,
            is_known: false,
            is_low: false,
        };
        Self {
            parts: names.map(part).collect(),
            numbers_per_heap: numbers_per_heap as u64,
            heaps_per_second,
            of,
            action,
            events: env.events.clone(),
        }
    }

    /// Writes the annotation `output_power` `[heap][part]` of a frame: the mean square of the measured numbers, in
    /// squared steps, 0 for units without data. `squares` `[heap][part]` are their sums of squares, and `is_valid` tells,
    /// with the frame's validity, whether a unit has data. Sets the gauges once a second, and warns where the level is
    /// low; `is_silent` tells whether the input of a part has no signal at all.
    pub fn annotate(
        &mut self,
        header: &mut Header,
        squares: impl ExactSizeIterator<Item = u64>,
        is_valid: impl Fn(&[u32], usize) -> bool,
        is_silent: impl Fn(&Header, usize) -> bool,
    ) {
        let parts = self.parts.len();
        let Header { annotations, validity, .. } = header;
        let table = annotations.reset("output_power", squares.len());
        for (unit, (to, squares)) in table.iter_mut().zip(squares).enumerate() {
            if is_valid(validity, unit) {
                *to = squares as f64 / self.numbers_per_heap as f64;
                self.parts[unit % parts].add(squares);
            }
        }
        for part in 0..parts {
            if self.is_second(part) {
                self.show(part, is_silent(header, part));
            }
        }
    }

    /// Adds the sum of squares of a heap of a part, for sinks, whose output has no header. Sets the gauge and warns as
    /// [`annotate`](Self::annotate) does.
    pub fn add(&mut self, part: usize, squares: u64) {
        self.parts[part].add(squares);
        if self.is_second(part) {
            self.show(part, false);
        }
    }

    /// Whether the heaps of a part are those of a second, or its first ones.
    fn is_second(&self, part: usize) -> bool {
        let Part { heaps, is_known, .. } = self.parts[part];
        heaps > 0 && (!is_known || heaps as f64 >= self.heaps_per_second)
    }

    /// Sets the gauge of a part and starts its next second.
    fn show(&mut self, part: usize, is_silent: bool) {
        let Self { parts, numbers_per_heap, of, action, events, .. } = self;
        let Part { name, gauge, squares, heaps, is_known, is_low } = &mut parts[part];
        let numbers = *heaps * *numbers_per_heap;
        let rms = (std::mem::take(squares) as f64 / numbers as f64).sqrt();
        *heaps = 0;
        *is_known = true;
        gauge.set(rms);
        if rms >= ENOUGH_STEPS {
            *is_low = false;
        }
        if rms >= LOW_STEPS || std::mem::replace(is_low, true) {
            return;
        }
        let level = if rms == 0.0 {
            format!("every measured value of {of}{name} is 0")
        } else {
            format!("the rms of {of}{name} is {rms:.3} steps of the quantiser, below {LOW_STEPS}")
        };
        let action = if is_silent {
            "its input has no signal, all samples are 0: check the digitiser".to_owned()
        } else {
            format!("{action}, or check the level of the input")
        };
        events.add(EventKind::Warning, format!("level low: {level}; {action}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fxgraph::event::Events;
    use std::sync::Arc;

    /// Levels of two parts with 100 numbers in a heap, and their events.
    fn levels(heaps_per_second: f64) -> (OutputLevels, Env, Arc<Events>) {
        let (env, events) = (Env::detached("f"), Arc::new(Events::default()));
        env.events.redirect(Some((Arc::clone(&events), "f".to_owned())));
        let names = (0..2).map(|pol| format!("pol{pol}"));
        (OutputLevels::new(names, 100, heaps_per_second, "raise `gains`", &env), env, events)
    }

    fn rms(env: &Env) -> Vec<Option<f64>> {
        env.counters.gauges().iter().map(|named| named.gauge.get()).collect()
    }

    #[test]
    fn gauge_has_the_rms_of_a_second_and_an_invalid_heap_does_not_count() {
        let (mut levels, env, _) = levels(3.0);
        let mut header = Header { validity: vec![1, 0, 1], ..Header::default() };
        let valid = |validity: &[u32], unit: usize| validity[unit / 2] > 0;
        let mut add = |header: &mut Header, squares: [u64; 6]| {
            levels.annotate(header, squares.into_iter(), valid, |_, _| false);
        };
        add(&mut header, [900, 1600, 77, 77, 2300, 200]);
        assert_eq!(header.annotations.get("output_power"), [9.0, 16.0, 0.0, 0.0, 23.0, 2.0]);
        assert_eq!(rms(&env), [Some(4.0), Some(3.0)], "of the first frame");
        add(&mut header, [2500, 100, 77, 77, 2500, 100]);
        assert_eq!(rms(&env), [Some(4.0), Some(3.0)], "the second is not over");
        header.validity = vec![1, 0, 0];
        add(&mut header, [2500, 100, 77, 77, 77, 77]);
        assert_eq!(rms(&env), [Some(5.0), Some(1.0)]);
    }

    #[test]
    fn low_level_warns_once_with_its_cause_until_it_was_high_again() {
        let (mut levels, _, events) = levels(1.0);
        let mut one = |squares: [u64; 2], is_silent: bool| {
            let mut header = Header { validity: vec![1], ..Header::default() };
            levels.annotate(&mut header, squares.into_iter(), |_, _| true, |_, _| is_silent);
        };
        one([0, 10_000], false);
        one([0, 10_000], false);
        // Between the limits: not high again.
        one([36, 10_000], false);
        one([16, 10_000], false);
        one([81, 10_000], false);
        one([16, 0], true);
        let texts: Vec<String> = events.since(0).iter().map(|event| event.text.clone()).collect();
        let expected = [
            "level low: every measured value of pol0 is 0; raise `gains`, or check the level of the input",
            "level low: the rms of pol0 is 0.400 steps of the quantiser, below 0.5; its input has no signal, all \
             samples are 0: check the digitiser",
            "level low: every measured value of pol1 is 0; its input has no signal, all samples are 0: check the \
             digitiser",
        ];
        assert_eq!(texts, expected);
    }
}
