//! The filters against figures of others, and what the page says of them.

use super::{LowPass, Mode};
use std::f64::consts::TAU;

/// The largest error of a filter in its pass band and in its stop bands.
fn response(low_pass: &LowPass) -> [f64; 2] {
    let scale = (low_pass.subsampling as f64).sqrt();
    let weights = low_pass.weights().unwrap();
    let middle = (weights.len() - 1) as f64 / 2.0;
    let amplitude = |f: f64| -> f64 {
        let term = |(n, h): (usize, &f64)| h / scale * (TAU * f * (n as f64 - middle)).cos();
        weights.iter().enumerate().map(term).sum()
    };
    let mut errors = [0.0_f64; 2];
    for (n, band) in low_pass.bands().iter().enumerate() {
        let steps = 4 * low_pass.taps;
        for i in 0..=steps {
            let f = band.from + (band.to - band.from) * i as f64 / steps as f64;
            let error = (amplitude(f) - band.desired).abs();
            errors[n.min(1)] = errors[n.min(1)].max(error);
        }
    }
    errors
}

pub fn low_pass(mode: Mode, subsampling: usize, taps: usize) -> LowPass {
    LowPass { mode, subsampling, taps, pass: 0.75, pass_weight: 0.005 }
}

#[test]
fn filters_are_as_good_as_those_of_scipy() {
    // scipy.signal.remez of SciPy 1.17.1 for the same bands and weights: largest error in the pass band
    // and in the stop bands.
    for (mode, subsampling, taps, of_scipy) in [
        (Mode::Discard, 2, 32, [2.9884e-6, 1.5822e-8]),
        (Mode::Discard, 8, 128, [2.8664e-6, 1.5118e-8]),
        (Mode::Discard, 16, 256, [2.8066e-6, 1.4756e-8]),
        (Mode::Discard, 8, 64, [4.4635e-3, 2.2727e-5]),
        (Mode::Discard, 6, 75, [7.7344e-5, 4.1668e-7]),
        (Mode::Discard, 32, 512, [2.7594e-6, 1.4473e-8]),
        (Mode::NoDiscard, 8, 128, [4.4214e-3, 2.2226e-5]),
        (Mode::NoDiscard, 16, 256, [4.3021e-3, 2.1588e-5]),
        (Mode::NoDiscard, 32, 512, [4.2343e-3, 2.1211e-5]),
    ] {
        let found = response(&low_pass(mode, subsampling, taps));
        for (found, of_scipy) in found.iter().zip(of_scipy) {
            // Both are the optimum, as exactly as they are computed.
            let ratio = found / of_scipy;
            assert!(
                (0.9..1.03).contains(&ratio),
                "{mode:?} {subsampling} {taps}: {found} {of_scipy}"
            );
        }
    }
}

#[test]
fn filters_of_all_sizes_can_be_designed() {
    for mode in [Mode::Discard, Mode::NoDiscard] {
        for subsampling in [2, 4, 6, 10, 12, 16] {
            for per_sample in [1, 3, 8, 12, 16] {
                for pass in [0.5, 0.75, 0.9] {
                    let taps = subsampling * per_sample;
                    let low_pass = LowPass { pass, ..low_pass(mode, subsampling, taps) };
                    assert!(low_pass.weights().is_some(), "{low_pass:?}");
                }
            }
        }
        let [pass, stop] = response(&low_pass(mode, 64, 1024));
        assert!(pass < 5e-3 && stop < 3e-5, "{mode:?}: {pass} {stop}");
    }
}

/// The lines between `<!-- name -->` and `<!-- end -->` of the block's page.
fn section(name: &str) -> &'static str {
    let page = include_str!("README.md");
    let from = page.split_once(&format!("<!-- {name} -->\n")).unwrap().1;
    from.split_once("<!-- end -->").unwrap().0
}

#[test]
fn the_page_shows_what_the_filters_do() {
    let mut table =
        "| mode | S | taps | ripple, dB | aliases, dB |\n|---|---:|---:|---:|---:|\n".to_owned();
    for (mode, name, subsampling) in [
        (Mode::Discard, "discard", 2),
        (Mode::Discard, "discard", 8),
        (Mode::Discard, "discard", 16),
        (Mode::NoDiscard, "no_discard", 8),
        (Mode::NoDiscard, "no_discard", 16),
    ] {
        let [pass, stop] = response(&low_pass(mode, subsampling, 16 * subsampling));
        let ripple = 20.0 * (1.0 + pass).log10();
        let digits = if ripple < 1e-3 { 5 } else { 4 };
        let (taps, aliases) = (16 * subsampling, 20.0 * stop.log10());
        table +=
            &format!("| `{name}` | {subsampling} | {taps} | {ripple:.digits$} | {aliases:.0} |\n");
    }
    assert_eq!(section("responses"), table);
}

#[test]
fn the_page_shows_the_weights_of_the_smallest_filter() {
    let weights = low_pass(Mode::Discard, 2, 32).weights().unwrap();
    let mut lines = "```text\n".to_owned();
    for four in weights[..16].chunks(4) {
        let four: Vec<_> = four.iter().map(|h| format!("{:13.6e}", h / 2.0_f64.sqrt())).collect();
        lines += &format!("{}\n", four.join(" "));
    }
    assert_eq!(section("weights"), lines + "```\n");
}
