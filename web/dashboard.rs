//! Prometheus alert rules and a Grafana dashboard for a flowgraph, generated from its plan.

use crate::metrics::{self, Family};
use fxgraph::DeviceName;
use fxgraph::flowgraph::Plan;
use serde_json::{Value, json};

/// Fraction of the expected rate below which a block has fallen behind; above the jitter of scrapes.
const BEHIND: f64 = 0.98;

/// Smallest frame rate in frames per second for which a rate over a minute is meaningful.
const MEASURABLE: f64 = 0.2;

/// Labels that identify a process in Prometheus; `part` if a fleet answers for it.
const PROCESS: &str = "job, instance, part";
/// Paragraph of the manual about the alerts, on the server of each process.
pub(crate) const ABOUT: &str = "how_to/monitoring.html#3-alerts";

/// An alert.
struct Alert {
    name: &'static str,
    query: String,
    /// Time for which the condition must hold.
    lasting: &'static str,
    severity: &'static str,
    summary: String,
}

/// Quotes a label value for PromQL.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}

/// Queries about one flowgraph, in all processes or in selected ones.
struct Queries {
    /// Conditions on the labels.
    of: String,
}

impl Queries {
    fn of(plan: &Plan) -> Self {
        Self { of: format!("flowgraph={}", quoted(&plan.name)) }
    }

    /// Queries about the processes selected in the dashboard.
    fn of_chosen(plan: &Plan) -> Self {
        Self { of: format!("flowgraph={},instance=~\"$instance\"", quoted(&plan.name)) }
    }

    /// Selects a family, with conditions on its labels.
    fn select(&self, family: Family, conditions: &str) -> String {
        format!("{}{{{}{conditions}}}", family.name, self.of)
    }

    /// Rate of a counter per second.
    fn rate(&self, family: Family, conditions: &str) -> String {
        format!("rate({}[1m])", self.select(family, conditions))
    }

    /// Frames per second of each block, measured at its inputs, or for a source at its outputs.
    fn frames(&self) -> String {
        let inputs = self.rate(metrics::INPUT_FRAMES, "");
        let outputs = self.rate(metrics::OUTPUT_FRAMES, "");
        format!("({inputs} > 0 or {outputs})")
    }

    /// Levels of quantised outputs, a gauge of the blocks that quantise.
    fn output_rms(&self) -> String {
        self.of_kinds("output_rms")
    }

    /// A metric that some kinds of blocks have.
    fn of_kinds(&self, name: &str) -> String {
        format!("fxgraph_{name}{{{}}}", self.of)
    }

    /// Rate of a counter that some kinds of blocks have, per second.
    fn rate_of_kinds(&self, name: &str) -> String {
        format!("rate({}[1m])", self.of_kinds(name))
    }
}

impl Alert {
    fn new(
        name: &'static str,
        query: String,
        lasting: &'static str,
        severity: &'static str,
        summary: impl Into<String>,
    ) -> Self {
        Self { name, query, lasting, severity, summary: summary.into() }
    }

    /// Returns the alert in Prometheus' format.
    fn json(self, flowgraph: &str) -> Value {
        let labels = json!({"severity": self.severity, "flowgraph": flowgraph});
        json!({
            "alert": self.name,
            "expr": self.query,
            "for": self.lasting,
            "labels": labels,
            "annotations": {
                "summary": self.summary,
                "page_url": "http://{{ $labels.instance }}/",
                "runbook_url": format!("http://{{{{ $labels.instance }}}}/docs/{ABOUT}"),
            },
        })
    }
}

/// Alerts about a flowgraph of any size: each query finds the processes and blocks concerned.
#[allow(clippy::too_many_lines, reason = "a list of alerts")]
fn alerts(queries: &Queries, name: &str) -> [Alert; 19] {
    let select = |family, conditions| queries.select(family, conditions);
    let grown = |family| format!("increase({}[5m]) > 0", select(family, ""));
    // Side branches drop frames because the flowgraph says so, which is no cause of alarm.
    let must_keep_up = format!("and on ({PROCESS}, block) {}", select(metrics::EXPECTED, ""));
    let info = select(metrics::INFO, "");
    // Stalls explain what else is wrong with a process.
    let stall = format!("({} {must_keep_up})", select(metrics::STALL, ""));
    let without_stall = format!("unless on ({PROCESS}) {stall}");
    let silent = format!("{}{{{}}}", metrics::PART_SILENT, queries.of);
    let failed = format!("{} == 1", select(metrics::STATE, ",state=\"failed\""));
    let known = format!("last_over_time({info}[1d])");
    // Measurements of a stream are unknown while it pauses: an alert looks at the last one of a minute.
    let last = |query: String| format!("last_over_time({query}[1m])");
    let delay = last(queries.of_kinds("pace_delay_seconds"));
    let level = last(queries.output_rms());
    let clock = last(queries.of_kinds("clock_difference_seconds"));
    let expired = last(queries.of_kinds("delay_models_expired"));
    [
        // Each process seen within a day, and the flowgraph if there was none.
        Alert::new(
            "FxgraphGone",
            format!(
                "(count by ({PROCESS}) ({known}) unless on ({PROCESS}) {info}) or absent({known})"
            ),
            "1m",
            "critical",
            format!(
                "flowgraph {name} at {{{{ $labels.instance }}}} does not respond: it has ended or is unreachable"
            ),
        ),
        Alert::new(
            "FxgraphFailed",
            failed.clone(),
            "0s",
            "critical",
            format!(
                "flowgraph {name} at {{{{ $labels.instance }}}} failed: its events name the block and the cause"
            ),
        ),
        Alert::new(
            "FxgraphFault",
            grown(metrics::FAULTS),
            "0s",
            "warning",
            "{{ $labels.block }} at {{ $labels.instance }} failed; see the cause in the events",
        ),
        Alert::new(
            // With all blocks that lack data because another one does.
            "FxgraphDataLost",
            format!("count by ({PROCESS}) ({} {must_keep_up})", grown(metrics::LOSSES)),
            "0s",
            "warning",
            "{{ $value }} blocks of {{ $labels.instance }} lack or drop data; its events `data_lost` name them and the cause",
        ),
        Alert::new(
            "FxgraphBusy",
            format!("{} > 0.9 {must_keep_up}", queries.rate(metrics::BUSY, "")),
            "5m",
            "warning",
            "{{ $labels.block }} at {{ $labels.instance }} works more than 90 % of the time: it is the next bottleneck",
        ),
        Alert::new(
            "FxgraphThreadBusy",
            format!("{} > 0.9", queries.rate(metrics::THREAD_BUSY, "")),
            "5m",
            "warning",
            "thread {{ $labels.thread }} of {{ $labels.block }} at {{ $labels.instance }} works more than 90 % of the time: it is the next bottleneck",
        ),
        Alert::new(
            "FxgraphNoMargin",
            format!("{} < 0.1", select(metrics::MARGIN, "")),
            "5m",
            "warning",
            format!(
                "flowgraph {name} at {{{{ $labels.instance }}}} has less than 10 % headroom to real time"
            ),
        ),
        // A process that fails soon after each start is scraped now and then, too seldom or too often for the others.
        Alert::new(
            "FxgraphRestarting",
            format!("changes({}[10m]) > 2", select(metrics::START, "")),
            "0s",
            "critical",
            format!(
                "flowgraph {name} at {{{{ $labels.instance }}}} was started again {{{{ $value }}}} times within 10 minutes: the last lines of its log name the cause"
            ),
        ),
        // One alert per process and reason: with the last digitiser all its sources fall silent.
        Alert::new(
            "FxgraphStalled",
            format!("max by ({PROCESS}, reason) ({stall})"),
            "30s",
            "critical",
            "no frames pass {{ $labels.instance }} for {{ $value | humanizeDuration }}: {{ $labels.reason }}; its events `stalled` name the blocks",
        ),
        Alert::new(
            "FxgraphBehind",
            format!(
                "min by ({PROCESS}) ({} / ({} > {MEASURABLE})) < {BEHIND} {without_stall}",
                queries.frames(),
                select(metrics::EXPECTED, "")
            ),
            "2m",
            "warning",
            "a block of {{ $labels.instance }} moves {{ $value | humanizePercentage }} of the frames of real time",
        ),
        Alert::new(
            "FxgraphLagging",
            format!("{} > 2 {without_stall}", select(metrics::LAG, "")),
            "1m",
            "warning",
            format!(
                "flowgraph {name} at {{{{ $labels.instance }}}} is {{{{ $value }}}} s behind real time"
            ),
        ),
        Alert::new(
            "FxgraphPartUnhealthy",
            format!(
                "{}{{{}}} == 0 {without_stall} unless on ({PROCESS}) ({failed}) unless on ({PROCESS}) ({silent} > 0)",
                metrics::PART_HEALTHY,
                queries.of
            ),
            "1m",
            "critical",
            "part {{ $labels.part }} of the fleet at {{ $labels.instance }} is not there: nothing listens at its address",
        ),
        Alert::new(
            "FxgraphPartSilent",
            format!("{silent} > 60"),
            "0s",
            "critical",
            "part {{ $labels.part }} of the fleet at {{ $labels.instance }} has not answered for {{ $value | humanizeDuration }}: its host or the network between is down, or it is too busy",
        ),
        Alert::new(
            "FxgraphPartRejectsToken",
            format!("{}{{{}}} == 1", metrics::PART_REJECTS, queries.of),
            "1m",
            "warning",
            "part {{ $labels.part }} rejects the token of the fleet at {{ $labels.instance }}, so that nothing is known of it: restart the one that has the old token",
        ),
        Alert::new(
            "FxgraphSenderBehind",
            format!("{delay} > 1"),
            "1m",
            "warning",
            "{{ $labels.block }} at {{ $labels.instance }} sends {{ $value }} s later than its schedule: the machine is too busy",
        ),
        Alert::new(
            "FxgraphLevelLow",
            format!("{level} < 0.5"),
            "1m",
            "warning",
            "{{ $labels.output }} of {{ $labels.block }} at {{ $labels.instance }} has an rms of {{ $value }} steps of the quantiser, nearly all values are 0: raise its gain, or look for an input without signal",
        ),
        Alert::new(
            "FxgraphClockWrong",
            format!("abs({clock}) > 2"),
            "1m",
            "warning",
            "the stream of {{ $labels.block }} at {{ $labels.instance }} differs by {{ $value }} s from the clock of the host: check its sync time and both clocks",
        ),
        Alert::new(
            "FxgraphDelayModelExpired",
            format!("{expired} > 0"),
            "0s",
            "warning",
            "{{ $value }} delay models of {{ $labels.block }} at {{ $labels.instance }} are from before a restart of the sender: send new ones",
        ),
        Alert::new(
            "FxgraphStateNotSaved",
            format!("{} > 60", select(metrics::STATE_BEHIND, "")),
            "0s",
            "warning",
            "live values of {{ $labels.instance }} are not in its state file for {{ $value | humanizeDuration }}: its event `not_saved` has the reason, such as a full disk",
        ),
    ]
}

/// Returns alert rules in the format of Prometheus' rule files. Their number does not depend on the flowgraph.
#[must_use]
pub fn rules(plan: &Plan) -> Value {
    let all = alerts(&Queries::of(plan), &plan.name).into_iter();
    let rules: Vec<Value> = all.map(|alert| alert.json(&plan.name)).collect();
    json!({"groups": [{"name": format!("fxgraph {}", plan.name), "rules": rules}]})
}

/// Returns a Grafana dashboard for import.
#[must_use]
pub fn grafana(plan: &Plan) -> Value {
    let panels = panels(plan);
    let stats = panels.iter().filter(|panel| panel.is_stat).count();
    let panels = panels.iter().enumerate().map(|(index, panel)| panel.json(index, stats));
    json!({
        "title": format!("fxgraph {}", plan.name),
        "uid": format!("fxgraph-{:016x}", plan.config_id()),
        "description": plan.doc,
        "tags": ["fxgraph"],
        "schemaVersion": 39,
        "refresh": "5s",
        "time": {"from": "now-15m", "to": "now"},
        "templating": {"list": [
            {"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"},
            {
                "name": "instance",
                "label": "Process",
                "type": "query",
                "datasource": {"type": "prometheus", "uid": "${source}"},
                "query": format!("label_values({}, instance)", Queries::of(plan).select(metrics::INFO, "")),
                "refresh": 2,
                "multi": true,
                "includeAll": true,
                "allValue": ".*",
                "current": {"text": "All", "value": "$__all"},
            },
        ]},
        "panels": panels.collect::<Vec<_>>(),
    })
}

/// Panels of a dashboard.
fn panels(plan: &Plan) -> Vec<Panel> {
    let queries = Queries::of_chosen(plan);
    let of_block = "{{instance}} {{block}}";
    let expected = queries.select(metrics::EXPECTED, "");
    let frames = queries.frames();
    let bytes = queries.rate(metrics::INPUT_BYTES, "");
    let fill = format!(
        "{} / {}",
        queries.select(metrics::QUEUE, ""),
        queries.select(metrics::QUEUE_CAPACITY, "")
    );
    let buckets = metrics::LATENCY.name;
    let latency = format!(
        "histogram_quantile(0.99, sum by (instance, block, le) (rate({buckets}_bucket{{{}}}[1m])))",
        queries.of
    );
    let state = format!("{} == 1", queries.select(metrics::STATE, ""));
    let mut panels = vec![
        Panel::stat("State", &state, "{{state}}", "none"),
        Panel::stat("Running for", &queries.select(metrics::ELAPSED, ""), "", "s"),
        Panel::stat("Configuration", &queries.select(metrics::INFO, ""), "{{config_id}}", "none"),
        Panel::stat("Deadline margin", &queries.select(metrics::MARGIN, ""), "", "percentunit"),
        Panel::stat("Behind real time", &queries.select(metrics::LAG, ""), "", "s"),
        Panel::stat("Limited by", &queries.select(metrics::LIMIT, ""), "{{block}}", "none"),
        Panel::stat("Memory", &queries.select(metrics::MEMORY, ""), "", "bytes"),
        Panel::series(
            "Share of real time",
            &format!("{frames} / {expected}"),
            of_block,
            "percentunit",
        ),
        Panel::series("Frames per second", &frames, of_block, "hertz"),
        Panel::series("Bytes per second", &bytes, of_block, "Bps"),
        Panel::series("Busy", &queries.rate(metrics::BUSY, ""), of_block, "percentunit"),
        Panel::series(
            "Busy: threads of blocks",
            &queries.rate(metrics::THREAD_BUSY, ""),
            "{{instance}} {{block}} {{thread}}",
            "percentunit",
        ),
        Panel::series(
            "Waiting for output queues",
            &queries.rate(metrics::ROOM_WAIT, ""),
            of_block,
            "percentunit",
        ),
        Panel::series("Latency of sinks, 99th percentile", &latency, of_block, "s"),
        Panel::series("Age of the newest sample", &queries.select(metrics::AGE, ""), of_block, "s"),
        Panel::series("Behind real time", &queries.select(metrics::BLOCK_LAG, ""), of_block, "s"),
        Panel::series("Queues", &fill, "{{instance}} {{block}} {{input}}", "percentunit"),
        Panel::series(
            "Missing and dropped data per second",
            &queries.rate(metrics::LOSSES, ""),
            of_block,
            "none",
        ),
        Panel::series(
            "Level of quantised outputs, in steps",
            &queries.output_rms(),
            "{{instance}} {{block}} {{output}}",
            "none",
        ),
        Panel::series("Faults", &queries.select(metrics::FAULTS, ""), of_block, "none"),
        Panel::series(
            "Events per second",
            &queries.rate(metrics::EVENTS, ""),
            "{{instance}} {{kind}}",
            "none",
        ),
    ];
    panels.extend(signal_panels(&queries));
    if plan.blocks.iter().any(|block| block.device != DeviceName::Cpu) {
        let busy = queries.rate(metrics::DEVICE_BUSY, "");
        panels.push(Panel::series(
            "GPU busy",
            &busy,
            "{{instance}} {{block}} {{device}}",
            "percentunit",
        ));
    }
    panels
}

/// Panels about the signals of each antenna.
fn signal_panels(queries: &Queries) -> [Panel; 5] {
    // A flowgraph of one antenna says which; otherwise the name of the block has its number.
    let of_antenna = "{{instance}} {{antenna}} {{block}}";
    let of_input = "{{instance}} {{antenna}} {{block}} {{input}}";
    [
        Panel::series(
            "Level of digitisers, in dBFS",
            &queries.of_kinds("digitiser_level_dbfs"),
            of_input,
            "none",
        ),
        Panel::series(
            "Clipped samples of digitisers",
            &queries.of_kinds("digitiser_clipped_ratio"),
            of_input,
            "percentunit",
        ),
        Panel::series(
            "Flagged as interference",
            &queries.of_kinds("flagged_fraction"),
            of_antenna,
            "percentunit",
        ),
        Panel::series(
            "Heaps of antennas flagged or missing per second",
            &format!(
                "{} or {}",
                queries.rate_of_kinds("antenna_heaps_flagged_total"),
                queries.rate_of_kinds("antenna_heaps_missing_total")
            ),
            of_antenna,
            "none",
        ),
        Panel::series(
            "Incomplete dumps",
            &format!(
                "{} / {}",
                queries.rate_of_kinds("dumps_incomplete_total"),
                queries.rate_of_kinds("dumps_total")
            ),
            of_antenna,
            "percentunit",
        ),
    ]
}

/// One panel of a dashboard.
struct Panel {
    title: &'static str,
    query: String,
    legend: &'static str,
    unit: &'static str,
    is_stat: bool,
}

impl Panel {
    fn stat(title: &'static str, query: &str, legend: &'static str, unit: &'static str) -> Self {
        Self { title, query: query.to_owned(), legend, unit, is_stat: true }
    }

    fn series(title: &'static str, query: &str, legend: &'static str, unit: &'static str) -> Self {
        Self { is_stat: false, ..Self::stat(title, query, legend, unit) }
    }

    /// Returns the panel as JSON: single numbers in one row, curves below in two columns; a row is 24 wide.
    fn json(&self, index: usize, stats: usize) -> Value {
        let place = if self.is_stat {
            json!({"x": index * 24 / stats, "y": 0, "w": 24 / stats, "h": 4})
        } else {
            let index = index - stats;
            json!({"x": index % 2 * 12, "y": 4 + index / 2 * 8, "w": 12, "h": 8})
        };
        json!({
            "id": index + 1,
            "title": self.title,
            "type": if self.is_stat { "stat" } else { "timeseries" },
            "datasource": {"type": "prometheus", "uid": "${source}"},
            "gridPos": place,
            "targets": [{"expr": self.query, "legendFormat": self.legend, "refId": "A"}],
            "fieldConfig": {"defaults": {"unit": self.unit}, "overrides": []},
            "options": if self.is_stat && !self.legend.is_empty() {
                json!({"textMode": "name", "reduceOptions": {"calcs": ["lastNotNull"]}})
            } else {
                json!({})
            },
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn inhibit_rules_of_the_manual_name_alerts() {
        let page = include_str!("../docs/src/how_to/monitoring.md");
        let (_, rules) = page.split_once("\ninhibit_rules:\n").unwrap();
        let (rules, _) = rules.split_once("```").unwrap();
        let alerts = alerts(&Queries { of: String::new() }, "g");
        let mut names = 0;
        for name in rules.split(|c: char| !c.is_alphanumeric()) {
            if name.starts_with("Fxgraph") {
                assert!(alerts.iter().any(|alert| alert.name == name), "there is no alert {name}");
                names += 1;
            }
        }
        assert!(names >= 12, "{names} names in\n{rules}");
    }
}
