//! Types of parameters, and their values in the program and on the device.

use super::declaration::Parameter;
use fxgraph::Dtype;
use serde_json::{Number, Value};

/// Type of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NumberType {
    Bool,
    I32,
    U32,
    I64,
    U64,
    F32,
    F64,
}

impl NumberType {
    /// Type in C++.
    pub fn c_name(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::I32 => "i32",
            Self::U32 => "u32",
            Self::I64 => "i64",
            Self::U64 => "u64",
            Self::F32 => "float",
            Self::F64 => "double",
        }
    }

    /// Type in Python.
    pub fn python_name(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::F32 | Self::F64 => "float",
            _ => "int",
        }
    }

    /// Size on the device in bytes.
    pub fn bytes(self) -> usize {
        match self {
            Self::Bool => 1,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64 | Self::U64 | Self::F64 => 8,
        }
    }

    /// `value` as the type; or the rule that it breaks, as in "`gain` must be an integer".
    fn convert(self, value: &Value) -> Result<Value, String> {
        let float = || value.as_f64().filter(|number| number.is_finite());
        let within = |low: i128, high: i128| {
            let number = whole(value).ok_or_else(|| "an integer".to_owned())?;
            if !(low..=high).contains(&number) {
                return Err(format!("an integer from {low} to {high}"));
            }
            // In the range of one of the two types.
            let number =
                i64::try_from(number).map(Number::from).or(u64::try_from(number).map(Number::from));
            number.map(Value::Number).map_err(|_| "an integer of 64 bits".to_owned())
        };
        match self {
            Self::Bool => {
                value.as_bool().map(Value::Bool).ok_or_else(|| "true or false".to_owned())
            }
            Self::I32 => within(i32::MIN.into(), i32::MAX.into()),
            Self::U32 => within(0, u32::MAX.into()),
            Self::I64 => within(i64::MIN.into(), i64::MAX.into()),
            Self::U64 => within(0, u64::MAX.into()),
            // The reference gets the value that the kernel has.
            Self::F32 => float()
                .map(|number| f64::from(number as f32))
                .filter(|number| number.is_finite())
                .map(Value::from)
                .ok_or_else(|| "a number in single precision".to_owned()),
            Self::F64 => float().map(Value::from).ok_or_else(|| "a finite number".to_owned()),
        }
    }

    /// Bytes of `value`, which [`Parameter::value`] returned, on the device; the rest is 0.
    pub fn device_bytes(self, value: &Value) -> [u8; 8] {
        let integer = || whole(value).unwrap_or_default();
        let mut bytes = [0; 8];
        let mut set = |of_value: &[u8]| bytes[..of_value.len()].copy_from_slice(of_value);
        match self {
            Self::Bool => set(&[u8::from(value.as_bool().unwrap_or_default())]),
            Self::I32 | Self::U32 => set(&(integer() as u32).to_le_bytes()),
            Self::I64 | Self::U64 => set(&(integer() as u64).to_le_bytes()),
            Self::F32 => set(&(value.as_f64().unwrap_or_default() as f32).to_le_bytes()),
            Self::F64 => set(&value.as_f64().unwrap_or_default().to_le_bytes()),
        }
        bytes
    }

    /// `value` as a literal of the type in C++, also for `#if`.
    pub fn literal(self, value: &Value) -> String {
        match self {
            Self::Bool => value.as_bool().unwrap_or_default().to_string(),
            Self::F32 => format!("{:?}f", value.as_f64().unwrap_or_default() as f32),
            Self::F64 => format!("{:?}", value.as_f64().unwrap_or_default()),
            Self::I32 => signed(whole(value).unwrap_or_default(), ""),
            Self::U32 => format!("{}u", whole(value).unwrap_or_default()),
            Self::I64 => signed(whole(value).unwrap_or_default(), "ll"),
            Self::U64 => format!("{}ull", whole(value).unwrap_or_default()),
        }
    }
}

/// A size as a literal of C++: `u32`, or `u64` if it is larger.
pub fn size_literal(number: u64) -> String {
    let suffix = if number <= u32::MAX.into() { "u" } else { "ull" };
    format!("{number}{suffix}")
}

/// The integer of an expression as a literal of C++: `i32`, or else the first of `i64` and `u64` that has it; `None` if none has.
pub fn integer_literal(number: i128) -> Option<String> {
    if i32::try_from(number).is_ok() {
        Some(signed(number, ""))
    } else if i64::try_from(number).is_ok() {
        Some(signed(number, "ll"))
    } else {
        u64::try_from(number).ok().map(|number| format!("{number}ull"))
    }
}

/// A signed literal with this suffix.
fn signed(number: i128, suffix: &str) -> String {
    match number {
        0.. => format!("{number}{suffix}"),
        // The literal of the least number would be a minus before a number that does not fit.
        ..0 => format!("(-{}{suffix} - 1)", -(number + 1)),
    }
}

/// `value` as an integer, if it is one.
fn whole(value: &Value) -> Option<i128> {
    let float = || value.as_f64().filter(|number| number.fract() == 0.0 && number.abs() < 1e15);
    value
        .as_i64()
        .map(i128::from)
        .or(value.as_u64().map(i128::from))
        .or_else(|| float().map(|number| number as i128))
}

impl Parameter {
    /// The given value, or the default, as the type and within the range; or the rule that it breaks, as in "must be
    /// between 0 and 1 dB".
    pub fn value(&self, given: &Value) -> Result<Value, String> {
        let unit = self.unit.as_ref().map(|unit| format!(" {unit}")).unwrap_or_default();
        let value = self.number.convert(given)?;
        // The value as given: rounded to `f32`, a limit may be beyond itself.
        if let (Some([least, greatest]), Some(number)) = (self.range, given.as_f64())
            // NaN is in no range.
            && !(least..=greatest).contains(&number)
        {
            return Err(format!("between {least} and {greatest}{unit}"));
        }
        Ok(value)
    }
}

/// Type of an element in C++; packed samples are bytes.
pub fn element(dtype: Dtype) -> &'static str {
    match dtype {
        Dtype::Packed(_) | Dtype::U8 | Dtype::Ci4 => "u8",
        Dtype::I8 => "i8",
        Dtype::I16 => "i16",
        Dtype::I32 => "i32",
        Dtype::I64 => "i64",
        Dtype::F16 => "u16",
        Dtype::F32 => "float",
        Dtype::F64 => "double",
        Dtype::Ci8 => "char2",
        Dtype::Ci16 => "short2",
        Dtype::Ci32 => "int2",
        Dtype::Cf16 => "u32",
        Dtype::Cf32 => "float2",
        Dtype::Cf64 => "double2",
    }
}
