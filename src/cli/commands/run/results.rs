//! Results of a run: a table of its blocks, their counters and texts.

use crate::replicas::{Group, groups, is_folded, range};
use crate::shadows;
use crate::table::{self, Align, Table};
use crate::terminal::{Paint, Terminal};
use crate::units;
use fxgraph::DeviceName;
use fxgraph::control::ShadowReport;
use fxgraph::flowgraph::Plan;
use fxgraph::runtime::{self, BlockStats, Report, State};
use serde_json::{Value, json};
use std::cmp::Ordering;
use std::fmt::Write as _;
use std::time::Duration;

/// Results of one block.
struct Row<'a> {
    stats: &'a BlockStats,
    frames: u64,
    /// Signal time of one port, in ADC samples.
    samples: f64,
    /// Larger of the input and the output rate.
    bytes_per_second: f64,
    /// Fraction of the time that the block was busy, in `work` or in a thread of its own.
    busy: f64,
    /// Fraction of the time that the GPU was busy with the block.
    device_busy: Option<f64>,
    /// Signal time divided by elapsed time.
    real_time: f64,
}

impl Row<'_> {
    /// Kind and device: replicas with others are not folded.
    fn alike(&self) -> String {
        format!("{} {}", self.stats.kind, self.device_busy.is_some())
    }

    /// Order of two blocks: the worse one is greater.
    fn worse(&self, other: &Self) -> Ordering {
        let key =
            |row: &Self| (row.stats.state == State::Failed, row.stats.faults, row.stats.losses());
        let busy = |row: &Self| row.busy.max(row.device_busy.unwrap_or(0.0));
        key(self).cmp(&key(other)).then(busy(self).total_cmp(&busy(other)))
    }

    /// Values of all columns but the name and the kind, with their texts.
    fn cells(&self) -> Vec<(f64, String)> {
        let percent = |fraction: f64| format!("{:.1} %", fraction * 100.0);
        let gpu = self.device_busy;
        vec![
            (self.frames as f64, self.frames.to_string()),
            (self.samples, units::count(self.samples)),
            (self.bytes_per_second, format!("{:.3}", self.bytes_per_second / 1e9)),
            (self.busy, percent(self.busy)),
            (self.real_time, format!("{:.2} %", self.real_time * 100.0)),
            (self.stats.losses() as f64, self.stats.losses().to_string()),
            (gpu.unwrap_or(-1.0), gpu.map_or("-".to_owned(), percent)),
        ]
    }
}

fn rows<'a>(plan: &Plan, report: &'a Report) -> Vec<Row<'a>> {
    let elapsed = report.elapsed.as_secs_f64().max(1e-9);
    let by_name = plan.by_name();
    let row = |stats: &'a BlockStats| {
        let planned = by_name.get(&*stats.name).map(|index| &plan.blocks[*index]);
        let ports = planned.map(|planned| &planned.ports);
        // A source is measured at its outputs, other blocks at their inputs.
        let (frames, ports) = match ports {
            Some(ports) if ports.inputs.is_empty() => (stats.frames_out, &ports.outputs[..]),
            Some(ports) => (stats.frames_in, &ports.inputs[..]),
            None => (stats.frames_in, &[][..]),
        };
        let per_port = frames as f64 / ports.len().max(1) as f64;
        let clock = ports.first().map(|port| port.clock);
        let samples = clock.map_or(0.0, |clock| per_port * clock.samples_per_frame as f64);
        let signal = clock.map_or(0.0, |clock| samples / clock.adc_sample_rate_hz);
        Row {
            stats,
            frames,
            samples,
            bytes_per_second: stats.bytes_in.max(stats.bytes_out) as f64 / elapsed,
            busy: stats.longest_busy().as_secs_f64() / elapsed,
            device_busy: planned
                .filter(|planned| planned.device != DeviceName::Cpu)
                .map(|_| stats.device_busy.as_secs_f64() / elapsed),
            real_time: signal / elapsed,
        }
    };
    report.stats.iter().map(row).collect()
}

pub fn as_text(
    plan: &Plan,
    report: &Report,
    starting: Duration,
    all: bool,
    terminal: &Terminal,
) -> String {
    use Align::{Left, Right};
    let (started, ran) = (units::elapsed(starting), units::elapsed(report.elapsed));
    let slowest = plan.build_progress.slowest().filter(|(_, time)| 2 * *time > starting);
    let slowest = slowest.and_then(|(index, time)| Some((plan.blocks.get(index)?, time)));
    let of_it = slowest.filter(|_| starting > Duration::from_secs(1)).map(|(block, time)| {
        format!(" ({} of it to build `{}`)", units::elapsed(time), block.name)
    });
    let of_it = of_it.unwrap_or_default();
    let mut text = format!(
        "{} {}\n\n",
        terminal.paint(Paint::Bold, &plan.name),
        terminal.paint(Paint::Dim, &format!("started in {started}{of_it}, ran {ran}"))
    );
    let rows = rows(plan, report);
    let has_gpu = rows.iter().any(|row| row.device_busy.is_some());
    // A narrow terminal has no room for it.
    let shows_samples = table::width().is_none_or(|width| width >= 100);
    let every = [
        ("block", Left, true),
        ("kind", Left, true),
        ("frames", Right, true),
        ("samples", Right, shows_samples),
        ("GB/s", Right, true),
        ("busy", Right, true),
        ("real time", Right, true),
        ("drops", Right, true),
        ("GPU busy", Right, has_gpu),
    ];
    let shown = every.iter().filter(|(_, _, is_shown)| *is_shown);
    let columns: Vec<_> = shown.map(|(name, align, _)| (*name, *align)).collect();
    let is_shown = |column: usize| every[column + 2].2;
    let cells = |row: &Row<'_>| {
        let cells = row.cells().into_iter().enumerate().filter(|(column, _)| is_shown(*column));
        cells.map(|(_, cell)| cell).collect()
    };
    let folded = groups(&rows, is_folded(rows.len(), all), |row| (&row.stats.name, row.alike()));
    let mut table = Table::new(terminal.coloured_results, &columns);
    let lines =
        folded.iter().flat_map(|group| group.lines(|row| &row.stats.name, cells, Row::worse));
    for line in lines {
        let kind = if line.is_worst { "worst" } else { line.entry.stats.kind };
        table.row([line.name, kind.to_owned()].into_iter().chain(line.cells));
    }
    text.push_str(&table.finish());
    text.push_str(&counters(&folded, terminal));
    for group in folded {
        text.push_str(&summary(&group, terminal));
    }
    text
}

/// Texts of the blocks of `group` about their work; of replicas with different texts that of the worst one.
fn summary(group: &Group<'_, Row<'_>>, terminal: &Terminal) -> String {
    let of = |row: &&Row<'_>| row.stats.summary.trim_end().to_owned();
    let Some(worst) = group.members.iter().rev().max_by(|one, other| one.worse(other)) else {
        return String::new();
    };
    let (text, others) = (of(worst), group.members.len() - 1);
    if text.trim().is_empty() {
        return text;
    }
    let is_same = group.members.iter().all(|row| of(row) == text);
    let name = if is_same { &group.name } else { &worst.stats.name };
    let more = if is_same { String::new() } else { format!("  ({others} more with `--all`)") };
    let mut lines = format!("\n{}{more}\n", terminal.paint(Paint::Bold, name));
    for line in text.lines() {
        let _ = writeln!(lines, "  {line}");
    }
    lines
}

/// Table of the non-zero counters of each block.
fn counters(folded: &[Group<'_, Row<'_>>], terminal: &Terminal) -> String {
    let columns = [
        ("block", Align::Left),
        ("counter", Align::Left),
        ("value", Align::Right),
        ("description", Align::Left),
    ];
    let mut table = Table::new(terminal.coloured_results, &columns);
    let mut any = false;
    for group in folded {
        for (name, help, counts) in counted(group) {
            any = true;
            let bounds = (counts.iter().min(), counts.iter().max());
            let text = |count: Option<&u64>| count.copied().unwrap_or_default().to_string();
            let value = range(&text(bounds.0), &text(bounds.1));
            table.row([group.name.clone(), name.to_owned(), value, help]);
        }
    }
    if any { format!("\n{}", table.finish()) } else { String::new() }
}

/// Counters that are not 0 in a block of `group`, with their descriptions and the counts of all its blocks.
fn counted(group: &Group<'_, Row<'_>>) -> Vec<(&'static str, String, Vec<u64>)> {
    let mut counted: Vec<(&'static str, String, Vec<u64>)> = Vec::new();
    let faults = group.members.iter().map(|row| row.stats.faults);
    if let Some(bad) = group.members.iter().map(|row| row.stats).max_by_key(|stats| stats.faults)
        && bad.faults > 0
    {
        let last = bad.last_fault.as_ref().map(runtime::Failure::text).unwrap_or_default();
        let text = format!("faults of the block, {} restarts; at last it {last}", bad.restarts);
        counted.push(("faults", text, faults.collect()));
    }
    let all = || group.members.iter().flat_map(|row| &row.stats.counters);
    for named in all().filter(|named| named.counter.get() > 0) {
        if counted.iter().all(|(name, ..)| *name != named.name) {
            let alike = all().filter(|other| other.name == named.name);
            let counts = alike.map(|other| other.counter.get()).collect();
            counted.push((named.name, named.help.to_owned(), counts));
        }
    }
    counted
}

pub fn as_json(plan: &Plan, report: &Report, shadows: &[ShadowReport]) -> Value {
    let blocks: Vec<Value> = rows(plan, report)
        .iter()
        .map(|row| {
            let counters: serde_json::Map<String, Value> = row
                .stats
                .counters
                .iter()
                .map(|named| (named.name.to_owned(), json!(named.counter.get())))
                .collect();
            json!({
                "name": row.stats.name,
                "kind": row.stats.kind,
                "frames_in": row.stats.frames_in,
                "frames_out": row.stats.frames_out,
                "bytes_in": row.stats.bytes_in,
                "bytes_out": row.stats.bytes_out,
                "samples": row.samples,
                "bytes_per_second": row.bytes_per_second,
                "busy_fraction": row.busy,
                "device_busy_fraction": row.device_busy,
                "real_time_fraction": row.real_time,
                "drops": row.stats.losses(),
                "faults": row.stats.faults,
                "restarts": row.stats.restarts,
                "counters": counters,
                "summary": row.stats.summary,
            })
        })
        .collect();
    let failures: Vec<Value> = report
        .failures
        .iter()
        .map(|failure| {
            json!({"block": failure.block, "cause": failure.cause, "panic": failure.panic})
        })
        .collect();
    json!({
        "flowgraph": plan.name,
        "config_hash": plan.config_hash,
        "elapsed_seconds": report.elapsed.as_secs_f64(),
        "blocks": blocks,
        "failures": failures,
        "shadows": shadows.iter().map(shadows::as_json).collect::<Vec<_>>(),
    })
}
