//! Memory that host and process share: frames in numbered slots, and the validity counts of each job.

use fxgraph::frame::SharedMemory;
use fxgraph::{BlockError, PortType};
use std::sync::{Arc, Weak};

/// Number of frames in host memory that are with the process at a time: one at work, and the next one.
pub const JOBS: usize = 2;
/// Largest number of frames that are with a process at a time.
pub const MAX_JOBS: usize = 8;
/// Largest number of buffers of one direction that the process keeps mapped.
const SLOTS: usize = 64;
/// Alignment of the counts of a job, in bytes.
const ALIGNMENT: usize = 64;

/// Numbers under which the process knows buffers.
#[derive(Default)]
pub struct Slots {
    /// Buffer in each slot.
    known: Vec<Known>,
    next: usize,
}

/// A buffer: an offset in memory, and the token of this memory.
#[derive(Default)]
struct Known {
    memory: Weak<()>,
    offset: u64,
}

impl Slots {
    /// Whether the process has mapped `memory`.
    pub fn has(&self, memory: &SharedMemory) -> bool {
        let identity = Arc::as_ptr(memory.identity());
        self.known.iter().any(|known| std::ptr::eq(known.memory.as_ptr(), identity))
    }

    /// Slot of the buffer at `offset` in the memory with this token, and whether the process has to map it. A slot in
    /// `busy` is with the process and stays.
    pub fn slot(&mut self, memory: &Arc<()>, offset: u64, busy: &[u16]) -> (u16, bool) {
        let is_same = |known: &Known| {
            known.offset == offset && std::ptr::eq(known.memory.as_ptr(), Arc::as_ptr(memory))
        };
        if let Some(slot) = self.known.iter().position(is_same) {
            return (slot as u16, false);
        }
        let is_free = |slot: &usize| !busy.contains(&(*slot as u16));
        let gone = (0..self.known.len())
            .find(|slot| self.known[*slot].memory.strong_count() == 0 && is_free(slot));
        let slot = match gone {
            Some(slot) => slot,
            None if self.known.len() < SLOTS => {
                self.known.push(Known::default());
                self.known.len() - 1
            }
            None => {
                let turn = (self.next..self.next + SLOTS).map(|slot| slot % SLOTS);
                let slot = turn.into_iter().find(is_free).unwrap_or(self.next);
                self.next = (slot + 1) % SLOTS;
                slot
            }
        };
        self.known[slot] = Known { memory: Arc::downgrade(memory), offset };
        (slot as u16, true)
    }
}

/// Validity counts of the input and the output of each job, and numbers that the program adds to counters.
pub struct Counts {
    memory: SharedMemory,
    /// Bytes of one job.
    stride: usize,
    input_units: usize,
    output_units: usize,
    counters: usize,
    jobs: usize,
}

impl Counts {
    pub fn new(
        input: &PortType,
        output: Option<&PortType>,
        counters: usize,
        jobs: usize,
    ) -> Result<Self, BlockError> {
        let input_units = input.validity.units();
        let output_units = output.map_or(0, |port| port.validity.units());
        let units = 4 * (input_units + output_units);
        let stride = (units.next_multiple_of(8) + 8 * counters).next_multiple_of(ALIGNMENT);
        let memory = allocate(stride * jobs)?;
        Ok(Self { memory, stride, input_units, output_units, counters, jobs })
    }

    pub fn counters(&self) -> usize {
        self.counters
    }

    /// Number of jobs.
    pub fn jobs(&self) -> usize {
        self.jobs
    }

    /// Numbers that the program has added to each counter for `job`.
    pub fn added(&self, job: usize) -> impl Iterator<Item = u64> {
        let units = 4 * (self.input_units + self.output_units);
        let start = job * self.stride + units.next_multiple_of(8);
        let bytes = &self.memory.bytes()[start..][..8 * self.counters];
        bytes.as_chunks().0.iter().map(|bytes| u64::from_ne_bytes(*bytes))
    }

    pub fn memory(&self) -> &SharedMemory {
        &self.memory
    }

    pub fn stride(&self) -> usize {
        self.stride
    }

    /// Copies the counts of the input for `job`.
    pub fn set_input(&mut self, job: usize, validity: &[u32]) {
        let units = validity.len().min(self.input_units);
        let bytes = &mut self.memory.bytes_mut()[job * self.stride..][..4 * units];
        bytes.copy_from_slice(bytemuck::cast_slice(&validity[..units]));
    }

    /// Copies the counts of the output of `job`, which are at most `full`.
    pub fn copy_output(&self, job: usize, full: u32, validity: &mut [u32]) {
        let start = job * self.stride + 4 * self.input_units;
        let bytes = &self.memory.bytes()[start..][..4 * self.output_units];
        for (count, bytes) in validity.iter_mut().zip(bytes.as_chunks().0) {
            *count = u32::from_ne_bytes(*bytes).min(full);
        }
    }
}

/// Shared memory of at least `bytes` bytes.
pub fn allocate(bytes: usize) -> Result<SharedMemory, BlockError> {
    SharedMemory::new(bytes).map_err(|error| {
        BlockError::new(format!("cannot allocate {bytes} bytes of shared memory")).because(error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_reused_when_their_memory_is_gone_and_never_while_busy() {
        let mut slots = Slots::default();
        let memory = || SharedMemory::new(1).unwrap();
        let first = memory();
        assert!(!slots.has(&first));
        assert_eq!(slots.slot(first.identity(), 0, &[]), (0, true));
        assert!(slots.has(&first));
        assert_eq!(slots.slot(first.identity(), 0, &[]), (0, false));
        let others: Vec<_> = (1..SLOTS).map(|_| memory()).collect();
        for (n, other) in others.iter().enumerate() {
            assert_eq!(slots.slot(other.identity(), 0, &[]), (n as u16 + 1, true));
        }
        let more = [memory(), memory()];
        assert_eq!(slots.slot(more[0].identity(), 0, &[0]), (1, true), "slot 0 is busy");
        drop(first);
        assert_eq!(slots.slot(more[1].identity(), 0, &[]), (0, true));
        assert_eq!(slots.slot(more[0].identity(), 0, &[]), (1, false));
    }

    #[test]
    fn buffers_of_one_memory_have_a_slot_for_each_offset() {
        let (mut slots, memory) = (Slots::default(), Arc::new(()));
        assert_eq!(slots.slot(&memory, 0, &[]), (0, true));
        assert_eq!(slots.slot(&memory, 512, &[]), (1, true));
        assert_eq!(slots.slot(&memory, 0, &[]), (0, false));
        assert_eq!(slots.slot(&memory, 512, &[]), (1, false));
        drop(memory);
        let other = Arc::new(());
        assert_eq!(slots.slot(&other, 512, &[0]), (1, true));
        assert_eq!(slots.slot(&other, 0, &[1]), (0, true));
    }
}
