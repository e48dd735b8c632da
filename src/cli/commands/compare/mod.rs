//! `fxgraph compare`
//!
//! # Layout
//! - [`offline`]: two implementations of a block in a flowgraph file, or two recordings
//! - [`live`]: a block of a running flowgraph and its shadow
//! - [`arrays`]: two NumPy arrays
//! - [`pairing`]: frames of two outputs, pair by pair
//! - [`report`]: text of the results

mod arrays;
mod live;
mod offline;
mod pairing;
mod report;

use crate::assignment::parse_value;
use crate::client::{Connection, with_help};
use crate::failure::{Failure, judge};
use crate::flowgraph::{Target, parse_setting};
use crate::terminal::Terminal;
use crate::units;
use arrays::is_plain;
use fxgraph::flowgraph::Setting;
use fxgraph::npy;
use offline::Limits;
use pairing::First;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Runs two implementations of a block on the same frames and reports how they differ; also compares
/// recordings and arrays
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "fxgraph compare [OPTIONS] FILE a=BLOCK b=CHANGES\n       \
                      fxgraph compare [OPTIONS] a=BLOCK b=CHANGES\n       \
                      fxgraph compare [OPTIONS] a=RECORDING b=RECORDING\n       \
                      fxgraph compare [OPTIONS] a=ARRAY b=ARRAY",
    after_help = "With FILE, both implementations process every frame of the flowgraph. Without FILE, a shadow of \
                  BLOCK runs in the flowgraph at `--connect` until SIGINT or `--duration`; a shadow that falls \
                  behind drops frames. Frames of recordings are compared if timestamp and validity agree. An array \
                  is a .npy file without a .npy.json side file, as written by NumPy, `fxgraph tap --save` and \
                  `--save`; both arrays must have the same shape, their dtypes may differ.\n\n\
                  Examples: fxgraph compare flowgraphs/01_first_light.yaml a=x b='{parameters: {threads: 2}}'\n          \
                  fxgraph compare a=x b='{implementation: tensor_core}' --duration 1m\n          \
                  fxgraph compare a=before.npz b=after.npz --max-error 0\n          \
                  fxgraph compare a=frame.npy b=expected.npy --max-error 1e-6"
)]
pub struct Compare {
    /// Optional flowgraph file; `a=`: a block, a recording (.npy, .npz) or an array (.npy); `b=`: the changed keys of
    /// the second implementation, as in `shadow:`, or another recording or array
    #[arg(required = true, num_args = 2..=3, value_name = "WHAT")]
    what: Vec<String>,

    /// Sets a parameter of the flowgraph file; may be given several times
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_setting)]
    set: Vec<Setting>,

    /// Time after which to stop, like 10s, 5m or 200ms
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration)]
    duration: Option<Duration>,

    /// Stops at the first frame, or value of an array, that differs
    #[arg(long)]
    stop_at_first_difference: bool,

    /// Saves the first pair of frames that differs in this directory, as a.npy and b.npy
    #[arg(long, value_name = "DIR")]
    save: Option<PathBuf>,

    /// Fails if the largest difference exceeds this, or if a frame is in one of two recordings only
    #[arg(long, value_name = "NUMBER", value_parser = parse_limit)]
    max_error: Option<f64>,

    /// Writes the report as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    connection: Connection,
}

/// Parses the largest allowed difference.
fn parse_limit(text: &str) -> Result<f64, String> {
    let limit: f64 = text.parse().map_err(|_| "give a number like 0, 0.5 or 1e-6")?;
    if limit >= 0.0 { Ok(limit) } else { Err(format!("the limit must be at least 0, got {limit}")) }
}

/// The two sides of a comparison.
enum What<'a> {
    Variants { file: &'a Path, block: &'a str, variant: &'a str },
    Shadow { block: &'a str, variant: &'a str },
    Recordings([&'a Path; 2]),
    Arrays([&'a Path; 2]),
}

impl<'a> What<'a> {
    fn of(words: &'a [String]) -> Option<Self> {
        let (file, [a, b]) = match words {
            [a, b] => (None, [a, b]),
            [file, a, b] => (Some(Path::new(file)), [a, b]),
            _ => return None,
        };
        let (a, b) = (a.strip_prefix("a=")?, b.strip_prefix("b=")?);
        let is_recording = |name: &str| {
            let extension = Path::new(name).extension();
            extension.is_some_and(|extension| extension == "npy" || extension == "npz")
        };
        Some(match file {
            Some(file) => Self::Variants { file, block: a, variant: b },
            None if is_recording(a) && is_recording(b) => {
                let files = [a, b].map(Path::new);
                let is_npy =
                    |file: &Path| file.extension().is_some_and(|extension| extension == "npy");
                // A recording in .npy contains an array too.
                let are_arrays = files.into_iter().all(is_npy) && files.into_iter().any(is_plain);
                if are_arrays { Self::Arrays(files) } else { Self::Recordings(files) }
            }
            None => Self::Shadow { block: a, variant: b },
        })
    }
}

impl Compare {
    pub fn execute(self, terminal: &mut Terminal) -> Result<(), Failure> {
        let Some(what) = What::of(&self.what) else {
            let given = self.what.join(" ");
            let help =
                "name both sides, as in `a=before.npz b=after.npz`; see `fxgraph compare --help`";
            return Err(Failure::failed(with_help(
                &format!("`{given}` cannot be compared"),
                [help],
            )));
        };
        if !self.set.is_empty() && !matches!(what, What::Variants { .. }) {
            return Err(Failure::failed("`--set` needs a flowgraph file"));
        }
        let limits =
            Limits { duration: self.duration, stops_at_difference: self.stop_at_first_difference };
        let are_recordings = matches!(what, What::Recordings(_));
        let (report, pair) = match what {
            What::Variants { file, block, variant } => {
                let target = Target { file: file.to_owned(), set: self.set.clone() };
                let (report, first) = offline::variants(&target, block, variant, limits, terminal)?;
                (report, first.as_ref().map(saved))
            }
            What::Recordings(files) => {
                let (report, first) = offline::recordings(files, limits, terminal)?;
                (report, first.as_ref().map(saved))
            }
            What::Arrays(files) => {
                if self.save.is_some() {
                    return Err(Failure::failed("`--save` is for frames, not for arrays"));
                }
                (arrays::arrays(files, self.stop_at_first_difference)?, None)
            }
            What::Shadow { block, variant } => {
                let variant =
                    parse_value(variant).map_err(|why| Failure::failed(format!("`b`: {why}")))?;
                if !variant.is_object() {
                    let help = "compare two running blocks by recordings of their outputs";
                    return Err(Failure::failed(with_help(
                        &format!(
                            "`b` must be the changed keys of the second implementation, such as \
                             `{{parameters: {{threads: 2}}}}`, got `{variant}`"
                        ),
                        [help],
                    )));
                }
                let limits = (self.duration, self.stop_at_first_difference);
                let client = self.connection.client()?;
                live::shadow(&client, block, &variant, limits, self.save.is_some(), terminal)?
            }
        };
        if let (Some(directory), Some(pair)) = (&self.save, pair) {
            save(directory, &pair)?;
            terminal.note(&format!(
                "saved the first pair of frames that differs in {}",
                directory.display()
            ));
        }
        let written = if self.json {
            terminal.json(&report.as_json())
        } else {
            terminal.results(&report.as_text(terminal))
        };
        let missing = if are_recordings { report.frames_missing(self.max_error) } else { Ok(()) };
        judge(report.verdict(self.max_error).and(missing), written, terminal)
    }
}

/// Returns the first pair that differs as two .npy files.
fn saved(first: &First) -> live::Pair {
    [0, 1].map(|side| npy::array(&first.port, &first.payloads[side]))
}

fn save(directory: &Path, pair: &live::Pair) -> Result<(), Failure> {
    let write = || {
        std::fs::create_dir_all(directory)?;
        std::fs::write(directory.join("a.npy"), &pair[0])?;
        std::fs::write(directory.join("b.npy"), &pair[1])
    };
    write().map_err(|error| {
        Failure::because(&format!("cannot save the frames in {}", directory.display()), &error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(words: &[&str]) -> Option<String> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        What::of(&words).map(|what| match what {
            What::Variants { file, block, variant } => {
                format!("{} {block} {variant}", file.display())
            }
            What::Shadow { block, variant } => format!("{block} {variant}"),
            What::Recordings([a, b]) => format!("{} and {}", a.display(), b.display()),
            What::Arrays([a, b]) => format!("arrays {} and {}", a.display(), b.display()),
        })
    }

    #[test]
    fn parse_limit_rejects_nan_and_negative_numbers() {
        assert!(["0", "1e-6", "inf"].iter().all(|text| parse_limit(text).is_ok()));
        assert!(["nan", "-1", "x", ""].iter().all(|text| parse_limit(text).is_err()));
    }

    #[test]
    fn what_is_chosen_by_number_of_arguments_and_extensions() {
        assert_eq!(of(&["x.yaml", "a=x", "b={k: 1}"]).unwrap(), "x.yaml x {k: 1}");
        assert_eq!(of(&["a=f[0].pfb", "b={k: 1}"]).unwrap(), "f[0].pfb {k: 1}");
        assert_eq!(of(&["a=1.npy", "b=out/2.npz"]).unwrap(), "1.npy and out/2.npz");
        assert_eq!(of(&["a=1.npy", "b=2.npy"]).unwrap(), "arrays 1.npy and 2.npy");
        for wrong in [&["a=x"][..], &["b=x", "a=y"], &["a=x", "y"], &["x", "y", "z", "a=b"]] {
            assert_eq!(of(wrong), None, "{wrong:?}");
        }
    }
}
