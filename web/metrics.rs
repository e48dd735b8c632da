//! Metrics in Prometheus' text format.
//!
//! Every scrape reads the current values; the runtime and the blocks count them, not this module.

use crate::app::App;
use crate::exposition::{Head, Labels, Page};
use crate::verdict::{self, expected_rate_hertz};
use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use fxgraph::DeviceName;
use fxgraph::flowgraph::{Plan, PlannedBlock};
use fxgraph::runtime::{BlockStats, RunState, State as BlockState};
use fxgraph::threads::ThreadTime;
use std::collections::{BTreeMap, HashMap};
use std::time::{SystemTime, UNIX_EPOCH};

/// A metric family. Names are `fxgraph_<noun>_<unit>`, counters end in `_total`; each metric also has the
/// label `flowgraph`.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    /// Its name at `/metrics`.
    pub name: &'static str,
    /// Meaning, and advice.
    help: &'static str,
    labels: &'static [&'static str],
}

impl Family {
    /// Meaning, and what to do about a value that is not as it should be.
    #[must_use]
    pub fn help(&self) -> &'static str {
        self.help
    }

    /// Names of its labels; all metrics have `flowgraph` too.
    #[must_use]
    pub fn labels(&self) -> &'static [&'static str] {
        self.labels
    }
}

/// All metrics of a flowgraph, without the counters of its kinds of blocks.
#[must_use]
pub fn metric_families() -> &'static [Family] {
    FAMILIES
}

impl From<Family> for Head<'static> {
    fn from(Family { name, help, labels }: Family) -> Self {
        // A row provides the labels of its block.
        Self { name, help, labels: labels.strip_prefix(BLOCK).unwrap_or(labels) }
    }
}

/// Parameter of a flowgraph for one antenna, and the label with its value.
const ANTENNA: &str = "antenna";
const BLOCK: &[&str] = &["block", "kind", "device"];
/// Names of the metrics of a fleet with the health of each part, the time since the answer of a silent one, and whether it
/// rejects the token.
pub(crate) const PART_HEALTHY: &str = "fxgraph_part_healthy";
pub(crate) const PART_SILENT: &str = "fxgraph_part_silent_seconds";
pub(crate) const PART_REJECTS: &str = "fxgraph_part_rejects_token";
/// Label values of a family without labels.
const NONE: [&str; 0] = [];

macro_rules! families {
    ($($ident:ident $name:literal $labels:expr, $help:literal;)*) => {
        $(pub(crate) const $ident: Family = Family { name: $name, help: $help, labels: $labels };)*
        const FAMILIES: &[Family] = &[$($ident),*];
    };
}

families! {
    INFO "fxgraph_flowgraph_info" &["version", "config_id", "config_hash"],
        "Always 1; the labels identify the program and the configuration with which the run began. Changes are counted in fxgraph_flowgraph_changes_total.";
    CHANGES "fxgraph_flowgraph_changes_total" &[],
        "Number of changes of the configuration: live updates, swaps, and other flowgraphs. See the events `live_update`, `swapped` and `updated`.";
    STATE "fxgraph_flowgraph_state" &["state"],
        "1 for the current state of the flowgraph. failed: a fault of a block ended it, see its event.";
    ELAPSED "fxgraph_flowgraph_elapsed_seconds" &[],
        "Time since the first frame. If it decreases, the flowgraph was started again.";
    START "fxgraph_process_start_time_seconds" &[],
        "Unix time at which the process began to serve. If it changes again and again, the process fails and is started again.";
    MEMORY "fxgraph_process_resident_memory_bytes" &[],
        "Resident memory of the process. Constant while frames flow: if it grows, report a bug.";
    EVENTS "fxgraph_events_total" &["kind"],
        "Number of events by kind. The events are at /api/v1/events.";
    STATE_WRITES "fxgraph_state_file_writes_total" &[],
        "Number of times that the state file was written; no metric without `--state`. It grows with live updates, at most once per second.";
    STATE_FAILURES "fxgraph_state_file_failures_total" &[],
        "Number of failed attempts to write the state file. If it grows, see the event not_saved: the disk may be full.";
    STATE_BEHIND "fxgraph_state_file_behind_seconds" &[],
        "Time since the oldest change that the state file does not have; 0 if it has all live values. Above 60 s, the values would be gone after a restart.";
    BLOCK_STATE "fxgraph_block_state" &["block", "kind", "device", "state"],
        "1 for the current state of the block. failed: the cause is at /api/v1/blocks/{name}. stalled: no frame passes.";
    STALL "fxgraph_block_stall_seconds" &["block", "kind", "device", "reason"],
        "Time without a frame of a block that no frame passes, and that is the cause itself; no metric while frames pass. See its event `stalled`.";
    FAULTS "fxgraph_block_faults_total" BLOCK,
        "Number of faults of the block, including those that it survived. If it grows, see the cause in the events.";
    RESTARTS "fxgraph_block_restarts_total" BLOCK,
        "Number of restarts of the block after a fault. If it grows, see the cause in the events.";
    WORKS "fxgraph_block_works_total" BLOCK,
        "Number of calls of the block. Many more calls than frames mean needless wake-ups.";
    INPUT_FRAMES "fxgraph_block_input_frames_total" BLOCK,
        "Input frames of the block, all inputs together. If it does not grow, look upstream.";
    OUTPUT_FRAMES "fxgraph_block_output_frames_total" BLOCK,
        "Output frames of the block, all outputs together. If it does not grow, look at its queues.";
    INPUT_BYTES "fxgraph_block_input_bytes_total" BLOCK,
        "Payload bytes of the block's input frames.";
    OUTPUT_BYTES "fxgraph_block_output_bytes_total" BLOCK,
        "Payload bytes of the block's output frames.";
    EXPECTED "fxgraph_block_expected_rate_hertz" BLOCK,
        "Input frames per second (for a source: output frames) required to keep up with the telescope; none in a side branch that drops frames.";
    BUSY "fxgraph_block_busy_seconds_total" BLOCK,
        "Time in calls of the block. Above 0.9 s per second, the block is the bottleneck. Its own threads: fxgraph_block_thread_busy_seconds_total.";
    THREAD_BUSY "fxgraph_block_thread_busy_seconds_total" &["block", "kind", "device", "thread"],
        "Time that a thread of the block ran or waited for a core. Above 0.9 s per second, the block is the bottleneck.";
    INPUT_WAIT "fxgraph_block_input_wait_seconds_total" BLOCK,
        "Time that the block waited for input frames (a source: for external data). Normal if another block is the bottleneck.";
    ROOM_WAIT "fxgraph_block_room_wait_seconds_total" BLOCK,
        "Time that the block waited for space in output queues. If it grows, a block downstream is too slow.";
    AGE "fxgraph_block_sample_age_seconds" BLOCK,
        "Age of the newest output sample of the block (a sink: input sample). If it grows, the block falls behind.";
    BLOCK_LAG "fxgraph_block_lag_seconds" BLOCK,
        "Delay of the block's newest sample relative to real time. If it grows, the block or one upstream is too slow.";
    LAG "fxgraph_flowgraph_lag_seconds" &[],
        "Largest lag of a block behind real time, without side branches that drop frames. If it stays above 2 s, find the block whose lag grows.";
    LATENCY "fxgraph_sink_latency_seconds" BLOCK,
        "Time from the output of a frame's newest sample by the source until the sink has processed the frame.";
    MARGIN "fxgraph_flowgraph_deadline_margin_ratio" &[],
        "Headroom of the slowest block, as a fraction of signal time. Below 0.1, data will soon be dropped.";
    LIMIT "fxgraph_flowgraph_limit_info" &["block"],
        "1 for the block that is the bottleneck; no metric while the sources are. To gain speed, optimise this block first.";
    DEVICE_BUSY "fxgraph_block_device_busy_seconds_total" BLOCK,
        "Time that a GPU worked on the block's frames. All blocks on one GPU share one second per second.";
    DEVICE_JOB "fxgraph_block_device_job_seconds" &["block", "kind", "device", "percentile"],
        "GPU time per job of the block (a frame or a part of one), since the block was created. Distant percentiles: other work competes for the GPU.";
    LOSSES "fxgraph_block_losses_total" BLOCK,
        "Missing and dropped data, all causes together, each in its own unit. If it grows, see the block's counters.";
    QUEUE "fxgraph_queue_frames" &["block", "kind", "device", "input"],
        "Frames in the queue of an input. If the queue is always full, the block is too slow.";
    QUEUE_PEAK "fxgraph_queue_peak_frames" &["block", "kind", "device", "input"],
        "Maximum number of frames in the queue of an input in the last second. If it reaches the capacity, there is no reserve.";
    QUEUE_DROPPED "fxgraph_queue_frames_dropped_total" &["block", "kind", "device", "input"],
        "Frames that a queue with `when_full: drop_oldest` or `drop_newest` dropped because it was full, and those that a block missed in a swap that was rolled back. If it grows, the branch is slower than the stream.";
    QUEUE_CAPACITY "fxgraph_queue_capacity_frames" &["block", "kind", "device", "input"],
        "Capacity of the queue of an input, in frames.";
}

const RUN_STATES: [RunState; 6] = [
    RunState::Prepared,
    RunState::Starting,
    RunState::Running,
    RunState::Draining,
    RunState::Ended,
    RunState::Failed,
];
const BLOCK_STATES: [BlockState; 5] = [
    BlockState::Starting,
    BlockState::Running,
    BlockState::Stalled,
    BlockState::Finished,
    BlockState::Failed,
];

/// Function that reads a counter from a block's statistics.
type Figure = fn(&BlockStats) -> f64;

/// Counters of several blocks with the same name.
#[derive(Default)]
struct Counted<'a> {
    help: &'static str,
    rows: Vec<(&'a Labels, f64)>,
}

/// Gauges of several blocks with the same name.
#[derive(Default)]
struct Measured {
    help: &'static str,
    rows: Vec<(Labels, f64)>,
}

/// A block with its statistics and labels.
struct Row<'a> {
    block: &'a PlannedBlock,
    /// Whether it is in a side branch that drops frames.
    is_aside: bool,
    stats: &'a BlockStats,
    labels: Labels,
}

impl<'a> Row<'a> {
    fn new(
        (block, is_aside): (&'a PlannedBlock, bool),
        stats: &'a BlockStats,
        flowgraph: &str,
        antenna: Option<&str>,
    ) -> Self {
        let device = block.device.to_string();
        let labels = Labels::new([
            ("block", &*block.name),
            ("device", &device),
            ("flowgraph", flowgraph),
            ("kind", block.kind),
        ]);
        let labels = labels.and(antenna.map(|antenna| (ANTENNA, antenna)));
        Self { block, is_aside, stats, labels }
    }

    fn with<'l>(&'l self, label: &'l str) -> (&'l Labels, &'l str) {
        (&self.labels, label)
    }
}

/// Metrics of the flowgraph for Prometheus
#[utoipa::path(get, path = "/metrics", tag = "metrics", operation_id = "get_metrics",
    responses((status = 200, description = "metrics in Prometheus' text format", body = String,
        content_type = "text/plain; version=0.0.4")))]
pub(crate) async fn get(State(app): State<App>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, prometheus::TEXT_FORMAT)], text(&app))
}

/// Returns all metrics with their current values.
fn text(app: &App) -> String {
    let (plan, stats) = (app.control.plan_in_force(), app.control.stats());
    let stats: HashMap<&str, &BlockStats> =
        stats.iter().map(|stats| (stats.name.as_str(), stats)).collect();
    let blocks = plan.blocks.iter().zip(plan.side_branches());
    let known = blocks.filter_map(|block| Some((block, *stats.get(block.0.name.as_str())?)));
    let antenna = antenna(&plan);
    let antenna = antenna.as_deref();
    let row = |(block, stats)| Row::new(block, stats, &plan.name, antenna);
    let rows: Vec<Row> = known.map(row).collect();
    let labels = Labels::new([("flowgraph", &*plan.name)]);
    let mut page = Page::new(labels.and(antenna.map(|antenna| (ANTENNA, antenna))));
    flowgraph(&mut page, app);
    self::blocks(&mut page, &rows);
    stalls(&mut page, app, &rows);
    times(&mut page, app, &plan, &rows);
    queues(&mut page, app, &rows);
    counters(&mut page, &rows);
    gauges(&mut page, &rows);
    page.finish()
}

/// The antenna of the flowgraph, if it has a parameter for it.
fn antenna(plan: &Plan) -> Option<String> {
    let antenna = plan.parameters.iter().find(|parameter| parameter.name == ANTENNA)?;
    Some(match &antenna.value {
        serde_json::Value::String(text) => text.clone(),
        value => value.to_string(),
    })
}

fn flowgraph(page: &mut Page, app: &App) {
    // Constant labels: with those of the present configuration each live update would be a series of its own.
    let config_hash = app.control.began_with();
    let config_id = config_hash.get(..16).unwrap_or_default();
    let info = [env!("CARGO_PKG_VERSION"), config_id, &config_hash];
    page.gauge(INFO, [(info, 1.0)].into_iter());
    page.counter(CHANGES, [(NONE, app.control.change_count() as f64)].into_iter());
    let state = app.control.state();
    let states =
        RUN_STATES.iter().map(|known| ([known.name()], f64::from(u8::from(*known == state))));
    page.gauge(STATE, states);
    let elapsed = app.control.elapsed().as_secs_f64();
    page.gauge(ELAPSED, [(NONE, elapsed)].into_iter());
    let began = app.began.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    page.gauge(START, [(NONE, began)].into_iter());
    let memory = resident_bytes().map(|bytes| (NONE, bytes as f64));
    page.gauge(MEMORY, memory.into_iter());
    let events = app.events.counts(&app.control).into_iter();
    page.counter(EVENTS, events.map(|(kind, count)| ([kind], count as f64)));
    let saving = app.control.saving();
    let saving = || saving.iter();
    page.counter(STATE_WRITES, saving().map(|saving| (NONE, saving.writes as f64)));
    page.counter(STATE_FAILURES, saving().map(|saving| (NONE, saving.failures as f64)));
    page.gauge(STATE_BEHIND, saving().map(|saving| (NONE, saving.behind.as_secs_f64())));
}

fn blocks(page: &mut Page, rows: &[Row]) {
    let states = rows.iter().flat_map(|row| {
        BLOCK_STATES
            .iter()
            .map(|known| (row.with(known.name()), f64::from(u8::from(*known == row.stats.state))))
    });
    page.gauge(BLOCK_STATE, states);
    // A side branch that drops frames need not keep up.
    let expected = rows.iter().filter(|row| !row.is_aside);
    let expected = expected.map(|row| (&row.labels, expected_rate_hertz(row.block)));
    page.gauge(EXPECTED, expected);
    let counters: [(Family, Figure); 11] = [
        (FAULTS, |stats| stats.faults as f64),
        (RESTARTS, |stats| stats.restarts as f64),
        (WORKS, |stats| stats.works as f64),
        (INPUT_FRAMES, |stats| stats.frames_in as f64),
        (OUTPUT_FRAMES, |stats| stats.frames_out as f64),
        (INPUT_BYTES, |stats| stats.bytes_in as f64),
        (OUTPUT_BYTES, |stats| stats.bytes_out as f64),
        (BUSY, |stats| stats.busy.as_secs_f64()),
        (INPUT_WAIT, |stats| stats.input_wait.as_secs_f64()),
        (ROOM_WAIT, |stats| stats.room_wait.as_secs_f64()),
        (LOSSES, |stats| stats.losses() as f64),
    ];
    for (family, figure) in counters {
        page.counter(family, rows.iter().map(|row| (&row.labels, figure(row.stats))));
    }
    let threads = rows.iter().flat_map(|row| {
        let time = |thread: &ThreadTime| (row.with(thread.name), thread.busy.as_secs_f64());
        row.stats.threads.iter().map(time)
    });
    page.counter(THREAD_BUSY, threads);
    let on_gpu = rows.iter().filter(|row| row.block.device != DeviceName::Cpu);
    let busy = on_gpu.map(|row| (&row.labels, row.stats.device_busy.as_secs_f64()));
    page.counter(DEVICE_BUSY, busy);
    let jobs = rows.iter().filter_map(|row| Some((row, row.stats.device_jobs?)));
    let percentiles = jobs.flat_map(|(row, times)| {
        [("50", times.p50), ("99", times.p99)]
            .map(|(percentile, time)| (row.with(percentile), time.as_secs_f64()))
    });
    page.gauge(DEVICE_JOB, percentiles);
}

fn stalls(page: &mut Page, app: &App, rows: &[Row]) {
    let stalls = app.control.stalls();
    let of_rows = stalls.iter().filter_map(|stall| {
        let row = rows.iter().find(|row| row.block.name == stall.block)?;
        Some((row.with(stall.reason.text()), stall.silent.as_secs_f64()))
    });
    page.gauge(STALL, of_rows);
}

/// Writes lag, latency and headroom.
fn times(page: &mut Page, app: &App, plan: &Plan, rows: &[Row]) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    let ages =
        rows.iter().filter_map(|row| Some((&row.labels, sample_age(row.block, row.stats, now)?)));
    page.gauge(AGE, ages);
    let lags = || rows.iter().filter_map(|row| Some((&row.labels, row.stats.lag_seconds?)));
    page.gauge(BLOCK_LAG, lags());
    let of_stream = rows.iter().filter(|row| !row.is_aside);
    let lag = of_stream.filter_map(|row| row.stats.lag_seconds).max_by(f64::total_cmp);
    page.gauge(LAG, lag.map(|lag| (NONE, lag)).into_iter());
    let latencies =
        rows.iter().filter_map(|row| Some((&row.labels, row.stats.latencies.as_ref()?)));
    page.histogram(LATENCY, latencies);
    let rates = app.live.rates();
    let known = verdict::known(plan, &rates);
    let margin = verdict::deadline_margin(&known);
    page.gauge(MARGIN, margin.map(|margin| (NONE, margin)).into_iter());
    let limit = verdict::limit(&known).and_then(|limit| limit.block);
    page.gauge(LIMIT, limit.iter().map(|block| ([&**block], 1.0)));
}

/// Age in seconds, at Unix time `now`, of the newest sample of a block: relative to the stream's sync time, or
/// without one to the time of the source's first sample.
pub(crate) fn sample_age(block: &PlannedBlock, stats: &BlockStats, now: f64) -> Option<f64> {
    let clock = block.ports.outputs.first().or(block.ports.inputs.first())?.clock;
    let newest = stats.newest_timestamp?;
    if clock.known_sync_time().is_some() {
        return Some(now - clock.unix_seconds(newest));
    }
    Some(now - stats.time_zero? - newest as f64 / clock.adc_sample_rate_hz)
}

fn queues(page: &mut Page, app: &App, rows: &[Row]) {
    let all = || {
        rows.iter().flat_map(|row| {
            let named = row.block.input_names.iter().zip(&row.stats.queues);
            named.map(|(input, queue)| (row.with(input), queue))
        })
    };
    page.gauge(QUEUE, all().map(|(labels, queue)| (labels, queue.queued as f64)));
    let rates = app.live.rates();
    let peaks = rows.iter().filter_map(|row| {
        let peaks = &rates.get(&row.block.name)?.input_peaks;
        Some(row.block.input_names.iter().zip(peaks).map(|(input, peak)| (row.with(input), *peak)))
    });
    page.gauge(QUEUE_PEAK, peaks.flatten().map(|(labels, peak)| (labels, peak as f64)));
    let dropping = all().filter(|(_, queue)| queue.when_full.drops() || queue.dropped > 0);
    page.counter(QUEUE_DROPPED, dropping.map(|(labels, queue)| (labels, queue.dropped as f64)));
    page.gauge(QUEUE_CAPACITY, all().map(|(labels, queue)| (labels, queue.depth as f64)));
}

/// Writes the blocks' own counters: a family for each name, with the help of the first block that has it.
fn counters(page: &mut Page, rows: &[Row]) {
    let mut families: BTreeMap<&str, Counted> = BTreeMap::new();
    for row in rows {
        for named in &row.stats.counters {
            let family = families.entry(named.name).or_default();
            if family.rows.is_empty() {
                family.help = named.help;
            }
            family.rows.push((&row.labels, named.counter.get() as f64));
        }
    }
    for (name, Counted { help, rows }) in families {
        let name = format!("fxgraph_{name}_total");
        page.counter(Head { name: &name, help, labels: &[] }, rows.into_iter());
    }
}

/// Writes the blocks' own gauges: a family for each name, with the help of the first block that has it.
fn gauges(page: &mut Page, rows: &[Row]) {
    let mut families: BTreeMap<&str, Measured> = BTreeMap::new();
    for row in rows {
        for named in &row.stats.gauges {
            let Some(value) = named.gauge.get() else { continue };
            let family = families.entry(named.name).or_default();
            if family.rows.is_empty() {
                family.help = named.help;
            }
            let label = named.label.as_ref().map(|(label, value)| (*label, value.as_str()));
            family.rows.push((row.labels.and(label), value));
        }
    }
    for (name, Measured { help, rows }) in families {
        let name = format!("fxgraph_{name}");
        let rows = rows.iter().map(|(labels, value)| (labels, *value));
        page.gauge(Head { name: &name, help, labels: &[] }, rows);
    }
}

/// Resident memory of this process in bytes, if the system reports it.
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metric_names_have_units_and_help_texts_are_sentences() {
        for Family { name, help, labels } in FAMILIES {
            assert!(name.starts_with("fxgraph_"), "{name}");
            assert!(name.chars().all(|c| c.is_ascii_lowercase() || c == '_'), "{name}");
            let units =
                ["_info", "_state", "_seconds", "_bytes", "_hertz", "_frames", "_ratio", "_total"];
            assert!(units.iter().any(|unit| name.ends_with(unit)), "{name}");
            assert!(help.len() > 30 && help.ends_with('.'), "{name}: {help}");
            assert!(!labels.contains(&"flowgraph"), "{name}");
        }
        let mut names: Vec<&str> = FAMILIES.iter().map(|family| family.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), FAMILIES.len());
    }

    #[test]
    fn resident_bytes_are_positive() {
        assert!(resident_bytes().is_none_or(|bytes| bytes > 1 << 20));
    }
}
