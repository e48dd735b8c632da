//! What to watch of a flowgraph, made from its plan: alert rules for Prometheus, a dashboard for Grafana.

use crate::metrics::{self, Family, expected_rate_hertz};
use fxgraph::DeviceName;
use fxgraph::flowgraph::Plan;
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

/// Alert rules for Prometheus, as its rule files have them.
#[must_use]
pub fn rules(plan: &Plan) -> Value {
    let queries = Queries::of(plan);
    let name = &plan.name;
    let mut alerts = vec![
        Alert {
            name: "FxgraphGone",
            query: format!("absent({})", queries.select(metrics::INFO, "")),
            lasting: "1m",
            severity: "critical",
            block: None,
            summary: format!("flowgraph {name} does not answer: it has ended or is not reached"),
        },
        Alert {
            name: "FxgraphFailed",
            query: format!("{} == 1", queries.select(metrics::STATE, ",state=\"failed\"")),
            lasting: "0s",
            severity: "critical",
            block: None,
            summary: format!("flowgraph {name} failed: its events name the block and the cause"),
        },
        Alert {
            name: "FxgraphFault",
            query: format!("increase({}[5m]) > 0", queries.select(metrics::FAULTS, "")),
            lasting: "0s",
            severity: "warning",
            block: None,
            summary: "{{ $labels.block }} failed; its cause is among the events".to_owned(),
        },
        Alert {
            name: "FxgraphDataLost",
            query: format!("increase({}[5m]) > 0", queries.select(metrics::LOSSES, "")),
            lasting: "0s",
            severity: "warning",
            block: None,
            summary: "{{ $labels.block }} loses data; its counters name the cause".to_owned(),
        },
        Alert {
            name: "FxgraphBusy",
            query: format!("{} > 0.9", queries.rate(metrics::BUSY, "")),
            lasting: "5m",
            severity: "warning",
            block: None,
            summary: "{{ $labels.block }} works more than 90 % of the time: it is the next limit"
                .to_owned(),
        },
    ];
    alerts.push(Alert {
        name: "FxgraphNoMargin",
        query: format!("{} < 0.1", queries.select(metrics::MARGIN, "")),
        lasting: "5m",
        severity: "warning",
        block: None,
        summary: format!("flowgraph {name} has less than 10 % of real time to spare"),
    });
    for block in &plan.blocks {
        let is_source = block.ports.inputs.is_empty();
        let family = if is_source { metrics::OUTPUT_FRAMES } else { metrics::INPUT_FRAMES };
        let frames = queries.rate(family, &format!(",block={}", quoted(&block.name)));
        let rate_hertz = expected_rate_hertz(block);
        alerts.push(Alert {
            name: "FxgraphStalled",
            query: format!("{frames} == 0"),
            lasting: "1m",
            severity: "critical",
            block: Some(block.name.clone()),
            summary: "no frames pass {{ $labels.block }}: look upstream of it".to_owned(),
        });
        alerts.push(Alert {
            name: "FxgraphBehind",
            query: format!("{frames} < {}", BEHIND * rate_hertz),
            lasting: "2m",
            severity: "warning",
            block: Some(block.name.clone()),
            summary: format!(
                "{{{{ $labels.block }}}} makes {{{{ $value }}}} of {rate_hertz} frames/s"
            ),
        });
    }
    let rules = alerts.into_iter().map(|alert| {
        let mut labels = json!({"severity": alert.severity, "flowgraph": name});
        if let Some(block) = alert.block {
            labels["block"] = block.into();
        }
        json!({
            "alert": alert.name,
            "expr": alert.query,
            "for": alert.lasting,
            "labels": labels,
            "annotations": {"summary": alert.summary},
        })
    });
    json!({"groups": [{"name": format!("fxgraph {name}"), "rules": rules.collect::<Vec<_>>()}]})
}

/// A dashboard for Grafana, to import.
#[must_use]
pub fn grafana(plan: &Plan) -> Value {
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
