//! Slurm: a script that allocates hosts and keeps the parts running on them.

use super::{Deployment, File};
use std::fmt::Write;

/// Script without the parts.
const SCRIPT: &str = include_str!("array.sh");

/// Name of the script.
pub const NAME: &str = "array.sh";

/// The script.
pub fn files(deployment: &Deployment<'_>) -> Vec<File> {
    vec![File::executable(NAME, SCRIPT.replace("@PARTS@\n", &arrays(deployment)))]
}

/// Parts and classes as arrays of the shell.
fn arrays(deployment: &Deployment<'_>) -> String {
    let parts = &deployment.manifest.parts;
    // Classes that take any machine leave those with a property to the classes that need it.
    let mut classes: Vec<_> = deployment.hosts.classes.iter().collect();
    classes.sort_by_key(|class| class.constraint.is_none());
    let mut text = format!(
        "flowgraph={}\nprogram={}\n",
        quoted(&deployment.manifest.flowgraph),
        quoted(&deployment.options.program.to_string_lossy())
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
    array("classes", classes.iter().map(|class| class.name.clone()).collect());
    array("size", classes.iter().map(|class| (class.count + class.spares).to_string()).collect());
    let constraints = classes.iter().map(|class| class.constraint.clone().unwrap_or_default());
    array("constraint", constraints.collect());
    array("gpus", classes.iter().map(|class| class.gpus.unwrap_or(0).to_string()).collect());
    text
}

/// A word of the shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}
