#![doc = include_str!("README.md")]

mod cpu;
mod picture;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

use fxgraph::access::WrittenPath;
use fxgraph::{
    Checked, Configured, Implementation, Implementations, Kind, KindSpec, PortType, Refusal,
    Resources,
};
use picture::Picture;

/// Parameters of `image_sink`.
#[derive(Clone, Debug, Kind)]
#[kind(name = "image_sink", page = "README.md", examples("example.yaml"), inputs("input"))]
pub struct ImageSink {
    /// File to write, ending in `.png`. Folders are made.
    pub path: WrittenPath,
    /// Axis that goes upwards.
    pub rows: String,
    /// Axis that goes to the right.
    pub columns: String,
    /// Columns at most; a longer stream has several of its columns in each.
    #[param(default = 1024)]
    pub max_columns: usize,
    /// Pixels from one row to the next.
    #[param(default = 1)]
    pub row_pixels: usize,
    /// Pixels from one column to the next.
    #[param(default = 1)]
    pub column_pixels: usize,
    /// Whether colours are even in decibels, or in the values themselves.
    #[param(default = true)]
    pub decibels: bool,
}

/// Most pixels of one side, and of all of the picture.
const MOST_PIXELS: usize = 1 << 16;
const MOST_AREA: usize = 1 << 27;
/// Axes along which frames follow each other.
const TIMES: [&str; 3] = ["spectrum", "heap", "sample"];

impl ImageSink {
    /// Rows, and columns that are kept.
    fn size(&self, input: &PortType) -> [usize; 2] {
        let rows = input.axis_len(&self.rows).unwrap_or(1);
        let columns = input.axis_len(&self.columns).unwrap_or(1);
        [rows, if self.is_time() { self.max_columns } else { columns }]
    }

    fn is_time(&self) -> bool {
        TIMES.contains(&self.columns.as_str())
    }

    /// Place of the axis whose elements follow each other, each with columns of its own: heaps of spectra.
    fn outer(&self, input: &PortType) -> Option<usize> {
        let is_of_heaps = self.columns == "spectrum" && self.rows != "heap";
        input.axes.iter().position(|axis| is_of_heaps && axis.name == "heap")
    }

    /// Columns that a frame has.
    fn columns_per_frame(&self, input: &PortType) -> usize {
        let outer = self.outer(input).map_or(1, |axis| input.axes[axis].len);
        outer * input.axis_len(&self.columns).unwrap_or(1)
    }
}

impl ImageSink {
    fn refusals(&self, input: &PortType) -> Vec<Refusal> {
        let mut refusals = Vec::new();
        let mut refuse = |parameter, message: String, help: String| {
            refusals.push(Refusal::parameter(parameter, message).help(help));
        };
        let stem = self.path.strip_suffix(".png");
        if stem.is_none_or(|stem| stem.is_empty() || stem.ends_with('/')) {
            let message = format!("`{}` names no picture", self.path);
            refuse("path", message, "the name must end in .png".to_owned());
        }
        let names: Vec<&str> = input.axes.iter().map(|axis| axis.name).collect();
        for (parameter, name) in [("rows", &self.rows), ("columns", &self.columns)] {
            if !names.contains(&name.as_str()) {
                let message = format!("the input has no axis `{name}`");
                refuse(parameter, message, format!("it has {}", names.join(", ")));
            }
        }
        if self.rows == self.columns {
            let message = "a picture needs two axes".to_owned();
            refuse("columns", message, "give two different ones".to_owned());
        }
        let [rows, columns] = self.size(input);
        let sides = [(rows, self.row_pixels), (columns, self.column_pixels)];
        let sides = sides.map(|(count, pixels)| count.checked_mul(pixels).unwrap_or(0));
        let is_size = |side: &usize| (1..=MOST_PIXELS).contains(side);
        if !sides.iter().all(is_size) || sides[0] * sides[1] > MOST_AREA {
            let message =
                format!("{rows} rows and {columns} columns are no picture of that many pixels");
            let help = format!("1 to {MOST_PIXELS} pixels on a side, {MOST_AREA} in all");
            refuse("max_columns", message, help);
        } else if self.is_time() && self.columns_per_frame(input) > columns {
            let message = format!("a frame has more than {columns} columns");
            refuse("max_columns", message, "leave room for one frame at least".to_owned());
        }
        refusals
    }
}

impl KindSpec for ImageSink {
    type Shape = ();
    const IMPLEMENTATIONS: Implementations<Self> = &[Implementation::cpu(|block, env| {
        Ok(Box::new(cpu::Sink::new(block.parameters.clone(), &block.ports.inputs[0], env)))
    })];

    fn ports(&self, inputs: &[PortType]) -> Checked<()> {
        let refusals = self.refusals(&inputs[0]);
        if refusals.is_empty() { Ok(((), vec![])) } else { Err(refusals) }
    }

    fn cannot_restart(&self) -> Option<&'static str> {
        Some("it would overwrite its picture")
    }

    fn resources(block: &Configured<Self>) -> Resources {
        let parameters = &block.parameters;
        let [rows, columns] = parameters.size(&block.ports.inputs[0]);
        let area = rows * columns;
        // Sums and counts, and at the end the pixels.
        let pixels = 3 * area * parameters.row_pixels * parameters.column_pixels;
        Resources {
            host_bytes: Picture::bytes(area) + pixels,
            writes: vec![parameters.path.path().to_owned()],
            ..Resources::default()
        }
    }
}
