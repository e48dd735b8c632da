//! `fxgraph graph`
//!
//! # Layout
//! - [`fold`]: a drawing with replicas as one node
//! - [`layout`]: places of nodes in rows, by the rules of the page
//! - [`svg`]: a drawing as a picture

mod fold;
mod layout;
mod svg;

use crate::failure::Failure;
use crate::flowgraph::{self, Target};
use crate::terminal::Terminal;
use fxgraph::diagnostic::Severity;
use fxgraph::flowgraph::draw::Drawing;
use std::fs;
use std::path::{Path, PathBuf};

/// Draws a flowgraph, as a picture (SVG) or as text for Mermaid or Graphviz (dot)
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples: fxgraph graph array.yaml -o array.svg\n          \
                  fxgraph graph array.yaml --format dot | dot -Tpdf > array.pdf")]
pub struct Graph {
    #[command(flatten)]
    target: Target,

    /// Output format; by default that of the name of the output file, or Mermaid
    #[arg(long, value_enum)]
    format: Option<Format>,

    /// Draws a picture; the same as `--format svg`
    #[arg(long, conflicts_with = "format")]
    svg: bool,

    /// File to write; its name ends in `.svg`, `.dot`, `.json` or `.mermaid` unless `--format` is given
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Draws every replica. By default more than 8 blocks are folded: `f[0..63].pfb` is one node. JSON has all of them
    #[arg(long)]
    all: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    Mermaid,
    Dot,
    Json,
    Svg,
}

impl Format {
    /// Format of a file with this name.
    fn of(path: &Path) -> Result<Self, Failure> {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("svg") => Ok(Self::Svg),
            Some("dot" | "gv") => Ok(Self::Dot),
            Some("json") => Ok(Self::Json),
            Some("mermaid" | "mmd") => Ok(Self::Mermaid),
            _ => Err(Failure::failed(format!(
                "the name of the output file must end in `.svg`, `.dot`, `.json` or `.mermaid`, got `{}`; \
                 or give `--format`",
                path.display()
            ))),
        }
    }
}

impl Graph {
    pub fn execute(self, terminal: &mut Terminal) -> Result<(), Failure> {
        let format = match (self.format, &self.output) {
            _ if self.svg => Format::Svg,
            (Some(format), _) => format,
            (None, Some(path)) => Format::of(path)?,
            (None, None) => Format::Mermaid,
        };
        let mut drawing = Drawing::of(&flowgraph::plan(&self.target, Severity::Warning, terminal)?);
        if format != Format::Json {
            drawing = fold::folded(&drawing, self.all);
        }
        let text = match format {
            Format::Mermaid => drawing.mermaid(),
            Format::Dot => drawing.dot(),
            Format::Json => format!("{:#}\n", drawing.json()),
            Format::Svg => svg::picture(&drawing),
        };
        let Some(path) = self.output else { return terminal.results(&text) };
        fs::write(&path, text).map_err(|error| {
            Failure::because(&format!("cannot write `{}`", path.display()), &error)
        })
    }
}
