//! Selection of baselines by their antennas.

use crate::common::visibilities::pairs;
use fxgraph::diagnostic::codes;
use fxgraph::{At, PortType, Rejection};
use schemars::JsonSchema;
use serde::Deserialize;

/// Baselines to output: those that any of these entries names. Antennas have the numbers that `antenna_stack` gives them, by
/// default 0, 1, ...
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Selection {
    /// Pairs of antennas, in either order; twice the same antenna is its autocorrelation.
    #[serde(default)]
    pub pairs: Vec<[u32; 2]>,
    /// Antennas of which all baselines among them are output, autocorrelations included.
    #[serde(default)]
    pub antennas: Vec<u32>,
    /// Whether all autocorrelations are output.
    #[serde(default)]
    pub autocorrelations: bool,
}

impl Selection {
    /// Whether each baseline of `port` is selected, or all errors.
    pub(super) fn select(&self, port: &PortType) -> Result<Vec<bool>, Vec<Rejection>> {
        let Some(all) = pairs(port) else {
            let message = "`baselines` needs visibilities whose antennas are known";
            return Err(vec![
                Rejection::new(codes::INPUT_AXIS, At::Input(0), message)
                    .help("connect a `correlator`, or omit `baselines`"),
            ]);
        };
        let is_pair = |[a, b]: [u32; 2], pair: &(u32, u32)| *pair == (a, b) || *pair == (b, a);
        let mut rejections = Vec::new();
        let mut reject = |name, message: String| {
            rejections.push(
                Rejection::parameter(name, message)
                    .note(At::InputAxis(0, "baseline"), "baselines are set here"),
            );
        };
        if let Some([a, b]) =
            self.pairs.iter().find(|wanted| !all.iter().any(|pair| is_pair(**wanted, pair)))
        {
            let message = format!("`pairs` must be baselines of the input, got [{a}, {b}]");
            reject("baselines.pairs", message);
        }
        let mut antennas = self.antennas.iter();
        if let Some(antenna) =
            antennas.find(|antenna| !all.iter().any(|(a, b)| a == *antenna || b == *antenna))
        {
            let message = format!("`antennas` must be antennas of the input, got {antenna}");
            reject("baselines.antennas", message);
        }
        let is_selected = |pair: &(u32, u32)| {
            let (a, b) = pair;
            self.autocorrelations && a == b
                || self.antennas.contains(a) && self.antennas.contains(b)
                || self.pairs.iter().any(|wanted| is_pair(*wanted, pair))
        };
        let selected: Vec<bool> = all.iter().map(is_selected).collect();
        if rejections.is_empty() && !selected.contains(&true) {
            let message = "`baselines` must select a baseline of the input, got none";
            let help =
                "set `pairs`, `antennas` or `autocorrelations`, for example `{pairs: [[0, 1]]}`";
            rejections.push(Rejection::parameter("baselines", message).help(help));
        }
        if rejections.is_empty() { Ok(selected) } else { Err(rejections) }
    }
}
