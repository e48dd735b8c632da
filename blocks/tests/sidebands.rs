//! Chains of the array in the first three Nyquist zones, on real samples of plane waves computed from the physics: the
//! products are those of the sky in each zone.

use super::chain::{Digitised, Out, RATE_HZ, drive, kind, then};
use crate::f_engine::ddc::Ddc;
use crate::f_engine::detect::Detect;
use crate::f_engine::f_engine::FEngine;
use crate::f_engine::fft::Fft;
use crate::f_engine::pfb::Pfb;
use crate::f_engine::postproc::Postproc;
use crate::io::digitiser_simulator::DigitiserSimulator;
use crate::x_engine::antenna_stack::AntennaStack;
use crate::x_engine::beamformer::Beamformer;
use crate::x_engine::correlator::Correlator;
use crate::x_engine::fringe_check::FringeCheck;
use crate::x_engine::gain_solver::GainSolver;
use fxgraph::{Band, KindSpec, PortType, Sideband};
use num_complex::{Complex32, Complex64};
use serde_json::{Value, json};
use std::f64::consts::{FRAC_PI_2, TAU};

const CHANNELS: usize = 64;
/// Channels with a tone, in either direction of the frequency.
const TONES: std::ops::Range<usize> = 8..57;
const START: u64 = 1 << 20;
const SAMPLES: usize = 32 * 16 * 2 * CHANNELS;
const PLACES: [[f64; 3]; 3] = [[0.0, 0.0, 0.0], [31.0, 5.0, 0.0], [-12.0, 40.0, 1.0]];
const SPEED_OF_LIGHT: f64 = 299_792_458.0;

/// Delay of a wave from azimuth 40 and elevation 60 degrees at an antenna: `-(b . s) / c`.
fn late_seconds(antenna: usize) -> f64 {
    let (azimuth, elevation) = (40_f64.to_radians(), 60_f64.to_radians());
    let [east, north, up] = PLACES[antenna];
    let along = east * azimuth.sin() * elevation.cos()
        + north * azimuth.cos() * elevation.cos()
        + up * elevation.sin();
    -along / SPEED_OF_LIGHT
}

/// Lowest frequency of a Nyquist zone.
fn edge_hz(zone: u32) -> f64 {
    f64::from(zone - 1) * RATE_HZ / 2.0
}

fn centre_hz(zone: u32) -> f64 {
    edge_hz(zone) + RATE_HZ / 4.0
}

/// Samples of both polarisations of a circularly polarised wave: many tones of the sky in this zone, which reach the
/// antenna `late + rate t` seconds after the origin. Polarisation Y is a quarter of a cycle behind X.
fn receive(zone: u32, late: f64, rate: f64) -> [Digitised; 2] {
    [0.0, FRAC_PI_2].map(|behind| {
        let sample = |n: usize| {
            let t = (START + n as u64) as f64 / RATE_HZ;
            let at_antenna = t - (late + rate * t);
            let tone = |k: usize| {
                let hz = edge_hz(zone) + k as f64 * RATE_HZ / 2.0 / CHANNELS as f64;
                (TAU * (hz * at_antenna + 0.37 * (k * k) as f64).fract() - behind).cos()
            };
            (20.0 * TONES.map(tone).sum::<f64>()).round() as i16
        };
        // Without a rate the tones repeat with every spectrum.
        let period = if rate == 0.0 { 2 * CHANNELS } else { SAMPLES };
        let one: Vec<i16> = (0..period).map(sample).collect();
        let samples = one.into_iter().cycle().take(SAMPLES).collect();
        Digitised { start: START, bits: 12, ..Digitised::new(samples) }
    })
}

/// The type of samples in this zone, as their source states it.
fn port(zone: u32, digitised: &Digitised) -> PortType {
    PortType { band: Some(Band::of_nyquist_zone(zone, RATE_HZ)), ..digitised.port() }
}

/// The F-engine of each antenna, stacked.
fn stack(zone: u32, rate: f64, of_antenna: impl Fn(usize) -> Value) -> Out {
    let heaps: Vec<Out> = (0..PLACES.len())
        .map(|antenna| {
            let pols = receive(zone, late_seconds(antenna), rate * antenna as f64);
            let mut parameters = json!({
                "channels": CHANNELS, "spectra_per_heap": 16, "gains": 0.6, "max_delay_seconds": 1e-6,
                "max_delay_rate": 1e-3, "max_fringe_rate_radians_per_second": 1e6,
            });
            for (key, value) in of_antenna(antenna).as_object().unwrap() {
                parameters[key] = value.clone();
            }
            let ports: Vec<PortType> = pols.iter().map(|pol| port(zone, pol)).collect();
            let frames = pols.iter().map(Digitised::frames).collect();
            drive(&kind::<FEngine>(parameters), &ports, frames)
        })
        .collect();
    let (ports, frames): (Vec<_>, Vec<_>) =
        heaps.into_iter().map(|heaps| (heaps.port, heaps.frames)).unzip();
    drive(&kind::<AntennaStack>(json!({})), &ports, frames)
}

/// Delays and phases that compensate the delay of a wave: a delay of d is a phase of `-2 pi f d` at the frequency f of
/// the sky, of which the F-engine applies the part about the centre of the band with the delay.
fn tracking(zone: u32, antenna: usize, rate: f64) -> Value {
    let (late, rate) = (late_seconds(antenna), rate * antenna as f64);
    let piece = json!({
        "start_samples": 0, "delay_seconds": -late, "rate": -rate,
        "phase_radians": TAU * (centre_hz(zone) * late).fract(),
        "phase_rate_radians_per_second": TAU * centre_hz(zone) * rate,
    });
    json!({"delays": [[piece], [piece]]})
}

/// Visibilities `[dump][channel]` on the sky of two antennas in one product, by the definition of the sideband.
fn sky(correlated: &Out, a1: usize, a2: usize, product: usize) -> Vec<Vec<Complex64>> {
    let baseline = a2 * (a2 + 1) / 2 + a1;
    let is_inverted = correlated.port.band.unwrap().sideband == Sideband::Lower;
    let dumps = correlated
        .frames
        .iter()
        .filter(|dump| dump.validity.iter().all(|count| *count == correlated.port.validity.full));
    let of_dump = |values: Vec<[i32; 2]>| {
        TONES
            .map(|channel| {
                let [re, im] = values[(channel * 6 + baseline) * 4 + product].map(f64::from);
                Complex64::new(re, if is_inverted { -im } else { im })
            })
            .collect()
    };
    dumps.map(|dump| of_dump(dump.values())).collect()
}

fn correlate(stacked: Out) -> Out {
    then::<Correlator>(json!({"spectra_per_dump": 128}), stacked)
}

#[test]
fn fringes_of_every_zone_have_the_phases_of_the_sky() {
    for zone in [1, 2, 3, 4] {
        let correlated = correlate(stack(zone, 0.0, |_| json!({})));
        let band = correlated.port.band.unwrap();
        assert_eq!((band.centre_hz, band.bandwidth_hz), (centre_hz(zone), RATE_HZ / 2.0));
        assert_eq!(band.sideband == Sideband::Lower, zone % 2 == 0);
        for (a1, a2) in [(0, 1), (0, 2), (1, 2)] {
            for dump in sky(&correlated, a1, a2, 0) {
                for (channel, visibility) in TONES.zip(dump) {
                    // Channel k of an even zone is k steps below its upper edge.
                    let from_zero = channel as f64 * RATE_HZ / 2.0 / CHANNELS as f64;
                    let hz = match zone % 2 {
                        1 => edge_hz(zone) + from_zero,
                        _ => edge_hz(zone + 1) - from_zero,
                    };
                    assert!((band.channel_hz(channel) - hz).abs() < 1e-3);
                    let turns = hz * (late_seconds(a1) - late_seconds(a2));
                    let rest = (visibility * Complex64::cis(TAU * turns.fract())).arg();
                    assert!(rest.abs() < 0.03, "zone {zone}, {a1}-{a2}, {channel}: {rest}");
                }
            }
        }
        let check = json!({
            "antennas_enu_metres": PLACES, "source": {"azimuth_degrees": 40.0, "elevation_degrees": 60.0},
            "max_phase_error_degrees": 0.5, "max_delay_error_seconds": 2e-11,
        });
        let checked = then::<FringeCheck>(check, correlated);
        assert!(checked.summary.contains("100.0 %"), "{}", checked.summary);
    }
}

#[test]
fn tracked_source_of_every_zone_has_phase_0() {
    let rate = 3e-6;
    for zone in [1, 2] {
        let correlated = correlate(stack(zone, rate, |antenna| tracking(zone, antenna, rate)));
        for (a1, a2) in [(0, 1), (0, 2), (1, 2)] {
            let dumps = sky(&correlated, a1, a2, 3);
            assert!(dumps.len() >= 2, "{} dumps", dumps.len());
            for visibility in dumps.concat() {
                let rest = visibility.arg();
                assert!(rest.abs() < 0.06, "zone {zone}, {a1}-{a2}: {rest}");
            }
        }
    }
}

#[test]
fn gains_and_phases_of_every_zone_are_on_the_sky() {
    let gain = json!({"re": 0.6 * 1.1_f64.cos(), "im": 0.6 * 1.1_f64.sin()});
    for zone in [1, 2] {
        for (parameters, radians) in [
            (json!({"gains": gain}), 1.1),
            (json!({"gains": [vec![gain.clone(); CHANNELS], 0.6]}), 1.1),
            (json!({"delays": [[{"phase_radians": 0.7}], []]}), 0.7),
        ] {
            let of_antenna = |antenna| if antenna == 1 { parameters.clone() } else { json!({}) };
            let correlated = correlate(stack(zone, 0.0, of_antenna));
            let visibility = sky(&correlated, 1, 2, 0)[0][20];
            let hz = correlated.port.band.unwrap().channel_hz(TONES.start + 20);
            let turns = hz * (late_seconds(1) - late_seconds(2));
            let rest = (visibility * Complex64::cis(TAU * turns.fract() - radians)).arg();
            assert!(rest.abs() < 0.03, "zone {zone}: {rest}");
        }
    }
}

#[test]
fn solved_gains_of_every_zone_are_on_the_sky() {
    let gain = json!({"re": 0.6 * 1.1_f64.cos(), "im": 0.6 * 1.1_f64.sin()});
    let solver = json!({
        "targets": ["f[*]"], "antennas_enu_metres": PLACES,
        "source": {"azimuth_degrees": 40.0, "elevation_degrees": 60.0},
    });
    for zone in [1, 2] {
        let of_antenna = |antenna| if antenna == 1 { json!({"gains": gain}) } else { json!({}) };
        let correlated = correlate(stack(zone, 0.0, of_antenna));
        let solved = then::<GainSolver>(solver.clone(), correlated);
        // `[antenna][pol]`, relative to antenna 0.
        let is_whole =
            |frame: &&super::chain::Plain| frame.validity.iter().all(|valid| *valid == 1);
        let gains: Vec<Complex32> = solved.frames.iter().rev().find(is_whole).unwrap().values();
        for (gain, expected) in gains.iter().zip([0.0, 0.0, 1.1, 1.1, 0.0, 0.0]) {
            assert!((gain.arg() - expected).abs() < 0.05, "zone {zone}: {gains:?}");
        }
    }
}

/// Mean power of the channels with tones in each beam of 8-bit voltages `[heap 1][beam][channel][spectrum]`.
fn powers(out: &Out, beams: usize) -> Vec<f64> {
    let full = out.port.validity.full;
    let frame = out.frames.iter().find(|frame| frame.validity.iter().all(|n| *n == full));
    let values: Vec<[i8; 2]> = frame.unwrap().values();
    let of_beam = values.len() / beams;
    let of_channel = of_beam / CHANNELS;
    let power = |[re, im]: &[i8; 2]| f64::from(*re).powi(2) + f64::from(*im).powi(2);
    let sum = |beam: &[[i8; 2]]| {
        let tones = &beam[TONES.start * of_channel..TONES.end * of_channel];
        tones.iter().map(power).sum::<f64>() / tones.len() as f64
    };
    values.chunks_exact(of_beam).map(sum).collect()
}

#[test]
fn beams_of_every_zone_point_to_the_source() {
    for zone in [1, 2, 3] {
        let stacked = stack(zone, 0.0, |_| json!({"gains": 0.2}));
        let late: Vec<f64> = (0..3).map(late_seconds).collect();
        let towards = |azimuth: f64| json!({"pol": 0, "towards": {"azimuth_degrees": azimuth, "elevation_degrees": 60.0}});
        let beams = json!([
            {"pol": 0, "weights": [1.0, 0.0, 0.0]},
            towards(40.0),
            // The same direction, as delays about the centre of the band and phases at the centre.
            {
                "pol": 0, "delays_seconds": late.iter().map(|late| -late).collect::<Vec<_>>(),
                "phases_radians": late.iter().map(|late| TAU * (late * centre_hz(zone)).fract()).collect::<Vec<_>>(),
            },
            towards(220.0),
        ]);
        let beamformer = json!({"beams": beams, "antennas_enu_metres": PLACES});
        let found = powers(&then::<Beamformer>(beamformer, stacked), 4);
        let relative = |beam: usize| found[beam] / found[0];
        assert!((relative(1) - 9.0).abs() < 0.3, "zone {zone}: {found:?}");
        assert!((relative(2) - 9.0).abs() < 0.3, "zone {zone}: {found:?}");
        assert!(relative(3) < 5.0, "zone {zone}: {found:?}");
    }
}

#[test]
fn circular_polarisation_of_every_zone_has_the_same_stokes_v() {
    for zone in [1, 2, 3] {
        // X Y* of the sky is exp(+j pi / 2): V = 2 Im(X Y*) = +I.
        let is_circular = |detected: &Out, antennas: usize| {
            let full = detected.port.validity.full;
            let frame = detected.frames.iter().find(|frame| frame.validity[0] == full).unwrap();
            let values: Vec<f32> = frame.values();
            for channel in TONES {
                let [i, q, u, v] = [0, 1, 2, 3].map(|row| values[row * CHANNELS + channel]);
                assert!((v / i - 1.0).abs() < 0.02, "zone {zone}, {antennas} antennas: {v} of {i}");
                assert!((q / i).abs() < 0.05 && (u / i).abs() < 0.05, "{q} {u} of {i}");
            }
        };
        let stacked = stack(zone, 0.0, |_| json!({}));
        is_circular(&then::<Detect>(json!({"spectra": 16}), stacked), 3);
        let pols = receive(zone, 1e-9, 0.0);
        let ports: Vec<PortType> = pols.iter().map(|pol| port(zone, pol)).collect();
        let frames = pols.iter().map(Digitised::frames).collect();
        let pfb = kind::<Pfb>(json!({"channels": CHANNELS, "spectra_per_frame": 16}));
        let spectra = then::<Fft>(json!({}), drive(&pfb, &ports, frames));
        is_circular(&then::<Detect>(json!({"spectra": 16}), spectra), 1);
    }
}

/// A narrow band: mixed, filtered, divided into channels, delayed. The phase between two antennas is that of the sky.
#[test]
fn narrow_band_of_every_zone_has_the_phases_of_the_sky() {
    const NARROW: usize = 16;
    for zone in [1, 2, 3] {
        let inverted = zone % 2 == 0;
        // A quarter of the band, centred on the tone of channel 24 of the samples.
        let sampled_hz = 24.0 * RATE_HZ / 2.0 / CHANNELS as f64;
        let sky_hz =
            if inverted { edge_hz(zone + 1) - sampled_hz } else { edge_hz(zone) + sampled_hz };
        for tracked in [false, true] {
            let heaps = [0, 2].map(|antenna| {
                let late = late_seconds(antenna);
                let pols = receive(zone, late, 0.0);
                let port = port(zone, &pols[0]);
                let ddc = json!({"centre_hz": sampled_hz, "decimation": 4, "samples_per_frame": 1024});
                let narrow = drive(&kind::<Ddc>(ddc), &[port], vec![pols[0].frames()]);
                let piece = json!({"delay_seconds": -late, "phase_radians": TAU * (sky_hz * late).fract()});
                let delays = if tracked { json!([[piece]]) } else { json!([]) };
                let pfb = json!({"channels": 2 * NARROW, "spectra_per_frame": 16, "delays": delays, "max_delay_seconds": 1e-6});
                let spectra = then::<Fft>(json!({}), then::<Pfb>(pfb, narrow));
                let postproc = json!({"channels": NARROW, "spectra_per_heap": 16, "gains": 0.1});
                then::<Postproc>(postproc, spectra)
            });
            let band = heaps[0].port.band.unwrap();
            assert!((band.centre_hz - sky_hz).abs() < 1e-3, "zone {zone}: {band:?}");
            let frames = heaps.each_ref().map(|heaps| {
                let later = heaps.frames.iter().filter(|frame| frame.timestamp >= START + 40_000);
                later
                    .take(1)
                    .map(|frame| (frame.timestamp, frame.values::<[i8; 2]>()))
                    .next()
                    .unwrap()
            });
            assert_eq!(frames[0].0, frames[1].0);
            for channel in 2..NARROW - 2 {
                let value = |heap: &[[i8; 2]]| {
                    let [re, im] = heap[channel * 16].map(f32::from);
                    Complex32::new(re, if inverted { -im } else { im })
                };
                let [one, two] = frames.each_ref().map(|(_, heap)| value(heap));
                if one.norm() < 20.0 {
                    continue;
                }
                let hz = if tracked { 0.0 } else { band.channel_hz(channel) };
                let turns = hz * (late_seconds(0) - late_seconds(2));
                let product = one * two.conj();
                let product = Complex64::new(product.re.into(), product.im.into());
                let rest = (product * Complex64::cis(TAU * turns.fract())).arg();
                assert!(rest.abs() < 0.06, "zone {zone}, tracked {tracked}, {channel}: {rest}");
            }
        }
    }
}

#[test]
fn simulated_digitisers_of_every_zone_receive_the_fringes_of_the_sky() {
    // Noise is coherent between windows that overlap: delays are short compared with a spectrum.
    let places = [[0.0, 0.0, 0.0], [1.5, 0.25, 0.0], [-0.6, 2.0, 0.05]];
    for (zone, oscillator) in [(1, 0.0), (2, 0.0), (2, 3e9)] {
        let heaps = (0..places.len()).map(|antenna| {
            let digitiser = json!({
                "adc_sample_rate_hz": RATE_HZ, "antenna": antenna, "antennas_enu_metres": places,
                "source": {"azimuth_degrees": 40.0, "elevation_degrees": 60.0, "amplitude": 0.2},
                "nyquist_zone": zone, "local_oscillator_hz": oscillator, "seed": antenna, "frames": 16,
                "samples_per_frame": 4096, "period_samples": 16 * 4096,
            });
            let samples = drive(&kind::<DigitiserSimulator>(digitiser), &[], vec![]);
            let mut f_engine = json!({"channels": CHANNELS, "spectra_per_heap": 16, "gains": 0.3});
            if zone == 1 {
                f_engine["centre_hz"] = json!(oscillator + centre_hz(zone));
            }
            let ports = vec![samples.port; 2];
            drive(&kind::<FEngine>(f_engine), &ports, vec![samples.frames; 2])
        });
        let (ports, frames): (Vec<_>, Vec<_>) =
            heaps.map(|heaps| (heaps.port, heaps.frames)).unzip();
        let stated_hz = ports[0].band.unwrap().centre_hz;
        assert!(
            (stated_hz - oscillator - centre_hz(zone)).abs() < 1e-3,
            "zone {zone}: {stated_hz}"
        );
        let stacked = drive(&kind::<AntennaStack>(json!({})), &ports, frames);
        let check = json!({
            "antennas_enu_metres": places, "source": {"azimuth_degrees": 40.0, "elevation_degrees": 60.0},
            "max_phase_error_degrees": 2.0, "max_delay_error_seconds": 5e-11,
        });
        let checked = then::<FringeCheck>(check, correlate(stacked));
        assert!(checked.summary.contains("largest deviation"), "{}", checked.summary);
    }
}

#[test]
fn nyquist_zone_of_the_f_engine_is_that_of_samples_without_a_band() {
    let sampled = Digitised::new(vec![0; 1024]).port();
    let output = |parameters: Value, input: &PortType| {
        kind::<FEngine>(parameters).outputs(std::slice::from_ref(input))
    };
    let of_zone = |zone: u32| json!({"channels": CHANNELS, "nyquist_zone": zone});
    for zone in [1, 2, 3] {
        let band = output(of_zone(zone), &sampled).unwrap()[0].band.unwrap();
        assert_eq!(
            (band.centre_hz, band.sideband),
            (centre_hz(zone), Sideband::of_nyquist_zone(zone))
        );
    }
    let stated = port(2, &Digitised::new(vec![0; 1024]));
    let rejections = output(of_zone(2), &stated).unwrap_err();
    assert!(rejections[0].message.contains("`nyquist_zone`"), "{}", rejections[0].message);
}
