//! Channels that are always flagged.

use fxgraph::Rejection;
use schemars::JsonSchema;
use serde::de::{Deserializer, Error, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use std::fmt;

/// One channel, or a range of channels that includes the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum ChannelRange {
    /// Index of a channel.
    One(usize),
    /// First and last channel.
    Range([usize; 2]),
}

impl ChannelRange {
    /// Returns the first and the last channel.
    const fn ends(self) -> [usize; 2] {
        match self {
            Self::One(channel) => [channel, channel],
            Self::Range(ends) => ends,
        }
    }
}

impl<'de> Deserialize<'de> for ChannelRange {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = ChannelRange;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a channel, or a range `[first, last]`")
            }
            fn visit_u64<E: Error>(self, channel: u64) -> Result<ChannelRange, E> {
                usize::try_from(channel).map(ChannelRange::One).map_err(Error::custom)
            }
            fn visit_i64<E: Error>(self, channel: i64) -> Result<ChannelRange, E> {
                usize::try_from(channel).map(ChannelRange::One).map_err(|_| {
                    Error::custom(format!("a channel must be at least 0, got {channel}"))
                })
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<ChannelRange, A::Error> {
                let mut next =
                    |n| seq.next_element()?.ok_or_else(|| Error::invalid_length(n, &self));
                let ends = [next(0)?, next(1)?];
                match seq.next_element::<usize>()? {
                    None => Ok(ChannelRange::Range(ends)),
                    Some(_) => Err(Error::invalid_length(3, &self)),
                }
            }
        }
        deserializer.deserialize_any(Either)
    }
}

/// Returns whether each of `channels` is in one of `ranges`.
pub(super) fn mask(ranges: &[ChannelRange], channels: usize) -> Vec<bool> {
    let mut mask = vec![false; channels];
    for [first, last] in ranges.iter().map(|range| range.ends()) {
        let end = last.saturating_add(1).min(channels);
        mask[first.min(end)..end].fill(true);
    }
    mask
}

/// Returns a diagnostic unless all of `ranges` are within `channels`.
pub(super) fn rejection(ranges: &[ChannelRange], channels: usize) -> Option<Rejection> {
    let is_wrong = |[first, last]: [usize; 2]| first > last || last >= channels;
    let [first, last] = ranges.iter().map(|range| range.ends()).find(|ends| is_wrong(*ends))?;
    let message = if first > last {
        format!("a range of `channels_always_flagged` must be ordered, got [{first}, {last}]")
    } else {
        format!(
            "`channels_always_flagged` must be at most {}, the last channel of the input, got {last}",
            channels.saturating_sub(1)
        )
    };
    let help = "give indices of the input's channel axis or ranges, for example `[0, [100, 120]]`";
    Some(Rejection::parameter("channels_always_flagged", message).help(help))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mask_has_single_channels_and_whole_ranges() {
        let mask = mask(&[ChannelRange::One(0), ChannelRange::Range([2, 3])], 5);
        assert_eq!(mask, [true, false, true, true, false]);
    }

    #[test]
    fn mask_ignores_channels_outside() {
        for range in [ChannelRange::One(usize::MAX), ChannelRange::Range([9, 2])] {
            assert_eq!(mask(&[range], 3), [false; 3]);
        }
        assert_eq!(mask(&[ChannelRange::Range([1, usize::MAX])], 3), [false, true, true]);
    }

    #[test]
    fn rejection_names_the_wrong_channel() {
        let text = |range| rejection(&[ChannelRange::One(1), range], 4).map(|found| found.message);
        assert_eq!(text(ChannelRange::Range([0, 3])), None);
        assert!(text(ChannelRange::One(4)).is_some_and(|text| text.ends_with("got 4")));
        assert!(text(ChannelRange::Range([3, 2])).is_some_and(|text| text.contains("[3, 2]")));
    }

    #[test]
    fn channels_are_read_from_numbers_and_pairs_only() {
        let read = |text: &str| serde_json::from_str::<ChannelRange>(text);
        assert_eq!(read("7").ok(), Some(ChannelRange::One(7)));
        assert_eq!(read("[7, 9]").ok(), Some(ChannelRange::Range([7, 9])));
        for wrong in ["-1", "1.5", "\"7\"", "[7]", "[1, 2, 3]", "[-1, 2]", "{}"] {
            let error = read(wrong).err().map(|error| error.to_string());
            assert!(error.is_some(), "{wrong}");
        }
    }
}
