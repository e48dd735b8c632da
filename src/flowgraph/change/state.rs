//! Live values that outlive their run: values of live parameters that differ from those of the flowgraph file.
//!
//! A value belongs to the value of the file that it replaced. When the file gives another value, or has no such block or
//! parameter any more, the file has the last word, and the value is [dropped](Restored::dropped) with the reason.

use crate::change::in_force::ScheduledValue;
use crate::plan::block::PlannedBlock;
use crate::plan::flowgraph::Plan;
use crate::text::json::{JsonError, Limits, json};
use fxgraph_core::changes::When;
use fxgraph_core::kind::Registry;
use fxgraph_core::port::Clock;
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

/// Version of the format.
const VERSION: u32 = 1;
/// Reason to drop a value that replaced another one than the flowgraph file gives.
pub const OTHER_VALUE: &str = "the flowgraph file gives another value than before";
/// Limit of the size of a state, in bytes.
pub const MAX_STATE_BYTES: usize = 256 << 20;

/// Live values of a flowgraph, and the streams to whose timestamps they refer.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// Version of the format.
    #[serde(rename = "fxgraph_state")]
    version: u32,
    /// Name of the flowgraph.
    pub flowgraph: String,
    /// Time at which the values were in force, in UTC.
    pub time: String,
    /// Live streams of the flowgraph.
    pub streams: Vec<StreamPlace>,
    /// The values.
    pub values: Vec<LiveSetting>,
}

/// A value of a live parameter.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct LiveSetting {
    /// Name of the block.
    pub block: String,
    /// Its kind.
    pub kind: String,
    /// Name of the parameter.
    pub parameter: String,
    /// Hash of the value in the file that it replaces; `None` if the file gives none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaces: Option<String>,
    /// The value; null restores the default.
    pub value: Json,
    /// Effective timestamp in ADC samples since sync time, if it was not in force yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<u64>,
    /// The count of its timestamps, if it has any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counting: Option<Counting>,
}

impl LiveSetting {
    /// Name of the block and the parameter: `f[0].pfb.delays`.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{}.{}", self.block, self.parameter)
    }

    /// The value as a request for a live update.
    #[must_use]
    pub fn request(&self) -> Json {
        json!({ &self.block: { &self.parameter: self.value } })
    }
}

/// The way in which timestamps count.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Counting {
    /// Samples per second of the ADC.
    pub adc_sample_rate_hz: f64,
    /// Time of timestamp 0 in UTC; 1970 if it is unknown.
    pub sync_time: String,
}

impl From<&Clock> for Counting {
    fn from(clock: &Clock) -> Self {
        Self {
            adc_sample_rate_hz: clock.adc_sample_rate_hz,
            sync_time: clock.sync_time.to_string(),
        }
    }
}

/// A place of a live stream: the timestamp that arrived at a time of the host's clock.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct StreamPlace {
    /// The count of the timestamp.
    pub counting: Counting,
    /// Timestamp in ADC samples since sync time.
    pub timestamp: u64,
    /// Unix time of its arrival.
    pub unix_seconds: f64,
}

impl StreamPlace {
    /// Whether `later`, of the same count, belongs to the same stream: it is where the stream is then, to `seconds`.
    #[must_use]
    pub fn leads_to(&self, later: &Self, seconds: f64) -> bool {
        let rate = self.counting.adc_sample_rate_hz;
        let apart = (i128::from(later.timestamp) - i128::from(self.timestamp)) as f64 / rate;
        (apart - (later.unix_seconds - self.unix_seconds)).abs() <= seconds
    }
}

/// Reason why a text is not the state of a flowgraph.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoState {
    /// The text is damaged, or was not written by this program.
    #[error("it is not a state that fxgraph has written: {0}")]
    Foreign(String),
    /// Another version of the program has written it.
    #[error("it has version {0} of the format, this program reads version {VERSION}")]
    Version(u64),
    /// It belongs to another flowgraph.
    #[error("it belongs to the flowgraph `{0}`")]
    Flowgraph(String),
}

impl State {
    /// A state of the flowgraph `flowgraph`.
    #[must_use]
    pub fn new(flowgraph: &str, values: Vec<LiveSetting>, streams: Vec<StreamPlace>) -> Self {
        let (flowgraph, time) = (flowgraph.to_owned(), fxgraph_core::Time::now().to_string());
        Self { version: VERSION, flowgraph, time, streams, values }
    }

    /// Reads the state of the flowgraph `flowgraph`, as [`text`](Self::text) writes it.
    ///
    /// # Errors
    /// If the text is no state, or that of another flowgraph.
    pub fn read(text: &str, flowgraph: &str) -> Result<Self, NoState> {
        let foreign = |why: &str| NoState::Foreign(why.to_owned());
        // Its numbers are read to the last digit, so that a restored flowgraph has the same configuration.
        let tree =
            json(0, text, &Limits::of_bytes(MAX_STATE_BYTES)).map_err(|error| match error {
                JsonError::Syntax => foreign("it is not JSON, or its end is missing"),
                JsonError::Problems(problems) => {
                    foreign(problems.first().map_or("", |problem| &problem.message))
                }
            })?;
        let tree = tree.value.to_json();
        match tree.get("fxgraph_state").and_then(Json::as_u64) {
            Some(version) if version == u64::from(VERSION) => {}
            Some(version) => return Err(NoState::Version(version)),
            None => return Err(foreign("`fxgraph_state` is missing")),
        }
        let state: Self =
            serde_json::from_value(tree).map_err(|error| foreign(&error.to_string()))?;
        if state.flowgraph != flowgraph {
            return Err(NoState::Flowgraph(state.flowgraph));
        }
        Ok(state)
    }

    /// The state as JSON.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = serde_json::to_string(self).unwrap_or_default();
        text.push('\n');
        text
    }

    /// Whether the streams are known to which the timestamps of `value` refer.
    fn has_stream_of(&self, value: &LiveSetting) -> bool {
        self.streams.iter().any(|stream| value.counting.as_ref() == Some(&stream.counting))
    }
}

/// A flowgraph with the live values of a state.
pub struct Restored {
    /// The flowgraph.
    pub plan: Plan,
    /// Values that the flowgraph has.
    pub values: Vec<LiveSetting>,
    /// Values whose timestamps refer to a live stream: whether it still counts alike is known when it arrives.
    pub waiting: Vec<LiveSetting>,
    /// Values that the flowgraph does not have, with the reason.
    pub dropped: Vec<(LiveSetting, String)>,
}

impl Plan {
    /// Live values of this flowgraph, which has the values in force, that differ from those of `authored`, the flowgraph
    /// as its author wrote it; and the `scheduled` ones.
    #[must_use]
    pub fn live_settings(
        &self,
        authored: &Self,
        scheduled: &[ScheduledValue],
        registry: &Registry,
    ) -> Vec<LiveSetting> {
        let known = authored.by_name();
        let of_file = |block: &PlannedBlock| {
            let file = &authored.blocks[*known.get(block.name.as_str())?];
            (file.kind == block.kind).then_some(file)
        };
        let mut settings = Vec::new();
        for block in &self.blocks {
            let (Some(file), Some(kind)) = (of_file(block), registry.get(block.kind)) else {
                continue;
            };
            for &name in &kind.live {
                let replaces = file.parameters.hash_of(name);
                if block.parameters.hash_of(name) == replaces {
                    continue;
                }
                let has_timestamps = block.configured.has_timestamps(name);
                let clock = block.ports.clock().filter(|_| has_timestamps);
                settings.push(LiveSetting {
                    block: block.name.clone(),
                    kind: block.kind.to_owned(),
                    parameter: name.to_owned(),
                    replaces,
                    value: block.parameters.get(name).cloned().unwrap_or_default(),
                    at: None,
                    counting: clock.map(Counting::from),
                });
            }
        }
        let own = self.by_name();
        settings.extend(scheduled.iter().filter_map(|scheduled| {
            let block = &self.blocks[*own.get(scheduled.block.as_str())?];
            Some(LiveSetting {
                block: scheduled.block.clone(),
                kind: block.kind.to_owned(),
                parameter: scheduled.parameter.to_owned(),
                replaces: of_file(block)?.parameters.hash_of(scheduled.parameter),
                value: scheduled.value.clone(),
                at: Some(scheduled.timestamp),
                counting: block.ports.clock().map(Counting::from),
            })
        }));
        settings
    }

    /// This flowgraph, as its author wrote it, with the live values of `state`.
    #[must_use]
    pub fn with_state(&self, state: &State, registry: &Registry) -> Restored {
        let mut restored = Restored {
            plan: self.clone(),
            values: Vec::new(),
            waiting: Vec::new(),
            dropped: Vec::new(),
        };
        let (mut now, mut later) = (Vec::new(), Vec::new());
        for value in state.values.iter().filter(|value| !self.has(value)) {
            match self.obstacle(value, registry) {
                Some(why) => restored.dropped.push((value.clone(), why)),
                None if state.has_stream_of(value) => restored.waiting.push(value.clone()),
                None if value.at.is_some() => later.push(value.clone()),
                None => now.push(value.clone()),
            }
        }
        // Values of one block may be valid together only.
        for of_block in now.chunk_by(|a, b| a.block == b.block) {
            if restored.lay_all(of_block, registry).is_err() {
                restored.lay_each(of_block, registry);
            }
        }
        for block in restored.plan.blocks.iter_mut().filter(|block| !block.pending.is_empty()) {
            block.pending.settle(0);
        }
        later.sort_by_key(|value| value.at);
        for value in later {
            if let Err(why) = restored.lay(&value, registry) {
                restored.dropped.push((value, why));
            }
        }
        restored
    }

    /// Whether the file of this flowgraph gives `value` by now.
    fn has(&self, value: &LiveSetting) -> bool {
        let block = self.block(&value.block).map(|index| &self.blocks[index]);
        let given = block.and_then(|block| block.parameters.get(&value.parameter));
        value.at.is_none() && given == Some(&value.value)
    }

    /// Whether this flowgraph, as its author wrote it, gives the value that `value` has replaced.
    #[must_use]
    pub fn has_replaced(&self, value: &LiveSetting) -> bool {
        let block = self.block(&value.block).map(|index| &self.blocks[index]);
        block.is_some_and(|block| block.parameters.hash_of(&value.parameter) == value.replaces)
    }

    /// Reason why this flowgraph cannot have `value`, if there is one.
    fn obstacle(&self, value: &LiveSetting, registry: &Registry) -> Option<String> {
        let LiveSetting { block: name, kind, parameter, .. } = value;
        let Some(block) = self.block(name).map(|index| &self.blocks[index]) else {
            return Some(format!("the flowgraph file has no block `{name}`"));
        };
        if block.kind != *kind {
            return Some(format!("`{name}` is a `{}` in the flowgraph file", block.kind));
        }
        let is_live =
            registry.get(block.kind).is_some_and(|kind| kind.live.contains(&&**parameter));
        if !is_live {
            return Some(format!("`{parameter}` is not a live parameter of `{kind}`"));
        }
        if !self.has_replaced(value) {
            return Some(OTHER_VALUE.to_owned());
        }
        let counting = block.ports.clock().map(Counting::from);
        if value.counting.is_some() && value.counting != counting {
            return Some(
                "its timestamps count at another rate or from another sync time".to_owned(),
            );
        }
        None
    }
}

impl Restored {
    /// Gives the flowgraph all `values` of a block, or none.
    fn lay_all(&mut self, values: &[LiveSetting], registry: &Registry) -> Result<(), String> {
        let Some(first) = values.first() else { return Ok(()) };
        let parameters = values.iter().map(|value| (value.parameter.clone(), value.value.clone()));
        let parameters: serde_json::Map<String, Json> = parameters.collect();
        self.change(&json!({ &first.block: parameters }), 0, registry)?;
        self.values.extend_from_slice(values);
        Ok(())
    }

    /// Gives the flowgraph those of the `values` that are valid, also those that are valid after others.
    fn lay_each(&mut self, values: &[LiveSetting], registry: &Registry) {
        let mut left = values.to_vec();
        loop {
            let count = left.len();
            let lay = |value: LiveSetting| Some((self.lay(&value, registry).err()?, value));
            let rejected: Vec<_> = left.into_iter().filter_map(lay).collect();
            if rejected.len() == count || rejected.is_empty() {
                self.dropped.extend(rejected.into_iter().map(|(why, value)| (value, why)));
                return;
            }
            left = rejected.into_iter().map(|(_, value)| value).collect();
        }
    }

    fn lay(&mut self, value: &LiveSetting, registry: &Registry) -> Result<(), String> {
        self.change(&value.request(), value.at.unwrap_or_default(), registry)?;
        self.values.push(value.clone());
        Ok(())
    }

    fn change(&mut self, request: &Json, at: u64, registry: &Registry) -> Result<(), String> {
        let changed = self.plan.live_update(registry, request, &When::at(at));
        let changed = changed.map_err(|rejected| {
            rejected.problems.into_iter().next().map_or(String::new(), |first| first.message)
        })?;
        self.plan = changed.plan;
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::load_text;
    use crate::tests::kinds::registry;

    fn file(level: &str) -> Plan {
        let text = format!(
            "flowgraph: g\nblocks:\n  s: {{kind: source, parameters: {{level: {level}}}}}\n  \
             t: {{kind: source}}\n  f: {{kind: filter, input: s.pol0, parameters: {{taps: 16}}}}\n  \
             o: {{kind: sink, input: f}}\n  p: {{kind: sink, input: s.pol1}}\n  \
             q: {{kind: sink, input: t.pol0}}\n  r: {{kind: sink, input: t.pol1}}\n"
        );
        load_text("example.yaml", &text, &[], &registry()).result.unwrap()
    }

    fn change(plan: &Plan, at: u64, values: &str) -> Plan {
        plan.with_change(&registry(), values, at).ok().unwrap()
    }

    /// State of `plan` when its blocks are at timestamp 100, through its text.
    fn state(plan: &Plan, authored: &Plan) -> State {
        let scheduled = plan.scheduled(|_| 100);
        let in_force = plan.in_force(&registry(), |_| 100);
        let values = in_force.live_settings(authored, &scheduled, &registry());
        State::read(&State::new("g", values, Vec::new()).text(), "g").unwrap()
    }

    fn dropped(authored: &Plan, state: &State) -> Vec<(String, String)> {
        let dropped = authored.with_state(state, &registry()).dropped;
        dropped.into_iter().map(|(value, why)| (value.name(), why)).collect()
    }

    #[test]
    fn restored_flowgraph_has_values_in_force_and_scheduled_ones() {
        let authored = file("1.0");
        assert!(state(&authored, &authored).values.is_empty());
        let plan = change(&authored, 60, "{s: {level: 0.30000000000000004}, t: {level: 3.0}}");
        let plan = change(&plan, 200, "s: {level: 5.0}");
        let plan = change(&plan, 300, "t: {level: null}");
        let state = state(&plan, &authored);
        assert_eq!(state.values.len(), 4);
        let restored = authored.with_state(&state, &registry());
        assert_eq!((restored.values.len(), restored.dropped.len()), (4, 0));
        // The same configurations as without the restart, to the last digit.
        for (before, after) in [(100, 0), (200, 200), (300, 300)] {
            let ids = (plan.config_id_at(before), restored.plan.config_id_at(after));
            assert_eq!(ids.0, ids.1, "at {before}");
        }
        let scheduled = restored.plan.scheduled(|_| 0);
        assert_eq!(scheduled.iter().map(|value| value.timestamp).collect::<Vec<_>>(), [200, 300]);
        assert_eq!(scheduled[1].value, Json::Null);
        // A further restart.
        let again = restored.plan.in_force(&registry(), |_| 0);
        let values = again.live_settings(&authored, &scheduled, &registry());
        assert_eq!(values, state.values);
    }

    #[test]
    fn value_whose_file_changed_is_dropped_and_others_stay() {
        let authored = file("1.0");
        let plan = change(&authored, 0, "{s: {level: 2.0}, t: {level: 3.0}}");
        let state = state(&plan, &authored);
        let edited = file("4.0");
        let restored = edited.with_state(&state, &registry());
        assert_eq!(restored.plan.blocks[0].parameters["level"], 4.0);
        assert_eq!(restored.plan.blocks[1].parameters["level"], 3.0);
        let why = "the flowgraph file gives another value than before".to_owned();
        assert_eq!(dropped(&edited, &state), [("s.level".to_owned(), why)]);
    }

    #[test]
    fn values_without_block_kind_parameter_or_range_are_dropped_with_the_reason() {
        let authored = file("1.0");
        let valid = state(&change(&authored, 0, "t: {level: 3.0}"), &authored);
        let with = |change: fn(&mut LiveSetting)| {
            let mut state = valid.clone();
            change(&mut state.values[0]);
            let dropped = dropped(&authored, &state);
            assert_eq!(dropped.len(), 1);
            dropped[0].1.clone()
        };
        let why = with(|value| value.block = "gone".to_owned());
        assert_eq!(why, "the flowgraph file has no block `gone`");
        let why = with(|value| value.kind = "filter".to_owned());
        assert_eq!(why, "`t` is a `source` in the flowgraph file");
        let why = with(|value| value.parameter = "channels".to_owned());
        assert_eq!(why, "`channels` is not a live parameter of `source`");
        let why = with(|value| value.value = "loud".into());
        assert!(why.contains("number"), "{why}");
        let why = with(|value| {
            value.counting = Some(Counting {
                adc_sample_rate_hz: 2e9,
                sync_time: "1970-01-01T00:00:00Z".to_owned(),
            });
        });
        assert!(why.starts_with("its timestamps count"), "{why}");
    }

    #[test]
    fn value_with_timestamps_of_a_live_stream_waits_for_the_stream() {
        let authored = file("1.0");
        let plan = change(&authored, 200, "s: {level: 5.0}");
        let mut state = state(&plan, &authored);
        let counting = state.values[0].counting.clone().unwrap();
        let place = |timestamp, unix_seconds| StreamPlace {
            counting: counting.clone(),
            timestamp,
            unix_seconds,
        };
        state.streams = vec![place(100, 1e9)];
        let restored = authored.with_state(&state, &registry());
        assert_eq!((restored.values.len(), restored.waiting.len()), (0, 1));
        assert!(restored.plan.is_settled());
        // An hour later.
        let rate = counting.adc_sample_rate_hz;
        let later = |seconds: f64| place((3600.0 * rate) as u64, 1e9 + seconds);
        assert!(place(0, 1e9).leads_to(&later(3601.0), 2.0));
        assert!(!place(0, 1e9).leads_to(&later(3605.0), 2.0), "the sender counts again");
        assert!(!place(0, 1e9).leads_to(&later(10.0), 2.0));
    }

    #[test]
    fn text_that_is_no_state_is_an_error() {
        let text = State::new("g", Vec::new(), Vec::new()).text();
        assert!(State::read(&text, "g").is_ok());
        let error = |text: &str| State::read(text, "g").unwrap_err().to_string();
        assert!(error(&text[..text.len() / 2]).contains("its end is missing"));
        assert!(error("").contains("not JSON"));
        assert!(error("{\"a\": 1}").contains("`fxgraph_state` is missing"));
        assert!(error("[]").contains("`fxgraph_state` is missing"));
        assert!(error(&text.replace(":1,", ":2,")).contains("has version 2"));
        assert!(error(&text.replace("\"values\"", "\"worth\"")).contains("worth"));
        let other = State::read(&text, "h").unwrap_err().to_string();
        assert_eq!(other, "it belongs to the flowgraph `g`");
    }
}
