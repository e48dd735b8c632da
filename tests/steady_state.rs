//! In steady state, the example of a kind allocates only one `Arc` per frame that a block pushes. This program
//! counts all allocations, and separately those within each block's `work`.
//!
//! On a machine with a GPU the GPU implementations must satisfy the same rule, and the counters of the CUDA layer
//! must not change. There the program runs by itself, without a toolchain.
#![allow(unsafe_code, clippy::unwrap_used)] // an allocator

#[path = "support/needs.rs"]
mod needs;
#[path = "support/python.rs"]
mod python;
#[path = "support/repository.rs"]
mod repository;

use fxgraph::changes::Change;
use fxgraph::examples::Example;
use fxgraph::flowgraph::{Plan, load_text};
use fxgraph::kind::PortPool;
use fxgraph::runtime::{self, Assembly, Running, Thread};
use fxgraph::{AsyncBlock, Block, BlockError, DeviceName, Io, Next, cuda};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The system's allocator, with counters.
struct Counting;

static ALL: AtomicU64 = AtomicU64::new(0);
thread_local! {
    static OF_THREAD: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    ALL.fetch_add(1, Ordering::Relaxed);
    // A thread may allocate after its thread-local variables have been dropped.
    let _ = OF_THREAD.try_with(|count| count.set(count.get() + 1));
}

// SAFETY: all calls go to the system's allocator; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's promise.
        unsafe { System.realloc(memory, layout, bytes) }
    }
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Frames that each sink reads while allocations are counted.
const FRAMES: u64 = 400;
/// Maximum number of attempts: at first, some pool buffers are used for the first time, and their tables
/// grow.
const ATTEMPTS: usize = 20;
/// Kinds whose examples write a file that grows with each frame. Of the other kinds that write files, `file_sink`,
/// `image_sink` and `recorder` write a few files of the first frames, and `uvh5_sink` adds HDF5 chunks to an index.
const WRITERS: [&str; 5] =
    ["dada_sink", "filterbank_sink", "guppi_sink", "sigmf_sink", "vdif_sink"];
const PATIENCE: Duration = Duration::from_mins(1);

/// Counters of a block.
#[derive(Default)]
struct Seen {
    calls: AtomicU64,
    /// Allocations within its `work`.
    allocations: AtomicU64,
}

/// A block with counters.
struct Watched {
    block: Box<dyn Block>,
    seen: Arc<Seen>,
}

impl Block for Watched {
    fn start(&mut self) -> Result<(), BlockError> {
        self.block.start()
    }

    fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        let before = OF_THREAD.get();
        let next = self.block.work(io);
        self.seen.allocations.fetch_add(OF_THREAD.get() - before, Ordering::Relaxed);
        self.seen.calls.fetch_add(1, Ordering::Relaxed);
        next
    }

    fn update(&mut self, change: Change) -> Result<(), BlockError> {
        self.block.update(change)
    }

    fn finish(&mut self) -> Result<(), BlockError> {
        self.block.finish()
    }

    /// An async block is not counted, since its futures are allocated.
    fn awaits(&mut self) -> Option<&mut dyn AsyncBlock> {
        self.block.awaits()
    }
}

/// Adds counters to every block, and gives each its own thread: FutureSDR's run queue, which blocks on
/// shared threads use, sometimes allocates.
fn watch(assembly: &mut Assembly) -> Vec<Arc<Seen>> {
    let watch = |part: &mut runtime::Part| {
        let seen = Arc::<Seen>::default();
        let block = std::mem::replace(&mut part.block, Box::new(Nobody));
        part.block = Box::new(Watched { block, seen: Arc::clone(&seen) });
        part.thread = Thread::Own { core: None };
        seen
    };
    assembly.parts.iter_mut().map(watch).collect()
}

/// Placeholder for a block that is taken out.
struct Nobody;

impl Block for Nobody {
    fn work(&mut self, _: &mut Io<'_>) -> Result<Next, BlockError> {
        Ok(Next::Finished)
    }
}

/// Counters of a run.
struct Counts {
    /// For each block: allocations within `work`, calls of `work`, and new frames pushed.
    blocks: Vec<[u64; 3]>,
    /// Allocations of all other threads.
    elsewhere: u64,
    cuda: cuda::Calls,
}

impl Counts {
    fn now(running: &Running, plan: &Plan, all: &[Arc<Seen>]) -> Self {
        let stats = running.stats();
        let of_block = |(block, seen): (usize, &Arc<Seen>)| {
            let [allocations, calls] =
                [&seen.allocations, &seen.calls].map(|count| count.load(Ordering::Relaxed));
            let is_new = plan.pool_of(block, 0) == PortPool::Own;
            [allocations, calls, if is_new { stats[block].frames_out } else { 0 }]
        };
        Self {
            blocks: all.iter().enumerate().map(of_block).collect(),
            elsewhere: ALL.load(Ordering::Relaxed) - OF_THREAD.get(),
            cuda: cuda::calls(),
        }
    }

    /// Describes the excess allocations since `before`, of blocks and of the runtime.
    fn excess(&self, before: &Self, plan: &Plan) -> Vec<String> {
        let mut all = Vec::new();
        let (mut known, mut calls) = (0, 0);
        for ((now, before), block) in self.blocks.iter().zip(&before.blocks).zip(&plan.blocks) {
            let grown = [0, 1, 2].map(|n| (now[n] - before[n]).cast_signed());
            let excess = grown[0] - grown[2];
            if excess != 0 {
                all.push(format!("{excess} by `{}` in {} frames", block.name, grown[2]));
            }
            known += grown[0];
            calls += grown[1];
        }
        // The counters of different blocks are not read at the same time.
        let runtime = (self.elsewhere - before.elsewhere).cast_signed() - known;
        if runtime > plan.blocks.len() as i64 * 4 {
            all.push(format!("{runtime} by the runtime in {calls} calls"));
        }
        all
    }
}

/// Runs an example until nothing is allocated. Returns whether its stream ended before.
fn hold(example: &Example, plan: &Plan) -> bool {
    let mut assembly = plan.build().unwrap();
    let seen = watch(&mut assembly);
    let running = runtime::start(assembly, runtime::Options::default()).unwrap();
    let began = Instant::now();
    let wait = |frames: u64| {
        let reached =
            |stats: &runtime::BlockStats| stats.frames_out > 0 || stats.frames_in >= frames;
        while !running.stats().iter().all(reached) {
            if running.wait_timeout(Duration::from_millis(2)) {
                return false;
            }
            assert!(began.elapsed() < PATIENCE, "{example}: no frames any more");
        }
        true
    };
    let mut is_endless = wait(FRAMES);
    let mut excess = Vec::new();
    for attempt in 1..=ATTEMPTS {
        let before = Counts::now(&running, plan, &seen);
        is_endless = is_endless && wait((attempt as u64 + 1) * FRAMES);
        let now = Counts::now(&running, plan, &seen);
        assert_eq!(now.cuda, before.cuda, "{example}");
        excess = now.excess(&before, plan);
        if excess.is_empty() {
            break;
        }
    }
    running.abort();
    let report = running.wait();
    assert!(report.failures.is_empty(), "{example}: {:?}", report.failures);
    assert!(excess.is_empty(), "{example}: allocated {}", excess.join(", "));
    is_endless
}

/// A flowgraph without the limit `frames` of its source.
fn endless(flowgraph: &str) -> String {
    let mut parts = flowgraph.split(" frames: ");
    let first = parts.next().unwrap_or_default().to_owned();
    let digits = |part: &str| part.trim_start_matches(|c: char| c.is_ascii_digit()).to_owned();
    parts.fold(first, |text, part| text.trim_end_matches([' ', ',']).to_owned() + &digits(part))
}

// A single test, since allocations of concurrent tests would be counted.
#[test]
fn steady_state_allocates_nothing() {
    // The example of `python` needs NumPy.
    let has_numpy = needs::python();
    if has_numpy && let Some(root) = python::python().ancestors().nth(2) {
        // SAFETY: this program has one test, which has not started a thread yet.
        unsafe { std::env::set_var("VIRTUAL_ENV", root) };
    }
    // Directory with the files for the examples of sources.
    let directory = tempfile::tempdir().unwrap();
    std::env::set_current_dir(directory.path()).unwrap();
    std::fs::write("samples.dat", vec![0; 1 << 20]).unwrap();
    std::fs::write("spectra.fil", include_bytes!("../fuzz/seeds/filterbank/spectra")).unwrap();
    let samples =
        r#"{"global": {"core:datatype": "ci8", "core:version": "1.2.0", "core:sample_rate": 1e6}}"#;
    std::fs::write("samples.sigmf-meta", samples).unwrap();
    std::fs::write("samples.sigmf-data", vec![0; 1 << 20]).unwrap();
    let of_dada = include_bytes!("../blocks/io/dada_source/example.dada");
    let of_guppi = include_bytes!("../blocks/io/guppi_source/example.raw");
    let of_vdif = include_bytes!("../blocks/io/vdif_source/example.vdif");
    std::fs::write("samples.dada", of_dada).unwrap();
    std::fs::write("samples.raw", of_guppi).unwrap();
    std::fs::write("samples.vdif", of_vdif).unwrap();
    let registry = fxgraph_blocks::kinds();
    let gpu = cuda::count().is_ok_and(|count| count > 0).then_some(DeviceName::Cuda(0));
    for device in [DeviceName::Cpu].into_iter().chain(gpu) {
        let mut not_counted = Vec::new();
        for example in registry.examples(device) {
            if ["kernel", "python"].contains(&example.kind) && !has_numpy {
                continue;
            }
            let is_writer = WRITERS.contains(&example.kind);
            let text =
                if is_writer { endless(&example.flowgraph) } else { example.flowgraph.clone() };
            let plan = load_text("example.yaml", &text, &[], &registry).result;
            let plan = plan.unwrap_or_else(|problems| {
                let messages: Vec<_> =
                    problems.into_iter().map(|problem| problem.message).collect();
                panic!("{example}: {}", messages.join("; "))
            });
            let is_alone = plan.blocks.iter().all(|block| {
                let resources = block.configured.resources();
                let [binds, sockets] = [&resources.binds, &resources.sockets];
                binds.is_empty() && sockets.is_empty() && (is_writer || resources.writes.is_empty())
            });
            if !is_alone || !hold(&example, &plan) {
                not_counted.push(example.kind);
            }
        }
        not_counted.dedup();
        if device == DeviceName::Cpu {
            // These use the network, play a finite file, or write other files than `WRITERS`.
            let expected = [
                "dada_source",
                "file_sink",
                "file_source",
                "filterbank_source",
                "guppi_source",
                "image_sink",
                "recorder",
                "sample_sink",
                "sample_source",
                "sigmf_source",
                "spead_sink",
                "spead_source",
                "stream_sink",
                "stream_source",
                "uvh5_sink",
                "vdif_source",
            ];
            assert_eq!(not_counted, expected);
        } else {
            assert!(not_counted.is_empty(), "{not_counted:?}");
        }
    }
}
