//! Cases whose sources start again with another time base.

use fxgraph::examples::Case;
use serde_yaml::Value;

/// Returns one case for each implementation among `cases`: its first one without live updates, whose sources start again
/// after the frames of that case and send as many again.
pub fn cases(cases: impl Iterator<Item = Case>) -> Vec<Case> {
    let mut restarted: Vec<Case> = Vec::new();
    for case in cases.filter(|case| case.changes.is_empty()) {
        let is_of =
            |other: &Case| (other.kind, other.implementation) == (case.kind, case.implementation);
        if !restarted.iter().any(is_of) {
            restarted.extend(with_restart(&case));
        }
    }
    restarted
}

/// `case` with sources that start again; `None` if its flowgraph has no source but the two blocks that it compares.
fn with_restart(case: &Case) -> Option<Case> {
    let mut flowgraph: Value = serde_yaml::from_str(&case.flowgraph).ok()?;
    let blocks = flowgraph.get_mut("blocks")?.as_mapping_mut()?;
    let is_source = |name: &Value| !["cpu", "gpu"].contains(&name.as_str().unwrap_or_default());
    let sources = blocks.iter_mut().filter(|(name, _)| is_source(name)).map(|(_, block)| block);
    let mut has_source = false;
    for source in sources.filter(|block| block.get("kind") == Some(&"null_source".into())) {
        let parameters = source.get_mut("parameters")?;
        let frames = parameters.get("frames")?.as_u64()?;
        *parameters.get_mut("frames")? = (2 * frames).into();
        parameters.as_mapping_mut()?.insert("restart_every".into(), frames.into());
        has_source = true;
    }
    let flowgraph = serde_yaml::to_string(&flowgraph).ok()?;
    let name = format!("{}, sources that start again", case.name);
    has_source.then(|| Case { name, flowgraph, ..case.clone() })
}
