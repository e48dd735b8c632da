//! Real recordings of other people, which are not part of this repository.
//!
//! The environment variable `FXGRAPH_RECORDINGS` names their directory; without it the tests are skipped. The truth of
//! each recording was found by other programs: see the comments.

use super::chain::{Plain, drive, kind};
use crate::io::file_source::FileSource;
use crate::io::filterbank_source::FilterbankSource;
use crate::io::sigmf_source::SigmfSource;
use fxgraph::{KindSpec, PortType};
use serde_json::{Value, json};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Path of the recording `name`; `None`, with a reason on stderr, without it.
fn recording(name: &str) -> Option<PathBuf> {
    let skipped = |why: String| {
        let _ = writeln!(std::io::stderr(), "skipped: {why}");
        None
    };
    let Some(directory) = std::env::var_os("FXGRAPH_RECORDINGS") else {
        return skipped("FXGRAPH_RECORDINGS does not name a directory of recordings".to_owned());
    };
    let path = Path::new(&directory).join(name);
    if path.is_file() { Some(path) } else { skipped(format!("{} is missing", path.display())) }
}

/// Prints a result, which `cargo test -- --nocapture` shows.
fn report(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

fn play<K: KindSpec>(parameters: Value) -> (PortType, Vec<Plain>) {
    let out = drive(&kind::<K>(parameters), &[], Vec::new());
    (out.port, out.frames)
}

/// Spectra of a filterbank file, `[spectrum][channel]`, without those that fill the last frame.
fn spectra(path: &Path) -> (PortType, Vec<f32>) {
    let json = json!({"path": path, "spectra_per_frame": 1024});
    let (port, frames) = play::<FilterbankSource>(json);
    let channels = port.axes[2].len;
    let valid = |frame: &Plain| {
        let spectra = frame.validity.iter().filter(|flag| **flag > 0).count();
        frame.values::<f32>()[..spectra * channels].to_vec()
    };
    let values = frames.iter().flat_map(valid).collect();
    (port, values)
}

/// Sum, sum of squares, and sum weighted with the number of the value modulo 251.
fn sums(values: &[f32]) -> [u64; 3] {
    let values = values.iter().map(|value| *value as u64).enumerate();
    values.fold([0; 3], |[sum, squares, weighted], (n, value)| {
        [sum + value, squares + value * value, weighted + value * (n as u64 % 251)]
    })
}

#[test]
fn parkes_filterbank_of_four_bits_has_the_values_of_numpy() {
    let Some(path) = recording("parkes_4bit.fil") else { return };
    let (port, values) = spectra(&path);
    // NumPy: 832 channels, the low half of each byte first.
    assert_eq!((port.axes[2].len, values.len()), (832, 4096 * 832));
    assert_eq!(values[..8], [7.0, 8.0, 8.0, 5.0, 9.0, 9.0, 8.0, 9.0]);
    let found = sums(&values);
    report(&format!("parkes_4bit.fil: {port}, sums {found:?}"));
    assert_eq!(found, [25_658_391, 199_382_175, 3_207_015_421]);
}

#[test]
fn burst_of_askap_has_the_values_of_your_and_its_dispersion() {
    let Some(path) = recording("burst_askap.fil") else { return };
    let (port, values) = spectra(&path);
    let channels = port.axes[2].len;
    // The package `your` 0.6.7.
    assert_eq!((channels, values.len()), (336, 5120 * 336));
    assert_eq!(sums(&values), [219_206_550, 28_532_834_986, 27_395_365_385]);
    let seconds = port.clock.frames_per_second().recip() / 1024.0;
    assert!((seconds - 0.001_266_468_75).abs() < 1e-12);
    let band = port.band.unwrap();
    let frequencies: Vec<f64> = (0..channels).map(|c| band.channel_hz(c) / 1e6).collect();
    assert!((frequencies[0] - 1465.0).abs() < 1e-9 && (frequencies[335] - 1130.0).abs() < 1e-9);
    let normal = normalised(&values, channels);
    let search = |dm: f64| (signal_to_noise(&dedispersed(&normal, &frequencies, seconds, dm)), dm);
    let all: Vec<(f64, f64)> = (0..80).map(|n| search(10.0 * f64::from(n))).collect();
    let best = all.iter().copied().fold((0.0, 0.0), |a, b| if b.0 > a.0 { b } else { a });
    report(&format!("burst_askap.fil: {port}, S/N {:.1} at {} pc/cm3", best.0, best.1));
    // The catalogue of the recording: about 475; a coarse search in NumPy has its maximum at 470.
    assert!((best.1 - 475.0).abs() <= 15.0 && best.0 > 6.5, "{best:?}");
}

/// Values of each channel minus their mean, in units of their standard deviation.
fn normalised(values: &[f32], channels: usize) -> Vec<f64> {
    let mut out: Vec<f64> = values.iter().map(|value| f64::from(*value)).collect();
    let count = (values.len() / channels) as f64;
    for channel in 0..channels {
        let of =
            |out: &[f64]| out.iter().skip(channel).step_by(channels).copied().collect::<Vec<_>>();
        let column = of(&out);
        let mean = column.iter().sum::<f64>() / count;
        let sigma = (column.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / count).sqrt();
        let scale = if sigma > 0.0 { sigma.recip() } else { 0.0 };
        out.iter_mut().skip(channel).step_by(channels).for_each(|v| *v = (*v - mean) * scale);
    }
    out
}

/// Sum over the channels, each delayed as by `dm` relative to the first.
fn dedispersed(values: &[f64], mhz: &[f64], seconds: f64, dm: f64) -> Vec<f64> {
    let delay = |f: f64| 4148.808 * dm * (f.powi(-2) - mhz[0].powi(-2)) / seconds;
    let delays: Vec<usize> = mhz.iter().map(|f| delay(*f).round() as usize).collect();
    let longest = delays.iter().copied().max().unwrap_or(0);
    let spectra = (values.len() / mhz.len()).saturating_sub(longest);
    let at = |t: usize| {
        let of = delays.iter().enumerate().map(|(c, delay)| values[(t + delay) * mhz.len() + c]);
        of.sum()
    };
    (0..spectra).map(at).collect()
}

/// Largest value above the median, in units of the standard deviation that the median deviation gives.
fn signal_to_noise(series: &[f64]) -> f64 {
    let median = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let middle = median(series.to_vec());
    let spread = 1.4826 * median(series.iter().map(|value| (value - middle).abs()).collect());
    (series.iter().copied().fold(f64::MIN, f64::max) - middle) / spread
}

#[test]
fn pulsar_of_a_plain_file_is_folded_at_its_period() {
    let Some(path) = recording("pulsar_j1807.dat") else { return };
    // The .inf file: 131072 bins of 0.16384 ms.
    let rate_hz = 1.0 / 0.000_163_84;
    let json = json!({"path": path, "raw": {
        "dtype": "f32", "axes": [{"name": "spectrum", "len": 4096}], "samples_per_frame": 4096,
        "adc_sample_rate_hz": rate_hz,
    }});
    let (_, frames) = play::<FileSource>(json);
    let series: Vec<f64> = frames.iter().flat_map(Plain::values::<f32>).map(f64::from).collect();
    assert_eq!(series.len(), 131_072);
    let mean = series.iter().sum::<f64>() / series.len() as f64;
    // NumPy.
    assert!((mean - 445_404.089_561_462_4).abs() < 1e-6, "{mean}");
    // Slow changes of the gain are removed by a high-pass filter: differences to a running mean of 2001 bins.
    let mut sums = vec![0.0];
    series.iter().for_each(|value| sums.push(sums[sums.len() - 1] + value - mean));
    let flat: Vec<f64> = (1000..series.len() - 1000)
        .map(|n| series[n] - mean - (sums[n + 1001] - sums[n - 1000]) / 2001.0)
        .collect();
    let folded = |period: f64| {
        let mut bins = [(0.0, 0.0); 128];
        for (n, value) in flat.iter().enumerate() {
            let bin = &mut bins[((n as f64 / rate_hz / period).fract() * 128.0) as usize];
            *bin = (bin.0 + value, bin.1 + 1.0);
        }
        signal_to_noise(&bins.map(|(sum, count)| sum / f64::max(count, 1.0)))
    };
    let (right, wrong) = (folded(0.163_722), folded(0.170));
    report(&format!("pulsar_j1807.dat: S/N of the profile {right:.1} at P, {wrong:.1} beside it"));
    assert!(right > 20.0 && wrong < 8.0, "{right} {wrong}");
}

#[test]
fn samples_of_l2_have_the_sums_of_numpy() {
    let Some(path) = recording("gnss_l2_4msps_iq.i8") else { return };
    let json = json!({"path": path, "raw": {
        "dtype": "ci8", "axes": [{"name": "sample", "len": 4000}], "samples_per_frame": 4000,
        "adc_sample_rate_hz": 4e6,
    }});
    let (port, frames) = play::<FileSource>(json);
    let bytes: Vec<i8> = frames.iter().flat_map(Plain::values::<i8>).collect();
    let (pairs, rest) = bytes.as_chunks::<2>();
    assert!(rest.is_empty());
    let sum = |of: &dyn Fn(i64, i64) -> i64| {
        pairs.iter().map(|&[re, im]| of(re.into(), im.into())).sum::<i64>()
    };
    // NumPy: sum, power, and the product of each sample with the conjugate of the sample before, whose sign shows the
    // order of the parts.
    let found = [sum(&|re, _| re), sum(&|_, im| im), sum(&|re, im| re * re + im * im)];
    report(&format!("gnss_l2_4msps_iq.i8: {port}, sums {found:?}"));
    assert_eq!(found, [112_466, 56_262, 14_442_568]);
    let neighbours = pairs.windows(2).map(|two| {
        let [[a, b], [c, d]] = [two[0], two[1]].map(|pair| pair.map(i64::from));
        [c * a + d * b, d * a - c * b]
    });
    let product = neighbours.fold([0; 2], |[re, im], [a, b]| [re + a, im + b]);
    assert_eq!(product, [7_114_508, -32_110]);
}

/// Remainder of Mode S's polynomial of degree 24.
fn mode_s_remainder(bits: &[bool]) -> u32 {
    bits.iter().fold(0, |rest, bit| {
        let rest = rest << 1 | u32::from(*bit);
        if rest & 1 << 24 != 0 { rest ^ 0x1ff_f409 } else { rest }
    })
}

#[test]
fn aircraft_transponders_of_an_rtl_sdr_are_decoded() {
    let Some(path) = recording("rtlsdr_1090mhz_2msps.cu8") else { return };
    let directory = tempfile::tempdir().unwrap();
    std::fs::copy(path, directory.path().join("x.sigmf-data")).unwrap();
    let meta = directory.path().join("x.sigmf-meta");
    let text = json!({
        "global": {"core:datatype": "cu8", "core:version": "1.2.0", "core:sample_rate": 2e6},
        "captures": [{"core:sample_start": 0, "core:frequency": 1090e6}], "annotations": [],
    });
    std::fs::write(&meta, text.to_string()).unwrap();
    let (port, frames) = play::<SigmfSource>(json!({"path": meta, "samples_per_frame": 4096}));
    let mut bytes: Vec<i8> = frames.iter().flat_map(Plain::values::<i8>).collect();
    // The last frame is filled with zeros.
    bytes.truncate(713_736);
    assert_eq!(bytes.iter().map(|value| i64::from(*value)).sum::<i64>(), -436_564);
    let m: Vec<f64> = bytes
        .as_chunks::<2>()
        .0
        .iter()
        .map(|[re, im]| (f64::from(*re) + 0.5).hypot(f64::from(*im) + 0.5))
        .collect();
    let is_preamble = |m: &[f64]| {
        let is_pulse = m[0] > m[1] && m[1] < m[2] && m[2] > m[3] && m[7] > m[8] && m[9] > m[6];
        is_pulse && m[8] < m[9] && (3..7).all(|n| m[n] < m[0])
    };
    // A bit is a pulse of 0.5 us in the first or the second half of a microsecond.
    let decoded = m.windows(240).filter(|m| is_preamble(m)).filter(|m| {
        let bits: Vec<bool> = m[16..].as_chunks::<2>().0.iter().map(|[a, b]| a > b).collect();
        let bits = &bits[..112];
        let format = bits[..5].iter().fold(0, |sum, bit| sum << 1 | u32::from(*bit));
        matches!(format, 17 | 18) && mode_s_remainder(bits) == 0
    });
    let count = decoded.count();
    report(&format!(
        "rtlsdr_1090mhz_2msps.cu8: {port}, {count} extended squitters with a right checksum"
    ));
    // The same search in NumPy on the file itself.
    assert_eq!(count, 141);
}
