//! Files that `fxgraph deploy` writes.

use crate::support::repository::root;
use crate::support::{needs, programs, python};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

/// 64 antennas on 16 hosts, and 16 further hosts that each correlate 64 of the 1024 channels.
const ARRAY: &str = "flowgraph: array
hosts: {f_host: {count: 16, interface: lo}, x_host: {count: 16, interface: lo, spares: 1}}
network: {multicast: 239.212.0.0/16, port: 7148}
blocks:
  digitiser:
    kind: digitiser_simulator
    replicate: 64
    host: 'f_host[${index // 4}]'
    parameters: {signals: wgn(0.1), seed: '${index}'}
  f:
    kind: f_engine
    replicate: 64
    host: 'f_host[${index // 4}]'
    inputs: ['digitiser[${index}].pol0', 'digitiser[${index}].pol1']
    parameters: {channels: 1024, dither_seed: '${index}'}
  array:
    kind: antenna_stack
    replicate: 16
    host: 'x_host[${index}]'
    inputs: ['f[*]']
    parameters: {first_channel: '${index * 64}', channels: 64}
  x:
    kind: correlator
    replicate: 16
    host: 'x_host[${index}]'
    input: 'array[${index}]'
    parameters: {spectra_per_dump: 1024}
  visibilities: {kind: null_sink, replicate: 16, host: 'x_host[${index}]', input: 'x[${index}]'}
";

fn fxgraph(arguments: &[&str], directory: &Path) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_fxgraph"))
        .args(arguments)
        .current_dir(directory)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output
}

#[test]
fn array_of_64_antennas_is_planned_and_deployed_on_32_hosts() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("array.yaml"), ARRAY).unwrap();
    fxgraph(&["validate", "array.yaml"], directory.path());
    let plan = fxgraph(&["plan", "array.yaml"], directory.path());
    let plan = String::from_utf8_lossy(&plan.stdout).into_owned();
    let groups = plan.lines().filter(|line| line.starts_with("239.212.0.")).count();
    assert_eq!(groups, 64, "each F-engine has one group\n{plan}");

    for engine in ["slurm", "systemd", "kubernetes"] {
        let deploy = ["deploy", "array.yaml", "--engine", engine, "-o", engine];
        fxgraph(&[&deploy[..], &["--image", "fxgraph:1"]].concat(), directory.path());
        let directory = directory.path().join(engine);
        let text = fs::read_to_string(directory.join("deployment.json")).unwrap();
        let manifest: serde_json::Value = serde_json::from_str(&text).unwrap();
        let parts = manifest["parts"].as_array().unwrap();
        assert_eq!(parts.len(), 32);
        for part in parts {
            let sends = part["class"] == "f_host";
            let receivers = if sends { 16 } else { 0 };
            assert_eq!(part["sends_to"].as_array().unwrap().len(), receivers, "{part}");
            assert_eq!(part["level"], u64::from(sends), "receivers start first: {part}");
            let name = part["file_name"].as_str().unwrap();
            assert!(directory.join(format!("parts/{name}.yaml")).is_file());
        }
    }
}

#[test]
fn deploy_rejects_sinks_that_would_delete_their_recordings_at_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let sink = "{kind: file_sink, replicate: 16, host: 'x_host[${index}]', input: 'x[${index}]', \
                parameters: {path: 'x_${index}.npz', overwrite: OVERWRITE}}";
    let with = |overwrite: &str| {
        let sink = sink.replace("OVERWRITE", overwrite);
        let null =
            "{kind: null_sink, replicate: 16, host: 'x_host[${index}]', input: 'x[${index}]'}";
        assert!(ARRAY.contains(null));
        fs::write(directory.path().join("array.yaml"), ARRAY.replace(null, &sink)).unwrap();
    };
    for engine in ["slurm", "systemd", "kubernetes"] {
        let deploy = ["deploy", "array.yaml", "--engine", engine, "-o", engine, "--image", "i"];
        with("'${index == 3}'");
        let mut command = Command::new(env!("CARGO_BIN_EXE_fxgraph"));
        let rejected = command.args(deploy).current_dir(directory.path()).output().unwrap();
        let said = String::from_utf8_lossy(&rejected.stderr);
        assert!(!rejected.status.success(), "{said}");
        let expected = "`visibilities[3]` of part `x_host[3]` must not have `overwrite: true`: ";
        assert!(said.matches("must not have").count() == 1 && said.contains(expected), "{said}");
        assert!(said.contains("help: remove `overwrite`"), "{said}");
        assert!(!directory.path().join(engine).exists(), "nothing is written");
        with("false");
        fxgraph(&deploy, directory.path());
    }
}

#[test]
fn unit_of_each_part_passes_the_check_of_systemd() {
    if !needs::systemd() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("array.yaml"), ARRAY).unwrap();
    // The program of the package need not be here, and this one may be in a home directory.
    let program = directory.path().join("program");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_fxgraph"), &program).unwrap();
    let program = program.to_str().unwrap();
    let deploy = ["deploy", "array.yaml", "--engine", "systemd", "--program", program, "-o", "."];
    fxgraph(&deploy, directory.path());
    for wrong in ["target/release/fxgraph", "/home/me/fxgraph", "/opt/my tools/fxgraph", "/opt/%n"]
    {
        let deploy =
            ["deploy", "array.yaml", "--engine", "systemd", "--program", wrong, "-o", "no"];
        let mut command = Command::new(env!("CARGO_BIN_EXE_fxgraph"));
        let rejected = command.args(deploy).current_dir(directory.path()).output().unwrap();
        let said = String::from_utf8_lossy(&rejected.stderr);
        assert!(!rejected.status.success() && said.contains("`--program`"), "{wrong}: {said}");
    }

    let mut units = Vec::new();
    for machine in fs::read_dir(directory.path().join("machines")).unwrap() {
        let machine = machine.unwrap();
        let part = machine.file_name().into_string().unwrap();
        let conf = machine.path().join(format!("etc/fxgraph/{part}.conf"));
        let options = fs::read_to_string(conf).unwrap();
        let options = options.lines().next().unwrap();
        let options = options.strip_prefix("FXGRAPH_OPTIONS=").unwrap();
        // systemd splits the options at spaces: none of them may have one.
        let words: Vec<&str> = options.split(' ').collect();
        assert!(
            matches!(words[..], ["--listen", _, "--token-file", "/etc/fxgraph/token", "--state", state]
                if state == format!("/var/lib/fxgraph/{part}/live_values.json")),
            "{options}"
        );
        for entry in fs::read_dir(machine.path().join("etc/systemd/system")).unwrap() {
            let template = entry.unwrap();
            let name =
                template.file_name().into_string().unwrap().replace('@', &format!("@{part}"));
            let text = fs::read_to_string(template.path()).unwrap();
            assert!(!text.contains("/usr/bin/fxgraph"), "{text}");
            // Environment files are read when a unit starts, and must be absolute.
            fs::write(directory.path().join(&name), text).unwrap();
            units.push(directory.path().join(name));
        }
    }
    assert_eq!(units.len(), 4 * 32);
    let checked =
        Command::new("systemd-analyze").args(["verify", "--man=no"]).args(&units).output().unwrap();
    let said = String::from_utf8_lossy(&checked.stderr);
    assert!(checked.status.success(), "{said}");
    let ours = directory.path().to_str().unwrap();
    assert!(!said.contains(ours) && !said.contains("fxgraph@"), "no warning about a unit\n{said}");
}

#[test]
fn deploy_says_what_comes_next_and_its_commands_exist() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("array.yaml"), ARRAY).unwrap();
    let next = |engine: &str, out: &str| -> Vec<String> {
        let deploy = ["deploy", "array.yaml", "--engine", engine, "-o", out, "--image", "i"];
        let said = fxgraph(&deploy, directory.path());
        let said = String::from_utf8(said.stdout).unwrap();
        let (_, next) = said.split_once("\nnext:\n").unwrap();
        let commands = next.lines().map(|line| line.split("  # ").next().unwrap().trim());
        commands.map(str::to_owned).collect()
    };
    assert_eq!(next("slurm", "s"), ["s/array.sh start", "fxgraph fleet s"]);
    assert_eq!(next("systemd", "my units"), ["'my units/install.sh'", "fxgraph fleet 'my units'"]);
    assert_eq!(next("slurm", "."), ["./array.sh start", "fxgraph fleet ."]);
    assert_eq!(next("kubernetes", "k")[0], "kubectl apply -k k");
    for script in ["s/array.sh", "my units/install.sh"] {
        let mode = fs::metadata(directory.path().join(script)).unwrap().permissions().mode();
        assert_eq!(mode & 0o111, 0o111, "{script}");
    }
    // Without Slurm no part has a host.
    let mut array = Command::new(directory.path().join("s/array.sh"));
    let status = array.arg("status").current_dir("/").output().unwrap();
    let (said, errors) = (String::from_utf8_lossy(&status.stdout), status.stderr);
    assert!(status.status.success(), "{}", String::from_utf8_lossy(&errors));
    assert_eq!(said.lines().filter(|line| line.ends_with(" - - -")).count(), 32, "{said}");
    assert!(said.starts_with("f_host[0] - - -\n"), "{said}");
    let wrong = Command::new(directory.path().join("s/array.sh")).arg("begin").output().unwrap();
    assert_eq!(wrong.status.code(), Some(2));
}

#[test]
fn script_for_systemd_installs_receivers_first_on_their_machines() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    fs::write(path("array.yaml"), ARRAY).unwrap();
    // Extracts what arrives for a machine to a directory with its name, and notes the other commands.
    let ssh = "#!/bin/bash
root=$TARGETS/${1#root@}; mkdir -p \"$root/etc/fxgraph\"
case $2 in
tar*) tar -C \"$root\" -x ;;
*token) cat >\"$root/etc/fxgraph/token\" ;;
*) echo \"$1 $2\" >>\"$TARGETS/log\" ;;
esac
";
    programs::write(&path("ssh"), ssh);
    let run = |program: &str, arguments: &[&str]| {
        let search = format!("{}:{}", directory.path().display(), std::env::var("PATH").unwrap());
        let mut command = Command::new(program);
        command.args(arguments).current_dir(directory.path());
        command.env("PATH", search).env("TARGETS", path("targets")).output().unwrap()
    };
    let deploy = ["deploy", "array.yaml", "--engine", "systemd", "-o", "u", "--submit"];
    let machine = ["--machine", "f_host[3]=node7"];
    let output = run(env!("CARGO_BIN_EXE_fxgraph"), &[&deploy[..], &machine].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let log = fs::read_to_string(path("targets/log")).unwrap();
    let hosts: Vec<&str> = log.lines().filter_map(|line| line.split(' ').next()).collect();
    let starts: Vec<&&str> = hosts.iter().filter(|host| host.starts_with("root@")).collect();
    assert_eq!(starts.len(), 32);
    assert!(starts[..16].iter().all(|host| host.starts_with("root@x-host-")), "{log}");
    assert!(log.contains("systemctl restart fxgraph@f_host_3.service"), "{log}");
    let part = fs::read_to_string(path("targets/node7/etc/fxgraph/f_host_3.yaml")).unwrap();
    assert_eq!(part, fs::read_to_string(path("u/parts/f_host_3.yaml")).unwrap());
    let tokens = ["targets/node7/etc/fxgraph/token", "u/token"];
    let [token, own] = tokens.map(|name| fs::read_to_string(path(name)).unwrap());
    assert_eq!(token, own);

    fs::remove_file(path("targets/log")).unwrap();
    let output = run(path("u/install.sh").to_str().unwrap(), &["x_host[2]"]);
    assert!(output.status.success());
    let log = fs::read_to_string(path("targets/log")).unwrap();
    assert_eq!(log.matches("root@").count(), 1, "{log}");
    let output = run(path("u/install.sh").to_str().unwrap(), &["x_host[99]"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("there is no part `x_host[99]`"), "{said}");
}

/// Output of a deployment that fails.
fn rejected(arguments: &[&str], directory: &Path) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_fxgraph"))
        .arg("deploy")
        .args(arguments)
        .current_dir(directory)
        .output()
        .unwrap();
    assert!(!output.status.success());
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn manifests_of_kubernetes_are_valid_and_place_each_part_on_a_host_of_its_own() {
    let directory = tempfile::tempdir().unwrap();
    let text =
        ARRAY.replace("f_host: {count: 16,", "f_host: {count: 16, constraint: disk=fast, gpus: 2,");
    fs::write(directory.path().join("array.yaml"), &text).unwrap();
    let engine = ["array.yaml", "--engine", "kubernetes", "-o", "k"];
    assert!(rejected(&engine, directory.path()).contains("needs `--image`"));
    let deploy =
        [&["deploy"], &engine[..], &["--image", "site/fxgraph:1", "--machine", "x_host[3]=node7"]];
    fxgraph(&deploy.concat(), directory.path());

    let read = |name: &str| -> serde_json::Value {
        serde_json::from_str(&fs::read_to_string(directory.path().join("k").join(name)).unwrap())
            .unwrap()
    };
    let kustomization = read("kustomization.yaml");
    assert_eq!(kustomization["resources"].as_array().unwrap().len(), 64);
    for name in kustomization["resources"].as_array().unwrap() {
        assert!(directory.path().join("k").join(name.as_str().unwrap()).is_file());
    }
    let sender = read("kubernetes/f_host_0.deployment.json");
    let pod = &sender["spec"]["template"]["spec"];
    assert_eq!(pod["hostNetwork"], true);
    assert_eq!(pod["nodeSelector"], serde_json::json!({"disk": "fast"}));
    assert_eq!(pod["containers"][0]["resources"]["limits"]["nvidia.com/gpu"], 2);
    let wait = pod["initContainers"][0]["command"][2].as_str().unwrap();
    assert_eq!(wait.lines().count(), 16, "it waits for each receiver");
    assert!(wait.contains("--connect http://array-x-host-15:"), "{wait}");
    let receiver = read("kubernetes/x_host_3.deployment.json");
    let pod = &receiver["spec"]["template"]["spec"];
    assert_eq!(pod["nodeSelector"], serde_json::json!({"kubernetes.io/hostname": "node7"}));
    assert!(pod["initContainers"].is_null());
    let alone =
        &pod["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    let labels = &receiver["spec"]["template"]["metadata"]["labels"];
    let instance = "app.kubernetes.io/instance";
    assert_eq!(alone[0]["labelSelector"]["matchLabels"][instance], labels[instance]);

    fs::write(directory.path().join("array.yaml"), text.replace("disk=fast", "'gpu&ib'")).unwrap();
    let engine = [&engine[..], &["--image", "site/fxgraph:1"]].concat();
    let said = rejected(&engine, directory.path());
    assert!(said.contains("the constraint `gpu&ib` is not a label of Kubernetes"), "{said}");
    let name = format!("flowgraph: {}\n", "a".repeat(60));
    fs::write(directory.path().join("array.yaml"), text.replace("flowgraph: array\n", &name))
        .unwrap();
    assert!(rejected(&engine, directory.path()).contains("at most 63 characters"));

    if !needs::kubernetes() {
        return;
    }
    let python = python::environment("tests-kubernetes", "tests/kubernetes.txt").unwrap();
    let mut validate = Command::new(python.with_file_name("kubernetes-validate"));
    validate.arg("--strict");
    for file in fs::read_dir(directory.path().join("k/kubernetes")).unwrap() {
        validate.arg(file.unwrap().path());
    }
    let output = validate.output().unwrap();
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{said}");
    assert_eq!(said.matches(" passed for resource ").count(), 64, "{said}");
}

#[test]
fn submit_hands_the_directory_to_kubectl_and_reports_its_failure() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("array.yaml"), ARRAY).unwrap();
    let kubectl = directory.path().join("kubectl");
    let submit = |script: Option<&str>| {
        if let Some(script) = script {
            programs::write(&kubectl, &format!("#!/bin/sh\n{script}\n"));
        }
        let output = Command::new(env!("CARGO_BIN_EXE_fxgraph"))
            .args([
                "deploy",
                "array.yaml",
                "--engine",
                "kubernetes",
                "--image",
                "i",
                "-o",
                "k",
                "--submit",
            ])
            .current_dir(directory.path())
            .env("PATH", directory.path())
            .output()
            .unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&said).into_owned())
    };
    let (is_done, said) = submit(None);
    assert!(!is_done && said.contains("cannot start `kubectl`"), "{said}");
    let (is_done, said) = submit(Some(
        "[ \"$1 $2 $3\" = 'apply -k k' ] && [ -s \"$3/kustomization.yaml\" ] && echo applied",
    ));
    assert!(is_done && said.contains("applied"), "{said}");
    let (is_done, said) = submit(Some("exit 3"));
    assert!(!is_done && said.contains("`kubectl` has failed: exit status: 3"), "{said}");
}

/// Two antennas on a host each, and their correlator on a third.
const PACED: &str = "flowgraph: paced
parameters: {rate: 1712000, cores: 64, memory: 100}
hosts:
  f_host: {count: 2, interface: lo, cores: '${cores}', memory_gbytes: '${memory}'}
  x_host: {interface: lo}
network: {multicast: 239.213.0.0/16, port: 7148}
blocks:
  digitiser:
    kind: digitiser_simulator
    replicate: 2
    host: 'f_host[${index}]'
    parameters:
      {adc_sample_rate_hz: '${rate}', signals: wgn(0.1), seed: '${index}', samples_per_frame: 32768,
        period_samples: 327680, paced: true}
  f:
    kind: f_engine
    replicate: 2
    host: 'f_host[${index}]'
    inputs: ['digitiser[${index}].pol0', 'digitiser[${index}].pol1']
    parameters: {channels: 64, dither_seed: '${index}'}
  array: {kind: antenna_stack, host: x_host, inputs: ['f[*]']}
  x: {kind: correlator, host: x_host, input: array, parameters: {spectra_per_dump: 256}}
  visibilities: {kind: null_sink, host: x_host, input: x}
";

#[test]
fn plan_expects_the_measured_load_and_rejects_hosts_that_are_too_small() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    fs::write(directory.join("paced.yaml"), PACED).unwrap();
    let measured = fxgraph(&["bench", "paced.yaml", "--time", "1500ms", "--json"], directory);
    fs::write(directory.join("results.json"), &measured.stdout).unwrap();
    let with_bench = ["plan", "paced.yaml", "--bench", "results.json"];
    let plan = |more: &[&str]| -> serde_json::Value {
        let output = fxgraph(&[&with_bench[..], &["--json"], more].concat(), directory);
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let cores = |plan: &serde_json::Value, block: &str| -> f64 {
        let blocks = plan["expected_load"]["blocks"].as_array().unwrap();
        let block = blocks.iter().find(|of| of["name"] == block).unwrap();
        block["cores"].as_f64().unwrap()
    };

    let same = plan(&[]);
    let blocks = same["expected_load"]["blocks"].as_array().unwrap();
    assert_eq!(blocks.len(), 7);
    assert!(blocks.iter().all(|block| block["is_measured"] == true), "{blocks:?}");
    let f = cores(&same, "f[1]");
    assert!(f > 0.0 && f < 64.0, "{f}");
    // Beside the blocks a host has one that sends, of which nothing is known.
    let host = &same["hosts"][1]["expected_load"];
    assert_eq!(host["blocks_without_measurement"], 1);
    let sum = cores(&same, "digitiser[1]") + f;
    assert!((host["cores"].as_f64().unwrap() - sum).abs() < 1e-9, "{host} {sum}");
    let faster = plan(&["--set", "rate=3424000"]);
    assert!((cores(&faster, "f[1]") / f - 2.0).abs() < 1e-9);
    let text = fxgraph(&with_bench, directory);
    assert!(String::from_utf8(text.stdout).unwrap().contains("load expected on "));

    let rejected = |more: &[&str]| -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fxgraph"));
        let output = command.args(with_bench).args(more).current_dir(directory).output().unwrap();
        assert_eq!(output.status.code(), Some(78));
        String::from_utf8(output.stderr).unwrap()
    };
    let said = rejected(&["--set", "memory=0.001"]);
    assert!(said.contains("`f_host[0]` does not fit, because it needs"), "{said}");
    assert!(said.contains("GB of memory and `memory_gbytes` is 0.001"), "{said}");
    // As if the machine were a thousand times slower.
    let mut slow: serde_json::Value = serde_json::from_slice(&measured.stdout).unwrap();
    for load in slow["results"][0]["loads"].as_array_mut().unwrap() {
        load["cores"] = 1.5.into();
        load["busiest_thread"] = 1.25.into();
    }
    fs::write(directory.join("results.json"), slow.to_string()).unwrap();
    let said = rejected(&["--set", "cores=2"]);
    assert!(said.contains("it needs 3.00 cores and `cores` is 2"), "{said}");
    let text = String::from_utf8(fxgraph(&with_bench, directory).stdout).unwrap();
    assert!(text.contains("`f[0]` needs 1.25 s of one core per second of signal"), "{text}");

    let rejected = |file: &str| -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fxgraph"));
        let arguments = ["plan", "paced.yaml", "--bench", file];
        let output = command.args(arguments).current_dir(directory).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).unwrap()
    };
    slow["results"][0]["loads"][0]["cores"] = (-1.0).into();
    fs::write(directory.join("results.json"), slow.to_string()).unwrap();
    let said = rejected("results.json");
    assert!(said.contains("must be finite and not negative"), "{said}");
    fs::write(directory.join("results.json"), "{\"machine\": 3}").unwrap();
    let said = rejected("results.json");
    assert!(said.contains("results.json: not results of `fxgraph bench --json`"), "{said}");
    // It has no end.
    let said = rejected("/dev/zero");
    assert!(said.contains("/dev/zero: it must have at most"), "{said}");
}

#[test]
fn image_is_built_from_directories_of_the_repository() {
    let text = fs::read_to_string(root().join("packaging/Containerfile")).unwrap();
    let copied: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("COPY "))
        .filter(|sources| !sources.starts_with("--from"))
        .flat_map(|line| line.split(' ').take(line.split(' ').count() - 1))
        .collect();
    let missing: Vec<&&str> = copied.iter().filter(|path| !root().join(path).exists()).collect();
    assert!(missing.is_empty(), "{missing:?}");
    // The members of the workspace, and what the program includes.
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let members = manifest.split("members = [").nth(1).unwrap().split(']').next().unwrap();
    let members = members.split('"').skip(1).step_by(2).filter(|path| *path != ".");
    for needed in members.chain(["flowgraphs", "python", "packaging", "tests", "benches"]) {
        let top = needed.split('/').next().unwrap();
        assert!(copied.contains(&top), "{needed} is not copied");
    }
}
