//! Names of the devices that blocks run on.

use std::fmt;

/// Device that a block runs on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DeviceName {
    /// The CPU.
    #[default]
    Cpu,
    /// The CUDA device with this ordinal.
    Cuda(usize),
}

impl DeviceName {
    /// Parses `cpu`, `cuda:0`, `cuda:1`, ...; `None` for any other text.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        if word == "cpu" {
            return Some(Self::Cpu);
        }
        decimal(word.strip_prefix("cuda:")?).map(Self::Cuda)
    }

    /// Type of device for which a kind has implementations: `cpu` or `cuda`.
    #[must_use]
    pub fn family(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Cuda(_) => "cuda",
        }
    }
}

/// Parses a decimal number without sign and leading zeros; `None` for any other text.
#[must_use]
pub fn decimal(digits: &str) -> Option<usize> {
    let number = digits.parse().ok()?;
    (digits == format!("{number}")).then_some(number)
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(ordinal) => write!(f, "cuda:{ordinal}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_names_round_trip() {
        for name in [DeviceName::Cpu, DeviceName::Cuda(0), DeviceName::Cuda(17)] {
            assert_eq!(DeviceName::parse(&name.to_string()), Some(name));
        }
        for wrong in ["gpu", "cuda", "cuda:", "cuda:01", "cuda:-1", "cuda:x", "CPU", ""] {
            assert_eq!(DeviceName::parse(wrong), None, "{wrong}");
        }
    }
}
