//! Cores that the threads of this process use.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Instant;

/// Times that all threads of this process have run, at one time.
pub struct Snapshot {
    at: Instant,
    /// By number of the thread: name and nanoseconds.
    threads: BTreeMap<u32, (String, u64)>,
}

/// Use of cores by the threads with one name.
#[derive(Clone, Debug, PartialEq)]
pub struct Usage {
    pub name: String,
    /// Number of threads.
    pub threads: usize,
    pub cores: f64,
}

impl Snapshot {
    /// Reads the times of all threads.
    pub fn take() -> Self {
        let entries = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
        let threads = entries.filter_map(|entry| {
            let number = entry.file_name().to_str()?.parse().ok()?;
            Some((number, read(&entry.path())?))
        });
        Self { threads: threads.collect(), at: Instant::now() }
    }

    /// Returns the use of cores since `before`, for each name of a thread, the busiest ones first. Threads that ended
    /// meanwhile are not counted.
    pub fn since(&self, before: &Self) -> Vec<Usage> {
        let seconds = self.at.saturating_duration_since(before.at).as_secs_f64();
        let mut usages: BTreeMap<&str, Usage> = BTreeMap::new();
        for (number, (name, nanoseconds)) in &self.threads {
            // The operating system may give a new thread the number of an old one.
            let earlier = before.threads.get(number).filter(|(earlier, _)| earlier == name);
            let earlier = earlier.map_or(0, |(_, nanoseconds)| *nanoseconds);
            let ran = nanoseconds.saturating_sub(earlier) as f64 * 1e-9;
            let usage = usages.entry(name).or_insert_with(|| Usage {
                name: name.clone(),
                threads: 0,
                cores: 0.0,
            });
            usage.threads += 1;
            usage.cores += if seconds > 0.0 { ran / seconds } else { 0.0 };
        }
        let mut usages: Vec<Usage> = usages.into_values().collect();
        usages.sort_by(|a, b| b.cores.total_cmp(&a.cores));
        usages
    }
}

/// Reads name and running time of the thread with this directory in `/proc`; `None` where the kernel does not count
/// the time.
fn read(task: &Path) -> Option<(String, u64)> {
    let name = fs::read_to_string(task.join("comm")).ok()?;
    let times = fs::read_to_string(task.join("schedstat")).ok()?;
    Some((name.trim_end().to_owned(), times.split_ascii_whitespace().next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn snapshot(at: Instant, threads: &[(u32, &str, u64)]) -> Snapshot {
        let threads = threads.iter().map(|(n, name, time)| (*n, ((*name).to_owned(), *time)));
        Snapshot { at, threads: threads.collect() }
    }

    #[test]
    fn usage_adds_threads_of_one_name_and_ignores_earlier_time() {
        let start = Instant::now();
        let before = snapshot(start, &[(1, "main", 5), (2, "work", 1_000_000_000), (4, "old", 9)]);
        let now = [(1, "main", 5), (2, "work", 3_000_000_000), (3, "work", 1_000_000_000)];
        // The number 4 belongs to another thread now.
        let now = [&now[..], &[(4, "new", 2_000_000_000)]].concat();
        let usages = snapshot(start + Duration::from_secs(2), &now).since(&before);
        let found: Vec<_> = usages.iter().map(|u| (u.name.as_str(), u.threads, u.cores)).collect();
        assert_eq!(found, [("work", 2, 1.5), ("new", 1, 1.0), ("main", 1, 0.0)]);
    }

    #[test]
    fn snapshot_counts_the_time_of_a_busy_thread() {
        let before = Snapshot::take();
        let end = Instant::now() + Duration::from_millis(30);
        while Instant::now() < end {
            std::hint::black_box(0);
        }
        let used: f64 = Snapshot::take().since(&before).iter().map(|usage| usage.cores).sum();
        assert!(used > 0.0, "{used}");
    }
}
