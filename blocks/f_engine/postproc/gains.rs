//! The parameter `gains`: one gain, one per polarisation, or one per polarisation and channel.

use crate::common::spectra::Shape;
use fxgraph_dsp::rotate::ChannelGains;
use num_complex::Complex32;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::{Serialize, Serializer};
use std::borrow::Cow;
use std::fmt;

/// Factors for the spectra.
#[derive(Clone, Debug, PartialEq)]
pub enum Gains {
    /// One factor for all polarisations and channels.
    One(Complex32),
    /// One entry for each polarisation.
    PerPol(Vec<PolGains>),
}

/// Factors for the spectra of one polarisation.
#[derive(Clone, Debug, PartialEq)]
pub enum PolGains {
    /// One factor for all channels.
    One(Complex32),
    /// One factor for each channel.
    PerChannel(Vec<Complex32>),
}

/// The parameter as users write it: a number, {re, im}, or a list of them.
#[derive(Serialize)]
#[serde(untagged)]
enum Written {
    Real(f32),
    Complex { re: f32, im: f32 },
    List(Vec<Self>),
}

impl From<Complex32> for Written {
    fn from(Complex32 { re, im }: Complex32) -> Self {
        if im == 0.0 { Self::Real(re) } else { Self::Complex { re, im } }
    }
}

impl Serialize for Gains {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let of_pol = |pol: &PolGains| match pol {
            PolGains::One(gain) => Written::from(*gain),
            PolGains::PerChannel(gains) => {
                Written::List(gains.iter().copied().map(Written::from).collect())
            }
        };
        match self {
            Self::One(gain) => Written::from(*gain),
            Self::PerPol(pols) => Written::List(pols.iter().map(of_pol).collect()),
        }
        .serialize(serializer)
    }
}

impl Default for Gains {
    fn default() -> Self {
        Self::One(Complex32::new(1.0, 0.0))
    }
}

impl Gains {
    /// Factors of the values of the channels, for each polarisation of spectra with this shape. The gains are on the
    /// sky, so that those of an inverted spectrum are conjugated.
    #[must_use]
    pub(crate) fn of_shape(&self, shape: &Shape) -> Vec<ChannelGains> {
        let of_values =
            |gain: Complex32| if shape.sideband.is_inverted() { gain.conj() } else { gain };
        match self {
            Self::One(gain) => {
                (0..shape.pols).map(|_| ChannelGains::same(of_values(*gain))).collect()
            }
            Self::PerPol(gains) => gains
                .iter()
                .map(|gains| match gains {
                    PolGains::One(gain) => ChannelGains::same(of_values(*gain)),
                    PolGains::PerChannel(gains) => {
                        ChannelGains::each(gains.iter().copied().map(of_values).collect())
                    }
                })
                .collect(),
        }
    }

    /// All factors of the parameter.
    #[must_use]
    pub fn values(&self) -> Vec<Complex32> {
        match self {
            Self::One(gain) => vec![*gain],
            Self::PerPol(pols) => pols
                .iter()
                .flat_map(|pol| match pol {
                    PolGains::One(gain) => std::slice::from_ref(gain),
                    PolGains::PerChannel(gains) => gains.as_slice(),
                })
                .copied()
                .collect(),
        }
    }
}

/// A number, or `{re: 1.0, im: 0.5}`.
pub(crate) struct Gain(pub(crate) Complex32);

/// Reads the map `{re: .., im: ..}`; a missing key is 0.
fn from_map<'de, A: MapAccess<'de>>(mut map: A) -> Result<Complex32, A::Error> {
    let mut gain = Complex32::default();
    while let Some(key) = map.next_key::<String>()? {
        match key.as_str() {
            "re" => gain.re = map.next_value()?,
            "im" => gain.im = map.next_value()?,
            other => return Err(de::Error::unknown_field(other, &["re", "im"])),
        }
    }
    Ok(gain)
}

macro_rules! visit_gain {
    ($wrap:expr) => {
        fn visit_f64<E: de::Error>(self, value: f64) -> Result<Self::Value, E> {
            Ok($wrap(Complex32::new(value as f32, 0.0)))
        }
        fn visit_i64<E: de::Error>(self, value: i64) -> Result<Self::Value, E> {
            self.visit_f64(value as f64)
        }
        fn visit_u64<E: de::Error>(self, value: u64) -> Result<Self::Value, E> {
            self.visit_f64(value as f64)
        }
        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
            from_map(map).map($wrap)
        }
    };
}

fn elements<'de, T: Deserialize<'de>, A: SeqAccess<'de>>(mut seq: A) -> Result<Vec<T>, A::Error> {
    let mut elements = Vec::new();
    while let Some(element) = seq.next_element()? {
        elements.push(element);
    }
    Ok(elements)
}

impl<'de> Deserialize<'de> for Gain {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visit;
        impl<'de> Visitor<'de> for Visit {
            type Value = Gain;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number or {re: .., im: ..}")
            }
            visit_gain!(Gain);
        }
        deserializer.deserialize_any(Visit)
    }
}

impl<'de> Deserialize<'de> for PolGains {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visit;
        impl<'de> Visitor<'de> for Visit {
            type Value = PolGains;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number, {re: .., im: ..}, or a list of them, one per channel")
            }
            visit_gain!(PolGains::One);
            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Self::Value, A::Error> {
                let gains: Vec<Gain> = elements(seq)?;
                Ok(PolGains::PerChannel(gains.into_iter().map(|gain| gain.0).collect()))
            }
        }
        deserializer.deserialize_any(Visit)
    }
}

impl<'de> Deserialize<'de> for Gains {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visit;
        impl<'de> Visitor<'de> for Visit {
            type Value = Gains;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number, {re: .., im: ..}, or a list with one entry per polarisation")
            }
            visit_gain!(Gains::One);
            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Self::Value, A::Error> {
                elements(seq).map(Gains::PerPol)
            }
        }
        deserializer.deserialize_any(Visit)
    }
}

impl JsonSchema for Gains {
    fn schema_name() -> Cow<'static, str> {
        "Gains".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let gain = serde_json::json!([
            {"type": "number"},
            {
                "type": "object",
                "properties": {"re": {"type": "number"}, "im": {"type": "number"}},
                "additionalProperties": false
            }
        ]);
        let per_channel = serde_json::json!({"type": "array", "items": {"anyOf": gain}});
        let per_pol = serde_json::json!({
            "type": "array",
            "items": {"anyOf": [gain[0], gain[1], per_channel]}
        });
        json_schema!({"anyOf": [gain[0], gain[1], per_pol]})
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn gains_deserialise_from_number_map_and_lists() {
        let read = |text: &str| serde_json::from_str::<Gains>(text).unwrap();
        let real = |re: f32| Complex32::new(re, 0.0);
        assert_eq!(read("2"), Gains::One(real(2.0)));
        assert_eq!(read("{\"im\": 1.5}"), Gains::One(Complex32::new(0.0, 1.5)));
        assert_eq!(
            read("[0.5, [1, {\"re\": 2, \"im\": -1}]]"),
            Gains::PerPol(vec![
                PolGains::One(real(0.5)),
                PolGains::PerChannel(vec![real(1.0), Complex32::new(2.0, -1.0)]),
            ])
        );
    }

    #[test]
    fn gains_reject_text_and_unknown_keys() {
        let error = serde_json::from_str::<Gains>("[\"loud\"]").unwrap_err().to_string();
        assert!(error.contains("a number, {re: .., im: ..}"), "{error}");
        assert!(serde_json::from_str::<Gains>("{\"real\": 1}").is_err());
    }
}
