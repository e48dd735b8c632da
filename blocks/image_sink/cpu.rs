//! Which element goes to which pixel, and the file at the end.

use super::ImageSink;
use super::picture::Picture;
use fxgraph::elements::Elements;
use fxgraph::recording::try_path;
use fxgraph::{Block, BlockError, Counter, Env, Frame, Io, Next, PortType, Summary, async_trait};
use std::fs::File;
use std::io::BufWriter;
use std::path::PathBuf;

/// The running block.
pub struct Sink {
    parameters: ImageSink,
    path: PathBuf,
    elements: Elements,
    /// Whether values are complex, and count by their power.
    is_complex: bool,
    /// Places of the axes of rows and columns.
    axes: [usize; 2],
    /// ADC samples from one column to the next, if columns go on from frame to frame.
    samples_per_column: Option<u64>,
    sample_rate_hz: f64,
    /// Timestamp of the first frame.
    first: Option<u64>,
    picture: Picture,
    summary: Summary,
    early: Counter,
}

impl Sink {
    /// A sink for `port`.
    pub fn new(parameters: ImageSink, port: &PortType, env: &Env) -> Self {
        let [rows, columns] = parameters.size(port);
        let place = |name: &str| port.axes.iter().position(|axis| axis.name == name).unwrap_or(0);
        let samples = port.samples_per(&parameters.columns).map(|samples| samples.max(1));
        Self {
            path: env.output_folder.join(&parameters.path),
            elements: Elements::new(port),
            is_complex: port.dtype.to_string().starts_with('c'),
            axes: [place(&parameters.rows), place(&parameters.columns)],
            samples_per_column: samples.filter(|_| parameters.is_time()),
            sample_rate_hz: port.clock.adc_sample_rate_hz,
            first: None,
            picture: Picture::new(rows, columns),
            summary: env.summary.clone(),
            early: env.counters.count(
                "frames_early",
                "Frames older than the first one, left out: look for what sends them again.",
            ),
            parameters,
        }
    }

    fn add(&mut self, frame: &Frame) {
        let timestamp = frame.header().timestamp;
        let first = *self.first.get_or_insert(timestamp);
        let Some(since) = timestamp.checked_sub(first) else {
            self.early.add(1);
            return;
        };
        let start = self.samples_per_column.map_or(0, |samples| since / samples);
        let [row, column] = self.axes;
        let Self { elements, picture, is_complex, .. } = self;
        elements.valid(frame, |index, value| {
            let column = start.saturating_add(index[column] as u64);
            picture.reach(column);
            picture.add(index[row], column, if *is_complex { value.norm_sqr() } else { value.re });
        });
    }

    fn describe(&self) -> Option<String> {
        let (row, column, value) = self.picture.brightest()?;
        let [low, high] = self.picture.range(self.parameters.decibels)?;
        let (columns, merged) = self.picture.columns();
        let ImageSink { rows: row_name, columns: column_name, .. } = &self.parameters;
        let unit = if self.parameters.decibels { " dB" } else { "" };
        let time = self.samples_per_column.map_or(String::new(), |samples| {
            let samples = samples as f64 * merged as f64;
            format!(
                ", {:.6} s from the start",
                (column as f64 + 0.5) * samples / self.sample_rate_hz
            )
        });
        let each = if merged > 1 { format!(" of {merged} {column_name}") } else { String::new() };
        Some(format!(
            "{}: {} {row_name} x {columns} columns{each}, colours from {low:.4}{unit} to {high:.4}{unit}\n\
             brightest: {row_name} {row}, column {column}{time}, {value:.6e}\n",
            self.parameters.path,
            self.picture.rows(),
        ))
    }

    fn write(&self) -> Result<(), png::EncodingError> {
        let ImageSink { decibels, row_pixels, column_pixels, .. } = self.parameters;
        let size = [self.picture.columns().0 * column_pixels, self.picture.rows() * row_pixels];
        let file = BufWriter::new(File::create(&self.path)?);
        let mut encoder = png::Encoder::new(file, size[0] as u32, size[1] as u32);
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_depth(png::BitDepth::Eight);
        let mut writer = encoder.write_header()?;
        writer.write_image_data(&self.picture.paint(decibels, row_pixels, column_pixels))?;
        writer.finish()
    }
}

#[async_trait]
impl Block for Sink {
    async fn start(&mut self) -> Result<(), BlockError> {
        // A path that cannot be written shows before anything runs.
        try_path(&self.path)
    }

    async fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        if let Some(frame) = io.inputs[0].pop() {
            self.add(&frame);
            return Ok(Next::Again);
        }
        Ok(if io.inputs[0].ended() { Next::Finished } else { Next::Wait })
    }

    async fn finish(&mut self) -> Result<(), BlockError> {
        let Some(text) = self.describe() else {
            self.summary.set("nothing came to paint\n");
            return Ok(());
        };
        self.summary.set(text);
        self.write().map_err(|error| {
            BlockError::new(format!("cannot write {}", self.path.display())).because(error)
        })
    }
}
