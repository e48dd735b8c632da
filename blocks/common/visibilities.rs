//! Visibilities `[channel][baseline][product]`: the products of equal polarisations, and the antennas of each baseline.

use fxgraph::PortType;
use fxgraph_dsp::stefcal::antennas_of;

/// Products of equal polarisations among `products` products of a baseline: 1 with one polarisation, 4 with two.
#[must_use]
pub const fn parallel(products: usize) -> &'static [usize] {
    if products == 1 { &[0] } else { &[0, 3] }
}

/// Label of the baseline of two antennas with these numbers.
#[must_use]
pub fn label(one: u32, two: u32) -> String {
    format!("{one}-{two}")
}

/// Numbers of the two antennas of each baseline of `port`, from the labels of the axis `baseline`. Without labels the
/// baselines are all pairs of antennas with the numbers 0, 1, ...: (0, 0), (0, 1), (1, 1), (0, 2), ... `None` if the port has
/// no baselines, or others without labels.
#[must_use]
pub fn pairs(port: &PortType) -> Option<Vec<(u32, u32)>> {
    let axis = port.axes.iter().find(|axis| axis.name == "baseline")?;
    if axis.labels.is_empty() {
        let antennas = u32::try_from(antennas_of(axis.len)?).ok()?;
        return Some((0..antennas).flat_map(|two| (0..=two).map(move |one| (one, two))).collect());
    }
    let pair = |label: &String| {
        let (one, two) = label.split_once('-')?;
        Some((one.parse().ok()?, two.parse().ok()?))
    };
    axis.labels.iter().map(pair).collect()
}

/// Numbers of the antennas of `port`, if its baselines are all pairs of them in the order of a correlator; `None` for a
/// selection of baselines.
#[must_use]
pub fn antennas(port: &PortType) -> Option<Vec<u32>> {
    let pairs = pairs(port)?;
    let antennas = antennas_of(pairs.len())?;
    let numbers: Vec<u32> = (0..antennas).map(|a| pairs[a * (a + 1) / 2 + a].1).collect();
    let all = (0..antennas).flat_map(|two| (0..=two).map(move |one| (one, two)));
    all.map(|(one, two)| (numbers[one], numbers[two])).eq(pairs).then_some(numbers)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use fxgraph::{Axis, Clock, Dtype, ValidityType};

    fn port(baseline: Axis) -> PortType {
        PortType {
            dtype: Dtype::Ci32,
            axes: vec![Axis::new("channel", 4), baseline, Axis::new("product", 4)],
            clock: Clock::new(1e6, 1),
            band: None,
            validity: ValidityType::flags(vec![]),
        }
    }

    #[test]
    fn pairs_without_labels_are_those_of_all_antennas() {
        let three = port(Axis::new("baseline", 6));
        let expected = [(0, 0), (0, 1), (1, 1), (0, 2), (1, 2), (2, 2)];
        assert_eq!(pairs(&three).unwrap(), expected);
        assert_eq!(antennas(&three).unwrap(), [0, 1, 2]);
        assert_eq!(pairs(&port(Axis::new("baseline", 5))), None);
    }

    #[test]
    fn antennas_of_labels_are_known_if_all_pairs_are_there() {
        let labelled = |labels: &[&str]| port(Axis::labelled("baseline", labels.iter().copied()));
        let all = labelled(&["7-7", "7-3", "3-3"]);
        assert_eq!(pairs(&all).unwrap(), [(7, 7), (7, 3), (3, 3)]);
        assert_eq!(antennas(&all).unwrap(), [7, 3]);
        // As many baselines as those of two antennas.
        let autocorrelations = labelled(&["0-0", "1-1", "2-2"]);
        assert_eq!(pairs(&autocorrelations).unwrap(), [(0, 0), (1, 1), (2, 2)]);
        assert_eq!(antennas(&autocorrelations), None);
        assert_eq!(pairs(&labelled(&["a"])), None);
    }
}
