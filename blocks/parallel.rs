//! Work of one block spread over several cores.

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

impl Threads {
    /// `threads` threads, 0 says all cores.
    pub fn new(threads: usize) -> Result<Self, BlockError> {
        match threads {
            0 => Ok(Self::Shared),
            1 => Ok(Self::Own),
            n => rayon::ThreadPoolBuilder::new()
                .num_threads(n.min(MAX_THREADS))
                .build()
                .map(Self::Pool)
                .map_err(|error| {
                    BlockError::new(format!("cannot start {n} threads")).because(error)
                }),
        }
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
