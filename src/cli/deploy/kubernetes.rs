//! Kubernetes: a Deployment and a Service for each part, and the `kustomization.yaml` that `kubectl apply -k` takes.
//!
//! A part uses the network of its host, because most networks of pods carry no multicast, and shares the host with no
//! other part of the flowgraph.

use super::manifest::{Part, Server};
use super::{Deployment, File, TOKEN};
use crate::failure::Failure;
use fxgraph::flowgraph::PartPlan;
use serde_json::{Map, Value, json};

/// Longest name of a Service.
const MOST_NAME: usize = 63;
/// Largest file in a ConfigMap, in bytes.
const MOST_BYTES: usize = 1 << 20;
/// Directories in a container.
const FLOWGRAPH: &str = "/etc/fxgraph";
const SECRET: &str = "/etc/fxgraph-token";
const OUTPUT: &str = "/data";
/// Time that a sender waits for its receivers, in seconds.
const WAIT_SECONDS: u32 = 120;
/// Time after which a part leaves a host that does not answer, in seconds. Kubernetes' own default is 300.
const LEAVE_SECONDS: u32 = 5;

/// Name of the objects of a part: lower-case letters, digits and `-`.
fn object(flowgraph: &str, part: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let text: String = format!("{flowgraph}-{part}").chars().map(plain).collect();
    text.trim_matches('-').to_owned()
}

/// Where the server of a part is found: at the Service of its objects.
pub fn server(flowgraph: &str, part: &PartPlan, port: u16) -> Server {
    Server::Address(format!("{}:{port}", object(flowgraph, &part.file_name())))
}

/// Command that lists the pods of `flowgraph`.
pub fn list(flowgraph: &str) -> String {
    format!("kubectl get pods -l app.kubernetes.io/instance={}", object(flowgraph, "array"))
}

/// The manifests.
///
/// # Errors
/// If names, constraints or flowgraphs do not fit Kubernetes.
pub fn files(deployment: &Deployment<'_>) -> Result<Vec<File>, Failure> {
    let Deployment { hosts, options, parts, manifest } = deployment;
    let image = options.image.as_ref().ok_or_else(|| {
        Failure::failed(
            "`--engine kubernetes` needs `--image`, the name of a container image with fxgraph",
        )
    })?;
    let flowgraph = manifest.flowgraph.as_str();
    let (mut files, mut resources, mut maps) = (Vec::new(), Vec::new(), Vec::new());
    let mut names: Vec<String> = Vec::new();
    for (host, part) in parts.iter().zip(&manifest.parts) {
        let name = object(flowgraph, &part.file_name);
        let starts_with_letter = name.starts_with(|c: char| c.is_ascii_alphabetic());
        if name.len() > MOST_NAME || !starts_with_letter || names.contains(&name) {
            let message = format!(
                "the name `{name}` of part `{}` must begin with a letter, have at most {MOST_NAME} characters and be \
                 the only one; rename the flowgraph or the class of hosts",
                part.name
            );
            return Err(Failure::failed(message));
        }
        if host.part.yaml.len() > MOST_BYTES {
            let (bytes, part) = (host.part.yaml.len(), &part.name);
            let message = format!(
                "the flowgraph of part `{part}` must have at most 1 MiB, got {bytes} bytes"
            );
            return Err(Failure::failed(message));
        }
        let class = hosts.classes.iter().find(|class| class.name == part.class);
        let machine = options.machines.iter().find(|(of, _)| *of == part.name);
        let mut selector = Map::new();
        if let Some((_, machine)) = machine {
            selector.insert("kubernetes.io/hostname".to_owned(), machine.clone().into());
        } else if let Some(constraint) = class.and_then(|class| class.constraint.as_deref()) {
            let (key, value) = label(constraint)?;
            selector.insert(key, value.into());
        }
        let gpus = class.and_then(|class| class.gpus).unwrap_or(0);
        let receivers = manifest.parts.iter().filter(|to| {
            // Two parts that send to each other would wait for each other.
            part.sends_to.contains(&to.name) && to.level < part.level
        });
        let servers: Vec<String> = receivers
            .map(|to| format!("{}:{}", object(flowgraph, &to.file_name), to.port))
            .collect();
        let pod = Pod { flowgraph, name: &name, image, part, selector, gpus, servers };
        for (kind, object) in [("deployment", pod.deployment()), ("service", pod.service())] {
            let path = format!("kubernetes/{}.{kind}.json", part.file_name);
            let text = serde_json::to_string_pretty(&object).unwrap_or_default();
            files.push(File::new(&path, text + "\n"));
            resources.push(path);
        }
        maps.push(json!({"name": name, "files": [format!("parts/{}.yaml", part.file_name)]}));
        names.push(name);
    }
    let token = object(flowgraph, TOKEN);
    let kustomization = json!({
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": resources,
        // The names get a hash of the content, so that an edited part starts again, and only that part.
        "configMapGenerator": maps,
        "secretGenerator": [{"name": token, "files": [TOKEN]}],
    });
    let text = serde_json::to_string_pretty(&kustomization).unwrap_or_default();
    // JSON is YAML.
    files.push(File::new("kustomization.yaml", text + "\n"));
    Ok(files)
}

/// Label of the nodes that a class of hosts takes: `NAME=VALUE`, or `NAME` for the value `true`.
fn label(constraint: &str) -> Result<(String, String), Failure> {
    let (key, value) = constraint.split_once('=').unwrap_or((constraint, "true"));
    let is_word = |text: &str| {
        let inner = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let outer = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
        text.len() <= MOST_NAME
            && text.chars().all(inner)
            && outer(text.chars().next())
            && outer(text.chars().next_back())
    };
    let name = key.rsplit('/').next().unwrap_or(key);
    if is_word(name) && is_word(value) && key.matches('/').count() <= 1 {
        return Ok((key.to_owned(), value.to_owned()));
    }
    let message = format!(
        "the constraint `{constraint}` is not a label of Kubernetes; write `NAME` or `NAME=VALUE`, or place parts \
         with `--machine`"
    );
    Err(Failure::failed(message))
}

/// A part, and what its objects need.
struct Pod<'a> {
    flowgraph: &'a str,
    /// Name of the objects.
    name: &'a str,
    image: &'a str,
    part: &'a Part,
    selector: Map<String, Value>,
    gpus: usize,
    /// Servers of the parts that it sends to.
    servers: Vec<String>,
}

impl Pod<'_> {
    fn labels(&self) -> Value {
        json!({
            "app.kubernetes.io/name": "fxgraph",
            "app.kubernetes.io/instance": object(self.flowgraph, "array"),
            "app.kubernetes.io/component": self.name,
        })
    }

    fn service(&self) -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": self.name, "labels": self.labels()},
            "spec": {
                // A part without data is not ready, and must be looked at all the more.
                "publishNotReadyAddresses": true,
                "selector": {"app.kubernetes.io/component": self.name},
                "ports": [{"name": "http", "port": self.part.port, "targetPort": self.part.port}],
            },
        })
    }

    fn deployment(&self) -> Value {
        let array = json!({"app.kubernetes.io/instance": object(self.flowgraph, "array")});
        let leave = |key: &str| json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": LEAVE_SECONDS});
        let token = object(self.flowgraph, TOKEN);
        let mut pod = json!({
            "hostNetwork": true,
            "dnsPolicy": "ClusterFirstWithHostNet",
            // SIGTERM stops the sources; the rest of the part processes what has arrived.
            "terminationGracePeriodSeconds": 30,
            "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
                {"labelSelector": {"matchLabels": array}, "topologyKey": "kubernetes.io/hostname"},
            ]}},
            "tolerations": [leave("node.kubernetes.io/not-ready"), leave("node.kubernetes.io/unreachable")],
            "containers": [self.container()],
            "volumes": [
                {"name": "flowgraph", "configMap": {"name": self.name}},
                {"name": "token", "secret": {"secretName": token}},
                {"name": "output", "emptyDir": {}},
            ],
        });
        if !self.selector.is_empty() {
            pod["nodeSelector"] = Value::Object(self.selector.clone());
        }
        if !self.servers.is_empty() {
            pod["initContainers"] = json!([self.wait()]);
        }
        json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": self.name, "labels": self.labels()},
            "spec": {
                "replicas": 1,
                // Two copies of a part would send the same packets.
                "strategy": {"type": "Recreate"},
                "selector": {"matchLabels": {"app.kubernetes.io/component": self.name}},
                "template": {"metadata": {"labels": self.labels()}, "spec": pod},
            },
        })
    }

    fn container(&self) -> Value {
        let port = self.part.port;
        let probe = |check: &[&str], period: u32, failures: u32| {
            json!({
                "exec": {"command": asks(check, &format!("localhost:{port}"))},
                "periodSeconds": period,
                "timeoutSeconds": 5,
                "failureThreshold": failures,
            })
        };
        let mut container = json!({
            "name": "fxgraph",
            "image": self.image,
            "command": ["fxgraph"],
            "args": [
                "run", format!("{FLOWGRAPH}/{}.yaml", self.part.file_name),
                "--listen", format!("0.0.0.0:{port}"),
                "--token-file", format!("{SECRET}/{TOKEN}"),
                // A container that is started again in its pod finds them.
                "--state", format!("{OUTPUT}/live_values.json"),
                "--quiet",
            ],
            "workingDir": OUTPUT,
            "ports": [{"name": "http", "containerPort": port, "hostPort": port}],
            // A GPU program takes a while to compile its kernels.
            "startupProbe": probe(&["--live"], 2, 150),
            "readinessProbe": probe(&[], 5, 2),
            // For a process that hangs or holds its frames: a machine that is busy delays answers for seconds.
            "livenessProbe": probe(&["--live"], 20, 3),
            "securityContext": {"allowPrivilegeEscalation": false},
            "volumeMounts": mounts(),
        });
        if self.gpus > 0 {
            container["resources"] = json!({"limits": {"nvidia.com/gpu": self.gpus}});
        }
        container
    }

    /// Waits for the servers of the receivers, for a limited time: a receiver that is down must not keep its senders down.
    fn wait(&self) -> Value {
        let ask = |server: &String| {
            let words = asks(&["--live"], server).join(" ");
            format!(
                "until {words} >/dev/null 2>&1 || [ $SECONDS -ge {WAIT_SECONDS} ]; do sleep 1; done\n"
            )
        };
        json!({
            "name": "wait-for-receivers",
            "image": self.image,
            "command": ["bash", "-c", self.servers.iter().map(ask).collect::<String>()],
            "volumeMounts": mounts(),
        })
    }
}

/// Command that succeeds if the part passes a check of its health.
fn asks(check: &[&str], server: &str) -> Vec<String> {
    let (url, token) = (format!("http://{server}"), format!("{SECRET}/{TOKEN}"));
    let connection = ["--connect", &url, "--token-file", &token];
    ["fxgraph", "health"].iter().chain(check).chain(&connection).map(ToString::to_string).collect()
}

fn mounts() -> Value {
    json!([
        {"name": "flowgraph", "mountPath": FLOWGRAPH, "readOnly": true},
        {"name": "token", "mountPath": SECRET, "readOnly": true},
        {"name": "output", "mountPath": OUTPUT},
    ])
}
