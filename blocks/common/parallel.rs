//! Work of one block spread over several cores.
//!
//! The parameter `threads` means the same in every block that has one: so many threads share the
//! work of each frame, and 0 takes all cores. Each block's own documentation says what it does
//! without the parameter: blocks of which a flowgraph has one for each antenna (`pfb`, `fft`,
//! `postproc`) take 1, because together they already use the cores; those that it has one of
//! (`correlator`, `beamformer`) take all cores.

use fxgraph::BlockError;
use rayon::prelude::*;

/// The threads of one block: its own one, or a pool of more.
pub enum Threads {
    /// The thread that calls the block.
    Own,
    /// The pool that all blocks of the process share, one thread per core.
    Shared,
    /// A pool of this block alone.
    Pool(rayon::ThreadPool),
}

/// Most threads a block may ask for.
pub const MAX_THREADS: usize = 1024;

/// How many threads to start for the parameter `threads` and so many operations per frame: all
/// cores are not worth waking for less than a moment's work.
#[must_use]
pub fn threads_for(threads: usize, operations: f64) -> usize {
    const WORTH_SHARING: f64 = 1e7;
    match threads {
        0 if operations < WORTH_SHARING => 1,
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        threads => threads,
    }
}

/// A pool of that many threads; none for one thread, which works where it is called.
pub fn pool(threads: usize) -> Result<Option<rayon::ThreadPool>, BlockError> {
    if threads < 2 {
        return Ok(None);
    }
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads.min(MAX_THREADS)).build();
    let failed = |error| BlockError::new(format!("cannot start {threads} threads")).because(error);
    pool.map(Some).map_err(failed)
}

impl Threads {
    /// Those that the parameter `threads` asks for.
    pub fn new(threads: usize) -> Result<Self, BlockError> {
        if threads == 0 {
            return Ok(Self::Shared);
        }
        Ok(pool(threads)?.map_or(Self::Own, Self::Pool))
    }

    /// How many pieces to cut work into.
    #[must_use]
    pub fn count(&self) -> usize {
        match self {
            Self::Own => 1,
            Self::Shared => rayon::current_num_threads(),
            Self::Pool(pool) => pool.current_num_threads(),
        }
    }

    /// Cuts `data`, made of units of `unit` elements, into as many equal runs of units as there
    /// are scratches, and calls `work` with the first unit's number, the run and a scratch.
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
    fn every_unit_is_visited_once_whatever_the_threads() {
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
