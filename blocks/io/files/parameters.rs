//! Parameters of all kinds that write files.

use fxgraph::access::WrittenPath;
use fxgraph::kind::Rounded;
use fxgraph::recording::PLACEHOLDER;
use fxgraph::{At, Clock, Env, Parameters, Rejection};

/// Default of `max_gap_seconds`.
pub const MAX_GAP_SECONDS: f64 = 10.0;

/// Files: their names and their lengths.
#[derive(Clone, Debug, Parameters)]
pub struct FileParameters {
    /// File to write. `{timestamp}` is replaced by the timestamp of its first step. Directories are created. If the file
    /// exists, the next free name is used: `x_2.fil`, `x_3.fil`, ... for `x.fil`.
    pub path: WrittenPath,
    /// Overwrites an existing file, unless this process has recorded it.
    #[param(default)]
    pub overwrite: bool,
    /// Frames per file; `path` must contain `{timestamp}`.
    #[param(range = 1..)]
    pub frames_per_file: Option<u64>,
    /// Seconds of signal per file, rounded up to whole frames; `path` must contain `{timestamp}`.
    #[param(range = 1e-3..=1e9, unit = "s")]
    pub seconds_per_file: Option<f64>,
    /// Largest number of frames to write; further frames are consumed and dropped.
    pub max_frames: Option<u64>,
}

impl FileParameters {
    /// Diagnostics, for files whose names end in one of `extensions`, or in anything; `example` is a name.
    pub fn rejections(&self, extensions: &[&str], example: &str) -> Vec<Rejection> {
        let mut rejections = Vec::new();
        let is_name = self.path.path().file_name().is_some() && !self.path.ends_with('/');
        let stem = extensions
            .iter()
            .find_map(|extension| self.path.strip_suffix(extension)?.strip_suffix('.'));
        let has_stem = stem.is_some_and(|stem| !stem.is_empty() && !stem.ends_with('/'));
        if !is_name || !extensions.is_empty() && !has_stem {
            let endings: Vec<String> =
                extensions.iter().map(|extension| format!(".{extension}")).collect();
            let ending = if endings.is_empty() {
                String::new()
            } else {
                format!(" ending in {}", endings.join(" or "))
            };
            let message = format!("`path` must be a file name{ending}, got `{}`", self.path);
            rejections.push(
                Rejection::parameter("path", message)
                    .help(format!("write a name such as {example}")),
            );
        }
        let limits = [
            ("frames_per_file", self.frames_per_file.is_some()),
            ("seconds_per_file", self.seconds_per_file.is_some()),
        ];
        for (name, is_given) in limits {
            if is_given && !self.path.contains(PLACEHOLDER) {
                let message = format!("`path` must contain {{timestamp}} with `{name}`");
                let rejection = Rejection::parameter("path", message);
                rejections
                    .push(rejection.note(At::Parameter(name), "several files are requested here"));
            }
        }
        rejections
    }

    /// Frames per file, if they are limited.
    pub fn frames_of(&self, clock: &Clock) -> Option<u64> {
        // The conversion saturates.
        let by_time = self
            .seconds_per_file
            .map(|limit| ((limit / clock.frames_per_second().recip()).ceil() as u64).max(1));
        match (self.frames_per_file, by_time) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Parameters that are rounded to frames.
    pub fn rounded(&self, clock: &Clock) -> Vec<Rounded> {
        let Some(given) = self.seconds_per_file else { return Vec::new() };
        let step = clock.frames_per_second().recip();
        let used = (given / step).ceil().max(1.0) * step;
        vec![Rounded { parameter: "seconds_per_file", unit: "s", given, used, step }]
    }

    /// These parameters, with a relative path beginning in the output directory of `env`.
    pub fn of(&self, env: &Env) -> Self {
        Self { path: self.path.begin_at(&env.output_directory), ..self.clone() }
    }

    /// File whose first step is at `timestamp`.
    pub fn path_at(&self, timestamp: u64) -> WrittenPath {
        self.path.with(self.path.replace(PLACEHOLDER, &timestamp.to_string()))
    }
}
