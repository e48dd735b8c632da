//! `fxgraph test`

mod check;
mod others;
mod tap;

use crate::failure::{Failure, judge};
use crate::flowgraph::{self, parse_setting};
use crate::signals::Signals;
use crate::terminal::{Paint, Terminal};
use crate::units;
use check::{Gathered, Verdict};
use fxgraph::diagnostic::Sources;
use fxgraph::diagnostic::{Diagnostic, Severity, render_all};
use fxgraph::flowgraph::{Check, Loaded, Plan, Probe, Run, Setting, TestHead, TestSpec};
use others::Others;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tap::Tap;

/// Runs the tests defined in flowgraph files
#[derive(Debug, clap::Args)]
pub struct Test {
    /// Flowgraph files; `-` reads standard input
    #[arg(required = true)]
    files: Vec<PathBuf>,

    /// Runs only tests whose name contains this
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,

    /// Sets a parameter in each test, overriding the test's own value; may be given several times
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_setting)]
    set: Vec<Setting>,

    /// Time limit of each test
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration, default_value = "60s")]
    timeout: Duration,
}

/// A test, checked and ready to run.
struct Case {
    spec: TestSpec,
    plan: Plan,
    others: Vec<(String, Plan)>,
    /// Directory for files written by the test, removed on drop.
    _outputs: tempfile::TempDir,
}

impl Test {
    pub fn execute(self, terminal: &mut Terminal) -> Result<(), Failure> {
        let files = self.cases(terminal)?;
        let signals = Signals::count()?;
        let (mut passed, mut failed) = (0, 0);
        let mut written = Ok(());
        let mut say = |text: &str| {
            if written.is_ok() {
                written = terminal.results(text);
            }
        };
        for (file, cases) in files {
            say(&terminal.paint(Paint::Bold, &file.display().to_string()));
            for case in cases {
                if signals.look() > 0 {
                    break;
                }
                let start = Instant::now();
                let reasons = run(&case, self.timeout, &signals);
                let word = if reasons.is_empty() {
                    passed += 1;
                    terminal.paint(Paint::Good, "ok")
                } else {
                    failed += 1;
                    terminal.paint(Paint::Bad, "FAILED")
                };
                let took = terminal.paint(Paint::Dim, &units::elapsed(start.elapsed()));
                say(&format!("  {word} {} {took}", case.spec.name));
                reasons.iter().for_each(|reason| say(&format!("      {reason}")));
            }
        }
        say(&format!("\n{passed} passed, {failed} failed"));
        let verdict = if signals.look() > 0 {
            Err(Failure::Interrupted)
        } else if failed > 0 {
            Err(Failure::Shown)
        } else {
            Ok(())
        };
        judge(verdict, written, terminal)
    }

    /// Returns all tests to run, file by file, or an error if one of them cannot run.
    fn cases(&self, terminal: &Terminal) -> Result<Vec<(&Path, Vec<Case>)>, Failure> {
        let mut files: Vec<(&Path, Vec<Case>)> = Vec::new();
        let mut wrong = Vec::new();
        let mut untested = Vec::new();
        for file in &self.files {
            let Loaded { sources, result, tests } = flowgraph::load_file(file, &self.set);
            if tests.is_empty() {
                match result {
                    Ok(_) => untested.push(format!("`{}` has no tests", file.display())),
                    Err(problems) => wrong.push(shown(&problems, &sources, terminal)),
                }
            }
            let wanted = |test: &&TestHead| {
                self.only.as_ref().is_none_or(|only| test.name.contains(only.as_str()))
            };
            let mut cases = Vec::new();
            for test in tests.iter().filter(wanted) {
                match self.case(file, test, terminal) {
                    Ok(case) => cases.push(case),
                    // Most diagnostics concern the whole file.
                    Err(text) if wrong.contains(&text) => {}
                    Err(text) => wrong.push(text),
                }
            }
            files.push((file, cases));
        }
        if !wrong.is_empty() {
            return Err(Failure::Configuration(wrong.join("\n")));
        }
        if let Some(only) = self.only.as_ref().filter(|_| files.iter().all(|(_, c)| c.is_empty())) {
            untested.push(format!("no test name contains `{only}`"));
        }
        if untested.is_empty() { Ok(files) } else { Err(Failure::Failed(untested)) }
    }

    fn case(&self, file: &Path, test: &TestHead, terminal: &Terminal) -> Result<Case, String> {
        // The test's own parameters may change its expectations, so its plan is computed again.
        let set: Vec<Setting> = test.set.iter().chain(&self.set).cloned().collect();
        let (mut plan, sources) = plan(file, &set, terminal)?;
        // A test must not overwrite recordings in the working directory.
        let outputs = tempfile::tempdir().map_err(|error| {
            format!("cannot create a temporary directory for the test's files: {error}")
        })?;
        outputs.path().clone_into(&mut plan.output_directory);
        let Some(spec) = plan.tests.iter().find(|spec| spec.name == test.name).cloned() else {
            return Err(format!("the parameters of the test `{}` change its name", test.name));
        };
        let problems = plan.check_taps(&spec);
        if !problems.is_empty() {
            return Err(shown(&problems, &sources, terminal));
        }
        let directory = plan.directory.clone();
        let others = spec.alongside.iter().map(|other| {
            let (mut plan, _) =
                self::plan(&directory.join(&other.flowgraph), &other.set, terminal)?;
            outputs.path().clone_into(&mut plan.output_directory);
            Ok((other.flowgraph.display().to_string(), plan))
        });
        let others = others.collect::<Result<_, String>>()?;
        Ok(Case { spec, plan, others, _outputs: outputs })
    }
}

fn shown(problems: &[Diagnostic], sources: &Sources, terminal: &Terminal) -> String {
    render_all(problems, sources, flowgraph::style(terminal))
}

/// Returns the plan of a flowgraph, or its diagnostics.
fn plan(file: &Path, set: &[Setting], terminal: &Terminal) -> Result<(Plan, Sources), String> {
    let Loaded { sources, result, .. } = flowgraph::load_here(file, set, Severity::Error);
    match result {
        Ok(plan) => Ok((plan, sources)),
        Err(problems) => Err(shown(&problems, &sources, terminal)),
    }
}

/// Runs one test and returns its errors, one per line.
fn run(case: &Case, timeout: Duration, signals: &Signals) -> Vec<String> {
    run_to_verdict(case, timeout, signals).unwrap_or_else(|reasons| reasons)
}

/// Returns the unmet expectations; an error if the test could not be run to its end.
fn run_to_verdict(
    Case { spec, plan, others, .. }: &Case,
    timeout: Duration,
    signals: &Signals,
) -> Result<Vec<String>, Vec<String>> {
    let (probes, taps) = tap(plan, spec).map_err(|text| vec![text])?;
    let begin = Instant::now();
    let deadline = begin + timeout;
    let running = others::start(plan, probes)?;
    let others = match Others::start(others, signals) {
        Ok(others) => others,
        Err(mut reasons) => {
            reasons.extend(others::end(running, begin, signals).err());
            return Err(reasons);
        }
    };

    let start = Instant::now();
    let all = || taps.iter().flat_map(|(tap, other)| [Some(tap), other.as_ref()]).flatten();
    let is_over = || match spec.run {
        Run::Frames(_) => all().all(|tap| tap.is_done()),
        Run::Seconds(seconds) => start.elapsed().as_secs_f64() >= seconds,
        Run::ToTheEnd => false,
    };
    while !running.wait_timeout(Duration::from_millis(2)) && signals.look() == 0 {
        if is_over() {
            running.request_stop();
        }
        if Instant::now() >= deadline {
            break;
        }
    }
    let is_late = !running.is_ended() && signals.look() == 0;
    let ended = others::end(running, if is_late { begin } else { deadline }, signals);
    let mut problems = others.stop(deadline, signals);
    if signals.look() > 0 {
        problems.push("interrupted".to_owned());
    } else if is_late {
        let fewest = all().map(|tap| tap.frames()).min().unwrap_or(0);
        problems.push(format!(
            "no end after {} (`--timeout`); the slowest tap has {fewest} frames",
            units::elapsed(timeout)
        ));
    }
    match ended {
        Ok(report) => problems.extend(report.failures.iter().map(ToString::to_string)),
        Err(problem) => problems.push(problem),
    }
    if is_late || signals.look() > 0 {
        return Err(problems);
    }
    problems.extend(unmet(spec, &taps));
    Ok(problems)
}

/// Describes the expectations of `test` that the data do not meet.
fn unmet(test: &TestSpec, taps: &Taps) -> Vec<String> {
    let is_cut = matches!(test.run, Run::Seconds(_));
    let mut unmet = Vec::new();
    for (expect, (tap, other)) in test.expects.iter().zip(taps) {
        let others = other.as_ref().map(|other| other.take());
        let other = others.as_ref().and_then(|others| others.first());
        for gathered in tap.take() {
            let Verdict { holds, text } = gathered.verdict(other, is_cut);
            if !holds {
                let expected = words(&expect.check);
                unmet.push(format!("{}: expected {expected}, saw {text}", expect.tap.text));
            }
        }
    }
    unmet
}

/// Per expectation: its tap, and the tap of the port to compare with.
type Taps = [(Arc<Tap>, Option<Arc<Tap>>)];

/// Creates a probe for every port in the expectations of `test`.
fn tap(plan: &Plan, test: &TestSpec) -> Result<(Vec<Probe>, Box<Taps>), String> {
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
            // Two expectations may use the same port, but names must be unique.
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
    Ok((probes, taps.into_boxed_slice()))
}

/// Describes a check.
fn words(check: &Check) -> String {
    let within = |tolerance: &f64| {
        if *tolerance > 0.0 { format!(" +- {tolerance}") } else { String::new() }
    };
    match check {
        Check::Peak { axis, at, tolerance } => format!("peak at {axis} {at}{}", within(tolerance)),
        Check::Rms { value, tolerance, .. } => format!("rms {value}{}", within(tolerance)),
        Check::Mean { value, tolerance, .. } => format!("mean {value}{}", within(tolerance)),
        Check::Equals((re, im)) => format!("{re}{im:+}i everywhere"),
        Check::CloseTo { value: (re, im), tolerance } => {
            format!("{re}{im:+}i{} everywhere", within(tolerance))
        }
        Check::Validity { fraction, tolerance } => {
            format!("validity {fraction}{}", within(tolerance))
        }
        Check::Frames(frames) => format!("{frames} frames"),
        Check::SameAs(tap) => format!("the frames of `{}`", tap.text),
        Check::Phase { radians, tolerance, .. } => {
            format!("phase {radians} rad{}", within(tolerance))
        }
    }
}
