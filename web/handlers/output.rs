//! Look-up of an output by the names of block and port.

use super::blocks;
use crate::app::App;
use crate::problem::Problem;
use axum::http::StatusCode;
use fxgraph::PortType;
use fxgraph::diagnostic::suggest;

/// Default of `max_bytes`: sending a frame takes memory for several of them.
pub(super) const MAX_BYTES: usize = 16 << 20;

/// An output of the flowgraph.
pub(super) struct Output {
    /// `block.port`.
    pub name: String,
    pub port: PortType,
}

impl Output {
    /// Finds the output `port` of the block `name`.
    pub fn find(app: &App, name: &str, port: &str) -> Result<Self, Problem> {
        let (plan, index) = blocks::find(app, name)?;
        let block = &plan.blocks[index];
        let Some(output) = block.output_names.iter().position(|known| known == port) else {
            let known: Vec<&str> = block.output_names.iter().map(String::as_str).collect();
            let detail = format!("`{name}` has no output `{port}`");
            return Err(Problem::new(StatusCode::NOT_FOUND, detail)
                .maybe_help(suggest(port, "output", &known)));
        };
        Ok(Self { name: format!("{name}.{port}"), port: block.ports.outputs[output].clone() })
    }

    /// Returns the output if its frames have at most `max_bytes` bytes.
    pub fn up_to(self, max_bytes: usize) -> Result<Self, Problem> {
        let bytes = self.port.frame_bytes();
        if bytes <= max_bytes {
            return Ok(self);
        }
        let detail = format!(
            "a frame of `{}` has {bytes} bytes, more than `max_bytes`, {max_bytes}",
            self.name
        );
        Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, detail).help(format!(
            "allow {bytes} bytes (`max_bytes`, `fxgraph tap --max-bytes`); the request needs \
                 several times that memory"
        )))
    }
}
