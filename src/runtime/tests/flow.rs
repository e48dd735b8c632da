//! Tests of the flow of frames.

use super::*;
use fxgraph_core::edge::{FrameReader, FrameWriter};

#[test]
fn fan_out_delivers_every_frame_in_order_to_every_reader() {
    let mut net = Net::default();
    let src = net.add("src", &[], 1, source(3_000));
    let seen: Vec<Seen> = (0..4).map(|_| Seen::default()).collect();
    for (i, seen) in seen.iter().enumerate() {
        let mid = net.add(&format!("mid[{i}]"), &[src], 1, copy());
        net.add(&format!("out[{i}]"), &[mid], 0, seen.sink());
    }
    let report = net.run(TWO_WORKERS);
    assert!(report.failures.is_empty());
    for seen in seen {
        assert_eq!(seen.get(), (0..3_000).collect::<Vec<_>>());
    }
    assert_eq!(report.stats[0].frames_out, 3_000, "a fan-out counts once");
    assert_eq!(report.stats[0].bytes_out, 48_000);
}

#[test]
fn slow_reader_limits_the_writer_to_the_depth_of_its_queue() {
    let mut net = Net::default();
    let pushed = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&pushed);
    let src = net.add("src", &[], 1, move |io| {
        if count.load(Ordering::SeqCst) == 200 {
            return Ok(Next::Finished);
        }
        let Some(frame) = io.outputs[0].take() else { return Ok(Next::Wait) };
        io.outputs[0].push(frame);
        count.fetch_add(1, Ordering::SeqCst);
        Ok(Next::Again)
    });
    let mut taken = 0;
    net.add("out", &[src], 0, move |io| {
        let ahead = pushed.load(Ordering::SeqCst).saturating_sub(taken);
        if ahead > DEPTH as u64 {
            return Err(BlockError::new(format!("{ahead} frames ahead")));
        }
        taken += u64::from(io.inputs[0].pop().is_some());
        Ok(if io.inputs[0].ended() { Next::Finished } else { Next::Again })
    });
    let report = net.run(TWO_WORKERS);
    assert_eq!(report.failures, []);
    assert_eq!(report.stats[1].frames_in, 200);
    assert_eq!(report.stats[1].queues[0].depth, DEPTH);
}

#[test]
fn output_without_readers_does_not_block_the_writer() {
    let mut net = Net::default();
    net.add("src", &[], 1, source(1_000));
    let report = net.run(ONE_WORKER);
    assert!(report.failures.is_empty());
    assert_eq!(report.stats[0].frames_out, 1_000);
}

#[test]
fn passed_frames_are_not_copied() {
    let mut net = Net::default();
    let src = net.add("src", &[], 1, source(300));
    let pass = net.add("pass", &[src], 1, |io| {
        while io.outputs[0].has_room() {
            let Some(frame) = io.inputs[0].pop() else { break };
            io.outputs[0].pass(frame);
        }
        Ok(if io.inputs[0].ended() { Next::Finished } else { Next::Wait })
    });
    net.parts[pass].outputs[0].pool = None;
    let pool = net.parts[src].outputs[0].pool.clone().unwrap();
    let seen = Seen::default();
    net.add("out", &[pass], 0, seen.sink());
    assert!(net.run(TWO_WORKERS).failures.is_empty());
    assert_eq!(seen.get(), (0..300).collect::<Vec<_>>());
    assert_eq!(pool.available(), pool.size(), "all frames are back in their pool");
}

#[test]
fn headers_carry_sequence_and_configuration_numbers() {
    let mut net = Net::default();
    let src = net.add("src", &[], 1, source(10));
    let mut next = 0;
    net.add("out", &[src], 0, move |io| {
        while let Some(frame) = io.inputs[0].pop() {
            if (frame.header().sequence, frame.header().config_id) != (next, 7) {
                return Err(BlockError::new(format!("{:?}", frame.header())));
            }
            next += 1;
        }
        Ok(if io.inputs[0].ended() { Next::Finished } else { Next::Wait })
    });
    assert_eq!(net.run(ONE_WORKER).failures, []);
}

#[test]
fn reader_that_leaves_keeps_no_frame_and_does_not_block_the_writer() {
    for taken in 0..50 {
        let edge = Edge::new(2);
        let pool = Pool::new(&HostAllocator, 8, 16, 0).unwrap();
        let mut reader = FrameReader::new(Arc::clone(&edge));
        let mut writer = FrameWriter::new(vec![edge], Some(Arc::clone(&pool)), 0);
        let reading = std::thread::spawn(move || {
            let mut left = taken;
            while left > 0 {
                left -= u32::from(reader.pop().is_some());
                std::thread::yield_now();
            }
        });
        let mut pushed = 0;
        while pushed < 100 {
            if let Some(frame) = writer.take() {
                writer.push(frame);
                pushed += 1;
            } else {
                std::thread::yield_now();
            }
        }
        reading.join().unwrap();
        assert_eq!(writer.is_abandoned(), Some(true));
        assert_eq!(pool.available(), 8);
    }
}
