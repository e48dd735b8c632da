//! systemd: for each part its files as they belong on its machine (flowgraph, options, units), and a script that installs
//! them.

use super::manifest::{Manifest, Part, Server};
use super::{Deployment, File, quoted};
use crate::failure::Failure;
use crate::parts::HostPart;
use fxgraph::flowgraph::PartPlan;
use std::path::Path;

/// The unit of the package, with the path of the program there.
const UNIT: &str = include_str!("../../../../packaging/debian/fxgraph@.service");
const PACKAGED: &str = "/usr/bin/fxgraph";
const USER: &str = include_str!("../../../../packaging/debian/fxgraph.sysusers");
/// Units that restart a part whose liveness check fails, by name.
const HEALTH: [(&str, &str); 3] = [
    ("fxgraph-health@.service", include_str!("fxgraph-health@.service")),
    ("fxgraph-health@.timer", include_str!("fxgraph-health@.timer")),
    ("fxgraph-restart@.service", include_str!("fxgraph-restart@.service")),
];
/// Script that installs the files on their machines.
pub const NAME: &str = "install.sh";
const SCRIPT: &str = include_str!("install.sh");

/// Where the server of a part is found: on its machine of `machines`, or on one that is named as the part.
pub fn server(part: &PartPlan, port: u16, machines: &[(String, String)]) -> Server {
    Server::Address(format!("{}:{port}", machine(&part.name, &part.file_name(), machines)))
}

fn machine(name: &str, file_name: &str, machines: &[(String, String)]) -> String {
    let named = machines.iter().find(|(part, _)| part == name);
    // A name in DNS has no `_`.
    named.map_or_else(|| file_name.replace('_', "-"), |(_, machine)| machine.clone())
}

/// Files below `machines/PART`, with the paths that they have on the machine, and the script.
///
/// # Errors
/// If systemd could not run the program of the options.
pub fn files(deployment: &Deployment<'_>) -> Result<Vec<File>, Failure> {
    let Deployment { parts, manifest, options, .. } = deployment;
    let program = program(options.program.as_deref().unwrap_or(Path::new(PACKAGED)))?;
    let of_part = |(host, deployed): (&HostPart, &Part)| {
        let name = &deployed.file_name;
        let root = format!("machines/{name}/etc");
        let conf = format!(
            "FXGRAPH_OPTIONS=--listen 0.0.0.0:{port} --token-file /etc/fxgraph/token \
             --state /var/lib/fxgraph/{name}/live_values.json\n\
             FXGRAPH_CONNECT=http://127.0.0.1:{port}\n",
            port = deployed.port
        );
        let unit = |name: &str, text: &str| {
            File::new(format!("{root}/systemd/system/{name}"), text.replace(PACKAGED, program))
        };
        let health = HEALTH.iter().map(|(name, text)| unit(name, text));
        let own = [
            File::new(format!("{root}/fxgraph/{name}.yaml"), &host.part.yaml),
            File::new(format!("{root}/fxgraph/{name}.conf"), conf),
            File::new(format!("{root}/sysusers.d/fxgraph.conf"), USER),
            unit("fxgraph@.service", UNIT),
        ];
        own.into_iter().chain(health).collect::<Vec<_>>()
    };
    let mut files: Vec<File> = parts.iter().zip(&manifest.parts).flat_map(of_part).collect();
    files.push(File::executable(NAME, script(manifest, &options.machines)));
    Ok(files)
}

/// The path of the program for a unit, which has it without quotes and hides `/home` and `/root`.
fn program(path: &Path) -> Result<&str, Failure> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._+-".contains(c);
    let is_hidden = ["/home", "/root", "/run/user"].iter().any(|hidden| path.starts_with(hidden));
    let text = path.to_str().filter(|text| path.is_absolute() && text.chars().all(is_plain));
    text.filter(|_| !is_hidden).ok_or_else(|| {
        Failure::failed(format!(
            "`--program`: systemd cannot run `{}`; use an absolute path outside /home and /root, of letters, digits and \
             `/._+-`, such as /opt/fxgraph/fxgraph",
            path.display()
        ))
    })
}

/// The script with the parts, receivers first.
fn script(manifest: &Manifest, machines: &[(String, String)]) -> String {
    let mut parts: Vec<&Part> = manifest.parts.iter().collect();
    parts.sort_by_key(|part| part.level);
    let line = |part: &&Part| {
        let machine = machine(&part.name, &part.file_name, machines);
        format!("{} {} {}\n", quoted(&part.name), quoted(&part.file_name), quoted(&machine))
    };
    SCRIPT.replace("PARTS\n", &parts.iter().map(line).collect::<String>())
}
