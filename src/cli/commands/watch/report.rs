//! Lines of `fxgraph watch`: one for each step of a version.

use crate::failure::Failure;
use crate::terminal::{Paint, Terminal};
use crate::units::three_digits;
use fxgraph_api::shadows::ShadowInfo;
use serde_json::{Value, json};
use std::env::current_dir;
use std::path::PathBuf;
use std::time::Instant;

/// A step of a version.
#[derive(Clone, Debug, Default)]
pub struct Step {
    name: String,
    seconds: Option<f64>,
    text: String,
    /// Keys of the JSON object.
    details: Vec<(&'static str, Value)>,
}

impl Step {
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// The step has taken the time since `began`.
    pub fn took(self, began: Instant) -> Self {
        Self { seconds: Some(began.elapsed().as_secs_f64()), ..self }
    }

    pub fn text(self, text: &str) -> Self {
        Self { text: text.to_owned(), ..self }
    }

    pub fn details(mut self, key: &'static str, value: Value) -> Self {
        self.details.push((key, value));
        self
    }

    fn line(&self, number: u64, identity: &str, paint: impl Fn(&str) -> String) -> String {
        let seconds = self.seconds.map_or(String::new(), |seconds| format!("{seconds:.2} s"));
        let name = format!("{:<11}", self.name);
        let line = format!("{number:>3} {identity} {} {seconds:>7}  {}", paint(&name), self.text);
        line.trim_end().to_owned()
    }

    fn json(&self, number: u64, identity: &str) -> Value {
        let mut line = json!({ "version": number, "content": identity, "step": self.name });
        if let Some(seconds) = self.seconds {
            line["seconds"] = json!(seconds);
        }
        if !self.text.is_empty() {
            line["text"] = json!(self.text);
        }
        self.details.iter().for_each(|(key, value)| line[*key] = value.clone());
        line
    }
}

/// Writer of the steps.
pub struct Report<'a> {
    is_json: bool,
    terminal: &'a Terminal,
    /// Number and identity of the version.
    number: u64,
    identity: String,
}

impl<'a> Report<'a> {
    pub fn new(is_json: bool, terminal: &'a Terminal) -> Self {
        Self { is_json, terminal, number: 0, identity: String::new() }
    }

    /// Says which files are watched.
    pub fn begins(&self, block: &str, files: &[PathBuf]) -> Result<(), Failure> {
        let here = current_dir().unwrap_or_default();
        let short = |file: &PathBuf| file.strip_prefix(&here).unwrap_or(file).display().to_string();
        let files: Vec<String> = files.iter().filter(|file| file.exists()).map(short).collect();
        if self.is_json {
            let line = json!({ "step": "watching", "block": block, "files": files });
            return self.terminal.results(&line.to_string());
        }
        self.terminal.results(&format!("watching {} of {block} (Ctrl-C ends)", files.join(" and ")))
    }

    /// Begins the steps of the next version.
    pub fn version(&mut self, identity: u64) {
        self.number += 1;
        self.identity = format!("{:08x}", identity >> 32);
    }

    pub fn step(&self, step: &Step) -> Result<(), Failure> {
        if self.is_json {
            return self.terminal.results(&step.json(self.number, &self.identity).to_string());
        }
        let paint = match step.name.as_str() {
            "runs" | "swapped" => Paint::Good,
            "checked" | "tried" | "not tried" | "compared" | "time" | "superseded" | "kept"
            | "waits" => Paint::Bold,
            _ => Paint::Bad,
        };
        let paint = |text: &str| self.terminal.paint(paint, text);
        self.terminal.results(&step.line(self.number, &self.identity, paint))
    }

    /// Writes a step that failed, with the errors on lines of their own.
    pub fn failed(&self, step: Step, failure: &Failure) -> Result<(), Failure> {
        let errors = match failure {
            Failure::Failed(errors) => errors.clone(),
            other => vec![other.first_line()],
        };
        let step = step.text("the version before runs on");
        self.step(&step.details("errors", json!(errors)))?;
        if self.is_json {
            return Ok(());
        }
        let lines = errors.iter().flat_map(|error| error.lines());
        let lines: Vec<String> = lines.map(|line| format!("    {line}")).collect();
        self.terminal.results(&lines.join("\n"))
    }

    /// Writes the differences from the reference, if there is one, that a trial has found.
    pub fn tried(&self, step: Step, difference: Option<Value>) -> Result<(), Failure> {
        let Some(difference) = difference else {
            return self.step(&step.text("in a process of its own, without a reference"));
        };
        let number = |key: &str| three_digits(difference[key].as_f64().unwrap_or(f64::INFINITY));
        let frames = &difference["frames_compared"];
        let text = match difference["frames_different"].as_u64() {
            Some(0) => format!("{frames} frames are those of the reference"),
            different => format!(
                "{} of {frames} frames differ from the reference by {}, rms {}",
                different.unwrap_or_default(),
                number("max_difference"),
                number("rms_difference")
            ),
        };
        self.step(&step.text(&text).details("reference", difference))
    }

    /// Writes the differences and times of a shadow.
    pub fn compared(&self, step: Step, shadow: &ShadowInfo) -> Result<(), Failure> {
        self.step(&step.text(&differences(shadow)).details("shadow", json!(shadow)))?;
        if self.is_json {
            return Ok(());
        }
        if shadow.frames_dropped > 0 {
            let text = format!("{} frames: the shadow was too slow", shadow.frames_dropped);
            self.step(&Step::new("dropped").text(&text))?;
        }
        match times(shadow) {
            Some(text) => self.step(&Step::new("time").text(&text)),
            None => Ok(()),
        }
    }

    /// Asks whether to swap.
    pub fn asks(&self) {
        self.terminal.note("press Enter to swap, or type n and press Enter to keep what runs");
    }
}

/// One line on the differences that a shadow has found.
fn differences(shadow: &ShadowInfo) -> String {
    let frames = shadow.frames_compared;
    // A difference that is not finite has no number.
    let number = |value: Option<f64>| three_digits(value.unwrap_or(f64::INFINITY));
    match shadow.frames_different {
        _ if frames == 0 => "no frame had a counterpart to compare".to_owned(),
        0 => format!("{frames} frames are the same"),
        different => format!(
            "{different} of {frames} frames differ by {}, rms {}",
            number(shadow.max_difference),
            number(shadow.rms_difference)
        ),
    }
}

/// One line on the times of a shadow and of its block.
fn times(shadow: &ShadowInfo) -> Option<String> {
    let [new, old] = [shadow.shadow_seconds_per_frame?, shadow.seconds_per_frame?]
        .map(|seconds| format!("{} ms", three_digits(seconds * 1e3)));
    Some(format!("{new} per frame, before {old}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shadow(frames: u64, different: u64, max: Option<f64>) -> ShadowInfo {
        let text = json!({
            "block": "b", "kind": "kernel", "implementation": "cpu", "parameters": {}, "ended": null,
            "frames_compared": frames, "frames_different": different, "frames_alone": 0,
            "frames_dropped": 0, "values_compared": 0, "values_different": 0,
            "different_fraction": 0.0, "max_difference": max, "rms_difference": max,
            "first_difference_output": null, "first_difference_timestamp": null,
            "seconds_per_frame": 3e-5, "shadow_seconds_per_frame": 0.0123, "memory_bytes": 0,
            "shadow_memory_bytes": 0, "comparison_memory_bytes": 0,
        });
        serde_json::from_value(text).unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn lines_of_a_shadow_fit_80_columns_and_say_how_far_frames_differ() {
        let said = [
            (shadow(8, 0, Some(0.0)), "8 frames are the same"),
            (shadow(8, 8, Some(1.19e-7)), "8 of 8 frames differ by 1.19e-7, rms 1.19e-7"),
            (shadow(8, 1, None), "1 of 8 frames differ by inf, rms inf"),
            (shadow(0, 0, Some(0.0)), "no frame had a counterpart to compare"),
        ];
        for (shadow, text) in said {
            assert_eq!(differences(&shadow), text);
            let step = Step { seconds: Some(123.456), ..Step::new("compared").text(text) };
            let line = step.line(999, "0123abcd", str::to_owned);
            assert!(line.len() <= 80, "{} columns: {line}", line.len());
            assert!(line.starts_with("999 0123abcd compared    123.46 s  "), "{line}");
        }
        let text = times(&shadow(8, 0, Some(0.0)));
        assert_eq!(text.as_deref(), Some("12.3 ms per frame, before 0.0300 ms"));
    }
}
