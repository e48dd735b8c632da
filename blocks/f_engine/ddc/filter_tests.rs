//! Filter responses and weights of the block's page.

use fxgraph_dsp::low_pass::{LowPass, Mode};

pub fn low_pass(mode: Mode, subsampling: usize, taps: usize) -> LowPass {
    LowPass { mode, subsampling, taps, pass: 0.75, pass_weight: 0.005 }
}

/// Lines between `<!-- name -->` and `<!-- end -->` of the block's page.
fn section(name: &str) -> &'static str {
    let page = include_str!("README.md");
    let from = page.split_once(&format!("<!-- {name} -->\n")).unwrap().1;
    from.split_once("<!-- end -->").unwrap().0
}

#[test]
fn page_shows_filter_responses() {
    let mut table =
        "| mode | S | taps | ripple, dB | aliases, dB |\n|---|---:|---:|---:|---:|\n".to_owned();
    for (mode, name, subsampling) in [
        (Mode::Discard, "discard", 2),
        (Mode::Discard, "discard", 8),
        (Mode::Discard, "discard", 16),
        (Mode::NoDiscard, "no_discard", 8),
        (Mode::NoDiscard, "no_discard", 16),
    ] {
        let [pass, stop] = low_pass(mode, subsampling, 16 * subsampling).largest_errors().unwrap();
        let ripple = 20.0 * (1.0 + pass).log10();
        let digits = if ripple < 1e-3 { 5 } else { 4 };
        let (taps, aliases) = (16 * subsampling, 20.0 * stop.log10());
        table +=
            &format!("| `{name}` | {subsampling} | {taps} | {ripple:.digits$} | {aliases:.0} |\n");
    }
    assert_eq!(section("responses"), table);
}

#[test]
fn page_shows_weights_of_smallest_filter() {
    let weights = low_pass(Mode::Discard, 2, 32).weights().unwrap();
    let mut lines = "```text\n".to_owned();
    for four in weights[..16].chunks(4) {
        let four: Vec<_> = four.iter().map(|h| format!("{:13.6e}", h / 2.0_f64.sqrt())).collect();
        lines += &format!("{}\n", four.join(" "));
    }
    assert_eq!(section("weights"), lines + "```\n");
}
