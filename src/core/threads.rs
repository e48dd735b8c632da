//! Threads that blocks start themselves, and how busy they are.

use crate::lock::lock;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// Threads of one block, shared between the block and its readers.
///
/// A thread that a block starts here counts as work of the block: in its busy time, in metrics, and in the search for the
/// bottleneck of the flowgraph.
#[derive(Clone, Debug, Default)]
pub struct Threads(Arc<Mutex<Vec<Entry>>>);

/// Busy time of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadTime {
    /// Name: `receive`, `write`, ...
    pub name: &'static str,
    /// Time that the thread ran, or was ready to run and waited for a core, since the block was created.
    pub busy: Duration,
}

#[derive(Debug)]
struct Entry {
    name: &'static str,
    /// Its directory in `/proc` while it runs.
    task: Option<PathBuf>,
    /// Busy time that is counted instead.
    counted: Option<Counted>,
    /// Busy time of earlier threads with this name, as after a restart of the block.
    before: Duration,
    /// The last busy time that was read; it stays if the next one cannot be read.
    last: Duration,
}

impl Entry {
    fn busy(&mut self) -> Duration {
        if let Some(Counted(nanoseconds)) = &self.counted {
            return Duration::from_nanos(nanoseconds.load(Ordering::Relaxed));
        }
        if let Some(now) = self.task.as_deref().and_then(busy) {
            self.last = self.before + now;
        }
        self.last
    }
}

impl Threads {
    /// Starts the thread `name` of `block`, which runs `run`. The operating system shows it as `NAME BLOCK`.
    ///
    /// # Errors
    /// If the operating system creates no thread.
    pub fn spawn<T: Send + 'static>(
        &self,
        name: &'static str,
        block: &str,
        run: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<JoinHandle<T>> {
        let threads = self.clone();
        Builder::new().name(format!("{name} {block}")).spawn(move || {
            let _running = threads.begin(name);
            run()
        })
    }

    /// Returns the busy time of `name`, which the block counts: of work outside this process.
    #[must_use]
    pub fn counted(&self, name: &'static str) -> Counted {
        let mut entries = self.entries();
        let mut known = entries.iter().filter(|entry| entry.name == name);
        if let Some(counted) = known.find_map(|entry| entry.counted.clone()) {
            return counted;
        }
        let counted = Counted::default();
        let (before, last) = (Duration::ZERO, Duration::ZERO);
        entries.push(Entry { name, task: None, counted: Some(counted.clone()), before, last });
        counted
    }

    /// Busy times of all threads so far, in the order of their starts; those of threads with one name are added.
    #[must_use]
    pub fn times(&self) -> Vec<ThreadTime> {
        let mut times: Vec<ThreadTime> = Vec::new();
        for entry in self.entries().iter_mut() {
            let busy = entry.busy();
            match times.iter_mut().find(|time| time.name == entry.name) {
                Some(time) => time.busy += busy,
                None => times.push(ThreadTime { name: entry.name, busy }),
            }
        }
        times
    }

    fn entries(&self) -> MutexGuard<'_, Vec<Entry>> {
        lock(&self.0)
    }

    fn begin(&self, name: &'static str) -> Running<'_> {
        let task = std::fs::read_link("/proc/thread-self").ok();
        let task = task.map(|task| Path::new("/proc").join(task));
        let mut entries = self.entries();
        let ended =
            |entry: &Entry| entry.name == name && entry.task.is_none() && entry.counted.is_none();
        match entries.iter().position(ended) {
            Some(index) => entries[index].task.clone_from(&task),
            None => entries.push(Entry {
                name,
                task: task.clone(),
                counted: None,
                before: Duration::ZERO,
                last: Duration::ZERO,
            }),
        }
        Running { threads: self, task }
    }
}

/// Busy time that a block counts itself.
#[derive(Clone, Debug, Default)]
pub struct Counted(Arc<AtomicU64>);

impl Counted {
    /// Adds `time`.
    pub fn add(&self, time: Duration) {
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.0.fetch_add(nanoseconds, Ordering::Relaxed);
    }
}

/// A thread of a block that runs. When it is dropped, its busy time is kept.
struct Running<'a> {
    threads: &'a Threads,
    task: Option<PathBuf>,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        // The lock is held, so the times of a later thread with the same number are not read here.
        let mut entries = self.threads.entries();
        if let Some(entry) = entries.iter_mut().find(|e| e.task.is_some() && e.task == self.task) {
            entry.before = entry.busy();
            entry.task = None;
        }
    }
}

/// Reads the time that a thread ran and waited for a core; `None` where the kernel does not count it.
fn busy(task: &Path) -> Option<Duration> {
    let text = std::fs::read_to_string(task.join("schedstat")).ok()?;
    let mut nanoseconds = text.split_ascii_whitespace().map(|number| number.parse::<u64>().ok());
    Some(Duration::from_nanos(nanoseconds.next()??.saturating_add(nanoseconds.next()??)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::time::Instant;

    fn work_for(time: Duration) {
        let end = Instant::now() + time;
        while Instant::now() < end {
            std::hint::black_box(0);
        }
    }

    #[test]
    fn counted_time_goes_on_after_a_restart() {
        let threads = Threads::default();
        for _ in 0..2 {
            threads.counted("process").add(Duration::from_millis(5));
        }
        let busy = Duration::from_millis(10);
        assert_eq!(threads.times(), [ThreadTime { name: "process", busy }]);
    }

    #[test]
    fn busy_time_is_that_of_work_and_not_of_waiting_and_is_kept_across_restarts() {
        let threads = Threads::default();
        let (done, worked) = channel();
        let (release, released) = channel::<()>();
        let thread = threads
            .spawn("receive", "b", move || {
                work_for(Duration::from_millis(60));
                done.send(()).unwrap();
                let _ = released.recv_timeout(Duration::from_mins(1));
            })
            .unwrap();
        worked.recv().unwrap();
        let began = Instant::now();
        while began.elapsed() < Duration::from_millis(300) {
            std::thread::sleep(Duration::from_millis(10));
        }
        let first = threads.times();
        assert_eq!(first.len(), 1);
        assert_eq!(first[0].name, "receive");
        assert!(first[0].busy >= Duration::from_millis(50), "{first:?}");
        std::thread::sleep(Duration::from_millis(300));
        let waited = threads.times()[0].busy.saturating_sub(first[0].busy);
        assert!(waited < Duration::from_millis(200), "{waited:?}");
        drop(release);
        thread.join().unwrap();
        let ended = threads.times();
        assert!(ended[0].busy >= first[0].busy, "{ended:?}");
        let again = threads.spawn("receive", "b", || work_for(Duration::from_millis(20))).unwrap();
        again.join().unwrap();
        let twice = threads.times();
        assert_eq!(twice.len(), 1);
        assert!(twice[0].busy >= ended[0].busy + Duration::from_millis(15), "{twice:?}");
    }
}
