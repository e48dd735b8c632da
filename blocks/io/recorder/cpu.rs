//! The block: passes frames to the recorder.

use fxgraph::recording::{Recorder, RecorderOptions, SideFile, try_directory};
use fxgraph::{Block, BlockError, Env, Io, Next, PortType};

/// The running block.
pub struct Sink {
    options: RecorderOptions,
    port: PortType,
    env: Env,
    recorder: Option<Recorder>,
}

impl Sink {
    /// Creates a sink for `port`.
    pub fn new(mut options: RecorderOptions, port: &PortType, env: &Env) -> Self {
        options.path = options.path.begin_at(&env.output_directory);
        Self { options, port: port.clone(), env: env.clone(), recorder: None }
    }
}

impl Block for Sink {
    fn start(&mut self) -> Result<(), BlockError> {
        try_directory(&self.options.path)?;
        self.recorder = Some(Recorder::start(
            (&self.env.name, ""),
            &self.port,
            SideFile::of(&self.port).made_by(&self.env),
            self.options.clone(),
            &self.env.counters,
            (&self.env.texts, &self.env.recorders),
        )?);
        Ok(())
    }

    fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        let Some(recorder) = &self.recorder else { return Ok(Next::Finished) };
        if let Some(fault) = recorder.fault()
            && !recorder.is_full()
        {
            return Err(BlockError::new(fault));
        }
        let Some(frame) = io.inputs[0].pop() else {
            return Ok(if io.inputs[0].ended() { Next::Finished } else { Next::Wait });
        };
        // A recorder with `trigger: start` may have finished its recording.
        if !recorder.is_over() {
            match recorder.take() {
                Some(mut kept) => {
                    kept.copy_from(&frame)?;
                    recorder.push(kept);
                }
                None => recorder.lose(1),
            }
        }
        Ok(Next::Again)
    }

    fn finish(&mut self) -> Result<(), BlockError> {
        let Some(recorder) = &self.recorder else { return Ok(()) };
        recorder.end();
        recorder.join();
        match recorder.fault() {
            // The flowgraph continued without the recorder.
            Some(fault) if recorder.is_full() => {
                self.env.summary.set(format!("stopped recording: {fault}\n"));
            }
            Some(fault) => return Err(BlockError::new(fault)),
            None => {}
        }
        Ok(())
    }
}

impl Drop for Sink {
    /// Ends the recorder's thread.
    fn drop(&mut self) {
        if let Some(recorder) = &self.recorder {
            recorder.end();
        }
    }
}
