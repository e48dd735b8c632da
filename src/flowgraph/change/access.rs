//! Files that updates of a flowgraph may name.

use crate::change::request::laid_over;
use crate::plan::configure::configure;
use crate::plan::flowgraph::Plan;
use fxgraph_core::access::{ClientFiles, FileAccess, FileUse};
use fxgraph_core::diagnostic::Span;
use fxgraph_core::files::Files;
use fxgraph_core::kind::Registry;
use fxgraph_core::tree::Node;
use serde_json::Value as Json;
use std::io;
use std::path::Path;

/// Client of a running flowgraph.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Client {
    /// On this machine: it may run code below the directory for it.
    Local,
    /// Anywhere.
    #[default]
    Any,
}

impl Plan {
    /// This plan with restricted file access: updates may name the files that the plan names, and further files as
    /// `allowed`. Flowgraphs that replace it may include files from its directory.
    pub fn limited(&self, allowed: ClientFiles, registry: &Registry) -> io::Result<Self> {
        let notes = self.notes(registry);
        let here = Path::new(".");
        let directory = if self.directory.as_os_str().is_empty() { here } else { &self.directory };
        let directory = Files::below(&directory.canonicalize()?)?;
        let access = FileAccess::clients(allowed, &notes, directory, self.included.iter().cloned());
        Ok(Self { access, ..self.clone() })
    }

    /// This plan, whose updates may also name the files that `authored` names: a newer flowgraph of the same author.
    #[must_use]
    pub fn with_files_of(&self, authored: &Self, registry: &Registry) -> Self {
        let included = authored.included.iter().cloned();
        let access = self.access.with_authored(&authored.notes(registry), included);
        Self { access, ..self.clone() }
    }

    /// Access to files for a client of this plan; one on this machine may name code below the directory for it.
    #[must_use]
    pub fn access_of(&self, client: Client) -> FileAccess {
        match client {
            Client::Local => self.access.with_code(),
            Client::Any => self.access.clone(),
        }
    }

    /// This plan, whose changes may name the files that `client` may name.
    #[must_use]
    pub fn for_client(&self, client: Client) -> Self {
        Self { access: self.access_of(client), ..self.clone() }
    }

    /// This plan with the access to files of the plan `before`, which a `client` has changed to this one.
    #[must_use]
    pub fn with_access_after(mut self, before: &Self, client: Client, registry: &Registry) -> Self {
        self.access = match client {
            Client::Local if before.access.has_code() => {
                before.access.with_code_of(&self.notes(registry))
            }
            _ => before.access.clone(),
        };
        self
    }

    /// Notes of all files that the blocks name.
    fn notes(&self, registry: &Registry) -> FileAccess {
        let notes = FileAccess::noted();
        for file in &*self.array_files {
            let _ = notes.check(FileUse::Read, file);
        }
        for block in &self.blocks {
            let shadow = block.shadow.as_ref();
            let mut variants = vec![(block.kind, Some(&*block.parameters))];
            variants.extend(shadow.map(|shadow| {
                let kind = shadow.get("kind").and_then(Json::as_str);
                (kind.unwrap_or(block.kind), shadow.get("parameters"))
            }));
            for (name, parameters) in variants {
                let (Some(kind), Some(parameters)) = (registry.get(name), parameters) else {
                    continue;
                };
                let read = |json: &Json| Node::of_json(json, Span::default());
                let (base, given) = (read(&block.parameters), read(parameters));
                let is_same = name == block.kind;
                let node = if is_same { laid_over(base, given, Some(kind)) } else { given };
                // Only the noted file names count; these parameters were checked when the plan was made.
                let implementation = block.implementation;
                let _ = configure(kind, implementation, &node, Span::default(), &notes);
            }
        }
        notes
    }
}
