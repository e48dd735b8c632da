//! Registry of kinds.

use super::erased::{self, AnyParameters};
use super::parameters;
use super::{ImplementationInfo, KindSpec, PortNames};
use crate::device::DeviceName;
use crate::examples::{Benchmark, Case, Example, is_for_cpus};
use crate::gpu::ProgramSource;
use crate::tree::{ReadError, Reader};
use std::collections::HashSet;

/// Reads the parameters of a block for the implementation of this name; returns all errors at once.
pub type Read = fn(Reader<'_>, &str) -> Result<Box<dyn AnyParameters>, Vec<ReadError>>;

/// Entry of the registry for one kind.
#[derive(Clone)]
pub struct KindEntry {
    /// Value of `kind:`.
    pub name: &'static str,
    /// Family of kinds, the directory of the kind in this repository; empty for kinds of other crates.
    pub family: &'static str,
    /// Page of the block.
    pub doc: &'static str,
    /// See [`Kind::EXAMPLES`](super::Kind::EXAMPLES).
    pub examples: &'static [&'static str],
    /// Inputs.
    pub inputs: PortNames,
    /// Outputs.
    pub outputs: PortNames,
    /// Implementations; the first one for each type of device is the default there.
    pub implementations: Vec<ImplementationInfo>,
    /// Parameters that may change while a block runs.
    pub live: Vec<&'static str>,
    /// JSON Schema of the parameters; live ones have `x-live: true`.
    pub schema: fn() -> schemars::Schema,
    /// Reads the parameters.
    pub read: Read,
    /// CUDA programs of the implementations.
    pub programs: Vec<&'static ProgramSource>,
    /// See [`KindSpec::cases`].
    pub cases: fn(DeviceName) -> Vec<Case>,
    /// See [`KindSpec::benchmarks`].
    pub benchmarks: fn(DeviceName) -> Vec<Benchmark>,
}

impl KindEntry {
    /// Entry for the kind `K`.
    #[must_use]
    pub fn of<K: KindSpec>() -> Self {
        Self {
            name: K::NAME,
            family: "",
            doc: K::PAGE,
            examples: K::EXAMPLES,
            inputs: K::INPUTS,
            outputs: K::OUTPUTS,
            implementations: K::IMPLEMENTATIONS.iter().map(|each| each.info).collect(),
            live: parameters::live::<K>(),
            schema: parameters::schema::<K>,
            read: erased::read::<K>,
            programs: K::IMPLEMENTATIONS.iter().flat_map(|each| each.programs).collect(),
            cases: K::cases,
            benchmarks: K::benchmarks,
        }
    }

    /// The entry as a member of a family.
    #[must_use]
    pub fn in_family(self, family: &'static str) -> Self {
        Self { family, ..self }
    }

    /// Page of the block with its examples.
    #[must_use]
    pub fn page(&self) -> String {
        let mut page = self.doc.trim_end().to_owned();
        for example in self.examples {
            page.push_str(&format!(
                "\n\n## Example flowgraph\n\n```yaml\n{}\n```",
                example.trim_end()
            ));
        }
        page.push('\n');
        page
    }

    /// Whether a mapping that is given for the parameter `name` of a running block changes the running mapping entry by
    /// entry: the schema of its type has `x-merged: true`.
    #[must_use]
    pub fn merges(&self, name: &str) -> bool {
        let schema = (self.schema)().to_value();
        schema["properties"][name]["x-merged"] == true
    }

    /// Summary of the block: the first sentence of its page.
    #[must_use]
    pub fn summary(&self) -> String {
        first_sentence(self.doc)
    }
}

/// First sentence of a page below its heading, on one line.
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

/// The kinds of a program, and the CUDA programs of their blocks.
#[derive(Clone)]
pub struct Registry {
    kinds: Vec<KindEntry>,
    absent: Vec<(&'static str, &'static str)>,
    programs: Vec<&'static ProgramSource>,
}

impl Registry {
    /// A registry of these kinds, sorted by name.
    #[must_use]
    pub fn new(mut kinds: Vec<KindEntry>) -> Self {
        kinds.sort_by_key(|kind| kind.name);
        Self { kinds, absent: Vec::new(), programs: Vec::new() }
    }

    /// Adds names of kinds that the program was built without, each with the Cargo feature that includes it.
    #[must_use]
    pub fn with_absent(mut self, absent: &[(&'static str, &'static str)]) -> Self {
        self.absent.extend(absent);
        self
    }

    /// Adds CUDA programs that several kinds share.
    #[must_use]
    pub fn with_programs(mut self, programs: &'static [ProgramSource]) -> Self {
        self.programs.extend(programs);
        self
    }

    /// Adds the kinds of `other`, for example of another crate.
    #[must_use]
    pub fn with(mut self, other: Self) -> Self {
        self.kinds.extend(other.kinds);
        self.absent.extend(other.absent);
        self.programs.extend(other.programs);
        Self { absent: self.absent, programs: self.programs, ..Self::new(self.kinds) }
    }

    /// Returns the Cargo feature that includes the kind `name`, if the program was built without it.
    #[must_use]
    pub fn feature_of(&self, name: &str) -> Option<&'static str> {
        self.absent.iter().find(|(kind, _)| *kind == name).map(|(_, feature)| *feature)
    }

    /// Returns a name that two kinds have, if any.
    #[must_use]
    pub fn duplicate(&self) -> Option<&'static str> {
        self.kinds.windows(2).find(|pair| pair[0].name == pair[1].name).map(|pair| pair[0].name)
    }

    /// The kind `name`.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&KindEntry> {
        self.kinds.iter().find(|kind| kind.name == name)
    }

    /// All kinds, by name.
    pub fn iter(&self) -> impl Iterator<Item = &KindEntry> {
        self.kinds.iter()
    }

    /// Examples of all kinds for `device`: the first example of a kind with each of its implementations for `device`,
    /// further examples with the first implementation. Examples with `device: cpu` are left out for GPUs.
    #[must_use]
    pub fn examples(&self, device: DeviceName) -> Vec<Example> {
        let family = if device == DeviceName::Cpu { "cpu" } else { "cuda" };
        let of_kind = |kind: &KindEntry| {
            let on_device = kind.implementations.iter().filter(|each| each.device == family);
            let names: Vec<_> = on_device.map(|each| each.name).collect();
            let examples = kind.examples.iter().enumerate();
            let of_text = |(number, text): (usize, &&'static str)| {
                let example = (kind.name, number, *text);
                let is_left_out = device != DeviceName::Cpu && is_for_cpus(text);
                let of_text = match number {
                    _ if is_left_out => 0,
                    0 => names.len(),
                    _ => 1,
                };
                let names = names.iter().take(of_text);
                names.map(|name| Example::new(example, name, device)).collect::<Vec<_>>()
            };
            examples.flat_map(of_text).collect::<Vec<_>>()
        };
        self.kinds.iter().flat_map(of_kind).collect()
    }

    /// All CUDA programs.
    #[must_use]
    pub fn programs(&self) -> Vec<&'static ProgramSource> {
        let of_kinds = self.kinds.iter().flat_map(|kind| &kind.programs);
        let mut all: Vec<_> = self.programs.iter().chain(of_kinds).copied().collect();
        // Implementations share programs.
        let mut seen = HashSet::new();
        all.retain(|program| seen.insert(std::ptr::from_ref(*program)));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::first_sentence;

    #[test]
    fn first_sentence_of_page_is_joined_to_one_line() {
        assert_eq!(
            first_sentence("# pfb\n\nFilters\nsamples. More.\n\n## Ports"),
            "Filters samples"
        );
        assert_eq!(first_sentence("# pfb\n"), "");
    }
}
