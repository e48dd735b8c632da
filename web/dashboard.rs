//! What to watch of a flowgraph, made from its plan: alert rules for Prometheus, a dashboard for Grafana.

use crate::metrics::{self, Family, expected_rate_hertz};
use fxgraph::DeviceName;
use fxgraph::flowgraph::{Plan, PlannedBlock};
use serde_json::{Value, json};

/// Share of the expected rate below which a block has fallen behind: jitter of a scrape is less.
const BEHIND: f64 = 0.98;

/// An alert.
struct Alert {
    name: &'static str,
    query: String,
    /// How long it has to hold.
    lasting: &'static str,
    severity: &'static str,
    /// The block that it is about, if it is about a certain one.
    block: Option<String>,
    summary: String,
}

/// A label as PromQL writes it.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}

/// The queries about one flowgraph.
struct Queries {
    flowgraph: String,
}

impl Queries {
    fn of(plan: &Plan) -> Self {
        Self { flowgraph: quoted(&plan.name) }
    }

    /// The family, with conditions on its labels.
    fn select(&self, family: Family, conditions: &str) -> String {
        format!("{}{{flowgraph={}{conditions}}}", family.name, self.flowgraph)
    }

    /// How fast a counter grows, per second.
    fn rate(&self, family: Family, conditions: &str) -> String {
        format!("rate({}[1m])", self.select(family, conditions))
    }
}

impl Alert {
    /// One that is about whichever block its query finds, or about none.
    fn new(
        name: &'static str,
        query: String,
        lasting: &'static str,
        severity: &'static str,
        summary: impl Into<String>,
    ) -> Self {
        Self { name, query, lasting, severity, block: None, summary: summary.into() }
    }

    /// The same about `block`.
    fn of(self, block: &PlannedBlock) -> Self {
        Self { block: Some(block.name.clone()), ..self }
    }

    /// As Prometheus has it.
    fn json(self, flowgraph: &str) -> Value {
        let mut labels = json!({"severity": self.severity, "flowgraph": flowgraph});
        if let Some(block) = self.block {
            labels["block"] = block.into();
        }
        json!({
            "alert": self.name,
            "expr": self.query,
            "for": self.lasting,
            "labels": labels,
            "annotations": {"summary": self.summary},
        })
    }
}

/// What goes wrong with a flowgraph as a whole, or with any of its blocks.
fn alerts(queries: &Queries, name: &str) -> [Alert; 6] {
    let select = |family, conditions| queries.select(family, conditions);
    let grown = |family| format!("increase({}[5m]) > 0", select(family, ""));
    [
        Alert::new(
            "FxgraphGone",
            format!("absent({})", select(metrics::INFO, "")),
            "1m",
            "critical",
            format!("flowgraph {name} does not answer: it has ended or is not reached"),
        ),
        Alert::new(
            "FxgraphFailed",
            format!("{} == 1", select(metrics::STATE, ",state=\"failed\"")),
            "0s",
            "critical",
            format!("flowgraph {name} failed: its events name the block and the cause"),
        ),
        Alert::new(
            "FxgraphFault",
            grown(metrics::FAULTS),
            "0s",
            "warning",
            "{{ $labels.block }} failed; its cause is among the events",
        ),
        Alert::new(
            "FxgraphDataLost",
            grown(metrics::LOSSES),
            "0s",
            "warning",
            "{{ $labels.block }} loses data; its counters name the cause",
        ),
        Alert::new(
            "FxgraphBusy",
            format!("{} > 0.9", queries.rate(metrics::BUSY, "")),
            "5m",
            "warning",
            "{{ $labels.block }} works more than 90 % of the time: it is the next limit",
        ),
        Alert::new(
            "FxgraphNoMargin",
            format!("{} < 0.1", select(metrics::MARGIN, "")),
            "5m",
            "warning",
            format!("flowgraph {name} has less than 10 % of real time to spare"),
        ),
    ]
}

/// What goes wrong with the frames of one block, which it has to move at a rate of its own.
fn alerts_of(queries: &Queries, block: &PlannedBlock) -> [Alert; 2] {
    let is_source = block.ports.inputs.is_empty();
    let family = if is_source { metrics::OUTPUT_FRAMES } else { metrics::INPUT_FRAMES };
    let frames = queries.rate(family, &format!(",block={}", quoted(&block.name)));
    let rate_hertz = expected_rate_hertz(block);
    let stalled = Alert::new(
        "FxgraphStalled",
        format!("{frames} == 0"),
        "1m",
        "critical",
        "no frames pass {{ $labels.block }}: look upstream of it",
    );
    let behind = Alert::new(
        "FxgraphBehind",
        format!("{frames} < {}", BEHIND * rate_hertz),
        "2m",
        "warning",
        format!("{{{{ $labels.block }}}} makes {{{{ $value }}}} of {rate_hertz} frames/s"),
    );
    [stalled.of(block), behind.of(block)]
}

/// Alert rules for Prometheus, as its rule files have them.
#[must_use]
pub fn rules(plan: &Plan) -> Value {
    let queries = Queries::of(plan);
    let of_blocks = plan.blocks.iter().flat_map(|block| alerts_of(&queries, block));
    let all = alerts(&queries, &plan.name).into_iter().chain(of_blocks);
    let rules: Vec<Value> = all.map(|alert| alert.json(&plan.name)).collect();
    json!({"groups": [{"name": format!("fxgraph {}", plan.name), "rules": rules}]})
}

/// A dashboard for Grafana, to import.
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
        "templating": {"list": [{
            "name": "source",
            "label": "Prometheus",
            "type": "datasource",
            "query": "prometheus",
        }]},
        "panels": panels.collect::<Vec<_>>(),
    })
}

/// The pictures of a dashboard.
fn panels(plan: &Plan) -> Vec<Panel> {
    let queries = Queries::of(plan);
    let of_block = "{{block}}";
    let expected = queries.select(metrics::EXPECTED, "");
    let inputs = queries.rate(metrics::INPUT_FRAMES, "");
    // A source takes nothing: it is measured by what it pushes.
    let outputs = queries.rate(metrics::OUTPUT_FRAMES, "");
    let frames = format!("({inputs} > 0 or {outputs})");
    let bytes = queries.rate(metrics::INPUT_BYTES, "");
    let fill = format!(
        "{} / {}",
        queries.select(metrics::QUEUE, ""),
        queries.select(metrics::QUEUE_CAPACITY, "")
    );
    let buckets = metrics::LATENCY.name;
    let latency = format!(
        "histogram_quantile(0.99, sum by (block, le) (rate({buckets}_bucket{{flowgraph={}}}[1m])))",
        queries.flowgraph
    );
    let state = format!("{} == 1", queries.select(metrics::STATE, ""));
    let mut panels = vec![
        Panel::stat("State", &state, "{{state}}", "none"),
        Panel::stat("Running for", &queries.select(metrics::ELAPSED, ""), "", "s"),
        Panel::stat("Configuration", &queries.select(metrics::INFO, ""), "{{config_id}}", "none"),
        Panel::stat("Deadline margin", &queries.select(metrics::MARGIN, ""), "", "percentunit"),
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
            "Waiting for room",
            &queries.rate(metrics::ROOM_WAIT, ""),
            of_block,
            "percentunit",
        ),
        Panel::series("Latency of sinks, 99 %", &latency, of_block, "s"),
        Panel::series("Age of the newest sample", &queries.select(metrics::AGE, ""), of_block, "s"),
        Panel::series("Queues", &fill, "{{block}} {{input}}", "percentunit"),
        Panel::series("Losses per second", &queries.rate(metrics::LOSSES, ""), of_block, "none"),
        Panel::series("Faults", &queries.select(metrics::FAULTS, ""), of_block, "none"),
        Panel::series("Events per second", &queries.rate(metrics::EVENTS, ""), "{{kind}}", "none"),
    ];
    if plan.blocks.iter().any(|block| block.device != DeviceName::Cpu) {
        let busy = queries.rate(metrics::DEVICE_BUSY, "");
        panels.push(Panel::series("GPU busy", &busy, "{{block}} {{device}}", "percentunit"));
    }
    panels
}

/// One picture of a dashboard.
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

    /// Numbers stand in one row above the curves, which stand in two columns; a row is 24 wide.
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
