//! Values of live parameters in force at a timestamp, while others are scheduled.

use crate::plan::bands::{seal, take_labels};
use crate::plan::block::PlannedBlock;
use crate::plan::flowgraph::{Plan, config_id};
use crate::plan::pending::{Pending, Version};
use fxgraph_core::changes::ConfigIds;
use fxgraph_core::kind::Registry;
use serde_json::Value as Json;

/// A value of a live parameter that takes effect later.
#[derive(Clone, Debug, PartialEq)]
pub struct ScheduledValue {
    /// Name of the block.
    pub block: String,
    /// Name of the parameter.
    pub parameter: &'static str,
    /// The value; null restores the default.
    pub value: Json,
    /// Effective timestamp in ADC samples since sync time.
    pub timestamp: u64,
}

impl Plan {
    /// Whether no value of a live parameter is scheduled.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.blocks.iter().all(|block| block.pending.is_empty())
    }

    /// Effective timestamps of live updates, in ADC samples since sync time, with their blocks. Those of values that
    /// later updates have replaced are left out.
    pub fn effective_timestamps(&self) -> impl Iterator<Item = (&PlannedBlock, u64)> {
        self.blocks
            .iter()
            .flat_map(|block| block.pending.values().map(move |(from, ..)| (block, from)))
    }

    /// This plan with the values in force when each block is at its timestamp `at`, in ADC samples since sync time.
    /// Values that take effect later are left out.
    #[must_use]
    pub fn in_force(&self, registry: &Registry, at: impl Fn(&PlannedBlock) -> u64) -> Self {
        let mut plan = self.clone();
        for block in plan.blocks.iter_mut().filter(|block| !block.pending.is_empty()) {
            let parameters = block.pending.parameters_at(&block.parameters, at(block));
            let kind = registry.get(block.kind);
            // Values that are valid one by one may not fit each other. Then the ports stay those of all values.
            let version =
                kind.and_then(|kind| Version::read(kind, block, parameters.clone(), &self.access));
            if let Some(version) = version {
                take_labels(&mut block.ports.outputs, &version.configured.ports().outputs);
                block.configured = version.configured;
            }
            block.parameters = parameters;
            block.pending = Pending::default();
        }
        seal(&mut plan);
        plan
    }

    /// `config_id` of frames from the timestamp `from` on, in ADC samples since sync time: that of the values in force
    /// there, and a further one for each later timestamp at which scheduled values take effect. Values without a
    /// decided timestamp count as in force. The texts of these configurations are added to
    /// [`texts`](Self::texts).
    #[must_use]
    pub fn config_ids(&self, from: u64) -> ConfigIds {
        let mut timestamps: Vec<u64> = self.effective_timestamps().map(|(_, at)| at).collect();
        timestamps.retain(|timestamp| *timestamp > from);
        timestamps.sort_unstable();
        timestamps.dedup();
        // The earliest configuration is added last, because the oldest texts are dropped first.
        let later = timestamps.iter().rev().map(|at| (*at, self.config_id_at(*at)));
        let mut later: Vec<(u64, u64)> = later.collect();
        later.reverse();
        ConfigIds::new(self.config_id_at(from), later)
    }

    /// `config_id` of the values in force at timestamp `at`, in ADC samples since sync time. Their text is added to
    /// [`texts`](Self::texts).
    #[must_use]
    pub fn config_id_at(&self, at: u64) -> u64 {
        let text = if self.is_settled() { self.text.clone() } else { self.text_at(at) };
        let config_id = config_id(&text.config_hash);
        self.texts.add(config_id, text);
        config_id
    }

    /// Values of live parameters that take effect after each block's timestamp `at`, in ADC samples since sync time, by
    /// effective timestamp.
    #[must_use]
    pub fn scheduled(&self, at: impl Fn(&PlannedBlock) -> u64) -> Vec<ScheduledValue> {
        let of_block = |block: &PlannedBlock| -> Vec<ScheduledValue> {
            let later = block.pending.values().filter(|(from, ..)| *from > at(block));
            let scheduled = later.map(|(timestamp, parameter, value)| ScheduledValue {
                block: block.name.clone(),
                parameter,
                value: value.cloned().unwrap_or_default(),
                timestamp,
            });
            scheduled.collect()
        };
        let mut scheduled: Vec<_> = self.blocks.iter().flat_map(of_block).collect();
        scheduled.sort_by_key(|value| value.timestamp);
        scheduled
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::load_text;
    use crate::tests::kinds::registry;
    use serde_json::json;

    fn plan(parameters: &str) -> Plan {
        let text = format!(
            "flowgraph: g\nblocks:\n  s: {{kind: source, parameters: {{{parameters}}}}}\n  \
             o: {{kind: sink, input: s.pol0}}\n  p: {{kind: sink, input: s.pol1}}\n"
        );
        load_text("example.yaml", &text, &[], &registry()).result.unwrap()
    }

    #[test]
    fn config_ids_are_those_of_files_with_the_values_in_force() {
        let scheduled = |plan: &Plan, at, value: &str| {
            plan.with_change(&registry(), &format!("s: {{level: {value}}}"), at).ok().unwrap()
        };
        let plans = ["level: 1.0", "level: 2", "", "level: 3"].map(plan);
        let [first, second, default, third] = [0, 1, 2, 3].map(|n| plans[n].config_id());
        // The value for 250 is replaced.
        let changed = scheduled(&scheduled(&plans[0], 250, "9"), 100, "2");
        let changed = scheduled(&scheduled(&changed, 200, "null"), 300, "3");
        let ids = [0, 99, 100, 199, 200, 299, 300].map(|at| changed.config_ids(0).at(at));
        assert_eq!(ids, [first, first, second, second, default, default, third]);
        assert_eq!(changed.config_ids(150).at(150), second);
        assert_eq!(changed.config_id(), third);
        let text = changed.texts.get(default).unwrap();
        assert_eq!(text.yaml(), plans[2].resolved_yaml());
        let in_force = changed.in_force(&registry(), |_| 250);
        assert_eq!((in_force.config_id(), in_force.is_settled()), (default, true));
        let values = changed.scheduled(|_| 100);
        let values = values.into_iter().map(|value| (value.value, value.timestamp));
        assert_eq!(values.collect::<Vec<_>>(), [(json!(null), 200), (json!(3), 300)]);
        let timestamps: Vec<u64> = changed.effective_timestamps().map(|(_, at)| at).collect();
        assert_eq!(timestamps, [100, 200, 300]);
    }
}
