//! Swaps of blocks in a running signal chain: the visibilities are bit-identical to those without swaps.
use crate::support::repository::root;
use fxgraph::control::Way;
use fxgraph::flowgraph::{Plan, Probe, Setting, load};
use fxgraph::runtime::{Options, Prepared};
use fxgraph::{Block, BlockError, Control, Io, Next, Registry};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Timestamp, number, validity and payload of a frame.
type Row = (u64, u64, Vec<u32>, Vec<u8>);
type Rows = Arc<Mutex<Vec<Row>>>;

struct Tap(Rows);

impl Block for Tap {
    fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        while let Some(frame) = io.inputs[0].pop() {
            let header = frame.header();
            let validity = header.validity.clone();
            let row =
                (header.timestamp, header.sequence, validity, frame.as_slice().unwrap().to_vec());
            self.0.lock().unwrap().push(row);
        }
        Ok(if io.inputs[0].ended() { Next::Finished } else { Next::Wait })
    }
}

fn registry() -> Registry {
    fxgraph_blocks::kinds()
}

const DUMPS: usize = 120;

/// Runs the first flowgraph of the ladder, with `change` applied during the run. Returns the output of the
/// correlator.
fn run(directory: &Path, change: impl FnOnce(&Control)) -> Vec<Row> {
    let root = root();
    let set = [
        Setting::typed("channels", "64"),
        Setting::typed("dumps", DUMPS.to_string()),
        Setting::typed("heaps_per_dump", "3"),
    ];
    let mut plan: Plan = load(&root.join("flowgraphs/01_first_light.yaml"), &set, &registry())
        .result
        .unwrap_or_else(|problems| panic!("{problems:?}"));
    directory.clone_into(&mut plan.output_directory);
    let rows = Rows::default();
    let source = (plan.block("x").unwrap(), 0);
    let block = Box::new(Tap(Arc::clone(&rows)));
    let probe = Probe { name: "tap".to_owned(), source, block, queue: 4 };
    let options = Options { config_id: plan.config_id(), workers: 2 };
    let prepared = Prepared::new(plan.build_with(vec![probe]).unwrap()).unwrap();
    let control = Control::new(plan, registry(), prepared.handle());
    let running = prepared.start(options).unwrap();
    change(&control);
    assert!(control.wait_timeout(Duration::from_mins(5)), "it hangs");
    let report = running.wait();
    assert_eq!(report.failures, []);
    Arc::into_inner(rows).unwrap().into_inner().unwrap()
}

#[test]
fn swaps_do_not_change_visibilities() {
    let directory = tempfile::tempdir().unwrap();
    let undisturbed = run(directory.path(), |_| {});
    assert_eq!(undisturbed.len(), DUMPS);
    let mut swapped = 0;
    let disturbed = run(directory.path(), |control| {
        // Blocks with filter history, without state, and with partial sums; two rounds, so that a candidate is
        // swapped too.
        for (policy, threads) in [("skip", 2), ("stop", 1)] {
            for (block, text) in [
                ("f[1].pfb", format!("parameters: {{threads: {threads}}}")),
                ("f[2].fft", format!("parameters: {{threads: {threads}}}")),
                ("f[0].postproc", format!("on_fault: {policy}")),
                ("array", format!("on_fault: {policy}")),
                ("x", format!("on_fault: {policy}")),
            ] {
                let change = match control.change(block, &text) {
                    Ok(change) => change,
                    Err(rejected) => panic!("{block}: {:?}", rejected.problems),
                };
                assert_eq!(change.way, Way::Seamless);
                // A simulation may wait for a block that has to catch up.
                let made = control.swap(&change, Duration::from_mins(1), true);
                assert!(made.is_ok(), "{block}: {}", made.unwrap_err());
                swapped += 1;
            }
        }
        let seen = control.stats().iter().find(|block| block.name == "x").unwrap().frames_out;
        assert!(seen < DUMPS as u64, "swapped before the end: {seen}");
    });
    assert_eq!(swapped, 10);
    assert_eq!(undisturbed.len(), disturbed.len());
    for (undisturbed, disturbed) in undisturbed.iter().zip(&disturbed) {
        assert_eq!(undisturbed.0, disturbed.0);
        assert_eq!(undisturbed.1, disturbed.1);
        assert_eq!(undisturbed.2, disturbed.2, "validity at {}", undisturbed.0);
        assert!(undisturbed.3 == disturbed.3, "visibilities at {}", undisturbed.0);
    }
}
