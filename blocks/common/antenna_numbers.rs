//! Numbers of the antennas of an array, by which parameters name them: in the order of the axis `antenna`.

use fxgraph::Rejection;
use std::fmt::Write as _;

/// Numbers of `antennas` antennas without numbers of their own.
#[must_use]
pub fn default_numbers(antennas: usize) -> Vec<u32> {
    (0..antennas as u32).collect()
}

/// Place of the antenna `number` among those with these `numbers`.
#[must_use]
pub fn place(numbers: &[u32], number: u32) -> Option<usize> {
    numbers.iter().position(|known| *known == number)
}

/// Returns the diagnostic for a `list` in the parameter `name` with a number that no antenna has.
#[must_use]
pub fn rejection(name: &'static str, list: &[u32], numbers: &[u32]) -> Option<Rejection> {
    let number = list.iter().find(|number| place(numbers, **number).is_none())?;
    let message =
        format!("`{name}` must name antennas of the array by their numbers, got {number}");
    let help = match text(numbers) {
        none if none.is_empty() => format!("omit `{name}`: the stream has no antennas"),
        known => format!("use the numbers {known}"),
    };
    Some(Rejection::parameter(name, message).help(help))
}

/// Numbers as text: `3, 7, 10 to 12`.
fn text(numbers: &[u32]) -> String {
    let mut text = String::new();
    for run in numbers.chunk_by(|one, next| one.checked_add(1) == Some(*next)) {
        let comma = if text.is_empty() { "" } else { ", " };
        let _ = match run {
            [first, .., last] if run.len() > 2 => write!(text, "{comma}{first} to {last}"),
            [first, last] => write!(text, "{comma}{first}, {last}"),
            run => write!(text, "{comma}{}", run[0]),
        };
    }
    text
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn rejection_names_the_numbers_that_there_are() {
        let numbers = [12, 3, 4, 5, 8, 9];
        assert!(rejection("antennas", &[9, 12], &numbers).is_none());
        let rejected = rejection("antennas", &[3, 0], &numbers).unwrap();
        assert_eq!(
            rejected.message,
            "`antennas` must name antennas of the array by their numbers, got 0"
        );
        assert_eq!(rejected.help.unwrap(), "use the numbers 12, 3 to 5, 8, 9");
        let help = rejection("antennas", &[64], &default_numbers(64)).unwrap().help;
        assert_eq!(help.unwrap(), "use the numbers 0 to 63");
        let help = rejection("antennas", &[0], &[]).unwrap().help;
        assert_eq!(help.unwrap(), "omit `antennas`: the stream has no antennas");
    }
}
