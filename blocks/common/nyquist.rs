//! Nyquist zone of real samples, as a parameter.

use fxgraph::Band;

/// Largest number of a Nyquist zone.
pub const MAX_NYQUIST_ZONE: u32 = 1000;

/// Band of the samples of an ADC in the Nyquist zone `zone`, centred at `centre_hz` if a mixer precedes the ADC. `None` in
/// the first zone without a centre, where the frequencies are those of the samples.
#[must_use]
pub fn band(zone: u32, adc_sample_rate_hz: f64, centre_hz: Option<f64>) -> Option<Band> {
    let of_zone = Band::of_nyquist_zone(zone, adc_sample_rate_hz);
    let centre_hz = centre_hz.or((zone > 1).then_some(of_zone.centre_hz));
    centre_hz.map(|centre_hz| Band { centre_hz, ..of_zone })
}
