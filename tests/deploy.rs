//! Files that `fxgraph deploy` writes.
#![allow(clippy::unwrap_used, missing_docs)]

#[path = "support/needs.rs"]
mod needs;
#[path = "support/python.rs"]
mod python;

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

fn fxgraph(arguments: &[&str], folder: &Path) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_fxgraph"))
        .args(arguments)
        .current_dir(folder)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output
}

#[test]
fn array_of_64_antennas_is_planned_and_deployed_on_32_hosts() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("array.yaml"), ARRAY).unwrap();
    fxgraph(&["validate", "array.yaml"], folder.path());
    let plan = fxgraph(&["plan", "array.yaml"], folder.path());
    let plan = String::from_utf8_lossy(&plan.stdout).into_owned();
    let groups = plan.lines().filter(|line| line.starts_with("239.212.0.")).count();
    assert_eq!(groups, 64, "each F-engine has one group\n{plan}");

    for engine in ["slurm", "systemd", "kubernetes"] {
        let deploy = ["deploy", "array.yaml", "--engine", engine, "-o", engine];
        fxgraph(&[&deploy[..], &["--image", "fxgraph:1"]].concat(), folder.path());
        let folder = folder.path().join(engine);
        let text = fs::read_to_string(folder.join("deployment.json")).unwrap();
        let manifest: serde_json::Value = serde_json::from_str(&text).unwrap();
        let parts = manifest["parts"].as_array().unwrap();
        assert_eq!(parts.len(), 32);
        for part in parts {
            let sends = part["class"] == "f_host";
            let receivers = if sends { 16 } else { 0 };
            assert_eq!(part["sends_to"].as_array().unwrap().len(), receivers, "{part}");
            assert_eq!(part["level"], u64::from(sends), "receivers start first: {part}");
            let name = part["file_name"].as_str().unwrap();
            assert!(folder.join(format!("parts/{name}.yaml")).is_file());
        }
    }
}

#[test]
fn unit_of_each_part_passes_the_check_of_systemd() {
    if !needs::systemd() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("array.yaml"), ARRAY).unwrap();
    fxgraph(&["deploy", "array.yaml", "--engine", "systemd", "-o", "."], folder.path());
    let unit = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/debian/fxgraph@.service");
    let unit = fs::read_to_string(unit).unwrap();
    let program = env!("CARGO_BIN_EXE_fxgraph");
    // The installed program need not be here.
    let unit = unit.replace("ExecStart=/usr/bin/fxgraph", &format!("ExecStart={program}"));
    assert!(unit.contains(program));

    let mut units = Vec::new();
    for machine in fs::read_dir(folder.path().join("machines")).unwrap() {
        let machine = machine.unwrap();
        let part = machine.file_name().into_string().unwrap();
        let conf = machine.path().join(format!("etc/fxgraph/{part}.conf"));
        let options = fs::read_to_string(conf).unwrap();
        let options = options.trim_end().strip_prefix("FXGRAPH_OPTIONS=").unwrap();
        // systemd splits the options at spaces: none of them may have one.
        let words: Vec<&str> = options.split(' ').collect();
        assert!(
            matches!(words[..], ["--listen", _, "--token-file", "/etc/fxgraph/token", "--state", state]
                if state == format!("/var/lib/fxgraph/{part}/live_values.json")),
            "{options}"
        );
        let path = folder.path().join(format!("fxgraph@{part}.service"));
        fs::write(&path, &unit).unwrap();
        units.push(path);
    }
    assert_eq!(units.len(), 32);
    let checked =
        Command::new("systemd-analyze").args(["verify", "--man=no"]).args(&units).output().unwrap();
    let said = String::from_utf8_lossy(&checked.stderr);
    assert!(checked.status.success(), "{said}");
    assert!(!said.contains("fxgraph@"), "no warning about a unit\n{said}");
}

/// Output of a deployment that fails.
fn refused(arguments: &[&str], folder: &Path) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_fxgraph"))
        .arg("deploy")
        .args(arguments)
        .current_dir(folder)
        .output()
        .unwrap();
    assert!(!output.status.success());
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn manifests_of_kubernetes_are_valid_and_place_each_part_on_a_host_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let text =
        ARRAY.replace("f_host: {count: 16,", "f_host: {count: 16, constraint: disk=fast, gpus: 2,");
    fs::write(folder.path().join("array.yaml"), &text).unwrap();
    let engine = ["array.yaml", "--engine", "kubernetes", "-o", "k"];
    assert!(refused(&engine, folder.path()).contains("needs `--image`"));
    let deploy =
        [&["deploy"], &engine[..], &["--image", "site/fxgraph:1", "--machine", "x_host[3]=node7"]];
    fxgraph(&deploy.concat(), folder.path());

    let read = |name: &str| -> serde_json::Value {
        serde_json::from_str(&fs::read_to_string(folder.path().join("k").join(name)).unwrap())
            .unwrap()
    };
    let kustomization = read("kustomization.yaml");
    assert_eq!(kustomization["resources"].as_array().unwrap().len(), 64);
    for name in kustomization["resources"].as_array().unwrap() {
        assert!(folder.path().join("k").join(name.as_str().unwrap()).is_file());
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

    fs::write(folder.path().join("array.yaml"), text.replace("disk=fast", "'gpu&ib'")).unwrap();
    let engine = [&engine[..], &["--image", "site/fxgraph:1"]].concat();
    let said = refused(&engine, folder.path());
    assert!(said.contains("the constraint `gpu&ib` is not a label of Kubernetes"), "{said}");
    let name = format!("flowgraph: {}\n", "a".repeat(60));
    fs::write(folder.path().join("array.yaml"), text.replace("flowgraph: array\n", &name)).unwrap();
    assert!(refused(&engine, folder.path()).contains("at most 63 characters"));

    if !needs::kubernetes() {
        return;
    }
    let python = python::environment("tests-kubernetes", "tests/kubernetes.txt").unwrap();
    let mut validate = Command::new(python.with_file_name("kubernetes-validate"));
    validate.arg("--strict");
    for file in fs::read_dir(folder.path().join("k/kubernetes")).unwrap() {
        validate.arg(file.unwrap().path());
    }
    let output = validate.output().unwrap();
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{said}");
    assert_eq!(said.matches(" passed for resource ").count(), 64, "{said}");
}

#[test]
fn submit_hands_the_directory_to_kubectl_and_reports_its_failure() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("array.yaml"), ARRAY).unwrap();
    let kubectl = folder.path().join("kubectl");
    let submit = |script: Option<&str>| {
        if let Some(script) = script {
            fs::write(&kubectl, format!("#!/bin/sh\n{script}\n")).unwrap();
            fs::set_permissions(&kubectl, fs::Permissions::from_mode(0o755)).unwrap();
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
            .current_dir(folder.path())
            .env("PATH", folder.path())
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
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("paced.yaml"), PACED).unwrap();
    let measured = fxgraph(&["bench", "paced.yaml", "--time", "1500ms", "--json"], folder);
    fs::write(folder.join("results.json"), &measured.stdout).unwrap();
    let with_bench = ["plan", "paced.yaml", "--bench", "results.json"];
    let plan = |more: &[&str]| -> serde_json::Value {
        let output = fxgraph(&[&with_bench[..], &["--json"], more].concat(), folder);
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
    let text = fxgraph(&with_bench, folder);
    assert!(String::from_utf8(text.stdout).unwrap().contains("load expected on "));

    let refused = |more: &[&str]| -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fxgraph"));
        let output = command.args(with_bench).args(more).current_dir(folder).output().unwrap();
        assert_eq!(output.status.code(), Some(78));
        String::from_utf8(output.stderr).unwrap()
    };
    let said = refused(&["--set", "memory=0.001"]);
    assert!(said.contains("`f_host[0]` does not fit, because it needs"), "{said}");
    assert!(said.contains("GB of memory and `memory_gbytes` is 0.001"), "{said}");
    // As if the machine were a thousand times slower.
    let mut slow: serde_json::Value = serde_json::from_slice(&measured.stdout).unwrap();
    for load in slow["results"][0]["loads"].as_array_mut().unwrap() {
        load["cores"] = 1.5.into();
        load["busiest_thread"] = 1.25.into();
    }
    fs::write(folder.join("results.json"), slow.to_string()).unwrap();
    let said = refused(&["--set", "cores=2"]);
    assert!(said.contains("it needs 3.00 cores and `cores` is 2"), "{said}");
    let text = String::from_utf8(fxgraph(&with_bench, folder).stdout).unwrap();
    assert!(text.contains("`f[0]` needs 1.25 s of one core per second of signal"), "{text}");

    let rejected = |file: &str| -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fxgraph"));
        let arguments = ["plan", "paced.yaml", "--bench", file];
        let output = command.args(arguments).current_dir(folder).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).unwrap()
    };
    slow["results"][0]["loads"][0]["cores"] = (-1.0).into();
    fs::write(folder.join("results.json"), slow.to_string()).unwrap();
    let said = rejected("results.json");
    assert!(said.contains("must be finite and not negative"), "{said}");
    fs::write(folder.join("results.json"), "{\"machine\": 3}").unwrap();
    let said = rejected("results.json");
    assert!(said.contains("results.json: not results of `fxgraph bench --json`"), "{said}");
    // It has no end.
    let said = rejected("/dev/zero");
    assert!(said.contains("/dev/zero: it must have at most"), "{said}");
}
