//! Powers of beams, and of antennas with flags of channels, against their definition.

use super::{Antennas, Detect, Products};
use fxgraph::edge::Harness;
use fxgraph::{Axis, Clock, Dtype, Env, KindSpec, PortType, Ports, ValidityType};
use fxgraph_dsp::random::Random;

const HEAPS: usize = 3;
const CHANNELS: usize = 5;
const SPECTRA: usize = 8;

fn axes(list: &[(&'static str, usize)]) -> Vec<Axis> {
    list.iter().map(|(name, len)| Axis::new(name, *len)).collect()
}

fn port(payload: &[(&'static str, usize)], units: &[(&'static str, usize)], full: u32) -> PortType {
    PortType {
        dtype: Dtype::Ci8,
        axes: axes(payload),
        clock: Clock::new(1e6, 240),
        band: None,
        validity: ValidityType { axes: axes(units), full },
    }
}

/// Runs a frame through the block. Returns the powers, the validity and the port of the output.
fn run(
    detect: &Detect,
    input: PortType,
    bytes: &[i8],
    valid: &[u32],
) -> (Vec<f32>, Vec<u32>, PortType) {
    let outputs = detect.outputs(std::slice::from_ref(&input)).unwrap();
    let ports = Ports { inputs: vec![input], outputs };
    let block = detect.build(&ports.inputs, &Env::detached("detect")).unwrap();
    let mut harness = Harness::new(block, &ports, 1).unwrap();
    harness.send(0, |frame| {
        frame.header_mut().validity.copy_from_slice(valid);
        frame.as_mut_slice::<i8>().unwrap().copy_from_slice(bytes);
    });
    Harness::block_on(harness.run()).unwrap();
    let frame = harness.receive(0).unwrap();
    let powers = frame.as_slice::<f32>().unwrap().to_vec();
    (powers, frame.header().validity.clone(), ports.outputs[0].clone())
}

/// Products of values of both polarisations.
fn products(products: Products, [a, b]: [f64; 2], [c, d]: [f64; 2]) -> Vec<f64> {
    let (xx, yy) = (a * a + b * b, c * c + d * d);
    match products {
        Products::Power => vec![xx],
        Products::Intensity => vec![xx + yy],
        Products::Stokes => vec![xx + yy, xx - yy, 2.0 * (a * c + b * d), 2.0 * (b * c - a * d)],
    }
}

const BEAMS: usize = 4;

#[test]
fn beams_become_a_filterbank_for_each_beam_or_pair() {
    let mut random = Random::new(6);
    let bytes: Vec<i8> =
        (0..HEAPS * BEAMS * CHANNELS * SPECTRA * 2).map(|_| random.bits() as i8).collect();
    let payload = [("heap", HEAPS), ("beam", BEAMS), ("channel", CHANNELS), ("spectrum", SPECTRA)];
    // Numbers of antennas: of heaps, or of each beam and channel.
    let of_heaps = vec![7, 0, 5];
    let of_channels: Vec<u32> =
        (0..HEAPS * BEAMS * CHANNELS).map(|_| (random.bits() % 4) as u32).collect();
    for (kind, spectra) in [(Products::Power, 12), (Products::Intensity, 4), (Products::Stokes, 24)]
    {
        let detect = Detect { products: kind, spectra, antennas: Antennas::Sum };
        let pols = if kind == Products::Power { 1 } else { 2 };
        for per_channel in [false, true] {
            let units = [("heap", HEAPS), ("beam", BEAMS), ("channel", CHANNELS)];
            let units = &units[..if per_channel { 3 } else { 1 }];
            let valid = if per_channel { &of_channels } else { &of_heaps };
            let (powers, counts, output) = run(&detect, port(&payload, units, 7), &bytes, valid);
            let count = |heap: usize, beam: usize, channel: usize| {
                if per_channel {
                    of_channels[(heap * BEAMS + beam) * CHANNELS + channel]
                } else {
                    of_heaps[heap]
                }
            };
            let value = |beam: usize, channel: usize, spectrum: usize| {
                let (heap, spectrum) = (spectrum / SPECTRA, spectrum % SPECTRA);
                let at = ((heap * BEAMS + beam) * CHANNELS + channel) * SPECTRA + spectrum;
                [bytes[2 * at], bytes[2 * at + 1]].map(f64::from)
            };
            let sums = HEAPS * SPECTRA / spectra;
            let rows = products(kind, [0.0; 2], [0.0; 2]).len();
            let mut found = powers.iter();
            for (beam, sum) in (0..BEAMS / pols).flat_map(|b| (0..sums).map(move |s| (b, s))) {
                let mut expected = vec![0.0; rows * CHANNELS];
                for channel in 0..CHANNELS {
                    let mut antennas = 0;
                    for spectrum in sum * spectra..(sum + 1) * spectra {
                        let (first, second) = (beam * pols, beam * pols + pols - 1);
                        let of = |beam| count(spectrum / SPECTRA, beam, channel);
                        let there = of(first).min(of(second));
                        antennas += there;
                        if there == 0 {
                            continue;
                        }
                        let values = [first, second].map(|beam| value(beam, channel, spectrum));
                        for (row, power) in
                            products(kind, values[0], values[1]).into_iter().enumerate()
                        {
                            expected[row * CHANNELS + channel] += power;
                        }
                    }
                    let unit =
                        if per_channel { (beam * sums + sum) * CHANNELS + channel } else { sum };
                    assert_eq!(counts[unit], antennas);
                }
                for expected in expected {
                    assert_eq!(*found.next().unwrap(), expected as f32);
                }
            }
            assert!(found.next().is_none());
            let names: Vec<_> = output.axes.iter().map(|axis| axis.name).collect();
            assert_eq!(names, ["beam", "spectrum", "product", "channel"]);
            assert_eq!(output.validity.full, 7 * spectra as u32);
        }
    }
    let odd = [("heap", HEAPS), ("beam", 3), ("channel", CHANNELS), ("spectrum", SPECTRA)];
    let detect = Detect { products: Products::Stokes, spectra: 1, antennas: Antennas::Sum };
    let rejections = detect.outputs(&[port(&odd, &[("heap", HEAPS)], 7)]).unwrap_err();
    assert!(rejections[0].message.contains("need pairs of beams"), "{}", rejections[0].message);
}

#[test]
fn flagged_channels_of_antennas_are_left_out_of_their_sums() {
    const ANTENNAS: usize = 3;
    let mut random = Random::new(7);
    let mut bytes: Vec<i8> =
        (0..HEAPS * ANTENNAS * CHANNELS * SPECTRA * 4).map(|_| random.bits() as i8).collect();
    let valid: Vec<u32> =
        (0..HEAPS * ANTENNAS * CHANNELS * 2).map(|_| (random.bits() % 4).min(1) as u32).collect();
    // The samples of flagged units are 0.
    for (n, value) in bytes.iter_mut().enumerate() {
        let (row, pol) = (n / (4 * SPECTRA), n / 2 % 2);
        *value *= valid[2 * row + pol] as i8;
    }
    let units = [("heap", HEAPS), ("antenna", ANTENNAS), ("channel", CHANNELS), ("pol", 2)];
    let mut payload = units.to_vec();
    payload.insert(3, ("spectrum", SPECTRA));
    let detect = Detect { products: Products::Intensity, spectra: 12, antennas: Antennas::Sum };
    let (powers, counts, output) = run(&detect, port(&payload, &units, 1), &bytes, &valid);
    let names: Vec<_> = output.validity.axes.iter().map(|axis| axis.name).collect();
    assert_eq!(names, ["spectrum", "channel"]);
    for (sum, channel) in (0..2).flat_map(|sum| (0..CHANNELS).map(move |c| (sum, c))) {
        let (mut power, mut count) = (0.0, 0);
        for (spectrum, antenna) in
            (sum * 12..(sum + 1) * 12).flat_map(|s| (0..ANTENNAS).map(move |a| (s, a)))
        {
            let row = (spectrum / SPECTRA * ANTENNAS + antenna) * CHANNELS + channel;
            if valid[2 * row] == 0 || valid[2 * row + 1] == 0 {
                continue;
            }
            count += 1;
            let at = (row * SPECTRA + spectrum % SPECTRA) * 4;
            power += bytes[at..at + 4].iter().map(|v| f64::from(*v).powi(2)).sum::<f64>();
        }
        assert_eq!(counts[sum * CHANNELS + channel], count);
        assert_eq!(powers[sum * CHANNELS + channel], power as f32);
    }
}
