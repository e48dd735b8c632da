//! Which heaps of each antenna a dump integrates, found from its values.

use super::dumps::Dump;
use std::collections::BTreeMap;

/// Value of a baseline to which no heap contributed.
const NONE: [i32; 2] = [i32::MIN, 1];

/// Sums of a correlator, `[channel][baseline][product 4]`, with the validity of each baseline.
struct Sums {
    baselines: usize,
    counts: Vec<u32>,
    values: Vec<i32>,
}

impl Sums {
    fn new((validity, values): &Dump) -> Self {
        let words = |bytes: &[u8]| -> Vec<[u8; 4]> {
            bytes.chunks(4).map(|word| word.try_into().unwrap()).collect()
        };
        let counts: Vec<u32> = words(validity).into_iter().map(u32::from_le_bytes).collect();
        let values = words(values).into_iter().map(i32::from_le_bytes).collect();
        Self { baselines: counts.len(), counts, values }
    }

    /// Values of a baseline: products of each channel, real and imaginary part.
    fn of(&self, baseline: usize) -> Vec<i32> {
        let channels = self.values.chunks(self.baselines * 8);
        channels.flat_map(|channel| &channel[baseline * 8..][..8]).copied().collect()
    }
}

/// Sum of the `heaps` that `mask` names.
fn sum(heaps: &[Sums], mask: u32, baseline: usize) -> Vec<i32> {
    let chosen = heaps.iter().enumerate().filter(|(at, _)| mask & (1 << at) != 0);
    let all = chosen.map(|(_, heap)| heap.of(baseline));
    let added = |sum: Vec<i32>, next: Vec<i32>| sum.iter().zip(next).map(|(a, b)| a + b).collect();
    all.reduce(added).unwrap_or_else(|| NONE.repeat(heaps[0].of(baseline).len() / 2))
}

/// For each antenna, the timestamps of its heaps that are missing in `dumps`. The `heaps` are dumps of one heap each of a
/// run in which nothing is missing. Fails if a dump is not exactly the sum of the heaps that its counts tell.
pub fn missing(
    dumps: &BTreeMap<u64, Dump>,
    heaps: &BTreeMap<u64, Dump>,
    antennas: usize,
    per_dump: usize,
) -> Vec<Vec<u64>> {
    let mut missing = vec![Vec::new(); antennas];
    for (timestamp, dump) in dumps {
        let dump = Sums::new(dump);
        let (times, heaps): (Vec<u64>, Vec<Sums>) = heaps
            .range(timestamp..)
            .take(per_dump)
            .map(|(time, heap)| (*time, Sums::new(heap)))
            .unzip();
        assert_eq!((times[0], heaps.len()), (*timestamp, per_dump));
        let sum_is = |baseline: usize, mask: u32| {
            dump.counts[baseline] == mask.count_ones()
                && dump.of(baseline) == sum(&heaps, mask, baseline)
        };
        // Noise differs from heap to heap: one set of heaps has the power of the antenna.
        let used: Vec<u32> = (0..antennas)
            .map(|antenna| {
                let baseline = antenna * (antenna + 3) / 2;
                (0..1 << per_dump).find(|mask| sum_is(baseline, *mask)).unwrap_or_else(|| {
                    panic!("antenna {antenna} at {timestamp}: no {} heaps", dump.counts[baseline])
                })
            })
            .collect();
        for second in 0..antennas {
            for first in 0..second {
                let baseline = second * (second + 1) / 2 + first;
                let mask = used[first] & used[second];
                assert!(sum_is(baseline, mask), "{first}-{second} at {timestamp}: {mask:#b}");
            }
            let lacks = times.iter().enumerate().filter(|(at, _)| used[second] & (1 << at) == 0);
            missing[second].extend(lacks.map(|(_, time)| *time));
        }
    }
    missing
}
