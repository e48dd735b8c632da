//! An array of seven antennas: weights null a jammer of 40 dB, and the satellite keeps its C/N0.
#![allow(clippy::unwrap_used)]

use super::gnss_acquisition::{Acquired, GnssAcquisition};
use super::gnss_signal_simulator::GnssSignalSimulator;
use super::gnss_tracker::{self, GnssTracker};
use super::samples::Samples;
use super::weights::{Array, Weight};
use crate::tests::chain::{Plain, drive, kind};
use fxgraph::changes::Undecided;
use fxgraph::edge::Harness;
use fxgraph::frame::Annotations;
use fxgraph::{Dtype, Env, KindSpec, PortType, Ports};
use fxgraph_dsp::gnss::Planes;
use fxgraph_dsp::random::Random;
use num_complex::{Complex32, Complex64};
use serde_json::{Value, json};
use std::f64::consts::TAU;

const ANTENNAS: usize = 7;
const SAMPLES: usize = 50_000;
const FRAMES: usize = 50;
const CN0_DB_HZ: f64 = 40.0;
const NOISE_RMS: f64 = 20.0;
/// Ratio of the power of the jammer to that of the noise of an antenna.
const JAMMER: f64 = 1e4;

/// Phase in turns at each antenna, one in the middle and six around it half a wavelength away, of a source at this
/// azimuth in turns, at an elevation with this cosine.
fn turns(azimuth: f64, cosine: f64) -> [f64; ANTENNAS] {
    std::array::from_fn(|antenna| match antenna {
        0 => 0.0,
        n => 0.5 * cosine * (TAU * (azimuth - n as f64 / 6.0)).cos(),
    })
}

fn phasors(turns: [f64; ANTENNAS]) -> [Complex64; ANTENNAS] {
    turns.map(|turns| Complex64::cis(TAU * turns))
}

/// The satellite in noise, and the jammer, if it is on.
fn frames(has_jammer: bool) -> (PortType, Vec<Plain>) {
    let sky: GnssSignalSimulator = serde_json::from_value(json!({
        "satellites": [{
            "system": "gps_l1_ca", "prn": 7, "doppler_hz": 1230, "code_phase_chips": 311.5,
            "cn0_db_hz": CN0_DB_HZ, "antenna_turns": turns(0.1, 0.6),
        }],
        "antennas": ANTENNAS, "dtype": "cf32", "adc_sample_rate_hz": 2.5e6, "samples_per_frame": SAMPLES,
        "noise_rms": NOISE_RMS, "frames": FRAMES, "seed": 2,
    }))
    .unwrap();
    let ports = Ports { inputs: vec![], outputs: sky.outputs(&[]).unwrap() };
    let block = sky.build(&ports.inputs, &Env::detached("sky")).unwrap();
    let mut source = Harness::new(block, &ports, 2).unwrap();
    let jammer = phasors(turns(0.45, 0.95));
    let mut random = Random::new(9);
    let frame = |_| {
        Harness::block_on(source.step()).unwrap();
        let frame = source.receive(0).unwrap();
        let mut samples = frame.as_slice::<Complex32>().unwrap().to_vec();
        for n in 0..if has_jammer { SAMPLES } else { 0 } {
            let [re, im] = random.normal_pair().map(|part| part * NOISE_RMS * JAMMER.sqrt());
            for (antenna, phasor) in jammer.iter().enumerate() {
                let value = Complex64::new(re, im) * phasor;
                samples[antenna * SAMPLES + n] += Complex32::new(value.re as f32, value.im as f32);
            }
        }
        Plain {
            timestamp: frame.header().timestamp,
            validity: vec![1],
            annotations: Annotations::default(),
            payload: bytemuck::cast_slice(&samples).to_vec(),
        }
    };
    let frames = (0..FRAMES).map(frame).collect();
    (ports.outputs[0].clone(), frames)
}

fn weights(of: [Complex64; ANTENNAS]) -> Value {
    of.iter().map(|weight| json!({"re": weight.re, "im": weight.im})).collect()
}

/// Searches and tracks the weighted sum; returns the row of the satellite in the last frame, if it was found.
fn receive(
    (port, frames): &(PortType, Vec<Plain>),
    weights: &Value,
) -> Option<[f64; gnss_tracker::VALUES]> {
    let acquire = json!({
        "satellites": [{"system": "gps_l1_ca", "prn": 7}], "every_frames": 1000, "weights": weights,
    });
    let inputs = [port.clone()];
    let found = drive(&kind::<GnssAcquisition>(acquire), &inputs, vec![frames.clone()]);
    Acquired::found(found.frames[0].values()[0])?;
    let inputs = [port.clone(), found.port.clone()];
    let track = kind::<GnssTracker>(json!({"weights": weights}));
    let tracked = drive(&track, &inputs, vec![frames.clone(), found.frames]);
    Some(tracked.frames[FRAMES - 1].values()[0])
}

#[test]
fn weights_that_null_a_jammer_of_40_db_give_back_the_carrier_to_noise_ratio() {
    let satellite = phasors(turns(0.1, 0.6));
    let jammer = phasors(turns(0.45, 0.95));
    let toward = weights(satellite.map(|phasor| phasor.conj() / ANTENNAS as f64));
    let first = weights(std::array::from_fn(|n| Complex64::from(f64::from(u8::from(n == 0)))));
    // The inverse of the covariance, 1 + JAMMER j j', times the phasors of the satellite.
    let seen: Complex64 = jammer.iter().zip(&satellite).map(|(j, s)| j.conj() * s).sum();
    let part = seen * JAMMER / (1.0 + JAMMER * ANTENNAS as f64);
    let null: [_; ANTENNAS] = std::array::from_fn(|n| (satellite[n] - jammer[n] * part).conj());

    let quiet = frames(false);
    let alone = receive(&quiet, &first).unwrap();
    let summed = receive(&quiet, &toward).unwrap();
    assert!((alone[3] - CN0_DB_HZ).abs() < 1.5, "{alone:?}");
    // Seven antennas have seven times the power of one.
    assert!((summed[3] - CN0_DB_HZ - 8.45).abs() < 1.5, "{summed:?}");

    let jammed = frames(true);
    assert!(receive(&jammed, &first).is_none());
    let nulled = receive(&jammed, &weights(null)).unwrap();
    assert!(nulled[2] > 0.5 && (nulled[3] - summed[3]).abs() < 3.0, "{nulled:?} {summed:?}");
}

#[test]
fn live_weights_apply_from_the_first_frame_at_or_after_their_timestamp() {
    let samples = Samples::complex(Dtype::Cf32, 2, 4, 1e6);
    let of = |re: f64| Weight { re, im: 0.0 };
    let mut array = Array::new(&samples, &[of(1.0), of(0.0)]);
    let (mut sum, payload) = (Planes::new(1, 4), [1.0_f32, 2.0]);
    let payload: Vec<Complex32> =
        payload.iter().flat_map(|value| [Complex32::new(*value, 0.5); 4]).collect();
    let mut read = |array: &mut Array, start: u64| {
        array.begin(start);
        array.read(bytemuck::cast_slice(&payload), start, &mut sum);
        let (re, im) = sum.parts(0, 0..4);
        assert!(re.iter().zip(im).all(|parts| parts == (&re[0], &im[0])));
        [re[0], im[0]].map(|part| (2.0 * part) as i32)
    };
    assert_eq!(read(&mut array, 0), [2, 1]);
    let moment = Undecided::new();
    let later = vec![Complex32::I, Complex32::new(3.0, 0.0)];
    array.update(moment.when().change(vec![("weights", Box::new(later))])).unwrap();
    moment.decide(9);
    assert_eq!(read(&mut array, 8), [2, 1]);
    // i (1 + 0.5 i) + 3 (2 + 0.5 i)
    assert_eq!(read(&mut array, 12), [11, 5]);
}

#[test]
fn arrays_need_a_finite_weight_for_each_antenna() {
    let sky = |antennas: usize| -> PortType {
        let sky = json!({"satellites": [{"system": "gps_l1_ca", "prn": 3}], "antennas": antennas});
        serde_json::from_value::<GnssSignalSimulator>(sky).unwrap().outputs(&[]).unwrap().remove(0)
    };
    let rejected = |antennas: usize, weights: Value| {
        let kind: GnssAcquisition = serde_json::from_value(
            json!({"satellites": [{"system": "gps_l1_ca", "prn": 3}], "weights": weights}),
        )
        .unwrap();
        kind.outputs(&[sky(antennas)]).map_err(|rejections| rejections[0].message.clone()).err()
    };
    let one = json!({"re": 1});
    assert_eq!(rejected(1, json!([])), None);
    assert_eq!(rejected(2, json!([one, {"im": -1}])), None);
    let message = "`weights` must have one entry for each antenna (2), got 0";
    assert_eq!(rejected(2, json!([])).unwrap(), message);
    assert!(rejected(2, json!([one, {"re": 1e300}])).unwrap().contains("1e6, got 1e300"));
    assert!(rejected(2, json!([{}, {}])).unwrap().contains("must differ from 0"));
    assert!(rejected(1, json!([one, one])).unwrap().contains("(1), got 2"));
}
