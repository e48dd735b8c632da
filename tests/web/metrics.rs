//! Metrics, alert rules and dashboard, checked with Prometheus.

use super::http::{self, Program};
use super::{ENDLESS, needs, stop};
use std::collections::HashMap;
use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Samples of a scrape by name and labels, with the types of their families; checks HELP on the way.
fn scrape(program: &Program) -> (HashMap<String, f64>, HashMap<String, String>) {
    let answer = program.get("/metrics");
    assert_eq!(answer.header("content-type"), Some("text/plain; version=0.0.4"));
    let (mut samples, mut types) = (HashMap::new(), HashMap::new());
    for line in answer.body.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, help) = help.split_once(' ').unwrap();
            assert!(help.len() > 20, "the help of {name} is too short: {help}");
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').unwrap();
            assert!(name.starts_with("fxgraph_"), "{name}");
            assert_eq!(name.ends_with("_total"), kind == "counter", "{name} is a {kind}");
            types.insert(name.to_owned(), kind.to_owned());
        } else {
            let (name, value) = line.rsplit_once(' ').unwrap();
            assert!(name.contains("flowgraph=\"endless\""), "{name}");
            samples.insert(name.to_owned(), value.parse().unwrap());
        }
    }
    (samples, types)
}

#[test]
fn counters_never_decrease_and_promtool_accepts_metrics() {
    if !needs::promtool() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let program = Program::running(directory.path(), ENDLESS, &[]);
    let (mut before, _) = scrape(&program);
    let is_counter = |name: &str, types: &HashMap<String, String>| {
        let family = name.split('{').next().unwrap();
        // All samples of a histogram are counters too.
        types.get(family).is_none_or(|kind| kind == "counter")
    };
    let taken = before.keys().find(|name| {
        name.starts_with("fxgraph_block_input_frames_total") && name.contains("block=\"sink\"")
    });
    let taken = taken.unwrap().clone();
    let first = before[&taken];
    for _ in 0..20 {
        std::thread::sleep(Duration::from_millis(20));
        // Gauges based on rates appear after the first scrape.
        let (now, types) = scrape(&program);
        for (name, value) in before.iter().filter(|(name, _)| is_counter(name, &types)) {
            assert!(now[name] >= *value, "{name} fell from {value} to {}", now[name]);
        }
        before = now;
    }
    assert!(before[&taken] > first, "frames are counted as they flow");
    assert!(before.keys().any(|name| name.starts_with("fxgraph_frames_dropped_here_total{")));

    let mut promtool = Command::new("promtool");
    promtool.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut promtool = promtool.stderr(Stdio::piped()).spawn().expect(PROMETHEUS);
    promtool.stdin.take().unwrap().write_all(program.get("/metrics").body.as_bytes()).unwrap();
    let output = promtool.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && said.is_empty(), "{said}");
    stop(program);
}

const PROMETHEUS: &str = "Debian's package `prometheus` is installed, as .ci/run does";

/// A Prometheus server that scrapes `target` every second; killed on drop.
struct Prometheus(Child, SocketAddr);

impl Prometheus {
    fn start(directory: &Path, target: SocketAddr) -> Self {
        let config = format!(
            "global: {{scrape_interval: 1s}}\nscrape_configs:\n  - job_name: fxgraph\n    \
             static_configs: [{{targets: ['{target}']}}]\n"
        );
        std::fs::write(directory.join("prometheus.yml"), config).unwrap();
        // A free port; other tests use no fixed ports.
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let child = Command::new("prometheus")
            .args(["--config.file=prometheus.yml", "--storage.tsdb.path=data", "--log.level=error"])
            .arg(format!("--web.listen-address={free}"))
            .current_dir(directory)
            .spawn()
            .expect(PROMETHEUS);
        Self(child, free)
    }

    /// Waits for a value of `query` and returns it.
    fn value(&self, query: &str) -> f64 {
        for _ in 0..600 {
            std::thread::sleep(Duration::from_millis(100));
            if TcpStream::connect(self.1).is_err() {
                continue;
            }
            let path = format!("/api/v1/query?query={query}");
            let answer = http::request(self.1, "GET", &path, &[], b"");
            if answer.status == 200
                && let Some(value) = answer.json()["data"]["result"][0]["value"][1].as_str()
            {
                return value.parse().unwrap();
            }
        }
        panic!("Prometheus never had a value of {query}");
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn prometheus_scrapes_a_running_flowgraph() {
    if !needs::promtool() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let program = Program::running(directory.path(), ENDLESS, &[]);
    let prometheus = Prometheus::start(directory.path(), program.address);
    let rate = prometheus.value("rate(fxgraph_block_input_frames_total{block=%22sink%22}[10s])");
    assert!(rate > 0.0);
    let expected = prometheus.value("fxgraph_block_expected_rate_hertz{block=%22sink%22}");
    assert!((expected - 1.712e9 / 65536.0).abs() < 1e-6, "{expected}");
    let state = prometheus.value("fxgraph_flowgraph_state{state=%22running%22}");
    assert!((state - 1.0).abs() < 1e-9);
    stop(program);
}

#[test]
fn dashboard_writes_rules_that_promtool_accepts() {
    if !needs::promtool() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("flowgraph.yaml"), ENDLESS).unwrap();
    let write = |flag: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fxgraph"));
        command.args(["dashboard", "flowgraph.yaml", flag]).current_dir(directory.path());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let rules = write("--rules");
    std::fs::write(directory.path().join("rules.yaml"), &rules).unwrap();
    let mut promtool = Command::new("promtool");
    promtool.args(["check", "rules", "rules.yaml"]).current_dir(directory.path());
    let output = promtool.output().expect(PROMETHEUS);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && said.contains("SUCCESS: 19 rules found"), "{said}");
    // The number of rules does not depend on the number of blocks.
    let sinks = (0..20).map(|n| format!("  more{n}: {{kind: null_sink, input: source}}\n"));
    let larger = ENDLESS.to_owned() + &sinks.collect::<String>();
    std::fs::write(directory.path().join("flowgraph.yaml"), larger).unwrap();
    assert_eq!(write("--rules"), rules);
    std::fs::write(directory.path().join("flowgraph.yaml"), ENDLESS).unwrap();
    let dashboard: serde_json::Value = serde_json::from_str(&write("--grafana")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    assert!(panels.iter().any(|panel| panel["title"] == "Share of real time"));
    // Level, clipping, flags and dumps of each antenna.
    for (title, metric) in [
        ("Level of digitisers, in dBFS", "fxgraph_digitiser_level_dbfs"),
        ("Clipped samples of digitisers", "fxgraph_digitiser_clipped_ratio"),
        ("Flagged as interference", "fxgraph_flagged_fraction"),
        ("Heaps of antennas flagged or missing per second", "fxgraph_antenna_heaps_flagged_total"),
        ("Incomplete dumps", "fxgraph_dumps_incomplete_total"),
    ] {
        let panel = panels.iter().find(|panel| panel["title"] == title).unwrap();
        let target = &panel["targets"][0];
        assert!(target["expr"].as_str().unwrap().contains(metric), "{target}");
        assert!(target["legendFormat"].as_str().unwrap().contains("{{antenna}}"), "{target}");
    }
    // Every query uses existing metrics, some of which are not always present.
    const NOW_AND_THEN: [&str; 15] = [
        "fxgraph_block_stall_seconds",
        "fxgraph_block_thread_busy_seconds_total",
        "fxgraph_block_lag_seconds",
        "fxgraph_block_sample_age_seconds",
        "fxgraph_flowgraph_lag_seconds",
        "fxgraph_flowgraph_deadline_margin_ratio",
        "fxgraph_flowgraph_limit_info",
        "fxgraph_output_rms",
        // Of some kinds of blocks.
        "fxgraph_digitiser_level_dbfs",
        "fxgraph_digitiser_clipped_ratio",
        "fxgraph_flagged_fraction",
        "fxgraph_antenna_heaps_flagged_total",
        "fxgraph_antenna_heaps_missing_total",
        "fxgraph_dumps_incomplete_total",
        "fxgraph_dumps_total",
    ];
    let program = Program::running(directory.path(), ENDLESS, &[]);
    let (_, types) = scrape(&program);
    for panel in panels {
        let query = panel["targets"][0]["expr"].as_str().unwrap();
        for word in query.split(|c: char| !c.is_alphanumeric() && c != '_') {
            let family = word.trim_end_matches("_bucket");
            let is_known = !word.starts_with("fxgraph_")
                || types.contains_key(family)
                || NOW_AND_THEN.contains(&family);
            assert!(is_known, "{word} in {query}");
        }
    }
    stop(program);
}

/// Metrics of five processes of one flowgraph and of a fleet: the third one dies after ten minutes, the fourth one lags,
/// sends late, and its level falls, the digitisers of the fifth one end, which must be one alert; a part of the fleet dies,
/// and another one stalls. A side branch of the fourth one is stalled, which is no alert. Two blocks of the first one lose
/// data, which is one alert, and the second one is started again and again.
const PROCESSES: &str = r#"
rule_files: [rules.yaml]
evaluation_interval: 15s
tests:
  - interval: 15s
    input_series:
      - {series: 'fxgraph_flowgraph_info{flowgraph="endless",job="f",instance="a:1",config_id="1"}', values: '1x100'}
      - {series: 'fxgraph_flowgraph_info{flowgraph="endless",job="f",instance="b:1",config_id="1"}', values: '1x20'}
      - {series: 'fxgraph_flowgraph_info{flowgraph="endless",job="f",instance="b:1",config_id="2"}', values: '_x21 1x79'}
      - {series: 'fxgraph_flowgraph_info{flowgraph="endless",job="f",instance="c:1",config_id="1"}', values: '1x40 stale'}
      - {series: 'fxgraph_flowgraph_info{flowgraph="endless",job="f",instance="d:1",config_id="1"}', values: '1x100'}
      - {series: 'fxgraph_flowgraph_info{flowgraph="endless",job="f",instance="e:1",config_id="1"}', values: '1x100'}
      - {series: 'fxgraph_block_stall_seconds{flowgraph="endless",job="f",instance="e:1",block="pol[0]",reason="the source waits for data"}', values: '_x20 15+15x80'}
      - {series: 'fxgraph_block_stall_seconds{flowgraph="endless",job="f",instance="e:1",block="pol[1]",reason="the source waits for data"}', values: '_x20 10+15x80'}
      - {series: 'fxgraph_flowgraph_lag_seconds{flowgraph="endless",job="f",instance="e:1"}', values: '0x20 0+15x80'}
      - {series: 'fxgraph_block_expected_rate_hertz{flowgraph="endless",job="f",instance="e:1",block="sink"}', values: '100x100'}
      - {series: 'fxgraph_block_input_frames_total{flowgraph="endless",job="f",instance="e:1",block="sink"}', values: '0+1500x20 30000x80'}
      - {series: 'fxgraph_part_healthy{flowgraph="endless",job="f",instance="fleet:1",part="x"}', values: '1x20 0x80'}
      - {series: 'fxgraph_part_healthy{flowgraph="endless",job="f",instance="fleet:1",part="y"}', values: '1x20 0x80'}
      - {series: 'fxgraph_part_healthy{flowgraph="endless",job="f",instance="fleet:1",part="z"}', values: '1x20 0x80'}
      - {series: 'fxgraph_part_silent_seconds{flowgraph="endless",job="f",instance="fleet:1",part="x"}', values: '0x100'}
      - {series: 'fxgraph_part_silent_seconds{flowgraph="endless",job="f",instance="fleet:1",part="z"}', values: '0 1 0x18 0+15x80'}
      - {series: 'fxgraph_part_rejects_token{flowgraph="endless",job="f",instance="fleet:1",part="w"}', values: '0x20 1x80'}
      - {series: 'fxgraph_block_stall_seconds{flowgraph="endless",job="f",instance="fleet:1",part="y",block="sink",reason="input frames are waiting"}', values: '_x20 15+15x80'}
      - {series: 'fxgraph_block_expected_rate_hertz{flowgraph="endless",job="f",instance="e:1",block="pol[0]"}', values: '100x100'}
      - {series: 'fxgraph_block_expected_rate_hertz{flowgraph="endless",job="f",instance="e:1",block="pol[1]"}', values: '100x100'}
      - {series: 'fxgraph_block_expected_rate_hertz{flowgraph="endless",job="f",instance="fleet:1",part="y",block="sink"}', values: '100x100'}
      - {series: 'fxgraph_block_stall_seconds{flowgraph="endless",job="f",instance="d:1",block="quick_look",reason="the block is busy"}', values: '15+15x100'}
      - {series: 'fxgraph_flowgraph_lag_seconds{flowgraph="endless",job="f",instance="d:1"}', values: '0x20 0+15x80'}
      - {series: 'fxgraph_flowgraph_lag_seconds{flowgraph="endless",job="f",instance="a:1"}', values: '0.1x100'}
      - {series: 'fxgraph_pace_delay_seconds{flowgraph="endless",job="f",instance="d:1",block="sink"}', values: '0x20 3x80'}
      - {series: 'fxgraph_output_rms{flowgraph="endless",job="f",instance="d:1",block="f",output="pol0"}', values: '0.51x100'}
      - {series: 'fxgraph_output_rms{flowgraph="endless",job="f",instance="d:1",block="f",output="pol1"}', values: '20x20 0.25x80'}
      - {series: 'fxgraph_clock_difference_seconds{flowgraph="endless",job="f",instance="d:1",block="source"}', values: '0x20 -120x80'}
      - {series: 'fxgraph_clock_difference_seconds{flowgraph="endless",job="f",instance="a:1",block="source"}', values: '-0.1x100'}
      - {series: 'fxgraph_delay_models_expired{flowgraph="endless",job="f",instance="d:1",block="f"}', values: '0x20 2x80'}
      - {series: 'fxgraph_delay_models_expired{flowgraph="endless",job="f",instance="a:1",block="f"}', values: '0x100'}
      - {series: 'fxgraph_process_start_time_seconds{flowgraph="endless",job="f",instance="a:1"}', values: '1x20 2x80'}
      - {series: 'fxgraph_process_start_time_seconds{flowgraph="endless",job="f",instance="b:1"}', values: '1x30 2 _ 3 _ 4x60'}
      - {series: 'fxgraph_block_losses_total{flowgraph="endless",job="f",instance="a:1",block="sink"}', values: '0x50 3x50'}
      - {series: 'fxgraph_block_losses_total{flowgraph="endless",job="f",instance="a:1",block="source"}', values: '0x50 2x50'}
      - {series: 'fxgraph_block_expected_rate_hertz{flowgraph="endless",job="f",instance="a:1",block="source"}', values: '100x100'}
      - {series: 'fxgraph_block_expected_rate_hertz{flowgraph="endless",job="f",instance="a:1",block="sink"}', values: '100x100'}
      - {series: 'fxgraph_block_input_frames_total{flowgraph="endless",job="f",instance="a:1",block="sink"}', values: '0+1500x100'}
      - {series: 'fxgraph_block_output_frames_total{flowgraph="endless",job="f",instance="a:1",block="sink"}', values: '0x100'}
      - {series: 'fxgraph_block_expected_rate_hertz{flowgraph="endless",job="f",instance="d:1",block="sink"}', values: '100x100'}
      - {series: 'fxgraph_block_input_frames_total{flowgraph="endless",job="f",instance="d:1",block="sink"}', values: '0+750x100'}
      - {series: 'fxgraph_block_output_frames_total{flowgraph="endless",job="f",instance="d:1",block="sink"}', values: '0x100'}
    alert_rule_test:
      - {eval_time: 9m, alertname: FxgraphGone, exp_alerts: []}
      - eval_time: 15m
        alertname: FxgraphGone
        exp_alerts:
          - exp_labels: {severity: critical, flowgraph: endless, job: f, instance: 'c:1'}
            exp_annotations: {summary: 'flowgraph endless at c:1 does not respond: it has ended or is unreachable', page_url: 'http://c:1/', runbook_url: 'http://c:1/docs/how_to/monitoring.html#3-alerts'}
      - eval_time: 15m
        alertname: FxgraphStalled
        exp_alerts:
          - exp_labels: {severity: critical, flowgraph: endless, job: f, instance: 'e:1', reason: the source waits for data}
            exp_annotations: {summary: 'no frames pass e:1 for 10m 15s: the source waits for data; its events `stalled` name the blocks', page_url: 'http://e:1/', runbook_url: 'http://e:1/docs/how_to/monitoring.html#3-alerts'}
          - exp_labels: {severity: critical, flowgraph: endless, job: f, instance: 'fleet:1', part: 'y', reason: input frames are waiting}
            exp_annotations: {summary: 'no frames pass fleet:1 for 10m 15s: input frames are waiting; its events `stalled` name the blocks', page_url: 'http://fleet:1/', runbook_url: 'http://fleet:1/docs/how_to/monitoring.html#3-alerts'}
      - {eval_time: 12m, alertname: FxgraphDataLost, exp_alerts: []}
      - eval_time: 15m
        alertname: FxgraphDataLost
        exp_alerts:
          - exp_labels: {severity: warning, flowgraph: endless, job: f, instance: 'a:1'}
            exp_annotations: {summary: '2 blocks of a:1 lack or drop data; its events `data_lost` name them and the cause', page_url: 'http://a:1/', runbook_url: 'http://a:1/docs/how_to/monitoring.html#3-alerts'}
      - eval_time: 15m
        alertname: FxgraphRestarting
        exp_alerts:
          - exp_labels: {severity: critical, flowgraph: endless, job: f, instance: 'b:1'}
            exp_annotations: {summary: 'flowgraph endless at b:1 was started again 3 times within 10 minutes: the last lines of its log name the cause', page_url: 'http://b:1/', runbook_url: 'http://b:1/docs/how_to/monitoring.html#3-alerts'}
      - eval_time: 15m
        alertname: FxgraphPartUnhealthy
        exp_alerts:
          - exp_labels: {severity: critical, flowgraph: endless, job: f, instance: 'fleet:1', part: x}
            exp_annotations: {summary: 'part x of the fleet at fleet:1 is not there: nothing listens at its address', page_url: 'http://fleet:1/', runbook_url: 'http://fleet:1/docs/how_to/monitoring.html#3-alerts'}
      - {eval_time: 6m, alertname: FxgraphPartSilent, exp_alerts: []}
      - eval_time: 15m
        alertname: FxgraphPartSilent
        exp_alerts:
          - exp_labels: {severity: critical, flowgraph: endless, job: f, instance: 'fleet:1', part: z}
            exp_annotations: {summary: 'part z of the fleet at fleet:1 has not answered for 9m 45s: its host or the network between is down, or it is too busy', page_url: 'http://fleet:1/', runbook_url: 'http://fleet:1/docs/how_to/monitoring.html#3-alerts'}
      - eval_time: 15m
        alertname: FxgraphPartRejectsToken
        exp_alerts:
          - exp_labels: {severity: warning, flowgraph: endless, job: f, instance: 'fleet:1', part: w}
            exp_annotations: {summary: 'part w rejects the token of the fleet at fleet:1, so that nothing is known of it: restart the one that has the old token', page_url: 'http://fleet:1/', runbook_url: 'http://fleet:1/docs/how_to/monitoring.html#3-alerts'}
      - eval_time: 15m
        alertname: FxgraphBehind
        exp_alerts:
          - exp_labels: {severity: warning, flowgraph: endless, job: f, instance: 'd:1'}
            exp_annotations: {summary: 'a block of d:1 moves 50% of the frames of real time', page_url: 'http://d:1/', runbook_url: 'http://d:1/docs/how_to/monitoring.html#3-alerts'}
      - eval_time: 15m
        alertname: FxgraphLagging
        exp_alerts:
          - exp_labels: {severity: warning, flowgraph: endless, job: f, instance: 'd:1'}
            exp_annotations: {summary: 'flowgraph endless at d:1 is 585 s behind real time', page_url: 'http://d:1/', runbook_url: 'http://d:1/docs/how_to/monitoring.html#3-alerts'}
      - eval_time: 15m
        alertname: FxgraphSenderBehind
        exp_alerts:
          - exp_labels: {severity: warning, flowgraph: endless, job: f, instance: 'd:1', block: sink}
            exp_annotations: {summary: 'sink at d:1 sends 3 s later than its schedule: the machine is too busy', page_url: 'http://d:1/', runbook_url: 'http://d:1/docs/how_to/monitoring.html#3-alerts'}
      - eval_time: 15m
        alertname: FxgraphLevelLow
        exp_alerts:
          - exp_labels: {severity: warning, flowgraph: endless, job: f, instance: 'd:1', block: f, output: pol1}
            exp_annotations: {summary: 'pol1 of f at d:1 has an rms of 0.25 steps of the quantiser, nearly all values are 0: raise its gain, or look for an input without signal', page_url: 'http://d:1/', runbook_url: 'http://d:1/docs/how_to/monitoring.html#3-alerts'}
      - eval_time: 15m
        alertname: FxgraphClockWrong
        exp_alerts:
          - exp_labels: {severity: warning, flowgraph: endless, job: f, instance: 'd:1', block: source}
            exp_annotations: {summary: 'the stream of source at d:1 differs by 120 s from the clock of the host: check its sync time and both clocks', page_url: 'http://d:1/', runbook_url: 'http://d:1/docs/how_to/monitoring.html#3-alerts'}
      - eval_time: 15m
        alertname: FxgraphDelayModelExpired
        exp_alerts:
          - exp_labels: {severity: warning, flowgraph: endless, job: f, instance: 'd:1', block: f}
            exp_annotations: {summary: '2 delay models of f at d:1 are from before a restart of the sender: send new ones', page_url: 'http://d:1/', runbook_url: 'http://d:1/docs/how_to/monitoring.html#3-alerts'}
"#;

#[test]
fn alerts_name_dead_and_lagging_processes() {
    if !needs::promtool() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("flowgraph.yaml"), ENDLESS).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_fxgraph"));
    command.args(["dashboard", "flowgraph.yaml", "--rules"]).current_dir(directory.path());
    std::fs::write(directory.path().join("rules.yaml"), command.output().unwrap().stdout).unwrap();
    std::fs::write(directory.path().join("test.yaml"), PROCESSES).unwrap();
    let mut promtool = Command::new("promtool");
    promtool.args(["test", "rules", "test.yaml"]).current_dir(directory.path());
    let output = promtool.output().expect(PROMETHEUS);
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
}

#[test]
fn labels_stay_the_same_with_live_updates_which_are_counted() {
    let directory = tempfile::tempdir().unwrap();
    let text = super::TUNABLE.replace("blocks:", "parameters: {antenna: {default: 7}}\nblocks:");
    let program = Program::running(directory.path(), &text, &[]);
    let lines = |name: &str| {
        let text = program.get("/metrics").body;
        let lines = text.lines().filter(|line| line.starts_with(name)).map(str::to_owned);
        lines.collect::<Vec<_>>()
    };
    let before = lines("fxgraph_flowgraph_info");
    assert!(before.len() == 1 && before[0].contains("antenna=\"7\""), "{before:?}");
    let works = lines("fxgraph_block_works_total");
    assert!(works.iter().all(|line| line.contains("antenna=\"7\"")), "{works:?}");
    for frequency in 1..=3 {
        let signals = format!(r#"{{"source": {{"signals": "cw(0.1, {frequency})"}}}}"#);
        assert_eq!(super::patch(&program, "/api/v1/blocks", &signals).status, 200);
    }
    super::patch(&program, "/api/v1/blocks", r#"{"source": {"signals": "cow"}}"#).problem(422);
    super::patch(&program, "/api/v1/blocks/a", r#"{"kind": "cow"}"#).problem(422);
    assert_eq!(lines("fxgraph_flowgraph_info"), before);
    let changes = lines("fxgraph_flowgraph_changes_total");
    assert!(changes[0].ends_with(" 3"), "{changes:?}");
    let rejected = lines("fxgraph_events_total");
    let rejected = rejected.iter().find(|line| line.contains("kind=\"rejected\"")).unwrap();
    assert!(rejected.ends_with(" 2"), "{rejected}");
    let events = program.get("/api/v1/events").json();
    let told =
        events["events"].as_array().unwrap().iter().find(|event| event["kind"] == "rejected");
    assert!(told.unwrap()["text"].as_str().unwrap().contains("cow"), "{told:?}");
    stop(program);
}

/// A digitiser that ends after a second, one that does not end, and their spectra.
const ONE_ENDS: &str = "flowgraph: endless
doc: Levels of two digitisers.
blocks:
  short:
    kind: digitiser_simulator
    parameters: {adc_sample_rate_hz: 1048576, signals: wgn(0.1), duration_seconds: 1, paced: true}
  long:
    kind: digitiser_simulator
    parameters: {adc_sample_rate_hz: 1048576, signals: wgn(0.1), paced: true}
  ended: {kind: pfb, inputs: [short.pol0, short.pol1], parameters: {channels: 64, taps: 4}}
  flows: {kind: pfb, inputs: [long.pol0, long.pol1], parameters: {channels: 64, taps: 4}}
  a: {kind: null_sink, input: ended}
  b: {kind: null_sink, input: flows}
";

#[test]
fn measurements_are_unknown_after_the_end_of_their_data_and_states_stay() {
    let directory = tempfile::tempdir().unwrap();
    let program = Program::start(directory.path(), ONE_ENDS, &["--hold"]);
    assert_eq!(program.post("/api/v1/flowgraph/start").status, 202);
    let value = |name: &str, block: &str| {
        let (samples, _) = scrape(&program);
        let (name, block) = (format!("fxgraph_{name}{{"), format!("block=\"{block}\""));
        let found = samples.iter().find(|(of, _)| of.starts_with(&name) && of.contains(&block));
        found.map(|(_, value)| *value)
    };
    let level = "digitiser_level_dbfs";
    let wait = |text: &str, is_so: &dyn Fn() -> bool| {
        let began = Instant::now();
        while !is_so() {
            assert!(began.elapsed() < Duration::from_mins(2), "{text}: {:?}", scrape(&program));
            std::thread::sleep(Duration::from_millis(100));
        }
    };
    wait("levels", &|| value(level, "ended").is_some() && value(level, "flows").is_some());
    wait("the end of a level", &|| value(level, "ended").is_none());
    assert!(value("digitiser_clipped_samples", "ended").is_some());
    assert!(value("filter_group_delay_seconds", "ended").is_some());
    assert!(value(level, "flows").is_some_and(|level| (level + 17.0).abs() < 1.0));
    let gauges = program.get("/api/v1/blocks/ended").json()["gauges"].clone();
    let of_level = gauges.as_array().unwrap().iter().find(|gauge| gauge["name"] == level);
    assert!(of_level.unwrap()["value"].is_null(), "{gauges}");

    assert_eq!(program.post("/api/v1/flowgraph/stop").status, 202);
    program.wait("ended");
    assert_eq!(value(level, "flows"), None);
    assert!(value("filter_group_delay_seconds", "flows").is_some());
    program.signal("-INT");
    assert!(program.end().status.success());
}
