//! Processes that are stopped for a while, again and again.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

/// Milliseconds for which a process is stopped, one after the other.
const STOPPED: [u64; 7] = [100, 2000, 300, 1000, 150, 600, 1500];
/// Milliseconds for which it runs between, not a multiple of a period of the examples.
const RUNNING: [u64; 5] = [1430, 570, 2910, 730, 1270];

fn signal(signal: &str, process: u32) {
    // The process may have ended.
    let _ =
        Command::new("kill").args([signal, &process.to_string()]).stderr(Stdio::null()).status();
}

/// Processes that a thread of `parent` has started.
pub fn children(parent: u32) -> Vec<u32> {
    let Ok(threads) = fs::read_dir(format!("/proc/{parent}/task")) else { return Vec::new() };
    let of_thread = |thread: fs::DirEntry| fs::read_to_string(thread.path().join("children"));
    let texts = threads.filter_map(|thread| of_thread(thread.ok()?).ok());
    let ids = |text: String| -> Vec<u32> {
        text.split_whitespace().map(|id| id.parse().unwrap()).collect()
    };
    texts.flat_map(ids).collect()
}

/// Stops and continues the processes that `victims` lists, in turn, until `program` ends; returns how often.
fn stop_until_the_end(program: &mut Child, victims: impl Fn() -> Vec<u32>) -> usize {
    let mut stops = 0;
    while program.try_wait().unwrap().is_none() {
        sleep(Duration::from_millis(RUNNING[stops % RUNNING.len()]));
        let victims = victims();
        let Some(victim) = victims.get(stops % victims.len().max(1)) else { continue };
        signal("-STOP", *victim);
        sleep(Duration::from_millis(STOPPED[stops % STOPPED.len()]));
        signal("-CONT", *victim);
        stops += 1;
    }
    stops
}

/// Runs `command` while the processes that `victims` finds for its process id are stopped in turn, checks that it
/// succeeds, and returns what it wrote to stdout and stderr, in a file in `directory`.
pub fn run(command: &mut Command, directory: &Path, victims: impl Fn(u32) -> Vec<u32>) -> String {
    let said = directory.join("said.txt");
    let file = fs::File::create(&said).unwrap();
    command.stdout(file.try_clone().unwrap()).stderr(file);
    let mut program = command.spawn().unwrap();
    let id = program.id();
    let stops = stop_until_the_end(&mut program, || victims(id));
    let said = fs::read_to_string(said).unwrap();
    assert!(program.wait().unwrap().success(), "{command:?}, {stops} stops\n{said}");
    assert!(stops >= 3, "{stops} stops\n{said}");
    said
}
