//! Annotations of a frame as JSON: `{"name":[1.0,null,"inf"]}`; null is NaN.

use super::MAX_ANNOTATION_BYTES;
use crate::common::annotations::name;
use fxgraph::frame::Annotations;
use std::io::Write;

/// Largest number of tables.
const MAX_TABLES: usize = 64;
/// Largest number of values of all tables: [`write`] writes at least 4 bytes for each.
const MAX_VALUES: usize = MAX_ANNOTATION_BYTES / 4;
/// Text up to which the memory of tables is kept for the next frame.
const KEPT_BYTES: usize = 4 << 10;

/// Reason why a text is not that of annotations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// Appends the text of `annotations` to `to`; numbers are written so that they are read exactly.
pub fn write(annotations: &Annotations, to: &mut Vec<u8>) {
    to.push(b'{');
    for (number, (name, values)) in annotations.iter().enumerate() {
        if number > 0 {
            to.push(b',');
        }
        // Writing to memory cannot fail; names of annotations are identifiers.
        let _ = write!(to, "\"{name}\":[");
        for (index, value) in values.iter().enumerate() {
            if index > 0 {
                to.push(b',');
            }
            let _ = match value {
                value if value.is_nan() => to.write_all(b"null"),
                value if value.is_finite() => write!(to, "{value:?}"),
                value if *value > 0.0 => to.write_all(b"\"inf\""),
                _ => to.write_all(b"\"-inf\""),
            };
        }
        to.push(b']');
    }
    to.push(b'}');
}

/// Reads annotations from `text`, without memory beyond that of the tables; returns the number of tables whose name is
/// not accepted. After an error some tables may have been set. A text of more than [`MAX_ANNOTATION_BYTES`] is malformed.
pub fn read(text: &[u8], annotations: &mut Annotations) -> Result<u64, Malformed> {
    if text.len() > MAX_ANNOTATION_BYTES {
        return Err(Malformed);
    }
    if text.len() > KEPT_BYTES {
        // Tables of other names keep their memory: those of a sender that changes the names would add up.
        *annotations = Annotations::default();
    }
    let mut rest = Text(text);
    let (mut unknown, mut tables, mut left) = (0, 0, MAX_VALUES);
    rest.expect(b'{')?;
    if rest.skip(b'}') {
        return rest.end(unknown);
    }
    loop {
        let key = rest.quoted()?;
        rest.expect(b':')?;
        rest.expect(b'[')?;
        let values = rest.until(b']')?;
        tables += 1;
        if tables > MAX_TABLES {
            return Err(Malformed);
        }
        let len = match values.trim_ascii() {
            [] => 0,
            values => values.split(|byte| *byte == b',').count(),
        };
        // Between two commas is at least one byte; checked before there is memory for the values.
        if values.len() + 1 < 2 * len {
            return Err(Malformed);
        }
        left = left.checked_sub(len).ok_or(Malformed)?;
        match name(key) {
            None => unknown += 1,
            Some(name) => {
                let table = annotations.reset(name, len);
                for (value, text) in table.iter_mut().zip(values.split(|byte| *byte == b',')) {
                    *value = number(text)?;
                }
            }
        }
        if !rest.skip(b',') {
            break;
        }
    }
    rest.expect(b'}')?;
    rest.end(unknown)
}

fn number(text: &[u8]) -> Result<f64, Malformed> {
    let text = str::from_utf8(text.trim_ascii()).map_err(|_| Malformed)?;
    match text {
        "null" => Ok(f64::NAN),
        "\"inf\"" => Ok(f64::INFINITY),
        "\"-inf\"" => Ok(f64::NEG_INFINITY),
        _ if text.starts_with(|c: char| c == '-' || c.is_ascii_digit()) => {
            let value: f64 = text.parse().map_err(|_| Malformed)?;
            if value.is_finite() { Ok(value) } else { Err(Malformed) }
        }
        _ => Err(Malformed),
    }
}

/// Text that has not been read yet.
struct Text<'a>(&'a [u8]);

impl<'a> Text<'a> {
    /// Skips white space, and `byte` if it follows; returns whether it does.
    fn skip(&mut self, byte: u8) -> bool {
        self.0 = self.0.trim_ascii_start();
        match self.0.split_first() {
            Some((first, rest)) if *first == byte => {
                self.0 = rest;
                true
            }
            _ => false,
        }
    }

    fn expect(&mut self, byte: u8) -> Result<(), Malformed> {
        if self.skip(byte) { Ok(()) } else { Err(Malformed) }
    }

    fn until(&mut self, byte: u8) -> Result<&'a [u8], Malformed> {
        let end = self.0.iter().position(|found| *found == byte).ok_or(Malformed)?;
        let (text, rest) = self.0.split_at(end);
        self.0 = &rest[1..];
        Ok(text)
    }

    /// Returns a text in quotes, without escapes.
    fn quoted(&mut self) -> Result<&'a str, Malformed> {
        self.expect(b'"')?;
        str::from_utf8(self.until(b'"')?).map_err(|_| Malformed)
    }

    fn end(mut self, unknown: u64) -> Result<u64, Malformed> {
        self.0 = self.0.trim_ascii_start();
        if self.0.is_empty() { Ok(unknown) } else { Err(Malformed) }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn round(annotations: &Annotations) -> Annotations {
        let (mut text, mut back) = (Vec::new(), Annotations::default());
        write(annotations, &mut text);
        serde_json::from_slice::<serde_json::Value>(&text).unwrap();
        assert_eq!(read(&text, &mut back), Ok(0));
        back
    }

    #[test]
    fn special_numbers_and_several_tables_round_trip() {
        let values =
            [0.1, -0.0, 1e300, -5e-324, f64::MAX, f64::INFINITY, f64::NEG_INFINITY, f64::NAN];
        let mut annotations = Annotations::default();
        annotations.reset("adc_power", values.len()).copy_from_slice(&values);
        annotations.reset("saturated", 1)[0] = 7.0;
        annotations.reset("phase_turns", 0);
        let back = round(&annotations);
        let bits = |values: &[f64]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(back.get("adc_power")), bits(&values));
        assert_eq!((back.get("saturated"), back.iter().count()), (&[7.0][..], 2));
        assert_eq!(round(&Annotations::default()).iter().count(), 0);
    }

    #[test]
    fn text_of_other_writers_is_read_and_broken_text_is_malformed() {
        let mut annotations = Annotations::default();
        let text = br#" { "saturated" : [1, 2.5e-1 , null] , "no name!": [3], "adc_power":[]} "#;
        assert_eq!(read(text, &mut annotations), Ok(1));
        assert_eq!(annotations.get("saturated")[..2], [1.0, 0.25]);
        for text in [
            "",
            "{",
            "[]",
            "{}x",
            "{\"a\":1}",
            "{\"a\":[1",
            "{\"a\":[1,]}",
            "{\"a\":[nan]}",
            "{\"a\":[1e999]}",
            "{\"a\":[\"x\"]}",
            "{\"a\":[1]",
            "{\"a\":[1],}",
            "{\"\u{e4}\"}",
        ] {
            assert_eq!(read(text.as_bytes(), &mut annotations), Err(Malformed), "{text}");
        }
    }

    #[test]
    fn text_is_limited_before_there_is_memory_for_its_values() {
        let list = |values: &str| format!("{{\"adc_power\":[{values}]}}");
        let most = list("0.0,".repeat(MAX_VALUES - 10).trim_end_matches(','));
        let mut annotations = Annotations::default();
        assert_eq!(read(most.as_bytes(), &mut annotations), Ok(0));
        assert_eq!(annotations.get("adc_power").len(), MAX_VALUES - 10);
        let long = list(&" ".repeat(MAX_ANNOTATION_BYTES));
        let many = list("0,".repeat(MAX_VALUES + 1).trim_end_matches(','));
        for text in [list(&",".repeat(3)), list(&",".repeat(5 << 20)), list(",1,2"), long, many] {
            let mut annotations = Annotations::default();
            annotations.reset("adc_power", 1)[0] = 7.0;
            let len = text.len();
            assert_eq!(read(text.as_bytes(), &mut annotations), Err(Malformed), "{len} bytes");
            assert!(annotations.get("adc_power").len() <= 1, "{len} bytes");
        }
    }

    #[test]
    fn memory_of_long_tables_does_not_add_up_over_their_names() {
        let mut annotations = Annotations::default();
        for name in ["adc_power", "saturated"] {
            let text = format!("{{\"{name}\":[{}1]}}", "0,".repeat(10_000));
            assert_eq!(read(text.as_bytes(), &mut annotations), Ok(0));
        }
        assert_eq!(annotations.iter().map(|(name, _)| name).collect::<Vec<_>>(), ["saturated"]);
    }

    proptest! {
        #[test]
        fn any_number_round_trips(values in proptest::collection::vec(any::<f64>(), 1..20)) {
            let mut annotations = Annotations::default();
            annotations.reset("adc_power", values.len()).copy_from_slice(&values);
            let back = round(&annotations);
            for (a, b) in values.iter().zip(back.get("adc_power")) {
                prop_assert!(a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan());
            }
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(text in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(&text, &mut Annotations::default());
        }
    }
}
