//! Kinds by their names.

use super::erased::{self, AnyParameters};
use super::parameters;
use super::{ImplementationInfo, KindSpec, PortNames};
use crate::device::DeviceName;
use crate::examples::{Benchmark, Case, Example, is_for_cpus};
use crate::gpu::ProgramSource;
use crate::tree::{ReadError, Reader};
use std::collections::HashSet;

/// Reads the parameters of a block, for the implementation of this name; every error at once.
pub type Read = fn(Reader<'_>, &str) -> Result<Box<dyn AnyParameters>, Vec<ReadError>>;

/// What the registry knows of a kind.
#[derive(Clone)]
pub struct KindEntry {
    /// The word after `kind:`.
    pub name: &'static str,
    /// The block's page.
    pub doc: &'static str,
    /// See [`Kind::EXAMPLES`](super::Kind::EXAMPLES).
    pub examples: &'static [&'static str],
    /// Inputs.
    pub inputs: PortNames,
    /// Outputs.
    pub outputs: PortNames,
    /// Implementations to choose from; the first of each family of devices is the default there.
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
    /// The entry of `K`, for a registry.
    #[must_use]
    pub fn of<K: KindSpec>() -> Self {
        Self {
            name: K::NAME,
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

    /// The block's page with its examples.
    #[must_use]
    pub fn page(&self) -> String {
        let mut page = self.doc.trim_end().to_owned();
        for example in self.examples {
            page.push_str(&format!(
                "\n\n## As a whole flowgraph\n\n```yaml\n{}\n```",
                example.trim_end()
            ));
        }
        page.push('\n');
        page
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

/// The kinds that a program knows, and the CUDA programs of their blocks.
#[derive(Clone)]
pub struct Registry {
    kinds: Vec<KindEntry>,
    programs: Vec<&'static ProgramSource>,
}

impl Registry {
    /// A registry of these kinds, sorted by name.
    #[must_use]
    pub fn new(mut kinds: Vec<KindEntry>) -> Self {
        kinds.sort_by_key(|kind| kind.name);
        Self { kinds, programs: Vec::new() }
    }

    /// The same with these CUDA programs, which several of its kinds share.
    #[must_use]
    pub fn with_programs(mut self, programs: &'static [ProgramSource]) -> Self {
        self.programs.extend(programs);
        self
    }

    /// These kinds and those of `other`, which another crate declares.
    #[must_use]
    pub fn with(mut self, other: Self) -> Self {
        self.kinds.extend(other.kinds);
        self.programs.extend(other.programs);
        Self { programs: self.programs, ..Self::new(self.kinds) }
    }

    /// A name that two kinds have.
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

    /// The examples of all kinds on `device`: the first of a kind with each of its implementations there, the others
    /// with its first one. GPUs do none whose block says `device: cpu`.
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
    fn the_summary_is_the_first_sentence_of_the_page() {
        assert_eq!(
            first_sentence("# pfb\n\nFilters\nsamples. More.\n\n## Ports"),
            "Filters samples"
        );
        assert_eq!(first_sentence("# pfb\n"), "");
    }
}
