//! Gains that the solver has requested, as gauges for each target and polarisation.

use fxgraph::{Counters, Gauge};
use num_complex::Complex64;
use serde_json::{Map, Value};

/// Targets beyond this number have no gauges, so that metrics stay few.
const MOST: usize = 256;

/// Gauges by target and polarisation.
pub(super) struct Applied(Vec<(String, Vec<[Gauge; 2]>)>);

impl Applied {
    pub(super) fn new(targets: &[String], pols: usize, counters: &Counters) -> Self {
        let of = |target: &String, pol: usize| {
            let gauge =
                |name, help| counters.state_of(name, help, "target", format!("{target} pol{pol}"));
            [
                gauge(
                    "gain_amplitude",
                    "rms amplitude over the channels of the gains that were last requested",
                ),
                gauge(
                    "gain_phase_degrees",
                    "phase of the mean over the channels of the gains that were last requested",
                ),
            ]
        };
        let of_target =
            |target: &String| (target.clone(), (0..pols).map(|pol| of(target, pol)).collect());
        Self(targets.iter().take(MOST).map(of_target).collect())
    }

    /// Shows the gains in `parameters`, by target.
    pub(super) fn show(&self, parameters: &Map<String, Value>, key: &str) {
        for (target, gauges) in &self.0 {
            let Some(gains) = parameters.get(target).and_then(|values| values[key].as_array())
            else {
                continue;
            };
            for (gains, [amplitude, phase]) in gains.iter().zip(gauges) {
                let gains = gains.as_array().map_or(std::slice::from_ref(gains), Vec::as_slice);
                let count = gains.len().max(1) as f64;
                let all = || gains.iter().map(complex);
                amplitude.set((all().map(|gain| gain.norm_sqr()).sum::<f64>() / count).sqrt());
                phase.set(all().sum::<Complex64>().arg().to_degrees());
            }
        }
    }
}

fn complex(gain: &Value) -> Complex64 {
    let part = |name: &str| gain[name].as_f64().unwrap_or(f64::NAN);
    Complex64::new(part("re"), part("im"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn gauges_have_amplitude_and_phase_of_each_polarisation() {
        let counters = Counters::default();
        let targets = ["f[0]", "f[1]"].map(str::to_owned);
        let applied = Applied::new(&targets, 2, &counters);
        let one = json!({"re": 0.0, "im": 2.0});
        let each = json!([{"re": 3.0, "im": 3.0}, {"re": 3.0, "im": -3.0}]);
        let parameters = json!({"f[1]": {"gains": [one, each]}});
        applied.show(parameters.as_object().unwrap(), "gains");
        let value = |name: &str, target: &str| {
            let gauges = counters.gauges();
            let is_it = |gauge: &&fxgraph::gauge::NamedGauge| {
                gauge.name == name && gauge.label.as_ref().is_some_and(|label| label.1 == target)
            };
            gauges.iter().find(is_it).unwrap().gauge.get()
        };
        assert_eq!(value("gain_amplitude", "f[1] pol0"), Some(2.0));
        assert_eq!(value("gain_phase_degrees", "f[1] pol0"), Some(90.0));
        assert_eq!(value("gain_amplitude", "f[1] pol1"), Some(18_f64.sqrt()));
        assert_eq!(value("gain_phase_degrees", "f[1] pol1"), Some(0.0));
        assert_eq!(value("gain_amplitude", "f[0] pol0"), None);
    }
}
