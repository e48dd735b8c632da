#![allow(clippy::unwrap_used)]

use super::*;
use fxgraph::edge::Harness;
use fxgraph::{Axis, Clock, Dtype, Env, Frame, Next, Ports, ValidityType};
use std::sync::Arc;

const NAMES: [&str; 5] = ["heap", "antenna", "channel", "spectrum", "pol"];

fn port(dtype: Dtype, lengths: &[usize], validity: &[(&'static str, usize)]) -> PortType {
    let axes = NAMES.iter().zip(lengths).map(|(name, len)| Axis::new(name, *len));
    PortType {
        dtype,
        axes: axes.collect(),
        clock: Clock::new(1e6, 8),
        band: None,
        validity: ValidityType::flags(
            validity.iter().map(|(name, len)| Axis::new(name, *len)).collect(),
        ),
    }
}

fn to_order(order: &[usize], threads: usize) -> Transpose {
    Transpose { axes: order.iter().map(|n| NAMES[*n].to_owned()).collect(), threads }
}

/// Sends one frame through the block. Its bytes count up modulo primes, so that elements differ.
fn run(kind: &Transpose, input: &PortType) -> (PortType, Arc<Frame>) {
    let outputs = kind.outputs(std::slice::from_ref(input)).unwrap();
    let ports = Ports { inputs: vec![input.clone()], outputs };
    let configured = Configured::new(kind.clone(), &ports.inputs).unwrap();
    assert!(Transpose::resources(&configured).host_bytes > 0);
    let block = kind.build(&ports.inputs, &Env::detached("transpose")).unwrap();
    let mut harness = Harness::new(block, &ports, 1).unwrap();
    let sent = harness.send(0, |frame| {
        let (header, payload) = frame.parts_mut::<u8>().unwrap();
        header.timestamp = 77;
        header.annotations.reset("saturated", 2)[1] = 3.0;
        for (n, flag) in header.validity.iter_mut().enumerate() {
            *flag = n as u32;
        }
        for (n, byte) in payload.iter_mut().enumerate() {
            *byte = (n % 251 + n / 251 % 253) as u8;
        }
    });
    assert!(sent);
    harness.end(0);
    assert_eq!(Harness::block_on(harness.run()).unwrap(), Next::Finished);
    (ports.outputs[0].clone(), harness.receive(0).unwrap())
}

/// Returns the index in the input of element `index` of the output, directly from the definition.
fn source(lengths: &[usize], order: &[usize], mut index: usize) -> usize {
    let mut place = vec![0; lengths.len()];
    for &axis in order.iter().rev() {
        place[axis] = index % lengths[axis];
        index /= lengths[axis];
    }
    place.iter().zip(lengths).fold(0, |sum, (place, len)| sum * len + place)
}

fn check(dtype: Dtype, lengths: &[usize], order: &[usize], threads: usize) {
    let input = port(dtype, lengths, &[]);
    let (output, frame) = run(&to_order(order, threads), &input);
    let names: Vec<_> = output.axes.iter().map(|axis| axis.name).collect();
    assert_eq!(names, order.iter().map(|n| NAMES[*n]).collect::<Vec<_>>());
    assert_eq!(
        (frame.header().timestamp, frame.header().annotations.get("saturated")[1]),
        (77, 3.0)
    );
    let size = dtype.bytes(1);
    let byte = |n: usize| (n % 251 + n / 251 % 253) as u8;
    for (index, element) in frame.as_slice::<u8>().unwrap().chunks(size).enumerate() {
        let from = size * source(lengths, order, index);
        let expected: Vec<u8> = (from..from + size).map(byte).collect();
        assert_eq!(element, expected, "{lengths:?} {order:?} {dtype}, element {index}");
    }
}

/// Returns all permutations of the numbers below `n`.
pub(super) fn orders(n: usize) -> Vec<Vec<usize>> {
    let Some(last) = n.checked_sub(1) else { return vec![vec![]] };
    let insert = |order: Vec<usize>| {
        (0..n).map(move |at| {
            let mut order = order.clone();
            order.insert(at, last);
            order
        })
    };
    orders(last).into_iter().flat_map(insert).collect()
}

#[test]
fn every_permutation_of_up_to_five_axes_is_right_for_every_element_size() {
    let types = [Dtype::Ci4, Dtype::Ci8, Dtype::F32, Dtype::Cf32, Dtype::Cf64];
    for axes in 1..=5 {
        for (n, order) in orders(axes).iter().enumerate() {
            for lengths in [[3, 5, 2, 7, 2], [2, 1, 20, 3, 4], [1, 4, 2, 1, 8]] {
                let dtype = types[n % types.len()];
                check(dtype, &lengths[..axes], order, 1);
                check(types[(n + 1) % types.len()], &lengths[..axes], order, 2 + n % 3);
            }
        }
    }
}

#[test]
fn matrices_larger_than_a_square_are_right() {
    for dtype in [Dtype::I8, Dtype::Ci8, Dtype::Cf16, Dtype::F64, Dtype::Cf64] {
        check(dtype, &[130, 131], &[1, 0], 1);
        check(dtype, &[70, 300, 2], &[2, 1, 0], 3);
        check(dtype, &[70, 2, 260], &[2, 0, 1], 1);
    }
}

#[test]
fn validity_is_permuted_with_the_payload() {
    let input = port(Dtype::I8, &[2, 3, 4], &[("heap", 2), ("beam", 5), ("antenna", 3)]);
    let (output, frame) = run(&to_order(&[1, 2, 0], 1), &input);
    let units: Vec<_> = output.validity.axes.iter().map(|axis| (axis.name, axis.len)).collect();
    assert_eq!(units, [("antenna", 3), ("beam", 5), ("heap", 2)]);
    for (unit, count) in frame.header().validity.iter().enumerate() {
        let (antenna, beam, heap) = (unit / 10, unit / 2 % 5, unit % 2);
        assert_eq!(*count as usize, (heap * 5 + beam) * 3 + antenna);
    }
}

#[test]
fn transpose_rejects_packed_samples_and_wrong_axes() {
    let packed = port(Dtype::Packed(10), &[8], &[]);
    let rejections = to_order(&[0], 1).outputs(&[packed]).unwrap_err();
    assert_eq!(rejections[0].code, codes::INPUT_DTYPE);
    let input = port(Dtype::I8, &[2, 3], &[]);
    for order in [vec![0], vec![0, 0], vec![0, 2], vec![0, 1, 1]] {
        let rejections = to_order(&order, 1).outputs(std::slice::from_ref(&input)).unwrap_err();
        assert_eq!(rejections.len(), 1, "{order:?}");
    }
}

#[test]
fn every_launch_configuration_divides_tiles_evenly_among_threads() {
    for lengths in [[64, 3, 128, 2], [1, 300, 520, 1], [7, 2, 2, 16], [512, 2, 1, 700]] {
        for order in orders(4) {
            for bytes in [1, 2, 4, 8, 16] {
                let axes = permutation::axes(&lengths, &order);
                let kernel = kernel::kernel(&Permutation::new(&axes, bytes)).unwrap();
                let tunable = &kernel.tunable;
                assert!(!tunable.ways.is_empty());
                let ways = tunable.ways.iter().zip(&kernel.launches);
                for (way, launch) in ways.filter(|(way, _)| !way.is_empty()) {
                    let number = |at: usize| way[at].1.parse::<usize>().unwrap();
                    let [block, vtx, vty, vector, threads] = [0, 1, 2, 3, 4].map(number);
                    let element = tunable.shape[0].1.parse::<usize>().unwrap();
                    let squares = block * block * vtx * vty / (vector / element).pow(2);
                    assert!(threads <= 512 && squares % threads == 0, "{way:?}");
                    assert!(vector >= element && launch.shared_bytes <= 64 << 10, "{way:?}");
                    assert!(launch.shared_bytes / threads <= 256, "{way:?}");
                }
            }
        }
    }
}
