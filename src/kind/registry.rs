//! Kinds by their names.

use super::{Configured, Implementation, Kind, PortNames};
use crate::flowgraph::value::{ReadError, Reader};

/// Reads the parameters of a kind, for one of its implementations.
pub type Configure = fn(Reader<'_>, &str) -> Result<Box<dyn Configured>, ReadError>;

/// What the registry knows of a kind.
pub struct KindEntry {
    /// The word after `kind:`.
    pub name: &'static str,
    /// The block's page.
    pub doc: &'static str,
    /// Inputs.
    pub inputs: PortNames,
    /// Outputs.
    pub outputs: PortNames,
    /// Forms to choose from.
    pub implementations: &'static [Implementation],
    /// Parameters that may change while a block runs.
    pub live: &'static [&'static str],
    /// JSON Schema of the parameters; live ones have `x-live: true`.
    pub schema: fn() -> schemars::Schema,
    /// Reads the parameters.
    pub configure: Configure,
}

impl KindEntry {
    /// The entry of `K`, for a registry.
    #[must_use]
    pub fn of<K: Kind>() -> Self {
        Self {
            name: K::NAME,
            doc: K::DOC,
            inputs: K::INPUTS,
            outputs: K::OUTPUTS,
            implementations: K::IMPLEMENTATIONS,
            live: K::LIVE,
            schema: schema::<K>,
            configure: |reader, form| Ok(Box::new(K::deserialize(reader)?.suited_to(form))),
        }
    }

    /// What the block does, in one sentence: the first of its page.
    #[must_use]
    pub fn summary(&self) -> String {
        first_sentence(self.doc)
    }
}

/// The first sentence of a page below its heading, on one line.
fn first_sentence(page: &str) -> String {
    let prose = page
        .lines()
        .map(str::trim)
        .skip_while(|line| line.is_empty() || line.starts_with('#'))
        .take_while(|line| !line.is_empty() && !line.starts_with('#'));
    let paragraph = prose.collect::<Vec<_>>().join(" ");
    let end = paragraph.find(". ").map_or(paragraph.len(), |dot| dot + 1);
    paragraph[..end].trim_end_matches('.').to_owned()
}

fn schema<K: Kind>() -> schemars::Schema {
    let mut schema = schemars::schema_for!(K);
    for name in K::LIVE {
        if let Some(parameter) = schema.pointer_mut(&format!("/properties/{name}")) {
            parameter["x-live"] = true.into();
        }
    }
    schema
}

/// The kinds a program knows.
pub struct Registry(Vec<KindEntry>);

impl Registry {
    /// A registry of these kinds, sorted by name; of two with one name the first counts.
    #[must_use]
    pub fn new(mut kinds: Vec<KindEntry>) -> Self {
        kinds.sort_by_key(|kind| kind.name);
        kinds.dedup_by_key(|kind| kind.name);
        Self(kinds)
    }

    /// The kind `name`.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&KindEntry> {
        self.0.iter().find(|kind| kind.name == name)
    }

    /// All kinds, by name.
    pub fn iter(&self) -> impl Iterator<Item = &KindEntry> {
        self.0.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::first_sentence;

    #[test]
    fn the_summary_is_the_first_sentence_of_the_page() {
        assert_eq!(
            first_sentence("# pfb\n\nFilters\nsamples. More.\n\n## Ports"),
            "Filters samples"
        );
        assert_eq!(first_sentence("# pfb\n"), "");
    }
}
