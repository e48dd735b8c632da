//! systemd: for each part the flowgraph and the options of the unit `fxgraph@PART`, as on its machine.

use super::File;
use super::manifest::{Manifest, Server};
use crate::parts::HostPart;
use fxgraph::flowgraph::PartPlan;

/// Where the server of a part is found: on its machine of `machines`, or on one that is named as the part.
pub fn server(part: &PartPlan, port: u16, machines: &[(String, String)]) -> Server {
    let named = machines.iter().find(|(name, _)| *name == part.name);
    // A name in DNS has no `_`.
    let machine =
        named.map_or_else(|| part.file_name().replace('_', "-"), |(_, machine)| machine.clone());
    Server::Address(format!("{machine}:{port}"))
}

/// Files below `machines/PART`, with the paths that they have on the machine.
pub fn files(parts: &[HostPart], manifest: &Manifest) -> Vec<File> {
    let of_part = |(host, deployed): (&HostPart, &super::manifest::Part)| {
        let name = &deployed.file_name;
        let place = format!("machines/{name}/etc/fxgraph/{name}");
        let options = format!(
            "FXGRAPH_OPTIONS=--listen 0.0.0.0:{} --token-file /etc/fxgraph/token \
             --state /var/lib/fxgraph/{name}/live_values.json\n",
            deployed.port
        );
        [
            File::new(format!("{place}.yaml"), &host.part.yaml),
            File::new(format!("{place}.conf"), options),
        ]
    };
    parts.iter().zip(&manifest.parts).flat_map(of_part).collect()
}
