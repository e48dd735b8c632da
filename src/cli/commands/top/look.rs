//! Statistics of a running flowgraph at one time, block by block.

use crate::client::Client;
use crate::failure::Failure;
use crate::replicas::{Line, groups, is_folded};
use crate::table::{Align, Table};
use crate::terminal::{Paint, Terminal};
use crate::units;
use fxgraph_api::blocks::BlockSummary;
use fxgraph_api::events::{EventInfo, EventList};
use fxgraph_api::flowgraph::{FlowgraphPage, ScheduledValue, StallInfo};
use serde::Serialize;
use serde_json::{Value, json};
use std::cmp::Ordering;
use std::time::Duration;

/// Lag above which it is highlighted, equal to the limit of the alert.
const LAG_SECONDS: f64 = 2.0;

/// Number of stored events.
const EVENTS: usize = 500;

/// State of repeated requests to one flowgraph.
#[derive(Default)]
pub struct Watch {
    events: Vec<EventInfo>,
    elapsed_seconds: f64,
}

/// Statistics of a flowgraph at one time.
#[derive(Clone, Debug)]
pub struct Look {
    pub flowgraph: FlowgraphPage,
    pub rows: Vec<Row>,
    /// The newest events, in order.
    pub events: Vec<EventInfo>,
}

/// Statistics of one block; rates are `None` in the first second.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub name: String,
    pub kind: String,
    pub device: String,
    pub state: String,
    /// Input frames per second; output frames for a source.
    pub frames_per_second: Option<f64>,
    /// Larger of the input and the output rate.
    pub bytes_per_second: Option<f64>,
    pub busy_fraction: Option<f64>,
    /// Fraction of the time that the GPU is busy with the block.
    pub device_busy_fraction: Option<f64>,
    /// Signal time divided by elapsed time.
    pub real_time_fraction: Option<f64>,
    /// Frames in its fullest queue, and the capacity of that queue.
    pub queue: Option<(usize, usize)>,
    /// Action when that queue is full: `wait`, `drop_oldest` or `drop_newest`.
    pub when_full: Option<String>,
    /// Delay of its newest sample relative to real time.
    pub lag_seconds: Option<f64>,
    pub losses: u64,
    pub faults: u64,
}

impl Watch {
    /// Requests the statistics once.
    pub fn look(&mut self, client: &Client) -> Result<Look, Failure> {
        let flowgraph: FlowgraphPage = client.get("/api/v1/flowgraph")?;
        let blocks: Vec<BlockSummary> = client.get("/api/v1/blocks")?;
        if flowgraph.elapsed_seconds < self.elapsed_seconds {
            // Another run at the same address numbers its events from 1.
            self.events.clear();
        }
        self.elapsed_seconds = flowgraph.elapsed_seconds;
        let last = self.events.last().map_or(0, |event| event.sequence);
        let newer: EventList = client.get(&format!("/api/v1/events?since={last}"))?;
        self.events.extend(newer.events);
        self.events.drain(..self.events.len().saturating_sub(EVENTS));
        Ok(Look::of(flowgraph, blocks, self.events.clone()))
    }
}

impl Look {
    pub fn of(flowgraph: FlowgraphPage, blocks: Vec<BlockSummary>, events: Vec<EventInfo>) -> Self {
        let rows = blocks.into_iter().map(|block| Row::of(block, &flowgraph)).collect();
        Self { flowgraph, rows, events }
    }

    /// Signal time divided by elapsed time, at the sources.
    pub fn real_time_fraction(&self) -> Option<f64> {
        let reads = |row: &Row| self.flowgraph.graph.edges.iter().any(|edge| edge.to == row.name);
        let sources = self.rows.iter().filter(|row| !reads(row));
        mean(sources.filter_map(|row| row.real_time_fraction))
    }

    pub fn losses(&self) -> u64 {
        self.rows.iter().map(|row| row.losses).sum()
    }

    pub fn faults(&self) -> u64 {
        self.rows.iter().map(|row| row.faults).sum()
    }

    /// Describes everything for which frames do not pass, or for which blocks are missing here; `None` if all is well.
    pub fn trouble(&self) -> Option<String> {
        // At a fleet: parts that do not answer. Their blocks have no rows.
        let has_row = |block: &str| self.rows.iter().any(|row| row.name == block);
        let absent = self.flowgraph.faults.iter().filter(|fault| !has_row(&fault.block));
        let said = absent.map(|fault| fault.cause.clone());
        let said: Vec<String> = said.chain(StallInfo::describe(&self.flowgraph.stalls)).collect();
        (!said.is_empty()).then(|| said.join("; "))
    }

    /// Describes the bottleneck, once known.
    pub fn limit(&self) -> Option<&str> {
        self.flowgraph.limited_by.as_ref().map(|limit| limit.text.as_str())
    }

    /// Describes the lag behind real time and its block, once known.
    pub fn lag(&self) -> Option<String> {
        let FlowgraphPage { lag_seconds, lag_block, .. } = &self.flowgraph;
        let seconds = (*lag_seconds)?;
        let block = lag_block.as_ref().map(|block| format!(" at {block}")).unwrap_or_default();
        // Below 0.1 ms the sign would flicker.
        let seconds = if seconds.abs() < 1e-4 { 0.0 } else { seconds };
        let digits = if seconds.abs() < 10.0 { 3 } else { 1 };
        Some(format!("lag {seconds:.digits$} s{block}"))
    }

    /// Whether the lag exceeds [`LAG_SECONDS`].
    pub fn lags(&self) -> bool {
        self.flowgraph.lag_seconds.is_some_and(|lag| lag > LAG_SECONDS)
    }

    pub fn elapsed(&self) -> String {
        let time = Duration::try_from_secs_f64(self.flowgraph.elapsed_seconds);
        units::elapsed(time.unwrap_or_default())
    }

    /// Returns the statistics as JSON.
    pub fn as_json(&self) -> Value {
        json!({
            "flowgraph": self.flowgraph.name,
            "state": self.flowgraph.state,
            "config_id": self.flowgraph.config_id,
            "scheduled": self.flowgraph.scheduled,
            "elapsed_seconds": self.flowgraph.elapsed_seconds,
            "real_time_fraction": self.real_time_fraction(),
            "lag_seconds": self.flowgraph.lag_seconds,
            "lag_block": self.flowgraph.lag_block,
            "losses": self.losses(),
            "faults": self.faults(),
            "limited_by": self.limit(),
            "stalls": self.flowgraph.stalls,
            "trouble": self.trouble(),
            "blocks": self.rows,
        })
    }

    /// Returns the blocks as a table; `all` has a row for every replica.
    pub fn as_text(&self, all: bool, terminal: &Terminal) -> String {
        use Align::{Left, Right};
        let mut columns = vec![("block", Left), ("kind", Left)];
        columns.extend(self.figures().map(|heading| (heading, Right)));
        let mut table = Table::new(terminal.coloured_results, &columns);
        for line in lines(&self.rows.iter().collect::<Vec<_>>(), all, self.has_gpu()) {
            table.row([line.name.clone(), kind_of(&line)].into_iter().chain(line.cells));
        }
        format!(
            "{} {}\n\n{}{}",
            terminal.paint(Paint::Bold, &self.flowgraph.name),
            terminal.paint(Paint::Dim, &self.summary()),
            table.finish(),
            self.scheduled()
        )
    }

    /// Lists the values of live parameters that take effect later; empty if there are none.
    fn scheduled(&self) -> String {
        let values = self.flowgraph.scheduled.iter().map(|value| {
            let ScheduledValue { block, parameter, value, timestamp } = value;
            format!("{block}.{parameter}={value} from timestamp {timestamp} on\n")
        });
        let values: String = values.collect();
        if values.is_empty() { values } else { format!("\nscheduled:\n{values}") }
    }

    /// State, time, rate and drops in one line.
    pub fn summary(&self) -> String {
        format!(
            "{} {}, {} of real time{}, {} drops, {} faults{}{}",
            self.flowgraph.state,
            self.elapsed(),
            percent(self.real_time_fraction()),
            self.lag().map(|lag| format!(", {lag}")).unwrap_or_default(),
            self.losses(),
            self.faults(),
            self.limit().map(|limit| format!(", {limit}")).unwrap_or_default(),
            self.trouble().map(|trouble| format!(", {trouble}")).unwrap_or_default(),
        )
    }

    /// Whether a block runs on a GPU.
    pub fn has_gpu(&self) -> bool {
        self.rows.iter().any(|row| row.device_busy_fraction.is_some())
    }

    /// Headings of the numeric columns.
    pub fn figures(&self) -> impl Iterator<Item = &'static str> {
        let gpu = self.has_gpu().then_some("GPU busy");
        let before = ["frames/s", "GB/s", "busy"];
        before.into_iter().chain(gpu).chain(["real time", "queue", "drops"])
    }
}

/// Rows of the table of `rows`, in their order; replicas are folded unless `all` is set or there are few rows.
pub fn lines<'a>(rows: &[&'a Row], all: bool, has_gpu: bool) -> Vec<Line<'a, Row>> {
    let alike = |row: &Row| format!("{} {}", row.kind, row.device);
    let folded =
        groups(rows.iter().copied(), is_folded(rows.len(), all), |row| (&row.name, alike(row)));
    let lines = folded
        .into_iter()
        .flat_map(|group| group.lines(|row| &row.name, |row| row.figures(has_gpu), Row::worse));
    lines.collect()
}

/// Text in the column of kinds.
pub fn kind_of(line: &Line<'_, Row>) -> String {
    if line.is_worst { "worst".to_owned() } else { line.entry.kind.clone() }
}

impl Row {
    /// Order of two blocks: the worse one is greater.
    fn worse(&self, other: &Self) -> Ordering {
        let key = |row: &Self| {
            let is = |state: &str| row.state == state;
            (is("failed"), row.faults, is("stalled"), row.losses)
        };
        let busy = |row: &Self| {
            row.busy_fraction.unwrap_or(0.0).max(row.device_busy_fraction.unwrap_or(0.0))
        };
        key(self).cmp(&key(other)).then(busy(self).total_cmp(&busy(other)))
    }

    fn of(block: BlockSummary, flowgraph: &FlowgraphPage) -> Self {
        let BlockSummary { name, kind, device, state, totals, lag_seconds, rates, .. } = block;
        let edges = &flowgraph.graph.edges;
        let inputs: Vec<_> = edges.iter().filter(|edge| edge.to == name).collect();
        let outputs: Vec<_> = edges.iter().filter(|edge| edge.from == name).collect();
        // A source is measured at its outputs, other blocks at their inputs.
        let is_source = inputs.is_empty();
        let measured = if is_source { &outputs } else { &inputs };
        let real_time = measured.iter().filter_map(|edge| {
            Some(edge.frames_per_second? / edge.expected_frames_per_second)
                .filter(|x| x.is_finite())
        });
        let rates = rates.as_ref();
        let fill = |(queued, depth): (usize, usize)| queued as f64 / depth.max(1) as f64;
        let fullest = inputs.iter().max_by(|a, b| {
            let [a, b] = [a, b].map(|edge| fill((edge.queued_frames, edge.queue_frames)));
            a.total_cmp(&b)
        });
        Self {
            frames_per_second: rates.map(|rates| {
                if is_source { rates.frames_out_per_second } else { rates.frames_in_per_second }
            }),
            bytes_per_second: rates
                .map(|rates| rates.bytes_in_per_second.max(rates.bytes_out_per_second)),
            busy_fraction: rates.map(|rates| rates.busy_fraction),
            device_busy_fraction: totals
                .device_busy_seconds
                .and_then(|_| rates.map(|rates| rates.device_busy_fraction)),
            real_time_fraction: mean(real_time),
            queue: fullest.map(|edge| (edge.queued_frames, edge.queue_frames)),
            when_full: fullest.map(|edge| edge.when_full.clone()),
            lag_seconds,
            losses: totals.losses,
            faults: totals.faults,
            name,
            kind,
            device,
            state,
        }
    }

    /// Values of the columns of [`Look::figures`], with their texts.
    pub fn figures(&self, has_gpu: bool) -> Vec<(f64, String)> {
        let cell = |value: Option<f64>, text: &dyn Fn(f64) -> String| {
            (value.unwrap_or(f64::NEG_INFINITY), value.map_or("-".to_owned(), text))
        };
        let share = |value: Option<f64>| (value.unwrap_or(f64::NEG_INFINITY), percent(value));
        let drops = self.when_full.as_deref().is_some_and(|action| action.starts_with("drop"));
        let queue =
            self.queue.map_or("-".to_owned(), |(queued, depth)| format!("{queued}/{depth}"));
        let queue = if drops { format!("{queue} drop") } else { queue };
        let fill = self.queue.map_or(-1.0, |(queued, depth)| queued as f64 / depth.max(1) as f64);
        let gpu = has_gpu.then(|| share(self.device_busy_fraction));
        let before = [
            cell(self.frames_per_second, &units::three_digits),
            cell(self.bytes_per_second, &|rate| format!("{:.3}", rate / 1e9)),
            share(self.busy_fraction),
        ];
        let after = [
            share(self.real_time_fraction),
            (fill, queue),
            (self.losses as f64, self.losses.to_string()),
        ];
        before.into_iter().chain(gpu).chain(after).collect()
    }
}

/// Formats a fraction as `12.3 %`, or a dash if unknown.
pub fn percent(share: Option<f64>) -> String {
    share.map_or("-".to_owned(), |share| format!("{:.1} %", share * 100.0))
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (count, sum) = values.fold((0, 0.0), |(count, sum), value| (count + 1, sum + value));
    (count > 0).then(|| sum / f64::from(count))
}
