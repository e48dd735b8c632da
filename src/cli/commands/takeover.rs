//! `fxgraph takeover`

use crate::client::{Client, Connection, in_path, with_help};
use crate::failure::Failure;
use crate::terminal::Terminal;
use crate::units;
use fxgraph_api::blocks::BlockPage;
use fxgraph_api::changes::{LiveUpdate, PreparedUpdate, UpdateInfo};
use fxgraph_api::flowgraph::{FlowgraphPage, Health, ScheduledValue};
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};
use ureq::http::Method;

/// Live parameter of sinks that send streams.
const ENABLED: &str = "enabled";
/// Frames that a new sink has to receive: the first ones may miss data from before its start.
const FRAMES: u64 = 3;
/// Longest time by which an old sink may be behind a new one at the takeover, or [`FRAMES_BEHIND`] if those are longer:
/// half of the default window of `stream_source`, the smallest of receivers, 50 ms or 4 heaps.
const MOST_BEHIND: Duration = Duration::from_millis(25);
const FRAMES_BEHIND: u32 = 2;
/// Time after which an old sink whose newest frame is the same stands still, or 8 frames if those are longer.
const STILL: Duration = Duration::from_secs(2);
/// Longest time for an answer.
const ANSWER: Duration = Duration::from_secs(5);
/// Time between two requests about blocks: a server answers 100 requests per second of one client, and a part may have
/// hundreds of blocks.
const PAUSE: Duration = Duration::from_millis(15);
/// Time between two checks.
const TICK: Duration = Duration::from_millis(100);

/// Lets a second flowgraph take the streams of a running one over, without a missing frame
///
/// The second flowgraph is a new version of the first one, waits for its start (`fxgraph run --hold`) and receives the
/// same streams. It starts with its sinks disabled; at one timestamp they are enabled and those of the first flowgraph
/// disabled. Then the first flowgraph ends. If the second one fails before that, the first one goes on.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: fxgraph takeover --connect f0:8080 --to f0:9080")]
pub struct Takeover {
    /// Address of the second flowgraph
    #[arg(long, value_name = "URL")]
    to: String,

    /// Time from the newest frame to the takeover
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration, default_value = "1s")]
    lead: Duration,

    /// Time limit for each step: start, first frames, takeover, end
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration, default_value = "60s")]
    limit: Duration,

    /// Uses the live parameters in the file of the second flowgraph; by default those of the first one are kept
    #[arg(long)]
    new_values: bool,

    /// Writes the first flowgraph as it runs, live parameters included, to a file before the takeover
    #[arg(long, value_name = "FILE")]
    backup: Option<PathBuf>,

    #[command(flatten)]
    connection: Connection,
}

impl Takeover {
    pub fn execute(self, terminal: &mut Terminal) -> Result<(), Failure> {
        let (old, new) =
            (self.side(&self.connection)?, self.side(&self.connection.with_url(&self.to))?);
        let page = old.page()?;
        if page.state != "running" {
            return Err(old.reject(&format!("must run, it is {}", page.state), None));
        }
        let sinks = old.sinks(&page)?;
        let waiting = new.page()?;
        if waiting.state != "prepared" {
            let help = "start the program with `fxgraph run --hold`";
            return Err(new
                .reject(&format!("must wait for its start, it is {}", waiting.state), Some(help)));
        }
        if let Some(path) = &self.backup {
            std::fs::write(path, &page.resolved_yaml).map_err(|error| {
                Failure::because(&format!("cannot write `{}`", path.display()), &error)
            })?;
        }
        let (before, next) = (steady(&page)?, read(&waiting)?);
        let enabled = Enabled { old: enabled(&before, &sinks), new: enabled(&next, &sinks) };
        let (flowgraph, kept) = self.muted(&old, &before, next, &sinks)?;
        for name in kept {
            terminal.note(&format!("keeps {name}"));
        }
        new.start(&flowgraph, self.limit)?;
        let takeover = Steps { old: &old, new: &new, sinks: &sinks, enabled, limit: self.limit };
        takeover.wait_ready(self.lead)?;
        let claim = match takeover.claim(&before) {
            Ok(claim) => claim,
            Err(failure) => {
                new.end("abort");
                return Err(failure);
            }
        };
        let lead = self.lead.as_secs_f64() * claim.adc_sample_rate_hz.unwrap_or_default();
        let newest = claim.newest_timestamp.unwrap_or_default();
        let at = newest.saturating_add(lead as u64).max(page.steady_state_timestamp);
        let at = match takeover.switch(at, &claim.id) {
            Ok(at) => at,
            Err(failure) => {
                takeover.take_back(terminal);
                return Err(failure);
            }
        };
        old.end("stop");
        let ended = |health: Health| matches!(health.state.as_str(), "ended" | "failed");
        // Without `--hold` its server ends, too.
        let over = || old.client.get::<Health>("/api/v1/health").map_or(true, ended);
        if !wait(self.limit, || Ok(over()))? {
            terminal.warning(&format!("the flowgraph at {} has not ended yet", old.client.url()));
        }
        terminal.results(&format!("taken over from timestamp {at}\n"))
    }

    /// A flowgraph that answers each request within the time limit of a step, and within 5 s.
    fn side(&self, connection: &Connection) -> Result<Side, Failure> {
        Ok(Side { client: connection.client_within(self.limit.min(ANSWER))? })
    }

    /// Returns the waiting `flowgraph` with all `sinks` disabled, and the live parameters of the running flowgraph
    /// `before` that it keeps.
    fn muted(
        &self,
        old: &Side,
        before: &Value,
        mut flowgraph: Value,
        sinks: &[String],
    ) -> Result<(Value, Vec<String>), Failure> {
        let mut kept = Vec::new();
        let blocks = flowgraph["blocks"].as_object_mut();
        let Some(blocks) = blocks else {
            return Err(Failure::failed("the second flowgraph has no blocks"));
        };
        for (name, block) in blocks.iter_mut() {
            let was = &before["blocks"][name];
            if self.new_values || was["kind"] != block["kind"] {
                continue;
            }
            for parameter in old.live_parameters(name)? {
                let value = &was["parameters"][&parameter];
                if *value == block["parameters"][&parameter] || parameter == ENABLED {
                    continue;
                }
                kept.push(format!("{name}.{parameter}"));
                set(parameters(block), &parameter, value);
            }
        }
        for name in sinks {
            let same = blocks.get_mut(name).filter(|b| b["kind"] == before["blocks"][name]["kind"]);
            let Some(block) = same else {
                let message = format!(
                    "the second flowgraph has no sink `{name}` of kind `{}`",
                    before["blocks"][name]["kind"].as_str().unwrap_or_default()
                );
                return Err(Failure::failed(message));
            };
            parameters(block).insert(ENABLED.to_owned(), json!(false));
        }
        Ok((flowgraph, kept))
    }
}

/// The resolved flowgraph of a page.
fn read(page: &FlowgraphPage) -> Result<Value, Failure> {
    serde_yaml::from_str(&page.resolved_yaml)
        .map_err(|error| Failure::because("unexpected flowgraph", &error))
}

/// The resolved flowgraph of a page after all scheduled values have taken effect.
fn steady(page: &FlowgraphPage) -> Result<Value, Failure> {
    let mut flowgraph = read(page)?;
    for ScheduledValue { block, parameter, value, .. } in &page.scheduled {
        set(parameters(&mut flowgraph["blocks"][block]), parameter, value);
    }
    Ok(flowgraph)
}

/// Gives a parameter `value`; null restores the default.
fn set(parameters: &mut Map<String, Value>, parameter: &str, value: &Value) {
    match value {
        Value::Null => parameters.remove(parameter),
        value => parameters.insert(parameter.to_owned(), value.clone()),
    };
}

/// Live updates that enable `sinks`: by their default if `flowgraph` has no value, so that the flowgraph remains as it
/// was written.
fn enabled(flowgraph: &Value, sinks: &[String]) -> Map<String, Value> {
    let value = |name: &str| match flowgraph["blocks"][name]["parameters"].get(ENABLED) {
        Some(_) => json!(true),
        None => Value::Null,
    };
    sinks.iter().map(|name| (name.clone(), json!({ ENABLED: value(name) }))).collect()
}

/// Live updates that disable `sinks`.
fn disabled(sinks: &[String]) -> Map<String, Value> {
    sinks.iter().map(|name| (name.clone(), json!({ ENABLED: false }))).collect()
}

/// Parameters of a block in a resolved flowgraph.
fn parameters(block: &mut Value) -> &mut Map<String, Value> {
    let parameters = &mut block["parameters"];
    if !parameters.is_object() {
        *parameters = json!({});
    }
    parameters.as_object_mut().unwrap_or_else(|| unreachable!("it is an object"))
}

/// Calls `is_done` until it holds; returns `false` at the time limit.
fn wait(
    limit: Duration,
    mut is_done: impl FnMut() -> Result<bool, Failure>,
) -> Result<bool, Failure> {
    let began = Instant::now();
    while !is_done()? {
        if began.elapsed() > limit {
            return Ok(false);
        }
        sleep(TICK);
    }
    Ok(true)
}

/// One of the two flowgraphs.
struct Side {
    client: Client,
}

impl Side {
    fn reject(&self, rule: &str, help: Option<&str>) -> Failure {
        Failure::failed(with_help(&format!("the flowgraph at {} {rule}", self.client.url()), help))
    }

    fn page(&self) -> Result<FlowgraphPage, Failure> {
        self.client.get("/api/v1/flowgraph")
    }

    fn block(&self, name: &str) -> Result<BlockPage, Failure> {
        sleep(PAUSE);
        self.client.get(&format!("/api/v1/blocks/{}", in_path(name)))
    }

    /// Replaces the flowgraph, which waits for its start, with `flowgraph`, and starts it.
    fn start(&self, flowgraph: &Value, limit: Duration) -> Result<(), Failure> {
        let path = "/api/v1/flowgraph";
        let update: UpdateInfo = self.client.send(Method::PUT, path, Some(flowgraph))?;
        let is_replaced = || {
            let page = self.page()?;
            Ok(page.config_hash == update.config_hash && page.state == "prepared")
        };
        if !wait(limit, is_replaced)? {
            return Err(self.reject("was not prepared in time", None));
        }
        let _: Health = self.client.send(Method::POST, "/api/v1/flowgraph/start", None)?;
        let is_running = || {
            let health: Health = self.client.get("/api/v1/health")?;
            match health.state.as_str() {
                "running" => Ok(true),
                "prepared" | "starting" => Ok(false),
                state => Err(self.reject(&format!("did not start, it is {state}"), None)),
            }
        };
        if wait(limit, is_running)? {
            return Ok(());
        }
        self.end("abort");
        Err(self.reject("did not start in time", None))
    }

    fn cancel(&self, update: &str) {
        // Without an answer it ends by itself.
        let path = format!("/api/v1/updates/{update}");
        let _ = self.client.send::<Value>(Method::DELETE, &path, None);
    }

    fn commit(&self, update: &str, at: u64) -> Result<LiveUpdate, Failure> {
        let path = format!("/api/v1/updates/{update}/commit?at={at}");
        self.client.send(Method::POST, &path, None)
    }

    fn end(&self, how: &str) {
        let path = format!("/api/v1/flowgraph/{how}");
        // A flowgraph that does not answer has ended.
        let _ = self.client.send::<Health>(Method::POST, &path, None);
    }

    fn answers(&self) -> bool {
        self.client.get::<Health>("/api/v1/health").is_ok()
    }

    /// Names of the live parameters of a block.
    fn live_parameters(&self, block: &str) -> Result<Vec<String>, Failure> {
        let schema = self.block(block)?.parameters_schema.unwrap_or_default();
        let properties = schema["properties"].as_object();
        let live = properties.into_iter().flatten().filter(|(_, value)| value["x-live"] == true);
        Ok(live.map(|(name, _)| name.clone()).collect())
    }

    /// Names of the sinks that send streams. Any other sink but `null_sink` is an error: two flowgraphs cannot both
    /// write its files.
    fn sinks(&self, page: &FlowgraphPage) -> Result<Vec<String>, Failure> {
        let graph = &page.graph;
        let is_sink = |name: &str| graph.edges.iter().all(|edge| edge.from != name);
        let mut sinks = Vec::new();
        for block in graph.blocks.iter().filter(|block| is_sink(&block.name)) {
            if self.live_parameters(&block.name)?.iter().any(|parameter| parameter == ENABLED) {
                sinks.push(block.name.clone());
            } else if block.kind != "null_sink" {
                let rule = format!(
                    "cannot be taken over: its sink `{}` of kind `{}` has no live parameter `enabled`",
                    block.name, block.kind
                );
                let help = "put sinks that write files on another host; `stream_sink` and `spead_sink` can be taken over";
                return Err(self.reject(&rule, Some(help)));
            }
        }
        if sinks.is_empty() {
            return Err(self.reject("sends no streams, so there is nothing to take over", None));
        }
        Ok(sinks)
    }

    /// Prepares live updates of `blocks`; until they are committed or cancelled, nobody else changes the flowgraph.
    fn prepare(&self, blocks: Map<String, Value>) -> Result<PreparedUpdate, Failure> {
        self.client.send(Method::POST, "/api/v1/updates", Some(&Value::Object(blocks)))
    }

    /// Schedules live updates of `blocks`.
    fn update(&self, blocks: Map<String, Value>, at: Option<u64>) -> Result<LiveUpdate, Failure> {
        let at = at.map_or(String::new(), |at| format!("?at={at}"));
        self.client.send(
            Method::PATCH,
            &format!("/api/v1/blocks{at}"),
            Some(&Value::Object(blocks)),
        )
    }
}

/// Live updates that enable the sinks of both flowgraphs.
struct Enabled {
    old: Map<String, Value>,
    new: Map<String, Value>,
}

/// Steps of the takeover from `old` to `new`.
struct Steps<'a> {
    enabled: Enabled,
    old: &'a Side,
    new: &'a Side,
    sinks: &'a [String],
    limit: Duration,
}

impl Steps<'_> {
    /// Waits until the new sinks receive frames, less than half of `lead` behind the old ones, and the old ones are
    /// behind them by less than [`MOST_BEHIND`]: receivers would get the last frames of the old ones after newer ones.
    /// An old sink that stands still is not waited for.
    fn wait_ready(&self, lead: Duration) -> Result<(), Failure> {
        let mut behind = Duration::ZERO;
        let mut moved: HashMap<&str, (Option<u64>, Instant)> = HashMap::new();
        let is_ready = || {
            let health: Health = self.new.client.get("/api/v1/health")?;
            if health.state != "running" {
                return Err(self.new.reject("ended before the takeover", None));
            }
            behind = Duration::ZERO;
            for name in self.sinks {
                // The old one is read before and after the new one: the mean does not count the time between answers.
                let (before, new) = (self.old.block(name)?, self.new.block(name)?);
                let old = self.old.block(name)?;
                let is_fed =
                    new.summary.totals.frames_in >= FRAMES && new.newest_timestamp.is_some();
                if !is_fed || lag(&new, &before) > lead / 2 {
                    return Ok(false);
                }
                let (newest, since) = moved.entry(name).or_insert((None, Instant::now()));
                if *newest != old.newest_timestamp {
                    (*newest, *since) = (old.newest_timestamp, Instant::now());
                }
                let frame = frame_time(&old).max(frame_time(&new));
                let lag = (lag(&before, &new) + lag(&old, &new)) / 2;
                if lag > MOST_BEHIND.max(FRAMES_BEHIND * frame)
                    && since.elapsed() < STILL.max(8 * frame)
                {
                    behind = lag;
                    return Ok(false);
                }
            }
            Ok(true)
        };
        let failure = match wait(self.limit, is_ready) {
            Ok(true) => return Ok(()),
            Ok(false) if behind > Duration::ZERO => {
                let rule = format!(
                    "is {:.1} s behind the second one after {:.0} s, so its last frames would come too late; it goes on",
                    behind.as_secs_f64(),
                    self.limit.as_secs_f64()
                );
                let help = "repeat the takeover when it has caught up: `fxgraph top`";
                self.old.reject(&rule, Some(help))
            }
            Ok(false) => {
                let rule = format!(
                    "did not catch up within {:.0} s; the first flowgraph goes on",
                    self.limit.as_secs_f64()
                );
                let help = "check that it receives the same streams: `fxgraph top`";
                self.new.reject(&rule, Some(help))
            }
            Err(failure) => failure,
        };
        self.new.end("abort");
        Err(failure)
    }

    /// Prepares the end of the old sinks. Of several takeovers at once one has the claim; the others find the flowgraph
    /// changed, as one that was `before` must not be.
    fn claim(&self, before: &Value) -> Result<PreparedUpdate, Failure> {
        let claim = self.old.prepare(disabled(self.sinks))?;
        let found = self.old.page().and_then(|page| steady(&page));
        if found.as_ref().is_ok_and(|found| found == before) {
            return Ok(claim);
        }
        self.old.cancel(&claim.id);
        found?;
        let rule = "was changed during the takeover, or is taken over by another flowgraph";
        let help = "start the second flowgraph again and repeat the takeover";
        Err(self.old.reject(rule, Some(help)))
    }

    /// Enables the new sinks and commits the end of the old ones, the update `claim`, from timestamp `at` on, and waits
    /// until that has happened; returns the timestamp. The new ones are first, so that a failure in between leaves frames
    /// sent twice and none missing.
    fn switch(&self, at: u64, claim: &str) -> Result<u64, Failure> {
        let enabled = self.new.update(self.enabled.new.clone(), Some(at));
        let at = enabled.inspect_err(|_| self.old.cancel(claim))?.effective_timestamp;
        match self.old.commit(claim, at) {
            Err(failure) if self.old.answers() => return Err(failure),
            // Its streams are the new flowgraph's from `at` on all the same.
            _ => {}
        }
        let has_switched = || {
            for name in self.sinks {
                let block = self.new.block(name)?;
                let sent = block.counters.iter().find(|counter| counter.name == "heaps_sent");
                if sent.is_none_or(|sent| sent.count == 0) {
                    return Ok(false);
                }
            }
            // The last frames of the old flowgraph may come later.
            Ok(!self.old.answers()
                || self.sinks.iter().all(|name| {
                    self.old.block(name).is_ok_and(|block| block.newest_timestamp > Some(at))
                }))
        };
        if wait(self.limit, has_switched)? {
            return Ok(at);
        }
        let rule = format!("sent nothing within {:.0} s", self.limit.as_secs_f64());
        Err(self.new.reject(&rule, None))
    }

    /// Lets the first flowgraph send again.
    fn take_back(&self, terminal: &Terminal) {
        match self.old.update(self.enabled.old.clone(), None) {
            Ok(LiveUpdate { effective_timestamp, .. }) => {
                // If the new flowgraph does not answer, both send, and receivers use one copy of each frame.
                let _ = self.new.update(disabled(self.sinks), None);
                self.new.end("abort");
                terminal.warning(&format!(
                    "the first flowgraph sends again from timestamp {effective_timestamp} on; frames \
                     before it may be missing"
                ));
            }
            Err(failure) => terminal.warning(&format!(
                "the first flowgraph does not send, and the second one goes on: {}",
                failure.first_line()
            )),
        }
    }
}

/// Time by which the newest frame of the sink `late` is older than that of `early`; 0 before the first frames.
fn lag(late: &BlockPage, early: &BlockPage) -> Duration {
    let newest = early.newest_timestamp.zip(late.newest_timestamp);
    let behind = newest.map_or(0, |(early, late)| early.saturating_sub(late));
    time(late, behind)
}

/// Duration of an input frame of a sink.
fn frame_time(sink: &BlockPage) -> Duration {
    time(sink, sink.inputs.first().map_or(0, |input| input.carries.samples_per_frame))
}

/// Duration of ADC samples at the input of a sink.
fn time(sink: &BlockPage, samples: u64) -> Duration {
    let rate = sink.inputs.first().map_or(f64::INFINITY, |input| input.carries.adc_sample_rate_hz);
    Duration::try_from_secs_f64(samples as f64 / rate).unwrap_or_default()
}
