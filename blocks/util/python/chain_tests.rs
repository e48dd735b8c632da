//! A block in Python behind another one, in a running flowgraph.

use super::tests::has_numpy;
use fxgraph::Control;
use fxgraph::flowgraph::load_text;
use fxgraph::runtime::{Options, Prepared, Report};
use std::time::Duration;

/// Runs two blocks in Python one after the other, with 40 frames; the second one checks the values of the first one,
/// which has these lines in `work`.
fn run(lines: &str) -> Report {
    let text = format!(
        "flowgraph: chain
blocks:
  source:
    kind: null_source
    parameters: {{dtype: f32, axes: [{{name: sample, len: 64}}], samples_per_frame: 64, frames: 40}}
  first:
    kind: python
    input: source
    on_fault: skip
    parameters:
      class: First
      code: |
        import os
        from dataclasses import dataclass
        from fxgraph.block import Block
        @dataclass
        class First(Block):
            def work(self, frame, out):
                {lines}
                out.data[...] = frame.timestamp
  second:
    kind: python
    input: first
    parameters:
      class: Second
      code: |
        from dataclasses import dataclass
        from fxgraph.block import Block
        @dataclass
        class Second(Block):
            def work(self, frame, out):
                assert (frame.data == frame.timestamp).all(), frame.data
                out.data[...] = frame.data
  sink: {{kind: null_sink, input: second}}
"
    );
    run_text(&text)
}

fn run_text(text: &str) -> Report {
    let plan = load_text("chain.yaml", text, &[], &crate::kinds()).result.unwrap();
    let options = Options { config_id: plan.config_id(), workers: 2 };
    let prepared = Prepared::new(plan.build().unwrap()).unwrap();
    let control = Control::new(plan, crate::kinds(), prepared.handle());
    let running = prepared.start(options).unwrap();
    assert!(control.wait_timeout(Duration::from_mins(2)), "it does not end");
    running.wait()
}

fn count(report: &Report, block: &str, name: &str) -> u64 {
    let block = report.stats.iter().find(|stats| stats.name == block).unwrap();
    block.counters.iter().find(|named| named.name == name).unwrap().counter.get()
}

#[test]
fn chain_of_two_blocks_copies_no_frame() {
    if !has_numpy() {
        return;
    }
    let report = run("pass");
    for block in ["first", "second"] {
        assert_eq!(count(&report, block, "frames_computed"), 40);
        assert_eq!(count(&report, block, "frames_copied"), 0, "{block}");
    }
}

#[test]
fn restarted_process_before_another_block_gets_copies_because_its_memory_is_sealed() {
    if !has_numpy() {
        return;
    }
    // Frames 20 and later are computed by another process.
    let report = run("if frame.sequence == 19: os._exit(3)");
    assert_eq!(count(&report, "first", "process_starts"), 2);
    let dropped = count(&report, "first", "frames_dropped_at_faults");
    assert!((1..=2).contains(&dropped), "{dropped}");
    assert!(count(&report, "first", "frames_copied") > 0);
    assert_eq!(count(&report, "second", "frames_computed"), 40 - dropped);
    assert_eq!(count(&report, "second", "process_starts"), 1);
}

/// A block that keeps the descriptors of its frames, opens those of inputs for writing and tries to write. A second block
/// reads the same frames.
#[test]
fn input_opened_for_writing_through_proc_stays_as_it_is() {
    if !has_numpy() {
        return;
    }
    let text = "flowgraph: readers
blocks:
  source:
    kind: null_source
    parameters: {dtype: f32, axes: [{name: sample, len: 64}], samples_per_frame: 64, frames: 40}
  first:
    kind: python
    input: source
    parameters:
      class: First
      code: |
        from dataclasses import dataclass
        from fxgraph.block import Block
        @dataclass
        class First(Block):
            def work(self, frame, out):
                out.data[...] = frame.timestamp
  writer:
    kind: python
    input: first
    parameters:
      class: Writer
      code: |
        import fcntl, mmap, os
        from dataclasses import dataclass
        from fxgraph.block import Block
        kept, real = [], mmap.mmap
        def keeping(fd, *rest):
            kept.append(os.dup(fd))
            return real(fd, *rest)
        mmap.mmap = keeping
        @dataclass
        class Writer(Block):
            def work(self, frame, out):
                inputs = [fd for fd in kept if fcntl.fcntl(fd, fcntl.F_GETFL) & 3 == os.O_RDONLY]
                assert inputs
                for fd in inputs:
                    again = os.open(f'/proc/self/fd/{fd}', os.O_RDWR)
                    for write in (lambda: os.pwrite(again, bytes(256), 0), lambda: real(again, 4096)):
                        try:
                            write()
                        except PermissionError:
                            continue
                        raise AssertionError('the memory of the input can be written')
                    os.close(again)
                assert (frame.data == frame.timestamp).all(), frame.data
                out.data[...] = frame.data
  reader:
    kind: python
    input: first
    parameters:
      class: Reader
      code: |
        from dataclasses import dataclass
        from fxgraph.block import Block
        @dataclass
        class Reader(Block):
            def work(self, frame, out):
                assert (frame.data == frame.timestamp).all(), frame.data
                out.data[...] = frame.data
  end: {kind: null_sink, input: writer}
  other_end: {kind: null_sink, input: reader}
";
    let report = run_text(text);
    assert!(report.failures.is_empty(), "{:?}", report.failures);
    for block in ["writer", "reader"] {
        assert_eq!(count(&report, block, "frames_computed"), 40);
        assert_eq!(
            count(&report, block, "frames_copied"),
            0,
            "{block} reads the frames themselves"
        );
    }
}
