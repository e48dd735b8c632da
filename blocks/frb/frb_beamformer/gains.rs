//! The parameter `gains`: one factor, or lists by polarisation and feed, or also by channel.

use super::sizes::Sizes;
use crate::f_engine::postproc::gains::Gain;
use fxgraph::{Rejection, Sideband};
use num_complex::Complex32;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Value, json};
use std::borrow::Cow;

/// Factors of the feeds.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "Nested")]
pub struct Gains {
    /// Lengths of the nested lists, outermost first; empty for one factor for all feeds.
    lengths: Vec<usize>,
    values: Vec<Complex32>,
}

/// The parameter as written in YAML.
#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "expected a number, {re: .., im: ..}, or lists [pol][feed] or [channel][pol][feed] of them"
)]
enum Nested {
    One(Gain),
    Each(Vec<Nested>),
}

impl Nested {
    /// Appends all factors to `values`, and returns the lengths of the nested lists.
    ///
    /// # Errors
    /// If lists of one level have different lengths.
    fn flatten(self, values: &mut Vec<Complex32>) -> Result<Vec<usize>, String> {
        let list = match self {
            Self::One(gain) => {
                values.push(gain.0);
                return Ok(Vec::new());
            }
            Self::Each(list) => list,
        };
        let mut lengths = vec![list.len()];
        for (n, entry) in list.into_iter().enumerate() {
            let inner = entry.flatten(values)?;
            if n == 0 {
                lengths.extend(inner);
            } else if lengths[1..] != inner {
                return Err("`gains` must have lists of equal length at each level".to_owned());
            }
        }
        Ok(lengths)
    }
}

impl TryFrom<Nested> for Gains {
    type Error = String;

    fn try_from(nested: Nested) -> Result<Self, String> {
        let mut values = Vec::new();
        let lengths = nested.flatten(&mut values)?;
        Ok(Self { lengths, values })
    }
}

impl Serialize for Gains {
    /// Serialises the factors in the form that users write.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let number = |gain: &Complex32| json!({"re": gain.re, "im": gain.im});
        let mut values: Vec<Value> = self.values.iter().map(number).collect();
        for len in self.lengths.iter().rev() {
            values = values.chunks(*len).map(|list| json!(list)).collect();
        }
        values.pop().serialize(serializer)
    }
}

impl Default for Gains {
    fn default() -> Self {
        Self { lengths: Vec::new(), values: vec![Complex32::ONE] }
    }
}

impl Gains {
    /// Diagnostic for gains that do not fit a stream of these sizes.
    pub(super) fn rejection(&self, sizes: &Sizes) -> Option<Rejection> {
        let all = [sizes.channels, sizes.pols, sizes.cylinders * sizes.feeds];
        let fits = [&all[3..], &all[1..], &all].contains(&self.lengths.as_slice());
        let message = if !fits {
            let found: Vec<_> = self.lengths.iter().map(|len| format!("[{len}]")).collect();
            format!("`gains` has the shape {}", found.concat())
        } else if let Some(gain) = self.values.iter().find(|gain| !gain.is_finite()) {
            format!("`gains` must be finite, got {gain}")
        } else {
            return None;
        };
        let [channels, pols, feeds] = all;
        let help = format!(
            "give one number, [pol {pols}][feed {feeds}], or [channel {channels}][pol {pols}][feed {feeds}]"
        );
        Some(Rejection::parameter("gains", message).help(help))
    }

    /// Factors of one channel and polarisation: one for all feeds, or one for each feed.
    pub(super) fn of(&self, channel: usize, pol: usize) -> &[Complex32] {
        match self.lengths[..] {
            [_, feeds] => &self.values[pol * feeds..][..feeds],
            [_, pols, feeds] => &self.values[(channel * pols + pol) * feeds..][..feeds],
            _ => &self.values,
        }
    }

    /// Factors of the values of a stream: those on the sky, or their conjugates.
    pub(super) fn of_values(&self, sideband: Sideband) -> Self {
        let mut gains = self.clone();
        if sideband.is_inverted() {
            gains.values.iter_mut().for_each(|gain| *gain = gain.conj());
        }
        gains
    }

    /// Size of the factors in bytes.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(self.values.as_slice())
    }
}

impl JsonSchema for Gains {
    fn schema_name() -> Cow<'static, str> {
        "FeedGains".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"anyOf": [
            {"type": "number"},
            {
                "type": "object",
                "properties": {"re": {"type": "number"}, "im": {"type": "number"}},
                "additionalProperties": false
            },
            {"type": "array"}
        ]})
    }
}
