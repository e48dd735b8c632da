//! Antennas without a signal, and the reference antenna, from solution to solution.

use fxgraph::Env;
use fxgraph::event::{BlockEvents, EventKind};
use fxgraph_dsp::stefcal::Estimate;

/// A state that changes after a number of equal observations.
#[derive(Clone, Copy, Debug, Default)]
struct Steady {
    is_bad: bool,
    /// Observations in a row that differ from the state.
    others: usize,
}

impl Steady {
    /// Adds an observation. Returns whether the state has changed.
    fn add(&mut self, is_bad: bool, after: usize) -> bool {
        self.others = if is_bad == self.is_bad { 0 } else { self.others + 1 };
        let has_changed = self.others >= after;
        if has_changed {
            *self = Self { is_bad, others: 0 };
        }
        has_changed
    }
}

/// Observations of one antenna in the groups of a solution.
#[derive(Clone, Copy, Debug, Default)]
struct Observed {
    /// Whether a group shows that there is no signal.
    is_silent: bool,
    /// Whether there is no signal in a group whose source is too weak to show it.
    is_hidden: bool,
    /// Sum of the significances.
    significance: f64,
}

/// State of the antennas.
pub(super) struct Health {
    /// Number of each antenna.
    pub(super) numbers: Vec<u32>,
    /// Solutions in a row after which an antenna counts as one without a signal.
    after: usize,
    /// `[pol][antenna]`.
    antennas: Vec<Vec<Steady>>,
    /// Whether there is a correlated signal.
    sources: Vec<Steady>,
    /// Place of the reference antenna of each polarisation.
    pub(super) references: Vec<usize>,
    /// Antennas of the polarisation at work.
    observed: Vec<Observed>,
    /// Whether each antenna has become one without a signal in all polarisations, and is not flagged yet.
    pub(super) to_flag: Vec<bool>,
    /// Whether antennas are not flagged because too few would stay.
    is_withheld: bool,
    events: BlockEvents,
}

impl Health {
    pub(super) fn new(
        (numbers, pols): (Vec<u32>, usize),
        reference: usize,
        after: usize,
        env: &Env,
    ) -> Self {
        let antennas = numbers.len();
        Self {
            numbers,
            after,
            antennas: vec![vec![Steady::default(); antennas]; pols],
            sources: vec![Steady::default(); pols],
            references: vec![reference; pols],
            observed: vec![Observed::default(); antennas],
            to_flag: vec![false; antennas],
            is_withheld: false,
            events: env.events.clone(),
        }
    }

    /// Begins a polarisation.
    pub(super) fn begin(&mut self) {
        self.observed.fill(Observed::default());
    }

    /// Adds the antennas of a group. `silent` are those without a signal; they count if the others show that: `is_shown`.
    pub(super) fn add(&mut self, (silent, is_shown): (&[bool], bool), estimates: &[Estimate]) {
        for ((observed, silent), estimate) in self.observed.iter_mut().zip(silent).zip(estimates) {
            observed.is_silent |= is_shown && *silent;
            observed.is_hidden |= !is_shown && *silent;
            observed.significance += estimate.significance;
        }
    }

    fn say(&self, text: String) {
        self.events.add(EventKind::Warning, text);
    }

    /// Ends a polarisation. `is_empty` if no group has a correlated signal; then antennas keep their states.
    pub(super) fn end(&mut self, pol: usize, is_empty: bool) {
        let after = if is_empty { 1 } else { self.after };
        if self.sources[pol].add(is_empty, after) {
            self.say(if is_empty {
                format!("no correlated signal in polarisation {pol}: its gains stay")
            } else {
                format!("polarisation {pol} has a correlated signal again")
            });
        }
        if is_empty {
            return;
        }
        for antenna in 0..self.observed.len() {
            let Observed { is_silent, significance, .. } = self.observed[antenna];
            // An antenna without data is neither, nor is one that the source is too weak to show.
            if !is_silent && significance <= 0.0 {
                continue;
            }
            let is_silent = significance <= 0.0;
            if self.antennas[pol][antenna].add(is_silent, self.after) {
                let number = self.numbers[antenna];
                self.say(if is_silent {
                    format!("antenna {number} has no signal in polarisation {pol}: its gains stay")
                } else {
                    format!("antenna {number} has a signal again in polarisation {pol}")
                });
                self.to_flag[antenna] = self.is_dead(antenna);
            }
        }
        self.replace_reference(pol);
    }

    /// Replaces a reference antenna without a gain by the one with the most significant gains, unless the source is too
    /// weak to show that the antenna has no signal.
    fn replace_reference(&mut self, pol: usize) {
        let old = self.references[pol];
        let Observed { significance, is_silent, is_hidden } = self.observed[old];
        if significance > 0.0 || is_hidden && !is_silent {
            return;
        }
        let antennas = self.observed.iter().enumerate();
        let best = antennas.max_by(|(_, a), (_, b)| a.significance.total_cmp(&b.significance));
        if let Some((new, _)) = best.filter(|(_, best)| best.significance > 0.0) {
            self.references[pol] = new;
            let [old, new] = [old, new].map(|antenna| self.numbers[antenna]);
            self.say(format!(
                "the reference antenna {old} has no signal in polarisation {pol}: antenna {new} replaces it"
            ));
        }
    }

    /// Whether an antenna has no signal in all polarisations, whether it is flagged or not.
    fn is_dead(&self, antenna: usize) -> bool {
        self.antennas.iter().all(|pol| pol[antenna].is_bad)
    }

    /// Whether there are antennas to flag in `block`, and enough others that have a gain: `min_antennas`, and as many as
    /// have no signal. A flag stays until a client takes it back, so a fault of most of the array must not set any.
    pub(super) fn may_flag(
        &mut self,
        has_gain: impl Fn(usize) -> bool,
        min_antennas: usize,
        block: &str,
    ) -> bool {
        if !self.to_flag.contains(&true) {
            self.is_withheld = false;
            return false;
        }
        let antennas = self.to_flag.len();
        let dead = (0..antennas).filter(|a| self.is_dead(*a)).count();
        let others = (0..antennas).filter(|a| has_gain(*a) && !self.is_dead(*a)).count();
        let is_withheld = others < dead.max(min_antennas);
        // Without a solution there is another event.
        if is_withheld && others > 0 && !self.is_withheld {
            self.say(format!(
                "{dead} antennas have no signal, and only {others} have a gain: none is flagged in `{block}`"
            ));
            self.is_withheld = true;
        }
        self.is_withheld &= is_withheld;
        !is_withheld
    }

    /// Number of antennas without a signal in any polarisation.
    pub(super) fn silent(&self) -> usize {
        let is_silent = |a: &usize| self.antennas.iter().any(|pol| pol[*a].is_bad);
        (0..self.observed.len()).filter(is_silent).count()
    }
}
