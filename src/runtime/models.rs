//! Tests of edges, wakers, mailboxes and probes under thousands of thread interleavings, chosen by
//! `shuttle`: every frame arrives, no wake-up is missed (a deadlock would fail the test), and all
//! buffers return to their pool.
//!
//! `cargo test -p fxgraph-runtime --lib --features shuttle models::` runs these tests; all other tests
//! need the feature off.

use super::fsdr::ready::{Ready, SHORT, Taker};
use super::hosted::{Hosted, Mailbox};
use fxgraph_core::block::{Block, Io, Next};
use fxgraph_core::changes::Heard;
use fxgraph_core::edge::{Decimation, Queued, TapQueue, TapWriter};
use fxgraph_core::edge::{Edge, FrameReader, FrameWriter, WhenFull};
use fxgraph_core::error::BlockError;
use fxgraph_core::frame::{HostAllocator, Pool};
use fxgraph_core::kind::Waker;
use shuttle::sync::{Condvar, Mutex};
use shuttle::thread;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Runs `model` under random interleavings, and under those with few preemptions.
pub(crate) fn explore(model: impl Fn() + Send + Sync + Clone + 'static) {
    shuttle::check_random(model.clone(), 5000);
    shuttle::check_pct(model, 5000, 3);
}

/// Model of the scheduler of blocks: after a wake-up it calls `work` again, once for all wake-ups before
/// the call.
#[derive(Clone, Default)]
pub(crate) struct Task(Arc<(Mutex<bool>, Condvar)>);

impl Task {
    pub fn wakes_for(&self, waker: &Waker) {
        let task = self.clone();
        assert!(waker.set(move || task.wake()));
    }

    pub fn wake(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_one();
    }

    pub fn wait(&self) {
        let mut is_woken = self.0.0.lock().unwrap();
        while !*is_woken {
            is_woken = self.0.1.wait(is_woken).unwrap();
        }
        *is_woken = false;
    }
}

/// Returns an edge with the tasks of its writer and its reader, and a pool for its frames.
pub(crate) fn edge(depth: usize) -> (Arc<Edge>, [Task; 2], Arc<Pool>) {
    let edge = Edge::new(depth);
    let tasks = [Task::default(), Task::default()];
    tasks[0].wakes_for(&edge.writer);
    tasks[1].wakes_for(&edge.reader);
    let pool = Pool::new(&HostAllocator, depth + 2, 16, 1).unwrap();
    let writer = tasks[0].clone();
    pool.on_return(move || writer.wake());
    (edge, tasks, pool)
}

/// Pushes frames with timestamps 0, 1, ... and waits as a block does.
fn write(writer: &mut FrameWriter, task: &Task, frames: u64) {
    for n in 0..frames {
        loop {
            if let Some(mut frame) = writer.take() {
                frame.header_mut().timestamp = n;
                writer.push(frame);
                break;
            }
            task.wait();
        }
    }
}

#[test]
fn every_ready_task_runs_under_any_interleaving() {
    explore(|| {
        let (ready, done) = (Arc::new(Ready::default()), Arc::new(AtomicUsize::new(0)));
        let worker = |_| {
            let (ready, done) = (Arc::clone(&ready), Arc::clone(&done));
            thread::spawn(move || {
                while let Some((task, is_left)) = ready.take() {
                    if is_left {
                        ready.wake();
                    }
                    match task {
                        0 if done.fetch_add(1, Ordering::SeqCst) == 3 => ready.close(),
                        0 => {}
                        // Tasks that become ready in a short call: the turn ends, or it goes on.
                        1 => ready.add(0, SHORT / 2, Taker::This),
                        _ => {
                            ready.add(0, SHORT / 2, Taker::This);
                            ready.wake();
                        }
                    }
                }
            })
        };
        let workers: Vec<_> = (0..2).map(worker).collect();
        for (task, time) in [(1, SHORT), (2, SHORT / 4), (0, SHORT / 4), (1, 2 * SHORT)] {
            ready.add(task, time, Taker::Any);
        }
        for worker in workers {
            worker.join().unwrap();
        }
        assert_eq!(done.load(Ordering::SeqCst), 4);
    });
}

#[test]
fn edge_under_any_interleaving_delivers_every_frame_and_the_end() {
    explore(|| {
        let (edge, [writes, reads], pool) = edge(1);
        let home = Arc::clone(&pool);
        let mut writer = FrameWriter::new(vec![Arc::clone(&edge)], Some(pool), 0);
        let mut reader = FrameReader::new(edge);
        let writer = thread::spawn(move || write(&mut writer, &writes, 3));
        let mut seen = Vec::new();
        loop {
            while let Some(frame) = reader.pop() {
                seen.push(frame.header().timestamp);
            }
            if reader.ended() {
                break;
            }
            reads.wait();
        }
        writer.join().unwrap();
        assert_eq!(seen, [0, 1, 2]);
        assert_eq!(home.available(), home.size());
    });
}

#[test]
fn edge_without_reader_does_not_block_its_writer_and_keeps_no_frame() {
    explore(|| {
        let (edge, [writes, _], pool) = edge(1);
        let home = Arc::clone(&pool);
        let mut writer = FrameWriter::new(vec![Arc::clone(&edge)], Some(pool), 0);
        let mut reader = FrameReader::new(Arc::clone(&edge));
        let writer = thread::spawn(move || write(&mut writer, &writes, 3));
        let _ = reader.pop();
        drop(reader);
        writer.join().unwrap();
        assert_eq!(home.available(), home.size());
        drop(edge);
    });
}

/// A block that is never called.
struct Idle;

impl Block for Idle {
    fn work(&mut self, _: &mut Io<'_>) -> Result<Next, BlockError> {
        Ok(Next::Wait)
    }
}

/// Counts its drop, whether its command ran or not.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn frames_without_room_are_dropped_until_the_reader_takes_one() {
    const FRAMES: u64 = 6;
    explore(|| {
        let (edge, [writing, reading], pool) = edge(1);
        let mut reader = FrameReader::new(Arc::clone(&edge));
        let written = Arc::clone(&edge);
        let writer = thread::spawn(move || {
            let mut writer = FrameWriter::new(vec![written], Some(pool), 0);
            write(&mut writer, &writing, FRAMES);
        });
        let watched = Arc::clone(&edge);
        let watcher = thread::spawn(move || {
            if watched.is_full() {
                watched.drop_until_read();
            }
        });
        let mut taken = Vec::new();
        while !reader.ended() {
            match reader.pop() {
                Some(frame) => taken.push(frame.header().timestamp),
                None if reader.ended() => {}
                None => reading.wait(),
            }
        }
        writer.join().unwrap();
        watcher.join().unwrap();
        assert!(taken.is_sorted_by(|a, b| a < b));
        assert_eq!(taken.len() as u64 + edge.dropped_in_deadlock(), FRAMES);
    });
}

#[test]
fn edge_that_drops_frames_holds_up_no_writer_and_counts_every_frame() {
    const FRAMES: u64 = 4;
    for when_full in [WhenFull::DropOldest, WhenFull::DropNewest] {
        for depth in [1, 2] {
            explore(move || {
                let (edge, [_, reading], pool) = edge(depth);
                edge.set_when_full(when_full);
                let home = Arc::clone(&pool);
                let mut reader = FrameReader::new(Arc::clone(&edge));
                let mut writer = FrameWriter::new(vec![Arc::clone(&edge)], Some(pool), 0);
                let writer = thread::spawn(move || {
                    for n in 0..FRAMES {
                        // The queue, the frame at work and this one: no frame is waited for.
                        let mut frame = writer.take().unwrap();
                        frame.header_mut().timestamp = n;
                        writer.push(frame);
                    }
                });
                let mut taken = Vec::new();
                while !reader.ended() {
                    match reader.pop() {
                        Some(frame) => taken.push(frame.header().timestamp),
                        None if reader.ended() => {}
                        None => reading.wait(),
                    }
                }
                writer.join().unwrap();
                assert!(taken.is_sorted_by(|a, b| a < b), "{taken:?}");
                assert_eq!(taken.len() as u64 + edge.dropped(), FRAMES);
                if when_full == WhenFull::DropOldest {
                    assert_eq!(taken.last(), Some(&(FRAMES - 1)));
                }
                assert_eq!(home.available(), home.size());
            });
        }
    }
}

#[test]
fn writer_that_waits_goes_on_when_the_edge_begins_to_drop_frames() {
    explore(|| {
        let (edge, [writing, _], pool) = edge(1);
        let home = Arc::clone(&pool);
        let reader = FrameReader::new(Arc::clone(&edge));
        let mut writer = FrameWriter::new(vec![Arc::clone(&edge)], Some(pool), 0);
        let writer = thread::spawn(move || write(&mut writer, &writing, 3));
        edge.set_when_full(WhenFull::DropOldest);
        writer.join().unwrap();
        assert_eq!((edge.queued(), edge.dropped()), (1, 2));
        drop(reader);
        assert_eq!(home.available(), home.size());
    });
}

#[test]
fn mailbox_runs_or_drops_every_command() {
    explore(|| {
        let (mailbox, task) = (Arc::new(Mailbox::default()), Task::default());
        let [done, gone] = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
        let posts = |count: usize| {
            let (mailbox, task) = (Arc::clone(&mailbox), task.clone());
            let (done, gone) = (Arc::clone(&done), Arc::clone(&gone));
            thread::spawn(move || {
                for _ in 0..count {
                    let (done, counted) = (Arc::clone(&done), Counted(Arc::clone(&gone)));
                    mailbox.post(Box::new(move |_: &mut Hosted| {
                        let _counted = &counted;
                        done.fetch_add(1, Ordering::SeqCst);
                    }));
                    task.wake();
                }
            })
        };
        let threads = [posts(2), posts(1)];
        let mut hosted =
            Hosted::new(Box::new(Idle), &[], &[], || Heard::from_start(0), &Arc::default());
        // The block ends after two commands: the third one runs or is dropped.
        while done.load(Ordering::SeqCst) < 2 {
            for command in mailbox.take() {
                command(&mut hosted);
            }
            if done.load(Ordering::SeqCst) < 2 {
                task.wait();
            }
        }
        mailbox.close();
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(gone.load(Ordering::SeqCst), 3);
    });
}

#[test]
fn probe_receives_frames_in_order_and_counts_dropped_ones() {
    const FRAMES: u64 = 4;
    explore(|| {
        let pool = Pool::new(&HostAllocator, FRAMES as usize + 1, 16, 1).unwrap();
        let queue = TapQueue::new(2);
        let all = Decimation { every: 1, pause: Duration::ZERO };
        let mut tap = TapWriter::new(Arc::clone(&queue), Arc::clone(&pool), all);
        let frames = Arc::clone(&pool);
        let writer = thread::spawn(move || {
            for n in 0..FRAMES {
                let mut frame = frames.take().unwrap();
                frame.header_mut().timestamp = n;
                tap.offer(&frame.freeze());
            }
        });
        let mut seen = Vec::new();
        while !queue.is_over() {
            match queue.pop(Instant::now()) {
                Some(Queued { index, frame }) => {
                    assert_eq!(index, frame.header().timestamp);
                    seen.push(index);
                }
                None => thread::yield_now(),
            }
        }
        writer.join().unwrap();
        assert!(seen.is_sorted(), "{seen:?}");
        assert_eq!(seen.last(), Some(&(FRAMES - 1)));
        assert_eq!(seen.len() as u64 + queue.dropped(), FRAMES);
        assert_eq!(pool.available(), pool.size());
    });
}

#[test]
fn closed_probe_keeps_no_frame() {
    explore(|| {
        let pool = Pool::new(&HostAllocator, 4, 16, 1).unwrap();
        let queue = TapQueue::new(2);
        let all = Decimation { every: 1, pause: Duration::ZERO };
        let mut tap = TapWriter::new(Arc::clone(&queue), Arc::clone(&pool), all);
        let frames = Arc::clone(&pool);
        let writer = thread::spawn(move || {
            for _ in 0..3 {
                tap.offer(&frames.take().unwrap().freeze());
            }
        });
        queue.close();
        writer.join().unwrap();
        drop(queue);
        assert_eq!(pool.available(), pool.size());
    });
}
