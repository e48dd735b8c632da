//! Live updates that are taken back: their parameters get the values that they would have without the update, unless a
//! later change has set them.

use crate::plan::flowgraph::Plan;
use fxgraph_core::changes::{Known, When};
use serde_json::{Map, Value as Json};
use std::collections::{BTreeMap, BTreeSet};

/// Values that a live update has replaced, to [take it back](Plan::without).
#[derive(Clone, Debug)]
pub struct Replaced {
    when: When,
    /// Effective timestamp of the update.
    at: u64,
    parameters: Vec<ReplacedParameter>,
}

#[derive(Clone, Debug)]
struct ReplacedParameter {
    block: String,
    name: &'static str,
    /// Value of the update; null restores the default.
    new: Json,
    /// Values without the update, in the order of their effective timestamps; the first one is that in force at the
    /// timestamp of the update.
    values: Vec<(u64, Json)>,
}

impl Replaced {
    /// Effective timestamp of the update, in ADC samples since sync time.
    #[must_use]
    pub fn at(&self) -> u64 {
        self.at
    }

    /// Names of the blocks that the update has changed, once per parameter.
    pub fn blocks(&self) -> impl Iterator<Item = &str> {
        self.parameters.iter().map(|parameter| parameter.block.as_str())
    }

    /// Whether both updates have changed a same parameter.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        let name = |parameter: &ReplacedParameter| (parameter.block.clone(), parameter.name);
        let names: BTreeSet<_> = other.parameters.iter().map(name).collect();
        self.parameters.iter().any(|parameter| names.contains(&name(parameter)))
    }
}

/// Values with which a live update is taken back.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Restored {
    /// Mappings from blocks to parameters, by effective timestamp.
    pub values: BTreeMap<u64, Map<String, Json>>,
    /// Blocks and parameters that a later change has set. Its values stay.
    pub kept: Vec<(String, &'static str)>,
    /// Timestamp until which values of the update were in force, before later changes had set them all.
    pub was_in_force_until: Option<u64>,
}

impl Restored {
    fn set(&mut self, at: u64, parameter: &ReplacedParameter, value: Json) {
        let block = self.values.entry(at).or_default().entry(&parameter.block);
        if let Json::Object(parameters) = block.or_insert_with(|| Map::new().into()) {
            parameters.insert(parameter.name.to_owned(), value);
        }
    }
}

impl Plan {
    /// Values of the plan `before` that the update at `when` has replaced in this plan; `None` if the timestamp of the
    /// update is not decided.
    #[must_use]
    pub fn replaced(&self, before: &Self, when: &When) -> Option<Replaced> {
        let Known::From(at) = when.known() else { return None };
        let mut parameters = Vec::new();
        for (index, block) in self.blocks.iter().enumerate() {
            let old = before.blocks.get(index).filter(|old| old.name == block.name);
            let Some(old) = old else { continue };
            for name in block.pending.names_at(when) {
                let mut values = vec![(at, old.pending.value_at(&old.parameters, at, name))];
                let later = old.pending.values().filter(|(from, of, _)| *of == name && *from > at);
                values.extend(
                    later.map(|(from, _, value)| (from, value.cloned().unwrap_or_default())),
                );
                values.sort_by_key(|(from, _)| *from);
                let new = block.parameters.get(name).cloned().unwrap_or_default();
                parameters.push(ReplacedParameter { block: block.name.clone(), name, new, values });
            }
        }
        Some(Replaced { when: when.clone(), at, parameters })
    }

    /// Values with which the update that has `replaced` others is taken back from its timestamp on, or from timestamp
    /// `newest` on, before which blocks have processed everything.
    ///
    /// A later change of a parameter stays: the update is taken back up to the timestamp of this change. `None` if this
    /// plan does not tell whether a later change has set a value, which is possible after the timestamp of the update
    /// only.
    #[must_use]
    pub fn without(&self, replaced: &Replaced, newest: u64) -> Option<Restored> {
        let Replaced { when, at, parameters } = replaced;
        let start = newest.max(*at);
        let mut restored = Restored::default();
        for parameter in parameters {
            let ReplacedParameter { block, name, new, values } = parameter;
            let found = self.block(block).map(|index| &self.blocks[index]);
            let later = found.and_then(|block| block.pending.values_after(when, name));
            if later.as_ref().is_none_or(|later| !later.is_empty()) {
                restored.kept.push((block.clone(), *name));
            }
            let Some(later) = later else {
                let is_new = found.is_some_and(|block| {
                    block.pending.value_at(&block.parameters, newest, name) == *new
                });
                if is_new && newest >= *at {
                    return None;
                }
                continue;
            };
            let end = later.iter().map(|(from, _)| *from).min().unwrap_or(u64::MAX);
            if end <= start {
                restored.was_in_force_until = restored.was_in_force_until.max(Some(end));
                continue;
            }
            if let Some((_, value)) = values.iter().rev().find(|(from, _)| *from <= start) {
                restored.set(start, parameter, value.clone());
            }
            let between = values.iter().filter(|(from, _)| *from > start && *from < end);
            for (from, value) in between.chain(&later) {
                restored.set(*from, parameter, value.clone());
            }
        }
        Some(restored)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::load_text;
    use crate::tests::kinds::registry;
    use fxgraph_core::changes::Undecided;
    use serde_json::json;

    fn plan() -> Plan {
        let text = "flowgraph: g\nblocks:\n  s: {kind: source, parameters: {level: 1.0}}\n  \
                    t: {kind: source}\n  \
                    f: {kind: filter, input: s.pol0, parameters: {taps: 16}}\n  \
                    o: {kind: sink, input: f}\n  p: {kind: sink, input: s.pol1}\n  \
                    q: {kind: sink, input: t.pol0}\n  r: {kind: sink, input: t.pol1}\n";
        load_text("example.yaml", text, &[], &registry()).result.unwrap()
    }

    fn change(plan: &Plan, at: u64, values: &str) -> Plan {
        plan.with_change(&registry(), values, at).ok().unwrap()
    }

    /// The plan with `values` from timestamp 100 on, and what they replace.
    fn update(before: &Plan, values: &str) -> (Plan, Replaced) {
        let moment = Undecided::new();
        let when = moment.when().clone();
        let after = before.live_update(&registry(), values, &when).ok().unwrap().plan;
        assert!(after.replaced(before, &when).is_none());
        moment.decide(100);
        let replaced = after.replaced(before, &when).unwrap();
        (after, replaced)
    }

    /// The values of `restored`, and the parameters that later changes have set.
    fn shown(restored: Option<Restored>) -> Json {
        let Restored { values, kept, .. } = restored.unwrap();
        json!([values, kept])
    }

    const UPDATE: &str = "{s: {level: 9.0}, t: {level: 9.0}}";

    #[test]
    fn values_without_an_update_are_those_scheduled_before_and_after_it() {
        let before = change(&plan(), 60, "s: {level: 3.0}");
        let before = change(&before, 200, "s: {level: 5.0}");
        let before = change(&before, 150, "t: {level: 4.0}");
        let (after, replaced) = update(&before, UPDATE);
        let values = |newest| shown(after.without(&replaced, newest));
        let all = json!({
            "100": {"s": {"level": 3.0}, "t": {"level": null}},
            "150": {"t": {"level": 4.0}},
            "200": {"s": {"level": 5.0}},
        });
        assert_eq!(values(0), json!([all, []]));
        assert_eq!(values(100), json!([all, []]));
        let late = json!({
            "160": {"s": {"level": 3.0}, "t": {"level": 4.0}},
            "200": {"s": {"level": 5.0}},
        });
        assert_eq!(values(160), json!([late, []]));
        // Further changes of other blocks.
        let other = change(&after, 30, "f: {}");
        assert_eq!(shown(other.without(&replaced, 0)), json!([all, []]));
    }

    #[test]
    fn later_changes_of_a_parameter_stay() {
        let before = change(&plan(), 150, "s: {level: 3.0}");
        let before = change(&before, 200, "s: {level: 5.0}");
        let (after, replaced) = update(&before, UPDATE);
        let kept = json!([["s", "level"]]);
        let other = json!({"100": {"t": {"level": null}}});
        // At its timestamp or before it, and with the value of the update, too.
        for (from, value) in [(0, "2.0"), (50, "9.0"), (100, "2.0")] {
            let changed = change(&after, from, &format!("s: {{level: {value}}}"));
            assert_eq!(shown(changed.without(&replaced, 0)), json!([other, kept]), "{from}");
        }
        // After it: a change replaces the values that were scheduled for later.
        let changed = change(&after, 300, "s: {level: 6.0}");
        let changed = change(&changed, 180, "s: {level: 7.0}");
        let changed = change(&changed, 220, "s: {level: 8.0}");
        let values = json!({
            "100": {"s": {"level": 1.0}, "t": {"level": null}},
            "150": {"s": {"level": 3.0}},
            "180": {"s": {"level": 7.0}},
            "220": {"s": {"level": 8.0}},
        });
        assert_eq!(shown(changed.without(&replaced, 0)), json!([values, kept]));
        // In force already.
        let late = json!({"190": {"t": {"level": null}}});
        let restored = changed.without(&replaced, 190);
        assert_eq!(restored.as_ref().unwrap().was_in_force_until, Some(180));
        assert_eq!(shown(restored), json!([late, kept]));
        assert_eq!(changed.without(&replaced, 170).unwrap().was_in_force_until, None);
    }

    #[test]
    fn updates_of_a_same_parameter_overlap() {
        let (after, both) = update(&plan(), UPDATE);
        let (after, one) = update(&after, "t: {level: 8.0}");
        let (_, other) = update(&after, "s: {level: 8.0}");
        assert!(both.overlaps(&one) && one.overlaps(&both) && both.overlaps(&other));
        assert!(!one.overlaps(&other));
    }

    #[test]
    fn swap_that_changes_the_parameter_stays() {
        let (after, replaced) = update(&plan(), UPDATE);
        let swapped = |change: &str| after.change("s", change, &registry()).result.ok().unwrap();
        let all = json!({"100": {"s": {"level": 1.0}, "t": {"level": null}}});
        let same = swapped("parameters: {note: x}");
        assert_eq!(shown(same.without(&replaced, 0)), json!([all, []]));
        let other = swapped("parameters: {level: 4.0}");
        let values = json!({"100": {"t": {"level": null}}});
        assert_eq!(shown(other.without(&replaced, 0)), json!([values, [["s", "level"]]]));
    }

    #[test]
    fn value_that_may_be_that_of_a_later_change_is_not_restored() {
        let (after, replaced) = update(&plan(), "s: {level: 9.0}");
        let settled = |newest| {
            let mut plan = after.clone();
            plan.blocks.iter_mut().for_each(|block| block.pending.settle(newest));
            plan
        };
        assert!(settled(100).without(&replaced, 100).is_none());
        assert_eq!(shown(settled(99).without(&replaced, 99))[1], json!([]));
        let changed = change(&settled(100), 0, "s: {level: 2.0}");
        assert_eq!(shown(changed.without(&replaced, 100)), json!([{}, [["s", "level"]]]));
        // A flowgraph that was started from its file.
        assert_eq!(shown(plan().without(&replaced, 0)), json!([{}, [["s", "level"]]]));
    }
}
