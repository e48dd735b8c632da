//! Baselines and polarisation products in the order of correlators.
//!
//! Baseline `a2 (a2 + 1) / 2 + a1` joins antennas `a1 <= a2`; the order of the polarisation products `(p1, p2)` is
//! (0, 0), (1, 0), (0, 1), (1, 1).

use super::Shown;
use fxgraph::PortType;

/// Number of antennas with this number of baselines, if any.
pub(super) fn antennas(baselines: usize) -> Option<usize> {
    let antennas = (2 * baselines).isqrt();
    (antennas > 0 && antennas * (antennas + 1) / 2 == baselines).then_some(antennas)
}

/// Index of the baseline of antennas `a1 <= a2`.
pub(super) fn baseline(a1: usize, a2: usize) -> usize {
    a2 * (a2 + 1) / 2 + a1
}

/// Labels `a1-a2` of the baselines; empty if the number of baselines matches no number of antennas.
pub(crate) fn names(baselines: usize) -> Vec<String> {
    let antennas = antennas(baselines).unwrap_or(0);
    (0..antennas).flat_map(|a2| (0..=a2).map(move |a1| format!("{a1}-{a2}"))).collect()
}

/// Index of the first baseline of two different antennas, or 0.
pub(super) fn first_of_two(baselines: usize) -> usize {
    usize::from(antennas(baselines).is_some_and(|antennas| antennas > 1))
}

/// Labels `p1p2` of the products; empty unless there are four.
pub(crate) fn product_names(products: usize) -> Vec<String> {
    let names = ["00", "10", "01", "11"].map(str::to_owned);
    if products == names.len() { names.to_vec() } else { Vec::new() }
}

/// Index of the product with its polarisations swapped.
pub(super) fn mirrored(product: usize) -> usize {
    [0, 2, 1, 3].get(product).copied().unwrap_or(product)
}

/// Whether a port carries visibilities of channels.
pub(super) fn visibilities(port: &PortType) -> Option<Shown> {
    const SHOWN: Shown = &["channel"];
    let has = |name| port.axis_len(name).is_some();
    (has("channel") && has("baseline")).then_some(SHOWN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn baselines_join_each_pair_of_antennas_once() {
        assert_eq!(names(6), ["0-0", "0-1", "1-1", "0-2", "1-2", "2-2"]);
        for (number, name) in names(3240).iter().enumerate() {
            let (a1, a2) = name.split_once('-').unwrap();
            assert_eq!(baseline(a1.parse().unwrap(), a2.parse().unwrap()), number);
        }
        assert_eq!((antennas(3240), antennas(5), antennas(1)), (Some(80), None, Some(1)));
        assert!(names(5).is_empty());
        assert_eq!((first_of_two(3), first_of_two(1), first_of_two(5)), (1, 0, 0));
    }
}
