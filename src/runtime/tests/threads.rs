//! Tests of the threads of blocks, and of the sharing of worker threads.

use super::*;
use crate::StartError;
use std::sync::atomic::AtomicBool;
use std::thread::ThreadId;

/// The thread of a call, and the cores that thread may run on.
type Place = (ThreadId, Vec<usize>);

/// Block that records the threads of its calls.
struct Where(Arc<Mutex<Vec<Place>>>, u32);

impl Where {
    fn note(&self) {
        let cores = core_affinity::get_core_ids().unwrap_or_default();
        let cores = cores.iter().map(|core| core.id).collect();
        self.0.lock().unwrap().push((std::thread::current().id(), cores));
    }
}

impl Block for Where {
    fn start(&mut self) -> Result<(), BlockError> {
        self.note();
        Ok(())
    }
    fn work(&mut self, _: &mut Io<'_>) -> Result<Next, BlockError> {
        self.note();
        self.1 += 1;
        Ok(match self.1 {
            50 => Next::Finished,
            n if n % 2 == 0 => Next::Again,
            _ => Next::After(Duration::from_micros(50)),
        })
    }
    fn finish(&mut self) -> Result<(), BlockError> {
        self.note();
        Ok(())
    }
}

#[test]
fn fault_08_block_with_own_thread_never_leaves_it() {
    let core = core_affinity::get_core_ids().unwrap()[0].id;
    let mut net = Net::default();
    let threads: Vec<Arc<Mutex<Vec<Place>>>> = (0..2).map(|_| Arc::default()).collect();
    for (i, threads) in threads.iter().enumerate() {
        let block = Box::new(Where(Arc::clone(threads), 0));
        net.add_block(&format!("block {i}"), &[], 0, block);
        net.parts[i].thread = Thread::Own { core: (i == 1).then_some(core) };
    }
    assert!(net.run(ONE_WORKER).failures.is_empty());
    let of = |i: usize| threads[i].lock().unwrap().clone();
    for i in 0..2 {
        assert_eq!(of(i).len(), 52);
        assert!(of(i).iter().all(|thread| *thread == of(i)[0]));
    }
    assert_ne!(of(0)[0].0, of(1)[0].0);
    assert!(of(1).iter().all(|(_, cores)| *cores == [core]), "the thread is bound to its core");
}

#[test]
fn start_rejects_unknown_core_before_any_block_starts() {
    let mut net = Net::default();
    net.add("rx", &[], 0, |_| Ok(Next::Finished));
    net.parts[0].thread = Thread::Own { core: Some(100_000) };
    let log = net.log.clone();
    let error = start(net.assembly(), ONE_WORKER).err().unwrap();
    assert!(matches!(error, StartError::NoSuchCore { core: 100_000, .. }), "{error}");
    assert_eq!(log.count("start"), 0);
}

#[test]
fn busy_worker_does_not_delay_a_block_with_own_thread() {
    let free = Arc::new(AtomicBool::new(false));
    let mut net = Net::default();
    let waits = Arc::clone(&free);
    // Occupies the only worker until the other block has worked.
    net.add("heavy", &[], 0, move |_| {
        let began = std::time::Instant::now();
        while !waits.load(Ordering::SeqCst) {
            if began.elapsed() > Duration::from_secs(30) {
                return Err(BlockError::new("the other block never ran"));
            }
            std::hint::spin_loop();
        }
        Ok(Next::Finished)
    });
    let mut works = 0;
    net.add("rx", &[], 0, move |_| {
        works += 1;
        if works < 5 {
            return Ok(Next::After(Duration::from_millis(1)));
        }
        free.store(true, Ordering::SeqCst);
        Ok(Next::Finished)
    });
    net.parts[1].thread = Thread::Own { core: None };
    assert_eq!(net.run(ONE_WORKER).failures, []);
}

#[test]
fn block_that_always_returns_again_yields_to_others_on_its_worker() {
    let done = Arc::new(AtomicBool::new(false));
    let mut net = Net::default();
    let end = Arc::clone(&done);
    net.add("greedy", &[], 0, move |_| {
        Ok(if end.load(Ordering::SeqCst) { Next::Finished } else { Next::Again })
    });
    net.add("modest", &[], 0, move |_| {
        done.store(true, Ordering::SeqCst);
        Ok(Next::Finished)
    });
    assert!(net.run(ONE_WORKER).failures.is_empty());
}

#[test]
fn waker_wakes_a_block_from_any_thread() {
    let mut net = Net::default();
    let told = Arc::new(AtomicU64::new(0));
    let (works, asked) = (Arc::new(AtomicU64::new(0)), Arc::clone(&told));
    let count = Arc::clone(&works);
    net.add("rx", &[], 0, move |_| {
        count.fetch_add(1, Ordering::SeqCst);
        Ok(if asked.load(Ordering::SeqCst) == 1 { Next::Finished } else { Next::Wait })
    });
    let wake = net.parts[0].wake.clone();
    let running = start(net.assembly(), ONE_WORKER).unwrap();
    reach(&works, 1);
    std::thread::spawn(move || {
        told.store(1, Ordering::SeqCst);
        wake.wake();
    })
    .join()
    .unwrap();
    assert!(ended(running).failures.is_empty());
}

#[test]
fn ended_run_is_freed() {
    let mut net = Net::default();
    let mut works = 0;
    net.add("rx", &[], 0, move |_| {
        works += 1;
        // The last call comes from a timer, so the task's other waker is still registered.
        Ok(if works < 5 { Next::After(Duration::from_millis(1)) } else { Next::Finished })
    });
    let running = start(net.assembly(), Options { workers: 2, ..ONE_WORKER }).unwrap();
    let run = Arc::downgrade(running.handle().run());
    assert!(ended(running).failures.is_empty());
    let began = std::time::Instant::now();
    while run.upgrade().is_some() {
        assert!(began.elapsed() < Duration::from_secs(20), "something keeps the run");
        std::thread::yield_now();
    }
}
