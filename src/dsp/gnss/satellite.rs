//! Parameters of a satellite.

/// Largest magnitude of a carrier shift, that of 1900 km/s. The chip rate then changes by less than 1 % of the
/// nominal rate, as assumed by the length of [`Replica::extended`](super::Replica::extended).
pub const MAX_DOPPLER_HZ: f64 = 1e7;

/// Declares the parameters of a satellite, with the phases of its signal at a timestamp; more fields may follow.
/// The crate that calls this macro must depend on `serde` and `schemars`.
#[macro_export]
macro_rules! satellite_parameters {
    ($(#[$about:meta])* $name:ident { $($more:tt)* }) => {
        $(#[$about])*
        #[derive(Clone, Debug, PartialEq, ::serde::Deserialize, ::schemars::JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            /// Signal, such as `gps_l1_ca`; the page of `gnss_correlator` lists all.
            pub system: $crate::gnss::System,
            /// Number of the satellite, such as 1 to 37 for `gps_l1_ca` and 193 to 202 for `qzss_l1_ca`.
            pub prn: usize,
            /// Doppler shift of the carrier in Hz; the chip rate changes by the same fraction.
            #[serde(default)]
            pub doppler_hz: f64,
            /// Phase of the code at `at_timestamp`, in chips.
            #[serde(default)]
            pub code_phase_chips: f64,
            /// Phase of the carrier at `at_timestamp`, in turns.
            #[serde(default)]
            pub carrier_turns: f64,
            /// Timestamp at which the signal has these phases, in ticks of the clock: samples of the source.
            #[serde(default)]
            pub at_timestamp: u64,
            $($more)*
        }
    };
}

crate::satellite_parameters! {
    /// A satellite, with the phases of its signal at a timestamp.
    Satellite {}
}

impl Satellite {
    /// Returns the chip rate in chips per second.
    #[must_use]
    pub fn code_rate_hz(&self) -> f64 {
        self.system.code_rate_hz(self.doppler_hz)
    }

    /// Returns the name of the satellite as in receivers, such as `G07`.
    #[must_use]
    pub fn label(&self) -> String {
        self.system.label(self.prn)
    }
}
