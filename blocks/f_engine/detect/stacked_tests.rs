use super::{Antennas, Detect, Products};
use fxgraph::edge::Harness;
use fxgraph::{Axis, Clock, Dtype, Env, KindSpec, PortType, Ports, ValidityType};
use fxgraph_dsp::random::Random;

const HEAPS: usize = 3;
const ANTENNAS: usize = 4;
const CHANNELS: usize = 5;
const SPECTRA: usize = 8;

fn port(k_major: bool) -> PortType {
    let units = vec![Axis::new("heap", HEAPS), Axis::new("antenna", ANTENNAS)];
    let (spectrum, pol) = (Axis::new("spectrum", SPECTRA), Axis::new("pol", 2));
    let mut axes = units.clone();
    axes.push(Axis::new("channel", CHANNELS));
    axes.extend(if k_major { [pol, spectrum] } else { [spectrum, pol] });
    PortType {
        dtype: Dtype::Ci8,
        axes,
        clock: Clock::new(1e6, 240),
        band: None,
        validity: ValidityType::flags(units),
    }
}

/// Powers by their definition, with the validity of each sum.
struct Expected {
    powers: Vec<f32>,
    validity: Vec<u32>,
}

fn expected(detect: &Detect, k_major: bool, bytes: &[i8], valid: &[u32]) -> Expected {
    let value = |spectrum: usize, antenna: usize, channel: usize, pol: usize| {
        let (heap, spectrum) = (spectrum / SPECTRA, spectrum % SPECTRA);
        let row = ((heap * ANTENNAS + antenna) * CHANNELS + channel) * 2 * SPECTRA;
        let at = row + if k_major { pol * SPECTRA + spectrum } else { 2 * spectrum + pol };
        [bytes[2 * at], bytes[2 * at + 1]].map(f64::from)
    };
    let groups: Vec<Vec<usize>> = match detect.antennas {
        Antennas::Sum => vec![(0..ANTENNAS).collect()],
        Antennas::Separate => (0..ANTENNAS).map(|antenna| vec![antenna]).collect(),
    };
    let mut all = Expected { powers: Vec::new(), validity: Vec::new() };
    for group in groups {
        for sum in 0..HEAPS * SPECTRA / detect.spectra {
            let spectra = sum * detect.spectra..(sum + 1) * detect.spectra;
            let pairs = spectra.flat_map(|s| group.iter().map(move |antenna| (s, *antenna)));
            let pairs: Vec<_> =
                pairs.filter(|(s, antenna)| valid[s / SPECTRA * ANTENNAS + antenna] > 0).collect();
            all.validity.push(pairs.len() as u32);
            let rows = detect.products.labels(2).len();
            for row in 0..rows {
                for channel in 0..CHANNELS {
                    let products = pairs.iter().map(|(s, antenna)| {
                        let [[a, b], [c, d]] = [0, 1].map(|pol| value(*s, *antenna, channel, pol));
                        let (xx, yy) = (a * a + b * b, c * c + d * d);
                        match detect.products {
                            Products::Power => [xx, yy][row],
                            Products::Intensity => xx + yy,
                            Products::Stokes => {
                                [xx + yy, xx - yy, 2.0 * (a * c + b * d), 2.0 * (b * c - a * d)]
                                    [row]
                            }
                        }
                    });
                    all.powers.push(products.sum::<f64>() as f32);
                }
            }
        }
    }
    all
}

#[test]
fn sums_over_antennas_are_exact_without_missing_heaps() {
    let mut random = Random::new(5);
    let bytes: Vec<i8> =
        (0..HEAPS * ANTENNAS * CHANNELS * SPECTRA * 4).map(|_| random.bits() as i8).collect();
    // Antenna 1 lacks heap 0, antennas 2 and 3 lack heap 2.
    let valid = [1, 0, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0];
    for k_major in [false, true] {
        for antennas in [Antennas::Sum, Antennas::Separate] {
            // Sums of parts of heaps, and across heaps.
            for (products, spectra) in
                [(Products::Stokes, 4), (Products::Power, 12), (Products::Intensity, 24)]
            {
                let detect = Detect { products, spectra, antennas };
                let input = port(k_major);
                let outputs = detect.outputs(std::slice::from_ref(&input)).unwrap();
                let ports = Ports { inputs: vec![input], outputs };
                let env = Env::detached("detect");
                let block = detect.build(&ports.inputs, &env).unwrap();
                let mut harness = Harness::new(block, &ports, 1).unwrap();
                harness.send(0, |frame| {
                    frame.header_mut().validity.copy_from_slice(&valid);
                    frame.as_mut_slice::<i8>().unwrap().copy_from_slice(&bytes);
                });
                Harness::block_on(harness.run()).unwrap();
                let frame = harness.receive(0).unwrap();
                let expected = expected(&detect, k_major, &bytes, &valid);
                assert_eq!(frame.header().validity, expected.validity);
                assert_eq!(frame.as_slice::<f32>().unwrap(), expected.powers);
                assert_eq!(env.counters.list()[0].counter.get(), 3 * SPECTRA as u64);
                let names: Vec<_> = ports.outputs[0].axes.iter().map(|axis| axis.name).collect();
                match antennas {
                    Antennas::Sum => assert_eq!(names, ["spectrum", "product", "channel"]),
                    Antennas::Separate => {
                        assert_eq!(names, ["antenna", "spectrum", "product", "channel"]);
                    }
                }
                let full = if antennas == Antennas::Sum { ANTENNAS * spectra } else { spectra };
                assert_eq!(ports.outputs[0].validity.full, full as u32);
            }
        }
    }
}

#[test]
fn spectra_that_do_not_divide_a_frame_are_rejected() {
    let detect = Detect { products: Products::Power, spectra: 5, antennas: Antennas::Sum };
    let rejections = detect.outputs(&[port(false)]).unwrap_err();
    assert_eq!(rejections[0].message, "`spectra` must divide the 24 spectra of a frame, got 5");
}
