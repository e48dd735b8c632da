//! A satellite as parameters name it.

use super::phase::code_rate_hz;

/// Largest shift of a carrier, of either sign: that of 1900 km/s. The rate of the chips then differs from its own
/// by less than a hundredth, on which the length of [`Replica::extended`](super::Replica::extended) counts.
pub const MAX_DOPPLER_HZ: f64 = 1e7;

/// Declares parameters that name a satellite, with the phases that its signal has at a timestamp; more of them may
/// follow. The crate that calls this macro depends on `serde` and `schemars`.
#[macro_export]
macro_rules! satellite_parameters {
    ($(#[$about:meta])* $name:ident { $($more:tt)* }) => {
        $(#[$about])*
        #[derive(Clone, Debug, PartialEq, ::serde::Deserialize, ::schemars::JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            /// Its signal: `gps_l1_ca` or `galileo_e1b`.
            pub system: $crate::gnss::System,
            /// Its number: 1 to 37 for `gps_l1_ca`, 1 to 50 for `galileo_e1b`.
            pub prn: usize,
            /// Shift of its carrier in Hz; the chips are shifted by the same part.
            #[serde(default)]
            pub doppler_hz: f64,
            /// Chips of the code that have passed at `at_timestamp`.
            #[serde(default)]
            pub code_phase_chips: f64,
            /// Phase of the carrier at `at_timestamp`, in turns.
            #[serde(default)]
            pub carrier_turns: f64,
            /// The timestamp for which the phases are stated, in samples.
            #[serde(default)]
            pub at_timestamp: u64,
            $($more)*
        }
    };
}

crate::satellite_parameters! {
    /// A satellite, with the phases that its signal has at a timestamp.
    Satellite {}
}

impl Satellite {
    /// Chips per second.
    #[must_use]
    pub fn code_rate_hz(&self) -> f64 {
        code_rate_hz(self.doppler_hz)
    }

    /// What receivers call it.
    #[must_use]
    pub fn label(&self) -> String {
        self.system.label(self.prn)
    }
}
