//! Runs the fences of a page: `sh` and `python` in order in a directory of their own, `yaml` through the parser
//! or, as a whole flowgraph, through `fxgraph validate`.

use super::python;
use std::fs::{self, File};
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Where pages serve their flowgraphs.
const ADDRESS: &str = "127.0.0.1:8080";
/// Time for the fences of a page.
const LIMIT: Duration = Duration::from_mins(4);

/// Fails unless all programs end that the page has started: readers have no shell that ends them.
const ENDS: &str = "echo '## end: programs that still run' >&2
for _ in {1..100}; do [ -z \"$(jobs -pr)\" ] && break; sleep 0.1; done
jobs -r >&2
[ -z \"$(jobs -pr)\" ]
";

/// Pages below `directory`, sorted.
pub fn pages(directory: &Path) -> Vec<PathBuf> {
    let mut pages = Vec::new();
    let mut directories = vec![directory.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
            } else if path.extension() == Some("md".as_ref()) {
                pages.push(path);
            }
        }
    }
    pages.sort();
    pages
}

/// Number of fences of each page, or its first failure. Two pages run at once.
pub fn run_all(pages: &[PathBuf]) -> Vec<Result<usize, String>> {
    let (next, results) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some(page) = pages.get(next.fetch_add(1, Ordering::Relaxed)) {
            let result = run(page).map_err(|reason| format!("{}: {reason}", page.display()));
            results.lock().unwrap().push(result);
        }
    };
    thread::scope(|scope| {
        scope.spawn(work);
        scope.spawn(work);
    });
    results.into_inner().unwrap()
}

fn run(page: &Path) -> Result<usize, String> {
    let text = fs::read_to_string(page).unwrap();
    let directory = tempfile::tempdir().unwrap();
    // A free port in place of the one that the page names; the page's commands find it as clients do.
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut script =
        String::from("set -euo pipefail\ntrap 'kill $(jobs -p) 2>/dev/null || true; wait' EXIT\n");
    let mut fences = 0;
    for (line, info, body) in split(&text) {
        let mut words = info.split(',');
        let (language, option) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
        let failed = |reason: String| format!("line {line}: {reason}\n{body}");
        match (language, option.split_once('=')) {
            ("sh", None) => {
                let body = body.replace(ADDRESS, &free.to_string());
                script.push_str(&format!("echo '## line {line}' >&2\n{body}\n"));
            }
            ("python", None) if option.is_empty() => {
                let body = body.replace(ADDRESS, &free.to_string());
                fs::write(directory.path().join(format!(".line_{line}.py")), body).unwrap();
                script
                    .push_str(&format!("echo '## line {line}' >&2\n\"$PYTHON\" .line_{line}.py\n"));
            }
            ("yaml", Some(("file", name))) => {
                fs::write(directory.path().join(format!(".line_{line}.yaml")), body).unwrap();
                script.push_str(&format!(
                    "echo '## line {line}' >&2\ncp .line_{line}.yaml {name}\nfxgraph validate {name}\n"
                ));
            }
            ("yaml", Some(("error", code))) => {
                fs::write(directory.path().join(format!(".line_{line}.yaml")), body).unwrap();
                script.push_str(&format!(
                    "echo '## line {line}' >&2\n! fxgraph validate .line_{line}.yaml 2> .said\n\
                     cat .said >&2\ngrep -qF 'error[{code}]' .said\n"
                ));
            }
            ("yaml", None) => {
                serde_yaml::from_str::<serde_yaml::Value>(body)
                    .map_err(|e| failed(e.to_string()))?;
            }
            ("console" | "text" | "json" | "ini" | "rust" | "toml" | "promql", _)
            | ("python", None) => continue,
            (other, _) => return Err(failed(format!("what is `{other},{option}`?"))),
        }
        fences += 1;
    }
    if script.lines().count() > 2 {
        script.push_str(ENDS);
        bash(&script, directory.path(), &free.to_string())?;
    }
    Ok(fences)
}

/// Line, info string and body of each fence.
fn split(text: &str) -> Vec<(usize, &str, &str)> {
    let mut fences = Vec::new();
    let mut open: Option<(usize, &str, usize)> = None;
    let mut at = 0;
    for (number, line) in text.split_inclusive('\n').enumerate() {
        let fence = line.trim().strip_prefix("```");
        match (fence, open) {
            (Some(info), None) => open = Some((number + 1, info, at + line.len())),
            (Some(_), Some((line, info, start))) => {
                fences.push((line, info, &text[start..at]));
                open = None;
            }
            (None, _) => {}
        }
        at += line.len();
    }
    assert!(open.is_none(), "a fence has no end: {open:?}");
    fences
}

fn bash(script: &str, directory: &Path, address: &str) -> Result<(), String> {
    let program = PathBuf::from(env!("CARGO_BIN_EXE_fxgraph"));
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{path}", program.parent().unwrap().display());
    let log = directory.join(".output");
    let output = File::create(&log).unwrap();
    let mut child = Command::new("bash")
        .args(["-c", script])
        .current_dir(directory)
        .env("PATH", path)
        .env("PYTHON", python::python())
        .env("FXGRAPH_CONNECT", format!("http://{address}"))
        .env("NO_COLOR", "1")
        // The programs that the page starts end with the shell.
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(output.try_clone().unwrap())
        .stderr(output)
        .spawn()
        .unwrap();
    let end = Instant::now() + LIMIT;
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break Some(status);
        }
        if Instant::now() > end {
            let group = format!("-{}", child.id());
            let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
            let _ = child.wait();
            break None;
        }
        thread::sleep(Duration::from_millis(50));
    };
    if status.is_some_and(|status| status.success()) {
        return Ok(());
    }
    let said = fs::read_to_string(log).unwrap_or_default();
    let from = said.len().saturating_sub(4000);
    let from = (from..said.len()).find(|at| said.is_char_boundary(*at)).unwrap_or(0);
    Err(format!("{status:?}\n{}", &said[from..]))
}
