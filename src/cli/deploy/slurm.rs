//! Slurm: a script that allocates hosts and keeps the parts running on them.

use super::{Deployment, File, quoted};
use crate::failure::Failure;
use crate::flowgraph::registry;
use crate::parts::HostPart;
use fxgraph::flowgraph::{Plan, PlannedBlock, Rate};
use std::fmt::Write;

/// The script, which reads the file of the parts.
const SCRIPT: &str = include_str!("array.sh");

/// Name of the script.
pub const NAME: &str = "array.sh";

/// Name of the file with parts and classes. It is apart from the script, so that the script of another deployment can
/// read it, too.
const PARTS: &str = "parts.sh";

/// Live parameter of sinks that send streams.
const ENABLED: &str = "enabled";

/// Kind of the receiver of a stream between parts.
const RECEIVER: &str = "stream_source";

/// The script and the parts.
///
/// # Errors
/// If the path of this program is not known, and none is given.
pub fn files(deployment: &Deployment<'_>) -> Result<Vec<File>, Failure> {
    let program = match &deployment.options.program {
        Some(program) => program.clone(),
        None => std::env::current_exe()
            .map_err(|error| Failure::because("cannot find the path of this program", &error))?,
    };
    let arrays = arrays(deployment, &program.to_string_lossy());
    Ok(vec![File::executable(NAME, SCRIPT), File::new(PARTS, arrays)])
}

/// Parts and classes as arrays of the shell.
fn arrays(deployment: &Deployment<'_>, program: &str) -> String {
    let parts = &deployment.manifest.parts;
    // Classes that take any machine leave those with a property to the classes that need it.
    let mut classes: Vec<_> = deployment.hosts.classes.iter().collect();
    classes.sort_by_key(|class| class.constraint.is_none());
    let mut text = format!(
        "# Parts of the flowgraph and classes of hosts, for {NAME}\nflowgraph={}\nprogram={}\nversion={}\n",
        quoted(&deployment.manifest.flowgraph),
        quoted(program),
        quoted(&deployment.manifest.version),
    );
    let mut array = |name: &str, values: Vec<String>| {
        let values: Vec<String> = values.iter().map(|value| quoted(value)).collect();
        let _ = writeln!(text, "{name}=({})", values.join(" "));
    };
    array("name", parts.iter().map(|part| part.name.clone()).collect());
    array("file", parts.iter().map(|part| part.file_name.clone()).collect());
    array("class", parts.iter().map(|part| part.class.clone()).collect());
    array("port", parts.iter().map(|part| part.port.to_string()).collect());
    array("level", parts.iter().map(|part| part.level.to_string()).collect());
    let all = deployment.parts;
    array("sent", all.iter().map(|host| sent(host, all)).collect());
    let obstacles = all.iter().map(|host| obstacle(&host.plan).unwrap_or_default());
    array("obstacle", obstacles.collect());
    array("classes", classes.iter().map(|class| class.name.clone()).collect());
    array("size", classes.iter().map(|class| (class.count + class.spares).to_string()).collect());
    let constraints = classes.iter().map(|class| class.constraint.clone().unwrap_or_default());
    array("constraint", constraints.collect());
    array("gpus", classes.iter().map(|class| class.gpus.unwrap_or(0).to_string()).collect());
    text
}

/// Streams that a part sends, with the types that their receivers among `parts` expect.
fn sent(host: &HostPart, parts: &[HostPart]) -> String {
    let receivers: Vec<&PlannedBlock> = parts
        .iter()
        .flat_map(|part| &part.plan.blocks)
        .filter(|block| block.kind == RECEIVER)
        .collect();
    let stream = |rate: &Rate| {
        let address = rate.address?.to_string();
        let expected = receivers
            .iter()
            .find(|block| block.parameters["source"] == address)
            .map(|block| block.parameters["type"].to_string());
        Some(format!("{} {address} {}", rate.name, expected.unwrap_or_default()))
    };
    host.part.sent.iter().filter_map(stream).collect::<Vec<_>>().join("; ")
}

/// Reason why a second process cannot take over from a process of this part without missing data, if any.
fn obstacle(plan: &Plan) -> Option<String> {
    let kinds = registry();
    let mut sends = false;
    for (index, block) in plan.blocks.iter().enumerate() {
        let (name, kind) = (&block.name, block.kind);
        let begins_again = kind != RECEIVER && block.configured.cannot_restart().is_some();
        if block.inputs.is_empty() && begins_again {
            return Some(format!("its source `{name}` of kind `{kind}` is not a stream"));
        }
        let is_read = plan.blocks.iter().any(|b| b.inputs.iter().any(|(from, _)| *from == index));
        if is_read {
            continue;
        }
        if kinds.get(kind).is_some_and(|entry| entry.live.contains(&ENABLED)) {
            sends = true;
        } else if kind != "null_sink" {
            return Some(format!("its sink `{name}` of kind `{kind}` sends no stream"));
        }
    }
    (!sends).then(|| "it sends no streams".to_owned())
}
