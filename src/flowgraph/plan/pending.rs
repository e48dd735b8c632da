//! Scheduled values of live parameters, kept for the next block in the slot: a block that is restarted after a fault,
//! or swapped in, applies them at the same timestamps as the block before it.

use crate::plan::block::PlannedBlock;
use crate::plan::block_parameters::{Parameters, Printed};
use crate::plan::configure::configure;
use fxgraph_core::access::FileAccess;
use fxgraph_core::block::Block;
use fxgraph_core::changes::{Known, MAX_QUEUED, When};
use fxgraph_core::diagnostic::Span;
use fxgraph_core::error::BlockError;
use fxgraph_core::kind::{AnyConfigured, Env, KindEntry};
use fxgraph_core::port::PortType;
use fxgraph_core::tree::Node;
use serde_json::Value as Json;
use std::sync::Arc;

/// Parameters of a block, as given and as read.
#[derive(Clone)]
pub(crate) struct Version {
    pub parameters: Parameters,
    pub configured: Arc<dyn AnyConfigured>,
}

impl Version {
    /// Reads `parameters` for the slot of `block`; `None` if the block would then have other outputs.
    pub(crate) fn read(
        kind: &KindEntry,
        block: &PlannedBlock,
        parameters: Parameters,
        access: &FileAccess,
    ) -> Option<Self> {
        let nowhere = Span::default();
        let node = Node::of_json(&parameters, nowhere);
        let read = configure(kind, block.implementation, &node, nowhere, access).ok()?;
        let configured = read.connect(&block.ports.inputs).ok()?;
        let outputs = &configured.ports().outputs;
        let of_block = &block.ports.outputs;
        let fits = outputs.len() == of_block.len()
            && outputs.iter().zip(of_block).all(|(port, of_block)| of_block.is_read_like(port));
        fits.then_some(Self { parameters, configured })
    }
}

/// Scheduled values of the live parameters of a block. The parameters of the planned block are those after all
/// scheduled values have taken effect.
#[derive(Clone, Default)]
pub struct Pending {
    /// Parameters before the first scheduled value.
    base: Option<Version>,
    /// Scheduled values, in the order of their requests.
    changes: Vec<PendingChange>,
}

/// Values that take effect at one timestamp.
#[derive(Clone)]
struct PendingChange {
    when: When,
    /// Live parameters that change.
    names: Vec<&'static str>,
    /// All parameters, with the new values.
    version: Version,
}

impl PendingChange {
    /// Effective timestamp, once it is decided.
    fn from(&self) -> Option<u64> {
        match self.when.known() {
            Known::From(from) => Some(from),
            Known::Open | Known::Never => None,
        }
    }

    /// Whether one of the `later` requests for the parameter `name` takes effect at this timestamp or before it, and so
    /// replaces the value.
    fn is_replaced(&self, name: &'static str, later: &[Self]) -> bool {
        let Some(from) = self.from() else { return false };
        later.iter().any(|later| {
            later.names.contains(&name) && later.from().is_some_and(|earlier| earlier <= from)
        })
    }
}

impl Pending {
    /// Whether no value is scheduled.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Whether `more` values can be scheduled.
    pub(crate) fn has_room(&self, more: usize) -> bool {
        let waiting: usize = self.changes.iter().map(|change| change.names.len()).sum();
        waiting + more <= MAX_QUEUED
    }

    /// Length of the scheduled parameters as JSON text.
    pub(crate) fn bytes(&self) -> usize {
        self.changes.iter().map(|change| change.version.parameters.bytes()).sum()
    }

    /// Returns these and, for the parameters `names` of `block`, the values of `version` from `when` on.
    pub(crate) fn with(
        &self,
        block: &PlannedBlock,
        when: &When,
        names: Vec<&'static str>,
        version: Version,
    ) -> Self {
        let mut pending = self.clone();
        if !names.is_empty() {
            pending.base.get_or_insert_with(|| Version {
                parameters: block.parameters.clone(),
                configured: Arc::clone(&block.configured),
            });
            pending.changes.push(PendingChange { when: when.clone(), names, version });
        }
        pending
    }

    /// Connects the scheduled parameters to other `inputs` of the block. Parameters that do not fit the new inputs are
    /// left unchanged.
    pub(crate) fn connect(&mut self, inputs: &[PortType]) {
        let changing = self.changes.iter_mut().map(|change| &mut change.version);
        for version in self.base.iter_mut().chain(changing) {
            if let Ok(configured) = version.configured.connect(inputs) {
                version.configured = configured;
            }
        }
    }

    /// Changes in force at timestamp `at`: of two changes of a value, the later one replaced the other or followed it. A
    /// change whose effective timestamp is not decided yet counts as in force.
    fn in_force(&self, at: u64) -> impl Iterator<Item = &PendingChange> {
        self.changes.iter().filter(move |change| match change.when.known() {
            Known::From(from) => from <= at,
            Known::Open => true,
            Known::Never => false,
        })
    }

    /// Parameters of a block whose parameters after all scheduled values are `newest`, with the values in force at
    /// timestamp `at`.
    pub(crate) fn parameters_at(&self, newest: &Parameters, at: u64) -> Parameters {
        let Some(base) = &self.base else { return newest.clone() };
        let mut values = Json::clone(&base.parameters);
        let mut changed = Vec::new();
        for change in self.in_force(at) {
            lay(&mut values, &change.names, &change.version);
            changed.extend(&change.names);
        }
        base.parameters.with(values, &changed)
    }

    /// The value that `name` has among [`parameters_at`](Self::parameters_at).
    pub(crate) fn value_at(&self, newest: &Parameters, at: u64, name: &str) -> Json {
        let newest_change = self.in_force(at).filter(|change| change.names.contains(&name)).last();
        let version = newest_change.map(|change| &change.version).or(self.base.as_ref());
        let parameters = version.map_or(newest, |version| &version.parameters);
        parameters.get(name).cloned().unwrap_or_default()
    }

    /// Texts of the values in force at timestamp `at`; `None` if no value is scheduled.
    pub(crate) fn printed_at(&self, at: u64) -> Option<Vec<Printed>> {
        let base = self.base.as_ref()?;
        let changes = self.in_force(at).map(|change| (&*change.names, &change.version.parameters));
        Some(base.parameters.printed_with(changes))
    }

    /// Values with a decided effective timestamp that no later request has replaced: timestamp, parameter and value. The
    /// value is `None` for a parameter that goes back to its default.
    pub(crate) fn values(&self) -> impl Iterator<Item = (u64, &'static str, Option<&Json>)> {
        self.changes.iter().enumerate().flat_map(|(index, change)| {
            let later = &self.changes[index + 1..];
            let kept = change.names.iter().filter(|name| !change.is_replaced(name, later));
            let value = |name: &&'static str| {
                Some((change.from()?, *name, change.version.parameters.get(*name)))
            };
            kept.filter_map(value).collect::<Vec<_>>()
        })
    }

    /// Parameters that change at the timestamp `when`, compared by identity.
    pub(crate) fn names_at(&self, when: &When) -> impl Iterator<Item = &'static str> {
        let of_update = self.changes.iter().filter(|change| change.when.is(when));
        of_update.flat_map(|change| change.names.iter().copied())
    }

    /// Values of the parameter `name` that requests after the one at `when` have scheduled for later timestamps. `None` if
    /// the value of the request at `when` is not scheduled or was replaced.
    pub(crate) fn values_after(&self, when: &When, name: &'static str) -> Option<Vec<(u64, Json)>> {
        let has_name = |change: &PendingChange| change.names.contains(&name);
        let is_it = |change: &PendingChange| change.when.is(when) && has_name(change);
        let index = self.changes.iter().position(is_it)?;
        let later = &self.changes[index + 1..];
        if self.changes[index].is_replaced(name, later) {
            return None;
        }
        let kept = later.iter().enumerate().filter(|(index, change)| {
            has_name(change) && !change.is_replaced(name, &later[index + 1..])
        });
        let value = |change: &PendingChange| change.version.parameters.get(name).cloned();
        let values = kept
            .filter_map(|(_, change)| Some((change.from()?, value(change).unwrap_or_default())));
        Some(values.collect())
    }

    /// Removes scheduled values that have taken effect, when the block has processed everything before timestamp
    /// `newest`.
    pub fn settle(&mut self, newest: u64) {
        self.changes.retain(|change| change.when.known() != Known::Never);
        for change in &mut self.changes {
            if change.from().is_some_and(|from| from <= newest) {
                // A block that starts at an earlier timestamp uses the value from the start.
                change.when = When::at(0);
            }
        }
        for index in 0..self.changes.len() {
            let (known, later) = self.changes.split_at_mut(index + 1);
            let change = &mut known[index];
            let mut names = std::mem::take(&mut change.names);
            names.retain(|name| !change.is_replaced(name, later));
            change.names = names;
        }
        self.changes.retain(|change| !change.names.is_empty());
        if self.changes.iter().all(|change| change.from() == Some(0)) {
            *self = Self::default();
        }
    }

    /// Scheduled values for `new`, the candidate for the block `old` of the same `kind`: those of parameters that the
    /// candidate does not change. `None` if values do not fit the candidate.
    pub(crate) fn of_version(
        &self,
        old: &PlannedBlock,
        new: &PlannedBlock,
        kind: &KindEntry,
        access: &FileAccess,
    ) -> Option<Self> {
        let Some(base) = &self.base else { return Some(Self::default()) };
        let is_kept = |name: &&'static str| new.parameters.get(name) == old.parameters.get(name);
        let with = |names: &[&'static str], version: &Version| {
            let mut parameters = Json::clone(&new.parameters);
            lay(&mut parameters, names, version);
            Version::read(kind, new, new.parameters.with(parameters, names), access)
        };
        let mut pending = Self::default();
        let mut changing = Vec::new();
        for change in &self.changes {
            let names: Vec<_> = change.names.iter().copied().filter(is_kept).collect();
            if names.is_empty() {
                continue;
            }
            changing.extend(&names);
            let version = with(&names, &change.version)?;
            pending.changes.push(PendingChange { when: change.when.clone(), names, version });
        }
        if !changing.is_empty() {
            pending.base = Some(with(&changing, base)?);
        }
        Some(pending)
    }

    /// Builds the block with the parameters `newest` and schedules the values that have not taken effect. Earlier
    /// blocks in the slot have started work on everything before timestamp `begun`.
    pub(crate) fn build(
        &self,
        newest: &dyn AnyConfigured,
        env: &Env,
        begun: u64,
    ) -> Result<Box<dyn Block>, BlockError> {
        let base = self.base.as_ref().map_or(newest, |base| base.configured.as_ref());
        let mut block = base.build(env)?;
        for PendingChange { when, names, version, .. } in &self.changes {
            let mut values = Vec::with_capacity(names.len());
            for name in names {
                values.push((*name, version.configured.live_value(name, base)?));
            }
            block.update(when.change(values).behind(begun))?;
        }
        Ok(block)
    }
}

/// Gives the parameters `names` the values that they have in `version`.
fn lay(parameters: &mut Json, names: &[&'static str], version: &Version) {
    let Some(all) = parameters.as_object_mut() else { return };
    for &name in names {
        match version.parameters.get(name) {
            Some(value) => all.insert(name.to_owned(), value.clone()),
            None => all.shift_remove(name),
        };
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::load_text;
    use crate::plan::bands::seal;
    use crate::tests::kinds::registry;
    use fxgraph_core::port::Band;

    #[test]
    fn scheduled_parameters_get_the_new_band_of_their_input() {
        let text = "flowgraph: g\nblocks:\n  s: {kind: source}\n  \
                    f: {kind: filter, input: s.pol0, parameters: {taps: 16}}\n  \
                    o: {kind: sink, input: f}\n  p: {kind: sink, input: s.pol1}\n";
        let mut plan = load_text("example.yaml", text, &[], &registry()).result.unwrap();
        let at = plan.block("f").unwrap();
        let block = &plan.blocks[at];
        let version = Version {
            parameters: block.parameters.clone(),
            configured: Arc::clone(&block.configured),
        };
        let pending = block.pending.with(block, &When::at(100), vec!["taps"], version);
        plan.blocks[at].pending = pending;
        let band = Band::signed(16, 0, 1e9, 1e8);
        let source = plan.block("s").unwrap();
        plan.blocks[source].ports.outputs[0].band = Some(band);
        seal(&mut plan);
        let Pending { base, changes } = &plan.blocks[at].pending;
        let versions = base.iter().chain(changes.iter().map(|change| &change.version));
        let bands: Vec<_> =
            versions.map(|version| version.configured.ports().inputs[0].band).collect();
        assert_eq!(bands, [Some(band); 2]);
    }
}
