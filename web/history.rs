//! Values of the gauges of all blocks over minutes and hours, in bounded memory.
//!
//! Each gauge has two rings: one value for each of the last 600 s, and the mean of each of the last 1440 min. All rings
//! end at the same second; a second in which the process was stopped is unknown.

use fxgraph::runtime::BlockStats;
use fxgraph_api::history::{GaugeName, GaugeSeries, History as Page};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{OnceLock, PoisonError, RwLock};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Values of each second and of each minute.
pub(crate) const SECONDS: usize = 600;
pub(crate) const MINUTES: usize = 1440;
/// Maximum number of gauges: 16 KiB each.
const SERIES: usize = 4096;

/// Block, gauge, and label with its value.
type Key = (String, &'static str, Option<(&'static str, String)>);

/// The last values of all gauges.
#[derive(Default)]
pub(crate) struct History {
    /// Time of the first sample, which is second 1.
    began: OnceLock<Instant>,
    kept: RwLock<Kept>,
}

#[derive(Default)]
struct Kept {
    /// Number of the newest second.
    second: u64,
    series: BTreeMap<Key, Series>,
    help: BTreeMap<&'static str, &'static str>,
    left_out: usize,
}

/// Values of one gauge; NaN is unknown. Timestamps need double precision.
struct Series {
    seconds: VecDeque<f64>,
    minutes: VecDeque<f64>,
    /// Sum and number of the known values of the minute that has not ended.
    minute: (f64, u32),
    /// Whole minutes since the last known value.
    silent_minutes: usize,
}

impl Series {
    fn new() -> Self {
        // All memory is taken at once: it does not grow while frames flow.
        let unknown = |length| std::iter::repeat_n(f64::NAN, length).collect();
        let (seconds, minutes) = (unknown(SECONDS), unknown(MINUTES));
        Self { seconds, minutes, minute: (0.0, 0), silent_minutes: 0 }
    }

    fn push(ring: &mut VecDeque<f64>, value: f64) {
        ring.pop_front();
        ring.push_back(value);
    }

    /// Adds the value of a second; `is_last` of its minute.
    fn add(&mut self, value: Option<f64>, is_last: bool) {
        Self::push(&mut self.seconds, value.unwrap_or(f64::NAN));
        if let Some(value) = value {
            self.minute = (self.minute.0 + value, self.minute.1 + 1);
        }
        if is_last {
            let (sum, count) = std::mem::take(&mut self.minute);
            self.silent_minutes = if count > 0 { 0 } else { self.silent_minutes + 1 };
            Self::push(&mut self.minutes, sum / f64::from(count));
        }
    }
}

impl History {
    /// Adds the gauges in `stats`. Called once a second, some milliseconds early or late.
    pub fn sample(&self, stats: &[BlockStats]) {
        let passed = self.began.get_or_init(Instant::now).elapsed();
        let second = 1 + passed.as_secs_f64().round() as u64;
        self.kept.write().unwrap_or_else(PoisonError::into_inner).sample(stats, second);
    }

    /// The gauges, and with a name the values of this gauge, of one block if given, over at least the last `seconds`.
    pub fn page(&self, gauge: Option<&str>, block: Option<&str>, seconds: usize) -> Page {
        let kept = self.kept.read().unwrap_or_else(PoisonError::into_inner);
        let passed = self.began.get().map_or(0.0, |began| began.elapsed().as_secs_f64());
        let age = 1.0 + passed - kept.second as f64;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut page = kept.page(gauge, block, seconds);
        page.end_unix_seconds = now.as_secs_f64() - age;
        page
    }
}

impl Kept {
    fn sample(&mut self, stats: &[BlockStats], second: u64) {
        let mut known = BTreeMap::new();
        self.left_out = 0;
        for block in stats {
            for named in &block.gauges {
                let key = (block.name.clone(), named.name, named.label.clone());
                self.help.insert(named.name, named.help);
                if !self.series.contains_key(&key) {
                    if self.series.len() >= SERIES {
                        self.left_out += 1;
                        continue;
                    }
                    self.series.insert(key.clone(), Series::new());
                }
                known.insert(key, named.gauge.get());
            }
        }
        // More than the rings hold need not be added one by one.
        let first = (self.second + 1).max(second.saturating_sub((SECONDS + MINUTES * 60) as u64));
        for now in first..=second {
            let is_last = now % 60 == 59;
            for (key, series) in &mut self.series {
                let value = known.get(key).copied().flatten().filter(|_| now == second);
                series.add(value, is_last);
            }
        }
        self.second = second;
        self.series
            .retain(|key, series| known.contains_key(key) || series.silent_minutes < MINUTES);
    }

    fn page(&self, gauge: Option<&str>, block: Option<&str>, seconds: usize) -> Page {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for (_, name, _) in self.series.keys() {
            *counts.entry(name).or_default() += 1;
        }
        let gauges = counts.into_iter().map(|(name, series)| GaugeName {
            name: name.to_owned(),
            help: self.help.get(name).copied().unwrap_or_default().to_owned(),
            series,
        });
        let is_short = seconds <= SECONDS;
        let wanted = self.series.iter().filter(|((of, name, _), _)| {
            gauge == Some(*name) && block.is_none_or(|block| block == of)
        });
        let series = wanted.map(|((block, _, label), series)| {
            let (ring, count) = if is_short {
                (&series.seconds, seconds)
            } else {
                (&series.minutes, seconds.div_ceil(60).min(MINUTES))
            };
            let (label, label_value) = label.clone().unzip();
            GaugeSeries {
                block: block.clone(),
                label: label.map(str::to_owned),
                label_value,
                values: ring
                    .range(ring.len() - count..)
                    .map(|value| Some(*value).filter(|value| value.is_finite()))
                    .collect(),
            }
        });
        Page {
            gauges: gauges.collect(),
            step_seconds: if is_short { 1.0 } else { 60.0 },
            end_unix_seconds: 0.0,
            series: series.collect(),
            left_out: self.left_out,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::tests::stats;
    use fxgraph::Counters;

    fn block(name: &str, counters: &Counters) -> BlockStats {
        BlockStats { name: name.to_owned(), gauges: counters.gauges(), ..stats(0) }
    }

    #[test]
    fn history_has_seconds_and_means_of_minutes_and_marks_pauses() {
        let counters = Counters::default();
        let level = counters.measurement_of("level_dbfs", "level", "input", "pol0");
        let mut kept = Kept::default();
        for second in 1..=120 {
            level.set(second as f64);
            kept.sample(&[block("f[0]", &counters)], second);
        }
        // The process stands still for three seconds.
        kept.sample(&[block("f[0]", &counters)], 124);
        let page = kept.page(Some("level_dbfs"), None, 6);
        assert!((page.step_seconds - 1.0).abs() < 1e-9);
        let values = [Some(119.0), Some(120.0), None, None, None, Some(120.0)];
        assert_eq!(page.series[0].values, values);
        assert_eq!(page.series[0].label_value.as_deref(), Some("pol0"));
        let page = kept.page(Some("level_dbfs"), Some("f[0]"), 3600);
        assert!((page.step_seconds - 60.0).abs() < 1e-9);
        assert_eq!(page.series[0].values.len(), 60);
        // Seconds 1 to 59, and 60 to 119.
        assert_eq!(page.series[0].values[58..], [Some(30.0), Some(89.5)]);
        assert!(kept.page(Some("level_dbfs"), Some("g"), 60).series.is_empty());
        assert_eq!(kept.page(None, None, 60).gauges[0].series, 1);
    }

    #[test]
    fn history_is_bounded_and_forgets_blocks_that_are_gone() {
        let counters = Counters::default();
        for number in 0..SERIES + 3 {
            let _ = counters.measurement_of("level_dbfs", "level", "input", number.to_string());
        }
        let mut kept = Kept::default();
        kept.sample(&[block("a", &counters)], 1);
        assert_eq!((kept.series.len(), kept.left_out), (SERIES, 3));
        kept.sample(&[], 2);
        assert_eq!((kept.series.len(), kept.left_out), (SERIES, 0), "what was is shown");
        let counters = Counters::default();
        let _ = counters.measurement("level_dbfs", "level");
        let mut kept = Kept::default();
        kept.sample(&[block("a", &counters)], 1);
        // Far more than the rings hold, as after a suspend.
        kept.sample(&[], u64::MAX / 2);
        assert_eq!(kept.series.len(), 0);
    }
}
