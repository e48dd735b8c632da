//! Look-up of an output of a running flowgraph by the name that the user gives.

use super::{Client, in_path, with_help};
use crate::failure::Failure;
use fxgraph::diagnostic::suggest;
use fxgraph_api::blocks::{BlockPage, BlockSummary};
use fxgraph_api::ports::Carries;
use std::fmt;

/// An output of a block.
pub struct Output {
    block: String,
    port: String,
    /// Type of its frames.
    pub carries: Carries,
}

impl Output {
    /// Finds the output `block.port`, or `block` if the block has one output.
    pub fn find(client: &Client, text: &str) -> Result<Self, Failure> {
        let blocks: Vec<BlockSummary> = client.get("/api/v1/blocks")?;
        let is_block = |name: &str| blocks.iter().any(|block| block.name == name);
        // Block names contain dots too.
        let (name, port) = match text.rsplit_once('.') {
            Some((name, port)) if !is_block(text) && is_block(name) => (name, Some(port)),
            _ => (text, None),
        };
        if !is_block(name) {
            let known: Vec<&str> = blocks.iter().map(|block| block.name.as_str()).collect();
            let help = suggest(name, "block", &known);
            return reject(&format!("there is no block `{name}`"), help);
        }
        let BlockPage { outputs, .. } = client.get(&format!("/api/v1/blocks/{}", in_path(name)))?;
        let known: Vec<&str> = outputs.iter().map(|output| output.name.as_str()).collect();
        let found = match (port, &outputs[..]) {
            (_, []) => {
                let help = "name the block that feeds this one".to_owned();
                return reject(&format!("`{name}` has no outputs"), Some(help));
            }
            (None, [only]) => only,
            (None, _) => {
                let help = format!("name one: {name}.{}", known.join(&format!(", {name}.")));
                return reject(&format!("`{name}` has {} outputs", known.len()), Some(help));
            }
            (Some(port), outputs) => {
                let Some(output) = outputs.iter().find(|output| output.name == port) else {
                    let help = suggest(port, "output", &known);
                    return reject(&format!("`{name}` has no output `{port}`"), help);
                };
                output
            }
        };
        let (port, carries) = (found.name.clone(), found.carries.clone());
        Ok(Self { block: name.to_owned(), port, carries })
    }

    /// Path of the output in the REST API.
    pub fn path(&self) -> String {
        format!("/api/v1/blocks/{}/outputs/{}", in_path(&self.block), in_path(&self.port))
    }
}

impl fmt::Display for Output {
    /// `block.port`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.block, self.port)
    }
}

fn reject<T>(what: &str, help: Option<String>) -> Result<T, Failure> {
    Err(Failure::failed(with_help(what, help.as_deref())))
}
