//! The block: reads frames from a file.

use super::{Encoding, Format, Number, VdifSource};
use crate::io::playback::Playback;
use crate::io::played_file::cannot_read;
use fxgraph::changes::MAX_TIMESTAMP;
use fxgraph::{Block, BlockError, Counter, Env, FrameMut, Io, Next, NotOnHost, Output, PortType};
use fxgraph_formats::vdif::{Header, Reader, Step, flip_encoding, unpack};
use std::fs::File;

/// VDIF frames that are read in one call of `work`.
const MAX_FRAMES: usize = 1024;

/// Counters of the block.
struct Count {
    invalid: Counter,
    missing: Counter,
    late: Counter,
    doubled: Counter,
    foreign: Counter,
    skipped: Counter,
}

impl Count {
    fn new(env: &Env) -> Self {
        let counters = &env.counters;
        Self {
            invalid: counters
                .loss("vdif_frames_invalid", "VDIF frames that the file flags as invalid"),
            missing: counters.loss(
                "vdif_frames_missing",
                "VDIF frames that are not in the file between the first and the last one",
            ),
            late: counters.loss(
                "vdif_frames_late",
                "VDIF frames dropped because later ones had been played; sort the file",
            ),
            doubled: counters
                .loss("vdif_frames_duplicate", "VDIF frames dropped: the second one of a time"),
            foreign: counters.loss(
                "vdif_frames_foreign",
                "VDIF frames dropped: another station or epoch, or an impossible time",
            ),
            skipped: counters.loss(
                "bytes_skipped",
                "bytes that belong to no VDIF frame, or to an incomplete one at the end; the file is damaged",
            ),
        }
    }
}

/// A frame of the output that is being filled.
struct Slot {
    frame: FrameMut,
    /// Whether a VDIF frame has arrived, `[thread][VDIF frame]`.
    arrived: Vec<bool>,
}

/// The running block.
pub struct Source {
    parameters: VdifSource,
    format: Format,
    reader: Option<Reader<File>>,
    playback: Playback,
    samples_per_frame: u64,
    /// Number of the frame of the output in the first slot; frame 0 begins with the reference epoch.
    base: Option<u64>,
    slots: [Option<Slot>; 2],
    /// Memory for arrival flags of slots.
    spare: Vec<Vec<bool>>,
    /// Numbers of the first and the last VDIF frame so far.
    seen: Option<(u64, u64)>,
    /// Numbers of a VDIF frame.
    values: Vec<f32>,
    /// Payload of a VDIF frame in two's complement, as offset binary.
    codes: Vec<u8>,
    skipped: u64,
    count: Count,
}

/// Result of one step.
enum Did {
    /// The step is done.
    Progress,
    /// The step cannot be done yet.
    Stop(Next),
}

impl Source {
    /// Creates the block.
    pub fn new(parameters: VdifSource, format: &Format, port: &PortType, env: &Env) -> Self {
        let header = &format.header;
        let units = format.threads.len() * format.vdif_frames;
        Self {
            playback: Playback::new(&parameters.playback, port.clock, env),
            parameters,
            reader: None,
            samples_per_frame: port.clock.samples_per_frame,
            base: None,
            slots: [None, None],
            spare: vec![vec![false; units]; 2],
            seen: None,
            values: vec![0.0; header.samples() * header.channels() * format.components()],
            codes: Vec::new(),
            skipped: 0,
            count: Count::new(env),
            format: format.clone(),
        }
    }

    fn error(&self, error: std::io::Error) -> BlockError {
        BlockError::new(cannot_read(&self.parameters.path)(error))
    }

    /// Number of the VDIF frame since the reference epoch, if its time is possible.
    fn number(&self, header: &Header) -> Option<u64> {
        let per_second = self.format.frames_per_second;
        let first = &self.format.header;
        let is_ours = header.epoch == first.epoch && header.station == first.station;
        let number =
            u64::from(header.seconds).checked_mul(per_second)?.checked_add(header.frame.into())?;
        let end = number.checked_add(2 * self.format.vdif_frames as u64)?;
        let end = end.checked_mul(self.format.ticks())?;
        let is_possible = u64::from(header.frame) < per_second && end < MAX_TIMESTAMP;
        (is_ours && is_possible).then_some(number)
    }

    /// Whether the VDIF frame with this number continues the stream. A jump of more than a second must be
    /// confirmed by the next VDIF frame, because it may be an error in a header.
    fn continues(&mut self, number: u64) -> Result<bool, BlockError> {
        let Some((_, last)) = self.seen else { return Ok(true) };
        let per_second = self.format.frames_per_second;
        if number <= last.saturating_add(per_second) {
            return Ok(true);
        }
        let Some(reader) = &mut self.reader else { return Ok(false) };
        let following = match reader.following() {
            Ok(following) => following,
            Err(error) => return Err(self.error(error)),
        };
        let next = following.and_then(|header| self.number(&header));
        Ok(next.is_some_and(|next| next.abs_diff(number) <= self.format.vdif_frames as u64))
    }

    /// Moves on by one VDIF frame.
    fn step(&mut self, output: &mut Output) -> Result<Did, BlockError> {
        let Some(reader) = &mut self.reader else { return Ok(Did::Stop(Next::Finished)) };
        let skipped = reader.skipped_bytes();
        self.count.skipped.add(skipped - self.skipped);
        self.skipped = skipped;
        let header = match reader.step() {
            Ok(Step::Frame(header, _)) => header,
            Ok(Step::Searching) => return Ok(Did::Progress),
            Ok(Step::End) => {
                let skipped = reader.skipped_bytes();
                self.count.skipped.add(skipped - self.skipped);
                self.skipped = skipped;
                return Ok(self.close(output, true));
            }
            Err(error) => return Err(self.error(error)),
        };
        let thread = self.format.threads.iter().position(|thread| *thread == header.thread);
        let number = self.number(&header);
        let (Some(number), Some(thread)) = (number, thread) else {
            self.count.foreign.add(u64::from(number.is_none()));
            self.advance();
            return Ok(Did::Progress);
        };
        let vdif_frames = self.format.vdif_frames as u64;
        let index = number / vdif_frames;
        let base = *self.base.get_or_insert(index);
        if index < base {
            self.count.late.add(1);
            self.advance();
            return Ok(Did::Progress);
        }
        if !self.continues(number)? {
            self.count.foreign.add(1);
            self.advance();
            return Ok(Did::Progress);
        }
        let (first, last) = self.seen.unwrap_or((number, number));
        self.seen = Some((first.min(number), last.max(number)));
        if index > base + 1 {
            if self.slots.iter().any(Option::is_some) {
                return Ok(self.close(output, false));
            }
            let missing = (index - base).saturating_mul(vdif_frames);
            self.count.missing.add(missing.saturating_mul(self.format.threads.len() as u64));
            self.base = Some(index);
            return Ok(Did::Progress);
        }
        let slot = (index - base) as usize;
        if self.slots[slot].is_none() {
            let Some(mut frame) = output.take() else { return Ok(Did::Stop(Next::Wait)) };
            frame.as_mut_slice::<u8>()?.fill(0);
            frame.header_mut().timestamp = index * self.samples_per_frame;
            let mut arrived = self.spare.pop().unwrap_or_default();
            arrived.fill(false);
            self.slots[slot] = Some(Slot { frame, arrived });
        }
        self.put(slot, thread, (number % vdif_frames) as usize, &header)?;
        self.advance();
        Ok(Did::Progress)
    }

    fn advance(&mut self) {
        if let Some(reader) = &mut self.reader {
            reader.advance();
        }
    }

    /// Writes the present VDIF frame of `thread` into a slot, as VDIF frame number `place` of it.
    fn put(
        &mut self,
        slot: usize,
        thread: usize,
        place: usize,
        header: &Header,
    ) -> Result<(), BlockError> {
        let Self { format, reader, slots, values, codes, count, .. } = self;
        let (Some(reader), Some(Slot { frame, arrived })) = (reader, &mut slots[slot]) else {
            return Ok(());
        };
        if std::mem::replace(&mut arrived[thread * format.vdif_frames + place], true) {
            count.doubled.add(1);
            return Ok(());
        }
        if header.is_invalid {
            count.invalid.add(1);
            return Ok(());
        }
        // The same frame as before: nothing is read.
        let Ok(Step::Frame(_, payload)) = reader.step() else { return Ok(()) };
        let number = self.parameters.dtype;
        let payload = if self.parameters.encoding == Encoding::TwosComplement {
            codes.clear();
            codes.extend_from_slice(payload);
            flip_encoding(codes, header.bits);
            codes
        } else {
            payload
        };
        unpack(payload, header.bits, number != Number::F32, values);
        let validity = &mut frame.header_mut().validity;
        if format.is_channelised() {
            let spectra = header.samples();
            let first = (thread * format.vdif_frames + place) * spectra;
            validity[first..first + spectra].fill(1);
        } else {
            let channels = header.channels();
            for row in thread * channels..(thread + 1) * channels {
                validity[row * format.vdif_frames + place] = 1;
            }
        }
        match number {
            Number::F32 => scatter(frame, format, thread, place, values, |value| value)?,
            Number::I8 => scatter(frame, format, thread, place, values, |value| value as i8)?,
            Number::I16 => scatter(frame, format, thread, place, values, |value| value as i16)?,
        }
        Ok(())
    }

    /// Pushes the first slot; at the end of the file both, and finishes.
    fn close(&mut self, output: &mut Output, at_end: bool) -> Did {
        let Some(base) = self.base else { return Did::Stop(Next::Finished) };
        let is_empty = self.slots.iter().all(Option::is_none);
        if is_empty {
            return if at_end { Did::Stop(Next::Finished) } else { Did::Progress };
        }
        if let Some(slot) = &self.slots[0] {
            let wait = self.playback.early(slot.frame.header().timestamp);
            if !wait.is_zero() {
                return Did::Stop(Next::After(wait));
            }
            if !output.has_room() {
                return Did::Stop(Next::Wait);
            }
        }
        self.count.missing.add(self.missing(base));
        if let Some(Slot { frame, arrived }) = self.slots[0].take() {
            self.spare.push(arrived);
            output.push(frame);
            self.playback.sent();
        }
        self.slots.swap(0, 1);
        self.base = Some(base + 1);
        Did::Progress
    }

    /// Missing VDIF frames of the first slot, between the first and the last one of the file so far.
    fn missing(&self, base: u64) -> u64 {
        let (Some((first, last)), vdif_frames) = (self.seen, self.format.vdif_frames) else {
            return 0;
        };
        let start = base * vdif_frames as u64;
        let is_between = |place: usize| (first..=last).contains(&(start + place as u64));
        let Some(Slot { arrived, .. }) = &self.slots[0] else {
            let between = (0..vdif_frames).filter(|place| is_between(*place)).count();
            return (between * self.format.threads.len()) as u64;
        };
        let units = arrived.iter().enumerate();
        units.filter(|(n, arrived)| !**arrived && is_between(n % vdif_frames)).count() as u64
    }
}

/// Writes the values of a VDIF frame, `[sample][channel][component]`, into the rows of its thread; those of a filter
/// bank stay in this order.
fn scatter<T: bytemuck::AnyBitPattern + bytemuck::NoUninit>(
    frame: &mut FrameMut,
    format: &Format,
    thread: usize,
    place: usize,
    values: &[f32],
    convert: impl Fn(f32) -> T,
) -> Result<(), NotOnHost> {
    let (channels, components) = (format.header.channels(), format.components());
    let samples = format.header.samples();
    let row_values = samples * format.vdif_frames * components;
    let payload = frame.as_mut_slice::<T>()?;
    if format.is_channelised() {
        let out = &mut payload[(thread * format.vdif_frames + place) * values.len()..];
        out.iter_mut().zip(values).for_each(|(out, value)| *out = convert(*value));
        return Ok(());
    }
    for channel in 0..channels {
        let start = (thread * channels + channel) * row_values + place * samples * components;
        let out = payload[start..][..samples * components].chunks_exact_mut(components);
        let from = values[channel * components..].chunks(channels * components);
        for (out, from) in out.zip(from) {
            out.iter_mut().zip(from).for_each(|(out, value)| *out = convert(*value));
        }
    }
    Ok(())
}

impl Block for Source {
    fn start(&mut self) -> Result<(), BlockError> {
        self.reader = Some(self.parameters.open().map_err(BlockError::new)?);
        Ok(())
    }

    fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        if io.stopping {
            return Ok(Next::Finished);
        }
        let before = self.playback.left();
        for _ in 0..MAX_FRAMES {
            if self.playback.left() == 0 {
                return Ok(Next::Finished);
            }
            match self.step(&mut io.outputs[0])? {
                Did::Stop(next) => return Ok(next),
                Did::Progress if self.playback.left() < before => break,
                Did::Progress => {}
            }
        }
        Ok(Next::Again)
    }
}
