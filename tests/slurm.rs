//! An array under a real Slurm, on virtual hosts of this machine: network namespaces with a bridge between them.
#![allow(clippy::unwrap_used, missing_docs)]

#[path = "support/dumps.rs"]
mod dumps;
#[path = "support/heaps.rs"]
mod heaps;
#[path = "support/needs.rs"]
mod needs;
#[path = "support/python.rs"]
#[allow(dead_code, reason = "only `needs` uses it")]
mod python;

use dumps::dumps;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Longest wait for a state of the cluster or the array.
const LIMIT: Duration = Duration::from_mins(3);

/// Samples of an F heap of the example.
const HEAP: u64 = 256 * 2 * 64;

/// Waits until `is_done` holds; `what` is for the message.
fn wait(what: &str, mut is_done: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_done() {
        assert!(began.elapsed() < LIMIT, "{what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// A virtual cluster, which ends with the test.
struct Cluster {
    folder: PathBuf,
    name: String,
    process: Child,
}

impl Cluster {
    /// `hosts` are `NAME:FEATURE`.
    fn start(folder: &Path, hosts: &[&str]) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/slurm/cluster.sh");
        fs::create_dir(folder).unwrap();
        let name = format!("fx{}", std::process::id());
        let log = fs::File::create(folder.join("cluster.log")).unwrap();
        let process = Command::new("unshare")
            .args(["-m", "--propagation", "private", "bash"])
            .arg(script)
            .arg(folder)
            .arg(&name)
            .args(hosts)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut cluster = Self { folder: folder.to_owned(), name, process };
        wait("the cluster is not ready", || {
            let log = fs::read_to_string(cluster.folder.join("cluster.log")).unwrap();
            assert!(cluster.process.try_wait().unwrap().is_none(), "{log}");
            cluster.folder.join("ready").exists()
        });
        cluster
    }

    /// A program on the controller of the cluster.
    fn command(&self, program: &Path) -> Command {
        let shell = fs::read_to_string(self.folder.join("shell.pid")).unwrap();
        let mut command = Command::new("nsenter");
        command.args(["-t", shell.trim(), "-m", "nsenter"]);
        command.arg(format!("--net=/run/netns/{}-ctl", self.name)).arg(program);
        command.stdin(Stdio::null());
        command
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = fs::write(self.folder.join("stop"), "");
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(20) {
            if let Ok(Some(_)) = self.process.try_wait() {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Work for all cores, until it is dropped.
struct Load(Vec<Child>);

impl Load {
    fn start() -> Self {
        let cores = std::thread::available_parallelism().unwrap().get();
        let busy = || Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        Self((0..cores).map(|_| busy()).collect())
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        for process in &mut self.0 {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

fn fxgraph(arguments: &[&str], folder: &Path) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_fxgraph"))
        .args(arguments)
        .current_dir(folder)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output
}

/// Process of the part in `file` that runs in the directory `deployed`.
fn process_of(deployed: &Path, file: &str) -> Option<u32> {
    let wanted = format!("run\0parts/{file}.yaml\0");
    fs::read_dir("/proc").unwrap().flatten().find_map(|entry| {
        let process: u32 = entry.file_name().to_str()?.parse().ok()?;
        let line = fs::read(entry.path().join("cmdline")).ok()?;
        // `srun` and the shell have the same words after others.
        let program = line.split(|byte| *byte == 0).next()?;
        let is_part = program.ends_with(b"/fxgraph")
            && String::from_utf8_lossy(&line).contains(&wanted)
            && fs::read_link(entry.path().join("cwd")).ok()? == deployed;
        is_part.then_some(process)
    })
}

#[test]
#[expect(clippy::too_many_lines, reason = "a cluster takes long to start: one test for all")]
fn array_under_slurm_gives_the_visibilities_of_one_process_and_lacks_only_the_heaps_of_a_killed_part()
 {
    if !needs::slurm() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().canonicalize().unwrap();
    let out = |name: &str| format!("out={}", folder.join(name).display());
    let set = |dumps: &'static str| {
        let rate = "adc_sample_rate_hz=428000";
        ["--set", dumps, "--set", rate, "--set"]
    };
    let example = "example:20_array";
    fxgraph(&[&["run", example][..], &set("dumps=20"), &[&out("one")]].concat(), &folder);

    let hosts = [
        "d0:digitiser",
        "f0:f_engine",
        "f1:f_engine",
        "f2:f_engine",
        "x0:x_engine",
        "x1:x_engine",
        "x2:x_engine",
    ];
    let cluster = Cluster::start(&folder.join("cluster"), &hosts);
    let deploy = |name: &str, dumps: &'static str, to: &str| {
        let to = out(to);
        let arguments = [
            &["deploy", example, "--engine", "slurm", "-o", name][..],
            &set(dumps),
            &[to.as_str()],
        ];
        fxgraph(&arguments.concat(), &folder);
        let deployed = folder.join(name);
        let log = fs::File::create(deployed.join("start.log")).unwrap();
        let started = cluster
            .command(&deployed.join("array.sh"))
            .arg("start")
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        (deployed, started)
    };
    let stop = |deployed: &Path, mut started: Child| {
        let script = deployed.join("array.sh");
        assert!(cluster.command(&script).arg("stop").status().unwrap().success());
        wait("`array.sh start` does not end", || started.try_wait().unwrap().is_some());
        let jobs = cluster.command(Path::new("squeue")).arg("-h").output().unwrap();
        assert_eq!(String::from_utf8_lossy(&jobs.stdout), "", "no job is left");
    };
    let said = |deployed: &Path| fs::read_to_string(deployed.join("start.log")).unwrap();

    let (deployed, started) = deploy("array", "dumps=20", "slurm");
    wait("the array does not end", || {
        let said = said(&deployed);
        assert!(!said.contains("rejected"), "{said}");
        ["x_host[0]: has ended", "x_host[1]: has ended"].iter().all(|ended| said.contains(ended))
    });
    stop(&deployed, started);
    for engine in ["0", "1"] {
        let one = dumps(&folder.join("one").join(engine));
        let slurm = dumps(&folder.join("slurm").join(engine));
        assert_eq!(one.len(), 20);
        let (full, _) = &one[one.keys().next().unwrap()];
        let mut whole = 0;
        for (timestamp, (validity, visibilities)) in &slurm {
            if validity == full {
                assert!(*visibilities == one[timestamp].1, "visibilities at {timestamp}");
                whole += 1;
            }
        }
        assert!(
            whole >= 8,
            "{whole} of {} dumps of X-engine {engine} are whole\n{}",
            slurm.len(),
            said(&deployed)
        );
    }

    // The same samples, with a dump for each heap: what the dumps of a run with faults must add up to.
    let single =
        [&["run", example, "--set", "heaps_per_dump=1"][..], &set("dumps=240"), &[&out("heaps")]];
    fxgraph(&single.concat(), &folder);
    let heaps = ["0", "1"].map(|engine| dumps(&folder.join("heaps").join(engine)));

    let load = Load::start();
    let (deployed, started) = deploy("faults", "dumps=60", "faults");
    wait("the array does not run", || said(&deployed).contains("d_host: runs"));
    std::thread::sleep(Duration::from_secs(3));
    let before = process_of(&deployed, "f_host_1").unwrap();
    assert!(Command::new("kill").args(["-9", &before.to_string()]).status().unwrap().success());
    wait("the array does not end", || {
        ["x_host[0]: has ended", "x_host[1]: has ended"]
            .iter()
            .all(|ended| said(&deployed).contains(ended))
    });
    drop(load);
    assert!(said(&deployed).contains("f_host[1]: ended on f"), "{}", said(&deployed));
    stop(&deployed, started);
    for (engine, heaps) in ["0", "1"].iter().zip(&heaps) {
        let dumps = dumps(&folder.join("faults").join(engine));
        assert_eq!(dumps.len(), 60, "{}", said(&deployed));
        let missing = heaps::missing(&dumps, heaps, 4, 4);
        let none: Vec<u64> = Vec::new();
        assert_eq!(missing[..2], [none.clone(), none], "{}", said(&deployed));
        for antenna in &missing[2..] {
            assert!(antenna.windows(2).all(|pair| pair[1] - pair[0] == HEAP), "{antenna:?}");
            let seconds = antenna.len() as f64 * HEAP as f64 / 428_000.0;
            assert!(seconds > 0.0 && seconds <= 2.0, "away for {seconds} s");
        }
    }
}
