//! Baseline-dependent averaging: number of dumps over which a baseline may be averaged.

use super::shape::{Axes, BASELINE, CHANNEL, antennas_of};
use crate::common::visibilities;
use fxgraph::diagnostic::codes;
use fxgraph::{At, PortType, Rejection};
use fxgraph_dsp::geometry::SPEED_OF_LIGHT;
use schemars::JsonSchema;
use serde::Deserialize;
use std::f64::consts::PI;

/// Angular velocity of the Earth in radians per second (sidereal).
const EARTH_RADIANS_PER_SECOND: f64 = 7.292_115e-5;
/// Largest distance of an antenna from the array's origin in metres.
const MAX_METRES: f64 = 1e7;

/// Limit of the smearing of a source at the edge of the field of view.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Smearing {
    /// Position of each antenna: east, north, up in metres. In a longer list, entries after the last antenna are
    /// ignored.
    pub antennas_enu_metres: Vec<[f64; 3]>,
    /// Diameter of the field of view in degrees.
    pub field_of_view_degrees: f64,
    /// Largest decorrelation of a source at the edge of the field of view: the fraction by which its amplitude may
    /// decrease.
    pub max_decorrelation: f64,
    /// Largest number of dumps over which any baseline is averaged, a power of two.
    pub most_dumps: usize,
}

impl Smearing {
    fn check(&self, dumps: usize, rejections: &mut Vec<Rejection>) {
        let mut reject =
            |path, message: String| rejections.push(Rejection::parameter(path, message));
        let most = self.most_dumps;
        if !most.is_power_of_two() || most > super::MAX_FACTOR {
            let message = format!(
                "`most_dumps` must be a power of two from 1 to {}, got {most}",
                super::MAX_FACTOR
            );
            reject("smearing.most_dumps", message);
        }
        if !dumps.is_power_of_two() || dumps > most {
            let message = format!(
                "`dumps` must be a power of two up to `most_dumps`, {most}, with `smearing`, got {dumps}"
            );
            reject("dumps", message);
        }
        let field = self.field_of_view_degrees;
        if !(field > 0.0 && field <= 180.0) {
            let message =
                format!("`field_of_view_degrees` must be above 0 and at most 180, got {field}");
            reject("smearing.field_of_view_degrees", message);
        }
        let most = self.max_decorrelation;
        if !(most > 0.0 && most < 1.0) {
            let message = format!("`max_decorrelation` must be between 0 and 1, got {most}");
            reject("smearing.max_decorrelation", message);
        }
        let metres = self.antennas_enu_metres.iter().flatten();
        if let Some(far) = metres.into_iter().find(|v| !v.is_finite() || v.abs() > MAX_METRES) {
            let message = format!("`antennas_enu_metres` must be within 10000 km, got {far}");
            reject("smearing.antennas_enu_metres", message);
        }
    }

    /// Baselines of `port` that may be averaged over exactly `dumps` dumps, or all errors.
    pub(super) fn select(
        &self,
        dumps: usize,
        axes: &Axes,
        port: &PortType,
    ) -> Result<Vec<u32>, Vec<Rejection>> {
        let mut rejections = Vec::new();
        self.check(dumps, &mut rejections);
        let baselines = axes.lengths[BASELINE];
        let antennas = visibilities::antennas(port).map_or(0, |numbers| numbers.len());
        if antennas == 0 {
            let message = "`smearing` needs visibilities of all pairs of antennas";
            rejections.push(
                Rejection::new(codes::INPUT_AXIS, At::Input(0), message)
                    .help("connect a `correlator`, or omit `smearing`"),
            );
        }
        let placed = self.antennas_enu_metres.len();
        if placed < antennas {
            let message = format!(
                "`antennas_enu_metres` must have {antennas} positions for {baselines} baselines, got {placed}"
            );
            rejections.push(
                Rejection::parameter("smearing.antennas_enu_metres", message)
                    .note(At::InputAxis(0, "baseline"), "baselines are set here"),
            );
        }
        let Some(band) = port.band else {
            let message = "`smearing` needs an input with a band";
            rejections.push(
                Rejection::new(codes::INPUT_AXIS, At::Input(0), message)
                    .help("set `band` of the source"),
            );
            return Err(rejections);
        };
        if !rejections.is_empty() {
            return Err(rejections);
        }
        let ends = [0, axes.lengths[CHANNEL] - 1].map(|channel| band.channel_hz(channel).abs());
        let highest_hz = ends[0].max(ends[1]);
        let seconds = port.clock.samples_per_frame as f64 / port.clock.adc_sample_rate_hz;
        let factors: Vec<usize> =
            (0..baselines).map(|b| self.dumps_of(b, highest_hz, seconds)).collect();
        let selected = (0..baselines as u32).filter(|b| factors[*b as usize] == dumps);
        let selected: Vec<u32> = selected.collect();
        if selected.is_empty() {
            let mut all = factors;
            all.sort_unstable();
            all.dedup();
            let all: Vec<String> = all.iter().map(usize::to_string).collect();
            let message = format!("`smearing` allows no baseline to average over {dumps} dumps");
            let help = format!("use one of {}", all.join(", "));
            return Err(vec![Rejection::parameter("dumps", message).help(help)]);
        }
        Ok(selected)
    }

    /// Largest power of two of dumps of this length over which `baseline` may be averaged, at least 1.
    fn dumps_of(&self, baseline: usize, highest_hz: f64, seconds_per_dump: f64) -> usize {
        let (a1, a2) = antennas_of(baseline);
        let [p1, p2] = [a1, a2].map(|antenna| self.antennas_enu_metres[antenna]);
        let squares: f64 = p1.iter().zip(p2).map(|(x, y)| (x - y) * (x - y)).sum();
        let wavelengths = squares.sqrt() * highest_hz / SPEED_OF_LIGHT;
        let radius = (self.field_of_view_degrees / 2.0).to_radians();
        // The rotation of the Earth changes the phase fastest for an east-west baseline.
        let turns_per_second = EARTH_RADIANS_PER_SECOND * wavelengths * radius.sin();
        let mut dumps = 1;
        while dumps < self.most_dumps {
            let turns = turns_per_second * seconds_per_dump * (2 * dumps) as f64;
            // Beyond the first zero of the sinc function the decorrelation is not monotonic.
            if turns >= 1.0 || decorrelation(turns) > self.max_decorrelation {
                break;
            }
            dumps *= 2;
        }
        dumps
    }
}

/// Decrease of the amplitude of a fringe that makes `turns` turns during an average: `1 - sinc(turns)`.
fn decorrelation(turns: f64) -> f64 {
    let angle = PI * turns;
    if angle < 1e-4 { angle * angle / 6.0 } else { 1.0 - angle.sin() / angle }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decorrelation_is_that_of_a_summed_fringe() {
        for turns in [0.0, 1e-5, 0.01, 0.1, 0.5, 0.9] {
            let steps = 100_000;
            let angle = |n: usize| 2.0 * PI * turns * ((n as f64 + 0.5) / f64::from(steps) - 0.5);
            let sum: f64 = (0..steps as usize).map(|n| angle(n).cos()).sum();
            let expected = 1.0 - sum / f64::from(steps);
            assert!((decorrelation(turns) - expected).abs() < 1e-9, "{turns}");
        }
    }

    #[test]
    fn dumps_of_baseline_double_when_its_length_is_less_than_half() {
        let place = |east| [east, 0.0, 0.0];
        let smearing = Smearing {
            antennas_enu_metres: [0.0, 900.0, 1800.0, 30_000.0].map(place).to_vec(),
            field_of_view_degrees: 1.0,
            max_decorrelation: 0.01,
            most_dumps: 64,
        };
        let dumps = |baseline| smearing.dumps_of(baseline, 1.4e9, 1.0);
        // sinc(turns) = 0.99 at 0.0780 turns. Baseline 0-1 of 900 m has 4203 wavelengths, which make 0.002675 turns
        // per second at 0.5 degrees: 29 seconds, so 16 dumps. 30 km have 0.87 seconds.
        assert_eq!([0, 1, 3, 6].map(dumps), [64, 16, 8, 1]);
    }
}
