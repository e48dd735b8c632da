//! Benchmarks.

use crate::common::bench::benchmark;
use fxgraph::DeviceName;
use fxgraph::examples::Benchmark;

/// Returns the benchmarks on `device`.
pub fn benchmarks(device: DeviceName) -> Vec<Benchmark> {
    GNSS.iter().map(|setup| gnss(device, setup)).collect()
}

/// Antennas, samples per epoch, epochs per frame, sample rate in MS/s, satellites of GPS and of Galileo.
type GnssSetup = (usize, usize, usize, usize, [usize; 2]);

/// Long frames of many satellites, then single epochs as in receivers.
const GNSS: &[GnssSetup] = &[
    (1, 100_000, 64, 100, [32, 0]),
    (4, 100_000, 64, 100, [32, 0]),
    (1, 100_000, 64, 25, [0, 32]),
    (1, 5000, 1, 5, [4, 0]),
    (1, 5000, 1, 5, [16, 0]),
    (1, 25_000, 1, 25, [0, 4]),
    (1, 25_000, 1, 25, [0, 16]),
    (1, 100_000, 1, 25, [0, 4]),
    (1, 100_000, 1, 25, [0, 16]),
    (1, 25_000, 1, 25, [4, 4]),
    (1, 25_000, 1, 25, [8, 8]),
    (1, 100_000, 1, 25, [8, 8]),
    (1, 100_000, 1, 100, [16, 0]),
];

fn gnss(device: DeviceName, setup: &GnssSetup) -> Benchmark {
    let (antennas, samples, epochs, rate, [gps, galileo]) = *setup;
    // On a CPU fewer epochs suffice.
    let epochs = if device == DeviceName::Cpu { epochs.min(4) } else { epochs };
    let row = samples * epochs;
    let antenna = format!("{{name: antenna, len: {antennas}}}, ");
    let antenna = if antennas > 1 { antenna } else { String::new() };
    let satellite = |system: &str, n: usize| {
        let (prn, doppler_hz, phase) = (n + 1, 250 * n, 31 * n);
        format!(
            "{{system: {system}, prn: {prn}, doppler_hz: {doppler_hz}, code_phase_chips: {phase}}}"
        )
    };
    let satellites = (0..gps)
        .map(|n| satellite("gps_l1_ca", n))
        .chain((0..galileo).map(|n| satellite("galileo_e1b", n)));
    let satellites = satellites.collect::<Vec<_>>().join(", ");
    let blocks = format!(
        "  source: {{kind: null_source, parameters: {{dtype: ci16, axes: [{antenna}{{name: sample, len: {row}}}], \
         samples_per_frame: {row}, adc_sample_rate_hz: {rate}000000, pattern: random}}}}\n  \
         block: {{kind: gnss_correlator, queue: 1, input: source, parameters: {{satellites: [{satellites}], \
         epochs_per_frame: {epochs}, threads: 1}}}}\n  sink: {{kind: null_sink, input: block}}\n"
    );
    benchmark(
        format!(
            "gnss_correlator, {gps} GPS and {galileo} Galileo, {antennas} antennas, {epochs} x {samples} at {rate} MS/s"
        ),
        device,
        &blocks,
    )
}
