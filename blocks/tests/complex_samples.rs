//! Complex samples of a receiver, one tick each: one source feeds a filter bank and a satellite receiver.

use super::chain;
use crate::gnss::gnss_acquisition::{Acquired, VALUES};
use fxgraph::control::Control;
use fxgraph::flowgraph::load_text;
use fxgraph::runtime::{Options, Prepared};
use fxgraph_dsp::gnss::{System, codes};
use fxgraph_dsp::random::Random;
use fxgraph_formats::vdif;
use num_complex::{Complex32, Complex64};
use serde_json::json;
use std::f64::consts::TAU;
use std::fs;
use std::path::Path;

const RATE_HZ: f64 = 4.096e6;
/// Samples of a frame: 20 ms, as the acquisition needs.
const FRAME: usize = 81_920;
const FRAMES: usize = 3;
/// Carrier of GPS L1.
const CARRIER_HZ: f64 = 1575.42e6;
/// Frequency on the sky at 0 Hz of the samples.
const CENTRE_HZ: f64 = 1575.0e6;
const CHANNELS: usize = 64;
const TAPS: usize = 4;
/// Channel of the tone, in the upper sideband.
const TONE_CHANNEL: usize = 45;
const PRN: usize = 7;
const DOPPLER_HZ: f64 = 1234.0;
const CODE_PHASE_CHIPS: f64 = 700.3;

/// Frequency of the tone relative to the centre of the band.
fn tone_hz() -> f64 {
    (TONE_CHANNEL as f64 - CHANNELS as f64 / 2.0) * RATE_HZ / CHANNELS as f64
}

/// Noise, a tone and a GPS satellite, in units of the noise.
fn sky() -> Vec<Complex64> {
    let mut random = Random::new(11);
    let chips = codes::chips(System::GpsL1Ca, PRN).unwrap();
    // 50 dB Hz: noise has a density of 2 / rate.
    let amplitude = (1e5 * 2.0 / RATE_HZ).sqrt();
    let chip_rate = 1.023e6 * (1.0 + DOPPLER_HZ / CARRIER_HZ);
    let sample = |n: usize| {
        let seconds = n as f64 / RATE_HZ;
        let [re, im] = random.normal_pair();
        let tone = 0.3 * Complex64::cis(TAU * (tone_hz() * seconds).fract());
        let chip = f64::from(chips[(CODE_PHASE_CHIPS + chip_rate * seconds) as usize % 1023]);
        let carrier_hz = CARRIER_HZ - CENTRE_HZ + DOPPLER_HZ;
        let carrier = Complex64::cis(TAU * (carrier_hz * seconds).fract());
        Complex64::new(re, im) + tone + amplitude * chip * carrier
    };
    (0..FRAME * FRAMES).map(sample).collect()
}

fn run(text: &str) {
    let registry = || crate::kinds();
    let loaded = load_text("complex.yaml", text, &[], &registry()).result;
    let plan = loaded.unwrap_or_else(|problems| panic!("{problems:?}"));
    let prepared = Prepared::new(plan.build().unwrap()).unwrap();
    let control = Control::new(plan, registry(), prepared.handle());
    let running = prepared.start(Options::default()).unwrap();
    assert!(control.wait_timeout(std::time::Duration::from_mins(5)), "the flowgraph does not end");
    let failures = running.wait().failures;
    assert!(failures.is_empty(), "{failures:?}");
}

/// Numbers of a recording, without the header of the `.npy` file.
fn numbers<T: bytemuck::AnyBitPattern>(path: &Path) -> Vec<T> {
    let bytes = fs::read(path).unwrap();
    let from = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    bytes[from..].chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect()
}

/// Spectrum of the window that begins with `x[0]`, from the definition in double precision.
fn spectrum(x: &[Complex64], weights: &[f64]) -> Vec<Complex64> {
    let channel = |k: usize| {
        let cycles = (k as f64 - CHANNELS as f64 / 2.0) / CHANNELS as f64;
        let term = |(i, w): (usize, &f64)| x[i] * *w * Complex64::cis(-TAU * cycles * i as f64);
        weights.iter().enumerate().map(term).sum()
    };
    (0..CHANNELS).map(channel).collect()
}

/// Runs both consumers on `source`, which plays `samples`.
fn check(directory: &Path, source: &str, samples: &[Complex64], is_lower: bool) {
    let name = |name: &str| directory.join(name).display().to_string();
    run(&format!(
        "flowgraph: both
blocks:
  samples: {source}
  filter: {{kind: pfb, input: samples, parameters: {{channels: {CHANNELS}, taps: {TAPS}}}}}
  spectra: {{kind: fft, input: filter}}
  spectra_out: {{kind: file_sink, input: spectra, parameters: {{path: '{}'}}}}
  acquire:
    kind: gnss_acquisition
    input: samples
    parameters: {{satellites: [{{system: gps_l1_ca, prn: {PRN}}}, {{system: gps_l1_ca, prn: 8}}], every_frames: 1}}
  acquired_out: {{kind: file_sink, input: acquire, parameters: {{path: '{}'}}}}
",
        name("spectra.npy"),
        name("acquired.npy")
    ));
    let weights = chain::weights(CHANNELS, TAPS, true, 1.0);
    let spectra: Vec<Complex32> = numbers(&directory.join("spectra.npy"));
    let rms = (samples.iter().map(Complex64::norm_sqr).sum::<f64>() / samples.len() as f64).sqrt();
    let mut power = [0.0; CHANNELS];
    for (n, found) in spectra.chunks_exact(CHANNELS).take(200).enumerate() {
        let expected = spectrum(&samples[n * CHANNELS..], &weights);
        for (k, (found, expected)) in found.iter().zip(&expected).enumerate() {
            let found = Complex64::new(f64::from(found.re), f64::from(found.im));
            assert!((found - expected).norm() < 1e-5 * rms, "{n} {k}: {found} {expected}");
            power[k] += found.norm_sqr();
        }
    }
    let strongest = (0..CHANNELS).max_by(|a, b| power[*a].total_cmp(&power[*b])).unwrap();
    let expected = if is_lower { CHANNELS - TONE_CHANNEL } else { TONE_CHANNEL };
    assert_eq!(strongest, expected);
    let side: serde_json::Value =
        serde_json::from_slice(&fs::read(directory.join("spectra.npy.json")).unwrap()).unwrap();
    let axis = side["axes"].as_array().unwrap().last().unwrap();
    let hz = axis["first"].as_f64().unwrap() + strongest as f64 * axis["step"].as_f64().unwrap();
    assert!((hz - CENTRE_HZ - tone_hz()).abs() < 1e-3, "{axis}");
    let acquired: Vec<[f64; VALUES]> = numbers(&directory.join("acquired.npy"));
    assert_eq!(acquired.len(), 2 * FRAMES);
    for (frame, rows) in acquired.chunks_exact(2).enumerate() {
        let found = Acquired::found(rows[0]).unwrap();
        assert!((found.doppler_hz - DOPPLER_HZ).abs() < 50.0, "{found:?}");
        let seconds = (frame * FRAME) as f64 / RATE_HZ;
        let chips = CODE_PHASE_CHIPS + 1.023e6 * (1.0 + DOPPLER_HZ / CARRIER_HZ) * seconds;
        let error = (found.code_phase_chips - chips + 511.5).rem_euclid(1023.0) - 511.5;
        assert!(error.abs() < 0.3, "{frame}: {found:?} {chips}");
        assert!(Acquired::found(rows[1]).is_none());
    }
}

/// Writes a SigMF recording of `samples`; returns the block that plays it.
fn sigmf(directory: &Path, samples: &[Complex64], sideband: &str) -> String {
    let path = directory.join("x.sigmf-meta");
    let parts = samples.iter().flat_map(|z| [z.re as f32, z.im as f32]);
    let bytes: Vec<u8> = parts.flat_map(f32::to_le_bytes).collect();
    fs::write(path.with_extension("sigmf-data"), bytes).unwrap();
    let meta = json!({
        "global": {"core:datatype": "cf32_le", "core:version": "1.2.0", "core:sample_rate": RATE_HZ},
        "captures": [{"core:sample_start": 0, "core:frequency": CENTRE_HZ}], "annotations": [],
    });
    fs::write(&path, meta.to_string()).unwrap();
    let source = json!({"kind": "sigmf_source", "parameters": {
        "path": path, "samples_per_frame": FRAME, "sideband": sideband,
    }});
    source.to_string()
}

#[test]
fn one_sigmf_source_feeds_filter_bank_and_acquisition_in_both_sidebands() {
    for sideband in ["upper", "lower"] {
        let directory = tempfile::tempdir().unwrap();
        let is_lower = sideband == "lower";
        let sample = |z: Complex64| if is_lower { z.conj() } else { z };
        let samples: Vec<Complex64> = sky().into_iter().map(sample).collect();
        let source = sigmf(directory.path(), &samples, sideband);
        check(directory.path(), &source, &samples, is_lower);
    }
}

/// Samples of 4/3 ticks behind one `resampler`, and real samples of 2/3 ticks behind another.
#[test]
fn satellite_behind_a_resampler_has_its_phases_in_complex_and_real_samples() {
    let directory = tempfile::tempdir().unwrap();
    let name = |name: &str| directory.path().join(name).display().to_string();
    let mut text = format!(
        "flowgraph: resampled\nblocks:\n  samples: {}\n",
        sigmf(directory.path(), &sky(), "upper")
    );
    for output in ["complex", "real"] {
        text += &format!(
            "  {output}: {{kind: resampler, input: samples, parameters: {{bandwidth_hz: 3.072e+6, output: {output}}}}}
  {output}_acquire:
    {{kind: gnss_acquisition, input: {output}, parameters: {{satellites: [{{system: gps_l1_ca, prn: {PRN}}}], every_frames: 1}}}}
  {output}_acquired: {{kind: file_sink, input: {output}_acquire, parameters: {{path: '{}'}}}}
  {output}_correlate:
    kind: gnss_correlator
    input: {output}
    parameters:
      satellites: [{{system: gps_l1_ca, prn: {PRN}, doppler_hz: {DOPPLER_HZ}, code_phase_chips: {CODE_PHASE_CHIPS}}}]
      taps_chips: [0.5, 0, -0.5, 20]
  {output}_sums: {{kind: file_sink, input: {output}_correlate, parameters: {{path: '{}'}}}}
",
            name(&format!("{output}_acquired.npy")),
            name(&format!("{output}_sums.npy")),
        );
    }
    run(&text);
    for output in ["complex", "real"] {
        let file = |name: &str| directory.path().join(format!("{output}_{name}.npy"));
        let acquired: Vec<[f64; VALUES]> = numbers(&file("acquired"));
        let sums: Vec<[Complex32; 4]> = numbers(&file("sums"));
        // The filter misses samples before the first frame and after the last one.
        let whole = 1..FRAMES - 1;
        for (row, [early, prompt, late, far]) in acquired[whole.clone()].iter().zip(&sums[whole]) {
            let found = Acquired::found(*row).unwrap();
            assert!((found.doppler_hz - DOPPLER_HZ).abs() < 50.0, "{output}: {found:?}");
            // The carrier has phase 0 at timestamp 0, and so has the oscillator of the resampler.
            assert!(prompt.arg().abs() < 0.1, "{output}: {prompt}");
            assert!(prompt.norm() > 10.0 * far.norm(), "{output}: {prompt} {far}");
            for side in [early, late] {
                let part = side.norm() / prompt.norm();
                assert!((part - 0.6).abs() < 0.12, "{output}: {part}");
            }
        }
    }
}

#[test]
fn one_vdif_source_feeds_filter_bank_and_acquisition() {
    const SAMPLES: usize = 4096;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.vdif");
    // Steps of the quantiser of 8 bits.
    let quantised = |z: Complex64| Complex64::new((20.0 * z.re).round(), (20.0 * z.im).round());
    let samples: Vec<Complex64> = sky().into_iter().map(quantised).collect();
    let mut file = Vec::new();
    for (n, samples) in samples.chunks_exact(SAMPLES).enumerate() {
        let header = vdif::Header {
            is_invalid: false,
            is_legacy: false,
            seconds: 0,
            epoch: 52,
            frame: n as u32,
            version: 0,
            log2_channels: 0,
            frame_bytes: 32 + 2 * SAMPLES as u32,
            is_complex: true,
            bits: 8,
            thread: 0,
            station: 0x4678,
            extended: vdif::Header::edv1(RATE_HZ as u64, true, "").unwrap(),
        };
        let mut bytes = vec![0; header.frame_bytes as usize];
        header.write(&mut bytes);
        let parts: Vec<f32> = samples.iter().flat_map(|z| [z.re as f32, z.im as f32]).collect();
        vdif::pack(&parts, 8, 0, &mut bytes[32..]);
        file.extend(bytes);
    }
    fs::write(&path, file).unwrap();
    let source = json!({"kind": "vdif_source", "parameters": {
        "path": path, "vdif_frames": FRAME / SAMPLES,
        "band": {"channels": 1, "centre_hz": CENTRE_HZ, "bandwidth_hz": RATE_HZ},
    }});
    check(directory.path(), &source.to_string(), &samples, false);
}
