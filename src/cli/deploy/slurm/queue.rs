//! Questions and orders to Slurm. A question may stay without an answer, such as while the controller of Slurm starts
//! again, which is an error here: then nothing is started, ended or forgotten.

use super::super::manifest::{Class, Part};
use super::directory::{Directory, of};
use crate::failure::Failure;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Time limit in seconds for a command, and for `salloc`, which waits for hosts.
const LIMIT: &str = "30";
const SALLOC_LIMIT: &str = "120";
/// Time for Slurm to answer, and between two attempts.
const PATIENCE: Duration = Duration::from_mins(2);
const PAUSE: Duration = Duration::from_secs(2);

/// The jobs of an array.
pub struct Queue {
    /// Beginning of their names.
    pub name: String,
}

/// Repeats a question or an order until Slurm answers.
pub fn insist<T>(question: impl Fn() -> Result<T, Failure>) -> Result<T, Failure> {
    let began = Instant::now();
    loop {
        match question() {
            Err(_) if began.elapsed() < PATIENCE => sleep(PAUSE),
            answer => return answer,
        }
    }
}

/// Output of a command of Slurm.
fn ask(program: &str, arguments: &[&str]) -> Result<String, Failure> {
    let mut command = Command::new("timeout");
    command.arg(LIMIT).arg(program).args(arguments).stdin(Stdio::null()).process_group(0);
    let output =
        command.output().map_err(|error| Failure::because("cannot run `timeout`", &error))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(Failure::failed(format!(
        "`{program}` must succeed, got {}: {}",
        output.status,
        said.trim()
    )))
}

impl Queue {
    fn job_name(&self, class: &str) -> String {
        format!("{}-{class}", self.name)
    }

    /// Job of a class of hosts, if it runs.
    pub fn job(&self, class: &str) -> Result<Option<String>, Failure> {
        let user = rustix::process::getuid().as_raw().to_string();
        let name = self.job_name(class);
        let jobs = ask("squeue", &["-h", "-u", &user, "-n", &name, "-t", "RUNNING", "-o", "%i"])?;
        Ok(jobs.split_whitespace().next().map(str::to_owned))
    }

    /// Step that runs `part` of `directory`.
    pub fn step(&self, directory: &Directory, part: &Part) -> Result<Option<String>, Failure> {
        let name = directory.get(&of(part, "step"));
        name.map_or(Ok(None), |name| self.step_named(part, &name))
    }

    /// Step of `part` with a name. Each start of a part has a step name of its own: an old version and a new one may run on
    /// the same host.
    fn step_named(&self, part: &Part, name: &str) -> Result<Option<String>, Failure> {
        let Some(job) = self.job(&part.class)? else { return Ok(None) };
        let steps = ask("squeue", &["-h", "-s", "-j", &job, "-o", "%i %j"])?;
        Ok(number_of(name, &steps).map(str::to_owned))
    }

    /// Whether `part` of `directory` runs, as far as Slurm answers.
    pub fn runs(&self, directory: &Directory, part: &Part) -> bool {
        matches!(insist(|| self.step(directory, part)), Ok(Some(_)))
    }

    /// Sends a signal to `part` of `directory`, until Slurm has taken it or the step has ended. The next step, with which
    /// the part may start again meanwhile, gets none.
    pub fn signal(&self, signal: &str, directory: &Directory, part: &Part) {
        let signal = format!("--signal={signal}");
        let Some(name) = directory.get(&of(part, "step")) else { return };
        let began = Instant::now();
        while let Ok(Some(step)) = insist(|| self.step_named(part, &name)) {
            if ask("scancel", &[&signal, &step]).is_ok() || began.elapsed() > PATIENCE {
                return;
            }
            sleep(PAUSE);
        }
    }

    /// Hosts of a job.
    pub fn hosts(&self, job: &str) -> Result<Vec<String>, Failure> {
        let hosts = ask("squeue", &["-h", "-j", job, "-o", "%N"])?;
        let hosts = ask("scontrol", &["show", "hostnames", hosts.trim()])?;
        Ok(hosts.split_whitespace().map(str::to_owned).collect())
    }

    /// Allocates the hosts of `class`, and says so on stderr.
    pub fn allocate(&self, class: &Class) -> Result<(), Failure> {
        let (size, gpus) = (class.size.to_string(), format!("--gpus-per-node={}", class.gpus));
        let mut command = Command::new("timeout");
        command.args([SALLOC_LIMIT, "salloc", "--no-kill", "--no-shell", "--immediate=60"]);
        command.args(["--exclusive", "--ntasks-per-node=1"]);
        command.args(class.constraint.iter().map(|name| format!("--constraint={name}")));
        command.args((class.gpus > 0).then_some(gpus));
        command.args(["-N", &size, "-J", &self.job_name(&class.name)]).stdin(Stdio::null());
        if command.status().is_ok_and(|status| status.success()) {
            return Ok(());
        }
        Err(Failure::failed(format!("class {} must get {size} hosts", class.name)))
    }

    /// Ends a job, and releases its hosts.
    pub fn release(&self, job: &str) -> Result<(), Failure> {
        insist(|| ask("scancel", &[job])).map(drop)
    }
}

/// Whether `host` is up.
pub fn is_up(host: &str) -> Result<bool, Failure> {
    Ok(is_up_state(&ask("sinfo", &["-h", "-N", "-n", host, "-o", "%T"])?))
}

/// Address of `host`.
pub fn address(host: &str) -> Result<Option<String>, Failure> {
    Ok(node_address(&ask("scontrol", &["show", "node", host])?).map(str::to_owned))
}

/// Number of the step with a name, among lines of a number and a name.
fn number_of<'a>(name: &str, steps: &'a str) -> Option<&'a str> {
    let words = steps.lines().filter_map(|line| line.split_once(' '));
    words.filter(|(_, step)| step.trim() == name).map(|(number, _)| number).next()
}

/// Whether a host in this state is up. A star after the state marks a host that does not answer to Slurm.
fn is_up_state(states: &str) -> bool {
    let state = states.lines().next().unwrap_or_default();
    matches!(state.trim(), "allocated" | "mixed" | "idle" | "completing")
}

/// Address in the description of a host.
fn node_address(node: &str) -> Option<&str> {
    node.split_whitespace()
        .find_map(|word| word.strip_prefix("NodeAddr="))
        .filter(|at| !at.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_slurm_are_read() {
        let steps = "7.0 a-1\n7.1 a-12\n7.extern extern\n";
        assert_eq!(number_of("a-12", steps), Some("7.1"));
        assert_eq!(number_of("a-2", steps), None);
        assert!(is_up_state("mixed\nidle\n") && is_up_state("allocated"));
        for down in ["idle*", "down", "drained", "", "down\nidle"] {
            assert!(!is_up_state(down), "{down}");
        }
        let node = "NodeName=d0 Arch=x86_64\n   NodeAddr=10.77.0.2 NodeHostName=d0";
        assert_eq!(node_address(node), Some("10.77.0.2"));
        assert_eq!(node_address("NodeName=d0 NodeAddr="), None);
    }
}
