//! Names of annotations of frames that come from files and from the network.

use std::sync::{Mutex, PoisonError};

/// Annotations that the blocks here set.
const NAMES: &[&str] = &[
    "fine_delay_samples",
    "phase_turns",
    "adc_power",
    "adc_clipped",
    "saturated",
    "output_power",
    "flagged",
    "residual",
    "amplitude_error",
    "phase_error_degrees",
];
/// Longest name of another annotation in bytes, and largest number of these names in a process.
const MAX_BYTES: usize = 64;
const MAX_NAMES: usize = 256;

/// Names of annotations of blocks outside this crate. They live as long as the process.
static OTHERS: Mutex<Vec<&'static str>> = Mutex::new(Vec::new());

/// Returns the name with static lifetime; `None` if it is not a name, or if there are too many.
#[must_use]
pub fn name(text: &str) -> Option<&'static str> {
    if let Some(known) = NAMES.iter().find(|known| **known == text) {
        return Some(known);
    }
    let mut others = OTHERS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = others.iter().find(|known| **known == text) {
        return Some(known);
    }
    let is_name = |text: &str| {
        (1..=MAX_BYTES).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    if others.len() == MAX_NAMES || !is_name(text) {
        return None;
    }
    let name: &'static str = Box::leak(text.to_owned().into_boxed_str());
    others.push(name);
    Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_of_outside_kind_is_kept_once_and_text_that_is_no_name_is_not() {
        assert_eq!(name("adc_power"), Some("adc_power"));
        let first = name("temperature_kelvin").map(str::as_ptr);
        assert!(first.is_some());
        assert_eq!(name("temperature_kelvin").map(str::as_ptr), first);
        for text in ["", "a b", "\u{1b}[2J", "x\"y", &"a".repeat(65)] {
            assert_eq!(name(text), None, "{text}");
        }
    }
}
