//! Frames out of a file.

use super::FileSource;
use super::player::{Recording, Rows};
use fxgraph::{Block, BlockError, Counter, Env, FrameMut, Io, Next, PortType, async_trait};
use std::path::Path;

/// What is played, once it is open.
enum Open {
    /// Before the start.
    Nothing,
    /// Plain data.
    Plain(Rows),
    /// A recording.
    Recording(Recording),
}

/// The running block.
pub struct Source {
    parameters: FileSource,
    port: PortType,
    open: Open,
    frame: u64,
    frames: u64,
    read: Counter,
}

impl Source {
    /// A source for `port`.
    pub fn new(parameters: FileSource, port: &PortType, env: &Env) -> Self {
        Self {
            parameters,
            port: port.clone(),
            open: Open::Nothing,
            frame: 0,
            frames: 0,
            read: env.counters.count("frames_read", "Frames played."),
        }
    }

    fn fill(&self, frame: &mut FrameMut) -> Result<(), String> {
        let n = self.frame;
        match &self.open {
            Open::Nothing => Ok(()),
            Open::Plain(rows) => {
                rows.read(n, frame.as_mut_slice())?;
                let first = self.parameters.raw.as_ref().map_or(0, |raw| raw.first_timestamp);
                let step = self.port.clock.samples_per_frame;
                frame.header_mut().timestamp = first.wrapping_add(n.wrapping_mul(step));
                frame.fill_validity(self.port.validity.full);
                Ok(())
            }
            Open::Recording(recording) => {
                let (header, payload) = frame.parts_mut::<u8>();
                recording.data.read(n, payload)?;
                let mut timestamp = [0u8; 8];
                recording.timestamp.read(n, &mut timestamp)?;
                header.timestamp = u64::from_le_bytes(timestamp);
                recording.validity.read(n, bytemuck::cast_slice_mut(&mut header.validity))?;
                for (name, rows) in &recording.annotations {
                    if let Some(values) = Recording::annotation(rows, n)? {
                        header.annotations.reset(name, values.len()).copy_from_slice(&values);
                    }
                }
                Ok(())
            }
        }
    }
}

#[async_trait]
impl Block for Source {
    async fn start(&mut self) -> Result<(), BlockError> {
        let path = Path::new(&self.parameters.path);
        let there = if let Some(raw) = &self.parameters.raw {
            let rows = Rows::plain(path, raw.header_bytes, self.port.frame_bytes())
                .map_err(BlockError::new)?;
            let frames = rows.count;
            self.open = Open::Plain(rows);
            frames
        } else {
            let side = self.parameters.side_file().map_err(BlockError::new)?;
            let recording = Recording::open(path, &side, &self.port).map_err(BlockError::new)?;
            let frames = recording.frames;
            self.open = Open::Recording(recording);
            frames
        };
        self.frames = self.parameters.frames.map_or(there, |most| most.min(there));
        Ok(())
    }

    async fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        if io.stopping || self.frame == self.frames {
            return Ok(Next::Finished);
        }
        let Some(mut frame) = io.outputs[0].take() else { return Ok(Next::Wait) };
        self.fill(&mut frame).map_err(BlockError::new)?;
        io.outputs[0].push(frame);
        self.frame += 1;
        self.read.add(1);
        Ok(Next::Again)
    }
}
