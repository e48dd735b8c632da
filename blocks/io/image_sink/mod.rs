#![doc = include_str!("README.md")]

mod cpu;
mod picture;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

use crate::io::files::output_file::with_suffix;
use fxgraph::access::WrittenPath;
use fxgraph::{
    Checked, Configured, Implementation, Implementations, Kind, KindSpec, PerBase, PortType,
    Rejection, Resources, TimedSink,
};
use picture::Picture;

/// Parameters of `image_sink`.
#[derive(Clone, Debug, Kind)]
#[kind(name = "image_sink", page = "README.md", examples("example.yaml"), inputs("input"))]
pub struct ImageSink {
    /// File to write, ending in `.png`. Directories are created.
    pub path: WrittenPath,
    /// Axis that runs upwards.
    pub rows: String,
    /// Axis that runs to the right.
    pub columns: String,
    /// Largest number of columns; columns of a longer stream are merged.
    #[param(default = 1024)]
    pub max_columns: usize,
    /// Height of a row in pixels.
    #[param(default = 1)]
    pub row_pixels: usize,
    /// Width of a column in pixels.
    #[param(default = 1)]
    pub column_pixels: usize,
    /// Whether the colour scale is linear in decibels; otherwise in the values themselves.
    #[param(default = true)]
    pub decibels: bool,
}

/// Largest number of pixels of one side, and of the whole image.
const MOST_PIXELS: usize = 1 << 16;
const MOST_AREA: usize = 1 << 27;
/// Axes along which frames follow each other.
const TIMES: [&str; 3] = ["spectrum", "heap", "sample"];

impl ImageSink {
    /// Returns the number of rows, and of columns of the image.
    fn size(&self, input: &PortType) -> [usize; 2] {
        let rows = input.axis_len(&self.rows).unwrap_or(1);
        let columns = input.axis_len(&self.columns).unwrap_or(1);
        [rows, if self.is_time() { self.max_columns } else { columns }]
    }

    fn is_time(&self) -> bool {
        TIMES.contains(&self.columns.as_str())
    }

    /// Returns the index of the axis whose elements follow each other along the columns: heaps of spectra.
    fn outer(&self, input: &PortType) -> Option<usize> {
        let is_of_heaps = self.columns == "spectrum" && self.rows != "heap";
        input.axes.iter().position(|axis| is_of_heaps && axis.name == "heap")
    }

    /// Returns the number of columns of a frame.
    fn columns_per_frame(&self, input: &PortType) -> usize {
        let outer = self.outer(input).map_or(1, |axis| input.axes[axis].len);
        outer * input.axis_len(&self.columns).unwrap_or(1)
    }
}

impl ImageSink {
    fn rejections(&self, input: &PortType) -> Vec<Rejection> {
        let mut rejections = Vec::new();
        let mut reject = |parameter, message: String, help: String| {
            rejections.push(Rejection::parameter(parameter, message).help(help));
        };
        let stem = self.path.strip_suffix(".png");
        if stem.is_none_or(|stem| stem.is_empty() || stem.ends_with('/')) {
            let message = format!("`path` must be a file name ending in .png, got `{}`", self.path);
            reject("path", message, "write a name such as image.png".to_owned());
        }
        let names: Vec<&str> = input.axes.iter().map(|axis| axis.name).collect();
        for (parameter, name) in [("rows", &self.rows), ("columns", &self.columns)] {
            if !names.contains(&name.as_str()) {
                let message = format!("the input has no axis `{name}`");
                reject(parameter, message, format!("use one of {}", names.join(", ")));
            }
        }
        if self.rows == self.columns {
            let message = "`rows` and `columns` must be different axes".to_owned();
            reject(
                "columns",
                message,
                "use, for example, `rows: channel`, `columns: spectrum`".to_owned(),
            );
        }
        let [rows, columns] = self.size(input);
        let sides = [(rows, self.row_pixels), (columns, self.column_pixels)];
        let sides = sides.map(|(count, pixels)| count.checked_mul(pixels).unwrap_or(0));
        let is_size = |side: &usize| (1..=MOST_PIXELS).contains(side);
        if !sides.iter().all(is_size) || sides[0] * sides[1] > MOST_AREA {
            let message = format!(
                "the image must have 1 to {MOST_PIXELS} pixels per side and at most {MOST_AREA} in \
                 total, got {rows} rows of {} and {columns} columns of {} pixels",
                self.row_pixels, self.column_pixels
            );
            let help = "lower `max_columns`, `row_pixels` or `column_pixels`".to_owned();
            reject("max_columns", message, help);
        } else if self.is_time() && self.columns_per_frame(input) > columns {
            let of_frame = self.columns_per_frame(input);
            let message = format!(
                "`max_columns` must be at least the columns of a frame ({of_frame}), got {columns}"
            );
            reject("max_columns", message, format!("set `max_columns: {of_frame}` or more"));
        }
        rejections
    }
}

impl TimedSink for ImageSink {
    fn continue_in_later_base(&mut self, number: u64) {
        let path = with_suffix(self.path.path(), &format!("_{number}"));
        self.path = self.path.with(path.display().to_string());
    }
}

impl KindSpec for ImageSink {
    type Shape = ();
    const IMPLEMENTATIONS: Implementations<Self> = &[Implementation::cpu(|block, env| {
        PerBase::block(block, env, |block, env| {
            Ok(Box::new(cpu::Sink::new(block.parameters.clone(), &block.ports.inputs[0], env)))
        })
    })];

    fn ports(&self, inputs: &[PortType]) -> Checked<()> {
        let rejections = self.rejections(&inputs[0]);
        if rejections.is_empty() { Ok(((), vec![])) } else { Err(rejections) }
    }

    fn cannot_restart(&self) -> Option<&'static str> {
        Some("its image would begin again")
    }

    fn resources(block: &Configured<Self>) -> Resources {
        let parameters = &block.parameters;
        let [rows, columns] = parameters.size(&block.ports.inputs[0]);
        let area = rows * columns;
        // Sums and counts; at the end also the pixels.
        let pixels = 3 * area * parameters.row_pixels * parameters.column_pixels;
        Resources {
            host_bytes: Picture::bytes(area) + pixels,
            writes: vec![parameters.path.path().to_owned()],
            ..Resources::default()
        }
    }
}
