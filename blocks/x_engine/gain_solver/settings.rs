//! Gains that are in force in the targets, and their corrected values.

use crate::f_engine::postproc::{Gains, PolGains};
use num_complex::{Complex32, Complex64};
use serde_json::{Value, json};

/// Gains of a target: its parameter `gains`.
pub(super) struct Settings(Gains);

impl Settings {
    /// Reads the parameter; `None` is its default. An error if it is not one of gains.
    pub(super) fn read(value: Option<Value>) -> Result<Self, String> {
        let gains = value.map_or(Ok(Gains::default()), serde_json::from_value);
        gains.map(Self).map_err(|error| format!("`gains` cannot be read: {error}"))
    }

    /// Gains of a polarisation: one, or one for each channel; `None` if there is no such polarisation.
    fn gains(&self, pol: usize) -> Option<&[Complex32]> {
        match &self.0 {
            Gains::One(gain) => Some(std::slice::from_ref(gain)),
            Gains::PerPol(list) => Some(match list.get(pol)? {
                PolGains::One(gain) => std::slice::from_ref(gain),
                PolGains::PerChannel(gains) => gains,
            }),
        }
    }

    /// Logarithm of the gain of a polarisation and one of `groups` groups of channels: of the rms amplitude over the
    /// channels, and with the phase of their mean. `None` if there is no such gain, or if it is 0.
    pub(super) fn logarithm(&self, pol: usize, group: usize, groups: usize) -> Option<Complex64> {
        let gains = match self.gains(pol)? {
            one @ [_] => one,
            channels => channels.chunks_exact((channels.len() / groups).max(1)).nth(group)?,
        };
        let all = || gains.iter().map(|gain| Complex64::new(gain.re.into(), gain.im.into()));
        let power = all().map(|gain| gain.norm_sqr()).sum::<f64>() / gains.len() as f64;
        let logarithm = Complex64::new(power.ln() / 2.0, all().sum::<Complex64>().arg());
        logarithm.is_finite().then_some(logarithm)
    }

    /// The parameter after the gains of a polarisation and a group of `of_group` channels have been multiplied by
    /// `corrections` `[group][pol]`. An error if there are fewer gains, or if a gain is not finite.
    pub(super) fn corrected(
        &self,
        corrections: &[Complex64],
        pols: usize,
        of_group: usize,
    ) -> Result<Value, String> {
        let groups = corrections.len() / pols;
        let channels = groups * of_group;
        let mut corrected = Vec::with_capacity(pols);
        for pol in 0..pols {
            let gains =
                self.gains(pol).ok_or_else(|| format!("`gains` has no polarisation {pol}"))?;
            let product = |gain: &Complex32, group: usize| -> Result<Value, String> {
                let gain = Complex64::new(gain.re.into(), gain.im.into());
                let gain = gain * corrections[group * pols + pol];
                let (re, im) = (gain.re as f32, gain.im as f32);
                if re.is_finite() && im.is_finite() {
                    Ok(json!({"re": re, "im": im}))
                } else {
                    Err("the corrected gain is not finite".to_owned())
                }
            };
            corrected.push(match (gains, groups) {
                ([gain], 1) => product(gain, 0)?,
                ([gain], _) => {
                    (0..channels).map(|c| product(gain, c / of_group)).collect::<Result<_, _>>()?
                }
                (gains, 1) => {
                    gains.iter().map(|gain| product(gain, 0)).collect::<Result<_, _>>()?
                }
                (gains, _) if gains.len() == channels => {
                    let gains = gains.iter().enumerate();
                    gains.map(|(c, gain)| product(gain, c / of_group)).collect::<Result<_, _>>()?
                }
                (gains, _) => {
                    return Err(format!("`gains` has {} channels, not {channels}", gains.len()));
                }
            });
        }
        Ok(Value::Array(corrected))
    }
}
