//! `fxgraph test`

mod check;
mod companions;
mod elements;
mod tap;

use crate::failure::Failure;
use crate::flowgraph::{self, parse_setting};
use crate::terminal::{Paint, Terminal};
use check::{Gathered, Verdict};
use companions::Companions;
use fxgraph::flowgraph::{Check, Plan, Probe, Run, TestSpec};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tap::Tap;

/// Runs the tests that stand in flowgraphs
#[derive(Debug, clap::Args)]
pub struct Test {
    /// Flowgraph files
    #[arg(required = true)]
    files: Vec<PathBuf>,

    /// Runs only tests whose name contains this
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,

    /// Changes a parameter in each test, after the test's own changes; may be given several times
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_setting)]
    set: Vec<(String, String)>,
}

impl Test {
    pub fn execute(self, terminal: &mut Terminal) -> Result<(), Failure> {
        let mut plans = Vec::new();
        let mut wrong = Vec::new();
        for file in &self.files {
            match flowgraph::plan(file, &[], terminal) {
                Ok(plan) => plans.push((file, plan)),
                Err(Failure::Configuration(text)) => wrong.push(text),
                Err(failure) => return Err(failure),
            }
        }
        if !wrong.is_empty() {
            return Err(Failure::Configuration(wrong.join("\n")));
        }
        let signals = super::run::count_signals()?;
        let (mut passed, mut failed) = (0, 0);
        for (file, plan) in plans {
            terminal.results(&terminal.paint(Paint::Bold, &file.display().to_string()))?;
            let wanted = |test: &&TestSpec| {
                self.only.as_ref().is_none_or(|only| test.name.contains(only.as_str()))
            };
            for test in plan.tests.iter().filter(wanted) {
                if signals.load(Ordering::Relaxed) > 0 {
                    return Err(Failure::Failed("interrupted".to_owned()));
                }
                let start = Instant::now();
                let outcome = run(file, &test.name, &test.set, &self.set, &signals, terminal);
                let took = crate::units::elapsed(start.elapsed());
                let text = match &outcome {
                    Ok(()) => format!("  {} {} ", terminal.paint(Paint::Good, "ok"), test.name),
                    Err(_) => format!("  {} {} ", terminal.paint(Paint::Bad, "FAILED"), test.name),
                };
                terminal.results(&(text + &terminal.paint(Paint::Dim, &took)))?;
                if let Err(reasons) = &outcome {
                    for reason in reasons {
                        terminal.results(&format!("      {reason}"))?;
                    }
                    failed += 1;
                } else {
                    passed += 1;
                }
            }
        }
        terminal.results(&format!("\n{passed} passed, {failed} failed"))?;
        if failed == 0 { Ok(()) } else { Err(Failure::Shown) }
    }
}

/// Runs one test; what went wrong, line by line, if something did.
fn run(
    file: &Path,
    name: &str,
    own: &[(String, String)],
    extra: &[(String, String)],
    signals: &AtomicUsize,
    terminal: &Terminal,
) -> Result<(), Vec<String>> {
    let set: Vec<(String, String)> = own.iter().chain(extra).cloned().collect();
    // The test's own parameters may change what it expects: its plan is made anew.
    let plan = companions::plan(file, &set, terminal)?;
    let Some(test) = plan.tests.iter().find(|test| test.name == name).cloned() else {
        return Err(vec!["its parameters make this test disappear".to_owned()]);
    };
    let mut problems = Vec::new();
    let (probes, taps) = tap(&plan, &test).map_err(|text| vec![text])?;
    let running = companions::start(&plan, probes)?;
    let folder = file.parent().unwrap_or(Path::new(""));
    let companions = Companions::start(folder, &test.alongside, terminal)?;

    let start = Instant::now();
    let all = || taps.iter().flat_map(|(tap, other)| [Some(tap), other.as_ref()]).flatten();
    let is_over = || match test.run {
        Run::Frames(_) => all().all(|tap| tap.is_done()),
        Run::Seconds(seconds) => start.elapsed().as_secs_f64() >= seconds,
        Run::ToTheEnd => false,
    };
    while !running.wait_timeout(Duration::from_millis(2)) {
        if is_over() {
            running.request_stop();
        }
        if signals.load(Ordering::Relaxed) > 0 {
            running.abort();
            problems.push("interrupted".to_owned());
            break;
        }
    }
    let report = running.wait();
    problems.extend(companions.stop());
    problems.extend(report.failures.iter().map(ToString::to_string));
    for (expect, (tap, other)) in test.expects.iter().zip(&taps) {
        let mine = tap.take();
        let others = other.as_ref().map(|other| other.take());
        let other = others.as_ref().and_then(|others| others.first());
        for gathered in &mine {
            let Verdict { holds, text } = gathered.verdict(other);
            if !holds {
                problems.push(format!(
                    "{}: expected {}, saw {text}",
                    expect.tap.text,
                    words(&expect.check)
                ));
            }
        }
    }
    if problems.is_empty() { Ok(()) } else { Err(problems) }
}

/// Per expectation: its tap, and that of the port it compares with.
type Taps = Vec<(Arc<Tap>, Option<Arc<Tap>>)>;

/// Readers for every port that `test` looks at.
fn tap(plan: &Plan, test: &TestSpec) -> Result<(Vec<Probe>, Taps), String> {
    let wanted = match test.run {
        Run::Frames(frames) => frames,
        Run::Seconds(_) | Run::ToTheEnd => u64::MAX,
    };
    let mut probes = Vec::new();
    let mut taps = Vec::new();
    for expect in &test.expects {
        let mut put = |tap: &fxgraph::flowgraph::Tap| {
            let (block, port) = plan.find(tap).map_err(|problem| problem.message)?;
            let carries = &plan.blocks[block].ports.outputs[port];
            let made = Tap::new(vec![Gathered::new(expect.check.clone(), carries)], wanted);
            // Two expectations may look at one port; names must differ all the same.
            probes.push(made.probe(format!("tap {} of {}", probes.len(), tap.text), (block, port)));
            Ok::<_, String>(made)
        };
        let own = put(&expect.tap)?;
        let other = match &expect.check {
            Check::SameAs(other) => Some(put(other)?),
            _ => None,
        };
        taps.push((own, other));
    }
    Ok((probes, taps))
}

/// A check in words.
fn words(check: &Check) -> String {
    let within = |tolerance: &f64| {
        if *tolerance > 0.0 { format!(" +- {tolerance}") } else { String::new() }
    };
    match check {
        Check::Peak { axis, at, tolerance } => format!("peak at {axis} {at}{}", within(tolerance)),
        Check::Rms { value, tolerance } => format!("rms {value}{}", within(tolerance)),
        Check::Mean { value, tolerance } => format!("mean {value}{}", within(tolerance)),
        Check::Equals((re, im)) => format!("{re}{im:+}i everywhere"),
        Check::CloseTo { value: (re, im), tolerance } => {
            format!("{re}{im:+}i{} everywhere", within(tolerance))
        }
        Check::Validity { fraction, tolerance } => {
            format!("validity {fraction}{}", within(tolerance))
        }
        Check::Frames(frames) => format!("{frames} frames"),
        Check::SameAs(tap) => format!("what `{}` carries", tap.text),
        Check::Phase { radians, tolerance, .. } => {
            format!("phase {radians} rad{}", within(tolerance))
        }
    }
}
