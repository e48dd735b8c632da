//! Bottleneck and headroom of a flowgraph.

use crate::live::BlockRates;
use fxgraph::DeviceName;
use fxgraph::flowgraph::{Plan, PlannedBlock};
use fxgraph_api::flowgraph::Limit;
use std::collections::HashMap;

/// Fraction of the time above which a working block is the bottleneck.
const BUSY: f64 = 0.9;
/// Fraction of the time above which waiting for output queues means that later blocks are slower.
const HELD_UP: f64 = 0.1;

/// A part of a GPU: the GPU, and the kind of copies or `None` for kernels. Copies do not slow down kernels.
type Engine = (DeviceName, Option<&'static str>);

/// Measurements of a block.
pub(crate) struct Known<'a> {
    name: &'a str,
    /// Capacity of its input queues in frames.
    queues: Vec<usize>,
    /// Whether it is in a side branch that drops frames, so that no other block waits for it.
    is_aside: bool,
    /// Rate as a fraction of real time: 1 keeps up with the telescope.
    real_time: f64,
    /// The part of a GPU that it uses: the GPU, and a kind of copy or `None` for kernels.
    engine: Option<Engine>,
    /// Fraction of the time that the writers of its inputs wait for room; the longest.
    writer_wait: f64,
    rates: &'a BlockRates,
}

/// Returns the measurements of all blocks; empty until there are rates.
pub(crate) fn known<'a>(plan: &'a Plan, rates: &'a HashMap<String, BlockRates>) -> Vec<Known<'a>> {
    let room_wait = |index: usize| {
        rates.get(&plan.blocks[index].name).map_or(0.0, |rates| rates.total.room_wait_fraction)
    };
    let known = |(block, is_aside): (&'a PlannedBlock, bool)| {
        let rates = rates.get(&block.name)?;
        let total = &rates.total;
        let is_source = block.ports.inputs.is_empty();
        let frames =
            if is_source { total.frames_out_per_second } else { total.frames_in_per_second };
        let real_time = frames / expected_rate_hertz(block);
        let copies = block.is_transfer().then_some(block.kind);
        let engine = (block.device != DeviceName::Cpu).then_some((block.device, copies));
        let writer_wait = block.inputs.iter().map(|(writer, _)| room_wait(*writer));
        let writer_wait = writer_wait.fold(0.0, f64::max);
        let queues = (0..block.inputs.len()).map(|input| block.queue_frames(input)).collect();
        let name = &block.name;
        Some(Known { name, queues, is_aside, real_time, engine, writer_wait, rates })
    };
    plan.blocks.iter().zip(plan.side_branches()).filter_map(known).collect()
}

impl Known<'_> {
    /// Fraction of the time that the block or its device works.
    fn busy(&self) -> f64 {
        self.rates.total.busy_fraction.max(self.rates.total.device_busy_fraction)
    }

    /// Whether it drops data because it is too slow, and not because later blocks are.
    fn overruns(&self) -> bool {
        self.rates.overruns > 0.0 && self.rates.total.room_wait_fraction < HELD_UP
    }

    /// Name of the thread of its own that works as much as all of the block.
    fn busiest_thread(&self) -> Option<&'static str> {
        let total = self.rates.total.busy_fraction;
        self.rates.threads.iter().find(|(_, busy)| *busy >= total).map(|(name, _)| *name)
    }

    /// Whether its input queues are full and its output queues are not. A block with one input queue that is not full
    /// waits for that input, even if the others are full. A full queue is a bottleneck only if its writer waits for
    /// room: a burst of frames fills queues, too.
    fn holds_up(&self) -> bool {
        let peaks = &self.rates.input_peaks;
        let mut queues = peaks.iter().zip(&self.queues);
        let is_full = !peaks.is_empty() && queues.all(|(peak, queue)| peak >= queue);
        is_full && self.writer_wait >= HELD_UP && self.rates.total.room_wait_fraction < HELD_UP
    }
}

/// Returns the bottleneck: the block that works nearly all of the time, the GPU whose kernels or copies do, the block that
/// drops data because it is too slow, or the one with full input queues and free output queues, for which the
/// block before it waits. `None` until there are rates.
pub(crate) fn limit(blocks: &[Known]) -> Option<Limit> {
    let by_work = |one: &&Known, other: &&Known| one.busy().total_cmp(&other.busy());
    let of_stream = || blocks.iter().filter(|block| !block.is_aside);
    let busiest = of_stream().max_by(by_work)?;
    let of = |block: &Known, why: String| Limit {
        block: Some(block.name.to_owned()),
        text: format!("limited by {}{why}", block.name),
    };
    let percent = |fraction: f64| (fraction * 100.0).round().min(100.0);
    if busiest.busy() >= BUSY {
        let busy = percent(busiest.busy());
        return Some(of(
            busiest,
            match busiest.busiest_thread() {
                Some(thread) => format!(", whose thread `{thread}` works {busy} % of the time"),
                None => format!(", which works {busy} % of the time"),
            },
        ));
    }
    let overrun = of_stream().filter(|block| block.overruns());
    let most = overrun.max_by(|one, other| one.rates.overruns.total_cmp(&other.rates.overruns));
    if let Some(block) = most {
        let why = format!(", which drops {:.1} packets per second", block.rates.overruns);
        return Some(of(block, why));
    }
    // A busy GPU for which no block waits is not the bottleneck.
    let is_delayed = blocks.iter().any(|block| block.rates.total.room_wait_fraction >= HELD_UP);
    let engines = engines(blocks).filter(|(_, load)| is_delayed && *load >= BUSY);
    if let Some((engine, load)) = engines.max_by(|one, other| one.1.total_cmp(&other.1)) {
        let users = blocks.iter().filter(|block| block.engine == Some(engine));
        let first = users.max_by(by_work)?;
        let work = engine.1.map_or("kernels", |_| "copies");
        let why =
            format!(": the {work} of {} take {} % of the time together", engine.0, percent(load));
        return Some(of(first, why));
    }
    // A writer waits for the slowest of its readers. The others get bursts of frames, and wait for frames in between.
    let by_input_wait = |one: &&Known, other: &&Known| {
        let wait = |block: &Known| block.rates.total.input_wait_fraction;
        wait(one).total_cmp(&wait(other))
    };
    let held = of_stream().filter(|block| block.holds_up()).min_by(by_input_wait);
    Some(match held {
        Some(block) => {
            of(block, ": its input queues are full, its output queues are not".to_owned())
        }
        None => Limit { block: None, text: "limited by the sources".to_owned() },
    })
}

/// Returns the part of each GPU that blocks share, with the fraction of the time that it works for them together. Jobs that
/// run at the same time count twice.
fn engines<'a>(blocks: &'a [Known]) -> impl Iterator<Item = (Engine, f64)> + use<'a> {
    let mut loads: Vec<(Engine, f64)> = Vec::new();
    for block in blocks {
        let Some(engine) = block.engine else { continue };
        let load = block.rates.total.device_busy_fraction;
        match loads.iter_mut().find(|known| known.0 == engine) {
            Some(known) => known.1 += load,
            None => loads.push((engine, load)),
        }
    }
    loads.into_iter()
}

/// Headroom of the slowest block as a fraction of signal time; negative if it cannot keep up with the telescope, at most
/// 0 while data is dropped because a block is too slow. `None` until there are rates.
pub(crate) fn deadline_margin(blocks: &[Known]) -> Option<f64> {
    let moving = blocks.iter().filter(|block| block.real_time > 0.0 && !block.is_aside);
    let loads = moving.map(|block| block.busy() / block.real_time);
    let margin = loads.max_by(f64::total_cmp).map(|most| 1.0 - most);
    // A block that waits has little work, so data that is dropped before it shows in no load.
    let drops = blocks.iter().any(|block| block.rates.overruns + block.rates.held_up > 0.0);
    margin.map(|margin| if drops { margin.min(0.0) } else { margin })
}

/// Input frames per second of `block`, all inputs together, that keep up with the telescope; for a
/// source, output frames.
pub(crate) fn expected_rate_hertz(block: &PlannedBlock) -> f64 {
    let ports =
        if block.ports.inputs.is_empty() { &block.ports.outputs } else { &block.ports.inputs };
    ports.iter().map(|port| port.clock.frames_per_second()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use fxgraph_api::blocks::Rates;

    fn rates(busy_fraction: f64, room_wait_fraction: f64, peak: usize) -> BlockRates {
        let total = Rates { busy_fraction, room_wait_fraction, ..Rates::default() };
        BlockRates { total, input_peaks: vec![peak], ..BlockRates::default() }
    }

    /// Blocks in a chain.
    fn at_half_rate<'a>(rates: &'a [BlockRates; 3]) -> Vec<Known<'a>> {
        let mut writer_wait = 0.0;
        let known = |(name, rates): (&'static str, &'a BlockRates)| {
            let known = known_block(name, writer_wait, rates);
            writer_wait = rates.total.room_wait_fraction;
            known
        };
        ["s", "f", "o"].into_iter().zip(rates).map(known).collect()
    }

    fn known_block<'a>(name: &'a str, writer_wait: f64, rates: &'a BlockRates) -> Known<'a> {
        let queues = vec![4; rates.input_peaks.len()];
        Known { name, queues, is_aside: false, real_time: 0.5, engine: None, writer_wait, rates }
    }

    #[test]
    fn limit_is_the_busiest_block_or_the_one_with_full_inputs_only() {
        let limited =
            |rates: [BlockRates; 3]| limit(&at_half_rate(&rates)).and_then(|limit| limit.block);
        let idle = || rates(0.1, 0.0, 1);
        assert_eq!(limited([idle(), idle(), idle()]), None);
        assert_eq!(limited([idle(), rates(0.95, 0.0, 4), idle()]).as_deref(), Some("f"));
        // The input queue of `f` is full because that of `o` is.
        let held_up = rates(0.5, 0.7, 4);
        assert_eq!(limited([idle(), held_up, rates(0.4, 0.0, 4)]).as_deref(), Some("o"));
        // A burst filled the queue for a moment, and no block waited for room.
        assert_eq!(limited([idle(), idle(), rates(0.005, 0.0, 4)]), None);
        // One of its inputs is full because no frames arrive at the other.
        let waits = BlockRates { input_peaks: vec![4, 1], ..idle() };
        assert_eq!(limited([idle(), idle(), waits]), None);
        assert_eq!(limit(&[]), None);
    }

    #[test]
    fn side_branch_that_drops_frames_is_no_limit() {
        let [stream, aside] = [rates(0.3, 0.0, 1), rates(1.0, 0.0, 4)];
        let mut known = vec![known_block("s", 0.0, &stream), known_block("aside", 0.0, &aside)];
        known[1].real_time = 0.01;
        assert_eq!(limit(&known).unwrap().block.as_deref(), Some("aside"));
        assert!(deadline_margin(&known).unwrap() < 0.0);
        known[1].is_aside = true;
        assert_eq!(limit(&known).unwrap().block, None);
        assert!(deadline_margin(&known).unwrap() > 0.0);
    }

    #[test]
    fn limit_is_the_block_that_stalls_in_bursts_and_not_its_reader_or_another_reader() {
        // Measured: `burst` stalls for 0.3 s once a second. Then `reader` and `other` get many frames at once.
        let rates = |busy, input_wait, room_wait, peak| {
            let mut rates = rates(busy, room_wait, peak);
            rates.total.input_wait_fraction = input_wait;
            rates
        };
        let source = rates(0.008, 0.692, 0.298, 0);
        let burst = rates(0.054, 0.636, 0.009, 4);
        let reader = rates(0.6, 0.4, 0.0, 4);
        let other = rates(0.2, 0.8, 0.0, 4);
        let known = [
            known_block("source", 0.0, &source),
            known_block("burst", 0.298, &burst),
            known_block("reader", 0.009, &reader),
            known_block("other", 0.298, &other),
        ];
        assert_eq!(
            limit(&known).unwrap().text,
            "limited by burst: its input queues are full, its output queues are not"
        );
    }

    #[test]
    fn limit_is_a_thread_a_block_that_drops_data_or_a_gpu_that_blocks_share() {
        let idle = || rates(0.1, 0.0, 1);
        let text = |rates: [BlockRates; 3]| limit(&at_half_rate(&rates)).unwrap().text;
        let receiver = BlockRates { threads: vec![("receive", 0.97)], ..rates(0.97, 0.0, 0) };
        assert_eq!(
            text([receiver, idle(), idle()]),
            "limited by s, whose thread `receive` works 97 % of the time"
        );
        // The thread works in bursts: the socket buffer overflows although it sleeps a fifth of the time.
        let overrun =
            BlockRates { threads: vec![("receive", 0.8)], overruns: 12.0, ..rates(0.8, 0.0, 0) };
        let held_up = || rates(0.04, 0.0, 4);
        assert_eq!(
            text([overrun.clone(), held_up(), rates(0.1, 0.5, 1)]),
            "limited by s, which drops 12.0 packets per second"
        );
        let all = [overrun, idle(), idle()];
        assert!(deadline_margin(&at_half_rate(&all)).unwrap() <= 0.0);
        let waits = || rates(0.1, 0.9, 0);
        for (overruns, held_up, has_margin) in
            [(0.0, 0.0, true), (0.0, 9.0, false), (9.0, 0.0, false)]
        {
            let all = [BlockRates { overruns, held_up, ..waits() }, idle(), idle()];
            assert_eq!(deadline_margin(&at_half_rate(&all)).unwrap() > 0.0, has_margin);
        }
        let gpu = |share: f64, wait| {
            let mut rates = rates(0.05, wait, 4);
            rates.total.device_busy_fraction = share;
            rates
        };
        let all = [gpu(0.3, 0.6), gpu(0.4, 0.2), gpu(0.25, 0.0)];
        let mut known = at_half_rate(&all);
        for block in &mut known {
            block.engine = Some((DeviceName::Cuda(0), None));
        }
        assert_eq!(
            limit(&known).unwrap().text,
            "limited by f: the kernels of cuda:0 take 95 % of the time together"
        );
        // Copies in each direction, and kernels, do not share their time.
        for (block, copies) in known.iter_mut().zip([Some("upload"), None, Some("download")]) {
            block.engine = Some((DeviceName::Cuda(0), copies));
        }
        assert!(limit(&known).unwrap().text.contains("input queues are full"));
    }

    #[test]
    fn deadline_margin_is_that_of_the_slowest_block() {
        let rates = [0.1, 0.4, 0.2].map(|busy| rates(busy, 0.0, 0));
        // At half of real time the block works 0.4 of the time, so 0.8 at full rate.
        let margin = deadline_margin(&at_half_rate(&rates)).unwrap_or_default();
        assert!((margin - 0.2).abs() < 1e-9, "{margin}");
        assert_eq!(deadline_margin(&[]), None);
    }
}
