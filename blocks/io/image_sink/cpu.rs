//! The block: adds elements to pixels, and writes the file at the end.

use super::ImageSink;
use super::picture::Picture;
use crate::io::files::output_file::{OutputFile, Report};
use fxgraph::access::WrittenPath;
use fxgraph::elements::Elements;
use fxgraph::recording::try_path;
use fxgraph::{Block, BlockError, Clock, Counter, Env, Frame, Io, Next, PortType};
use std::path::Path;

/// The running block.
pub struct Sink {
    parameters: ImageSink,
    path: WrittenPath,
    elements: Elements,
    /// Whether values are complex, shown by their power.
    is_complex: bool,
    /// Indices of the axes of rows and columns.
    axes: [usize; 2],
    /// Index of the axis whose elements have columns of their own, and the number of columns of each.
    outer: Option<(usize, u64)>,
    /// Columns of a frame, if the columns of successive frames follow each other.
    columns_per_frame: Option<u64>,
    clock: Clock,
    /// Timestamp of the first frame.
    first: Option<u64>,
    picture: Picture,
    report: Report,
    early: Counter,
}

impl Sink {
    /// Creates a sink for `port`.
    pub fn new(parameters: ImageSink, port: &PortType, env: &Env) -> Self {
        let [rows, columns] = parameters.size(port);
        let place = |name: &str| port.axes.iter().position(|axis| axis.name == name).unwrap_or(0);
        let inner = port.axis_len(&parameters.columns).unwrap_or(1) as u64;
        let columns_per_frame = parameters.columns_per_frame(port) as u64;
        Self {
            path: parameters.path.begin_at(&env.output_directory),
            elements: Elements::new(port),
            is_complex: port.dtype.is_complex(),
            axes: [place(&parameters.rows), place(&parameters.columns)],
            outer: parameters.outer(port).map(|axis| (axis, inner)),
            columns_per_frame: parameters.is_time().then_some(columns_per_frame),
            clock: port.clock,
            first: None,
            picture: Picture::new(rows, columns),
            report: Report::new(env),
            early: env.counters.count(
                "frames_early",
                "frames older than the first one, left out of the image; look for a source that repeats data",
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
        let samples = u128::from(self.clock.samples_per_frame);
        let start = self.columns_per_frame.map_or(0, |columns| {
            let columns = u128::from(since) * u128::from(columns) / samples;
            u64::try_from(columns).unwrap_or(u64::MAX)
        });
        let [row, column] = self.axes;
        let Self { elements, picture, is_complex, outer, .. } = self;
        let seen = elements.valid(frame, |index, value| {
            let before = outer.map_or(0, |(axis, inner)| index[axis] as u64 * inner);
            let column = start.saturating_add(before + index[column] as u64);
            picture.reach(column);
            picture.add(index[row], column, if *is_complex { value.norm_sqr() } else { value.re });
        });
        seen.expect(fxgraph::ON_HOST);
    }

    /// Returns the summary of the image at `path`.
    fn describe(&self, path: &Path) -> String {
        let (columns, merged) = self.picture.columns();
        let ImageSink { rows: row_name, columns: column_name, decibels, .. } = &self.parameters;
        let each = if merged > 1 { format!(" of {merged} {column_name}") } else { String::new() };
        let unit = if *decibels { " dB" } else { "" };
        let colours = match self.picture.range(*decibels) {
            Some([low, high]) => format!("colours from {low:.4}{unit} to {high:.4}{unit}"),
            None if *decibels => "all dark: no value is above 0".to_owned(),
            None => "all dark: no value is a finite number".to_owned(),
        };
        let (path, rows) = (path.display(), self.picture.rows());
        let mut text = format!("{path}: {rows} {row_name} x {columns} columns{each}, {colours}");
        if let Some((row, column, value)) = self.picture.brightest() {
            let time = self.columns_per_frame.map_or(String::new(), |columns| {
                let seconds = merged as f64 / columns as f64 / self.clock.frames_per_second();
                format!(", {:.6} s from the start", (column as f64 + 0.5) * seconds)
            });
            text += &format!("\nbrightest: {row_name} {row}, column {column}{time}, {value:.6e}");
        }
        text
    }

    /// The file's bytes.
    fn encode(&self) -> Result<Vec<u8>, png::EncodingError> {
        let ImageSink { decibels, row_pixels, column_pixels, .. } = self.parameters;
        let size = [self.picture.columns().0 * column_pixels, self.picture.rows() * row_pixels];
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, size[0] as u32, size[1] as u32);
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_depth(png::BitDepth::Eight);
        let mut writer = encoder.write_header()?;
        writer.write_image_data(&self.picture.paint(decibels, row_pixels, column_pixels))?;
        writer.finish()?;
        Ok(bytes)
    }
}

impl Block for Sink {
    fn start(&mut self) -> Result<(), BlockError> {
        // Reports a path that cannot be written before the flowgraph runs.
        try_path(&self.path, true)
    }

    fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        if let Some(frame) = io.inputs[0].pop() {
            self.add(&frame);
            return Ok(Next::Again);
        }
        Ok(if io.inputs[0].ended() { Next::Finished } else { Next::Wait })
    }

    fn finish(&mut self) -> Result<(), BlockError> {
        if self.picture.columns().0 == 0 {
            self.report.note("no image written: no data arrived".to_owned());
            return Ok(());
        }
        let fails = |error| BlockError::new(format!("cannot write {}", self.path)).because(error);
        let image = self.encode().map_err(fails)?;
        let mut file = OutputFile::open(&self.path, true, &mut self.report)?;
        file.append(&image)?;
        self.report.note(self.describe(file.path()));
        Ok(())
    }
}
