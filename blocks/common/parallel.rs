//! Distribution of one block's work over several cores.
//!
//! The parameter `threads` has the same meaning in all blocks: the number of threads that share the work
//! of each frame, 0 for all cores. The default depends on the block: blocks with one instance per antenna
//! (`pfb`, `fft`, `postproc`) use 1, because together they already use the cores; blocks with a single
//! instance (`correlator`, `beamformer`) use all cores.

use fxgraph::BlockError;
use rayon::prelude::*;

/// Threads of one block: the calling thread, or a pool.
pub enum Threads {
    /// The thread that calls the block.
    Own,
    /// The pool shared by all blocks of the process, one thread per core.
    Shared,
    /// A pool used by this block only.
    Pool(rayon::ThreadPool),
}

/// Largest value of the parameter `threads`.
pub const MAX_THREADS: usize = 1024;

/// Returns the number of threads for the parameter `threads` and the number of operations per frame: little
/// work is not worth waking all cores.
#[must_use]
pub fn threads_for(threads: usize, operations: f64) -> usize {
    const WORTH_SHARING: f64 = 1e7;
    match threads {
        0 if operations < WORTH_SHARING => 1,
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        threads => threads,
    }
}

/// Returns the number of threads for the parameter `threads`.
#[must_use]
pub fn count(threads: usize) -> usize {
    if threads == 0 { rayon::current_num_threads() } else { threads }
}

/// Creates a pool of `threads` threads; `None` for one thread, the caller's.
pub fn pool(threads: usize) -> Result<Option<rayon::ThreadPool>, BlockError> {
    if threads < 2 {
        return Ok(None);
    }
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads.min(MAX_THREADS)).build();
    let failed = |error| BlockError::new(format!("cannot start {threads} threads")).because(error);
    pool.map(Some).map_err(failed)
}

impl Threads {
    /// Creates the threads for the parameter `threads`.
    pub fn new(threads: usize) -> Result<Self, BlockError> {
        if threads == 0 {
            return Ok(Self::Shared);
        }
        Ok(pool(threads)?.map_or(Self::Own, Self::Pool))
    }

    /// Returns the number of pieces into which to divide work.
    #[must_use]
    pub fn count(&self) -> usize {
        match self {
            Self::Own => 1,
            Self::Shared => rayon::current_num_threads(),
            Self::Pool(pool) => pool.current_num_threads(),
        }
    }

    /// Divides `data`, in units of `unit` elements, into one equal run of units per scratch, and calls `work`
    /// with the number of the first unit, the run and the scratch.
    pub fn each<T: Send, S: Send>(
        &self,
        data: &mut [T],
        unit: usize,
        scratches: &mut [S],
        work: impl Fn(usize, &mut [T], &mut S) + Send + Sync,
    ) {
        let units = data.len() / unit;
        let per_run = units.div_ceil(scratches.len()).max(1);
        let run = |i: usize, run: &mut [T], scratch: &mut S| work(i * per_run, run, scratch);
        let chunk = per_run * unit;
        let all = |data: &mut [T], scratches: &mut [S]| {
            data.par_chunks_mut(chunk)
                .zip(scratches)
                .enumerate()
                .for_each(|(i, (data, scratch))| run(i, data, scratch));
        };
        match self {
            Self::Own => {
                let runs = data.chunks_mut(chunk).zip(scratches);
                runs.enumerate().for_each(|(i, (data, scratch))| run(i, data, scratch));
            }
            Self::Shared => all(data, scratches),
            Self::Pool(pool) => pool.install(|| all(data, scratches)),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_is_visited_once_for_any_number_of_threads() {
        for threads in [0, 1, 3] {
            let threads = Threads::new(threads).unwrap();
            let mut scratches = vec![0_usize; threads.count()];
            let mut data = vec![0_usize; 7 * 5];
            threads.each(&mut data, 5, &mut scratches, |first, run, visits| {
                for (i, unit) in run.chunks_mut(5).enumerate() {
                    unit.iter_mut().for_each(|x| *x += first + i + 1);
                    *visits += 1;
                }
            });
            let expected: Vec<usize> = (1..=7).flat_map(|unit| [unit; 5]).collect();
            assert_eq!(data, expected);
            assert_eq!(scratches.iter().sum::<usize>(), 7);
        }
    }
}
