//! Frames of a file, one after the other.

use super::{Header, HeaderError};
use std::io::{self, ErrorKind, Read};

/// Bytes that are read at a time, and that are searched for a header before [`Step::Searching`] is returned.
const BLOCK_BYTES: usize = 1 << 20;

/// Bytes at the beginning of a file that are searched for its first frame.
const FIRST_BYTES: u64 = 1 << 22;

/// Reader of the frames of a file.
///
/// All frames have the format of a template: legacy or not, length, bits, channels, real or complex. Between
/// frames it searches for the next header of this format at multiples of 8 bytes. A file that begins within a frame
/// is searched for its first header byte by byte.
pub struct Reader<R> {
    input: R,
    template: Header,
    /// Bytes that were read; those of the present frame begin at `start`.
    buffer: Vec<u8>,
    start: usize,
    has_ended: bool,
    skipped_bytes: u64,
}

/// Result of a search for a frame.
pub enum Step<'a> {
    /// Header and payload of the present frame.
    Frame(Header, &'a [u8]),
    /// No header was found in a block of bytes; the search continues with the next call.
    Searching,
    /// The file has ended.
    End,
}

impl<R: Read> Reader<R> {
    /// Creates a reader of `input`, whose next byte is the beginning of the file. Takes the format from the first
    /// header; the inner error is that of a file without a header in its first 4 MiB.
    pub fn new(mut input: R) -> io::Result<Result<Self, HeaderError>> {
        let mut buffer = Vec::new();
        input.by_ref().take(FIRST_BYTES).read_to_end(&mut buffer)?;
        Ok(first_header(&buffer).map(|(start, template)| Self {
            input,
            template,
            buffer,
            start,
            has_ended: false,
            skipped_bytes: start as u64,
        }))
    }

    /// Header of the first frame.
    #[must_use]
    pub fn template(&self) -> &Header {
        &self.template
    }

    /// Bytes between frames, which belong to no frame, and bytes of an incomplete last frame.
    #[must_use]
    pub fn skipped_bytes(&self) -> u64 {
        self.skipped_bytes
    }

    /// Reads until `bytes` bytes from `start` on are in the buffer, or the file ends. The buffer grows with the file
    /// only, not with a length in a header.
    fn fill(&mut self, bytes: usize) -> io::Result<bool> {
        while self.buffer.len() - self.start < bytes && !self.has_ended {
            if self.start >= BLOCK_BYTES.max(self.buffer.len() / 2) {
                self.buffer.drain(..self.start);
                self.start = 0;
            }
            let end = self.buffer.len();
            self.buffer.resize(end + BLOCK_BYTES, 0);
            let read = loop {
                match self.input.read(&mut self.buffer[end..]) {
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    read => break read,
                }
            };
            self.buffer.truncate(end + read.as_ref().copied().unwrap_or(0));
            self.has_ended = read? == 0;
        }
        Ok(self.buffer.len() - self.start >= bytes)
    }

    fn header_at(&self, at: usize) -> Option<Header> {
        let bytes = self.buffer.get(self.start + at..)?;
        Header::parse(bytes).ok().filter(|header| header.has_format(&self.template))
    }

    /// Returns the present frame.
    pub fn step(&mut self) -> io::Result<Step<'_>> {
        let length = self.template.frame_bytes as usize;
        for _ in 0..BLOCK_BYTES / 8 {
            if !self.fill(length)? {
                self.skipped_bytes += (self.buffer.len() - self.start) as u64;
                self.start = self.buffer.len();
                return Ok(Step::End);
            }
            if let Some(header) = self.header_at(0) {
                let frame = &self.buffer[self.start..self.start + length];
                return Ok(Step::Frame(header, &frame[header.header_bytes() as usize..]));
            }
            self.skipped_bytes += 8;
            self.start += 8;
        }
        Ok(Step::Searching)
    }

    /// Returns the header after the present frame, if the file continues with one.
    pub fn following(&mut self) -> io::Result<Option<Header>> {
        let length = self.template.frame_bytes as usize;
        self.fill(length + self.template.header_bytes() as usize)?;
        Ok(self.header_at(length))
    }

    /// Moves on to the frame after the present one.
    pub fn advance(&mut self) {
        self.start = (self.start + self.template.frame_bytes as usize).min(self.buffer.len());
    }
}

/// Finds the first header in the first bytes of a file: one whose next frame has a header, too, or otherwise one at the
/// beginning.
fn first_header(bytes: &[u8]) -> Result<(usize, Header), HeaderError> {
    let next = |at: usize, header: &Header| {
        let rest = bytes.get(at.checked_add(header.frame_bytes as usize)?..)?;
        Header::parse(rest).ok().filter(|next| next.has_format(header))
    };
    let at_start = Header::parse(bytes);
    if let Ok(header) = at_start
        && next(0, &header).is_some()
    {
        return Ok((0, header));
    }
    // Elsewhere the times must fit, too.
    let is_near = |one: &Header, other: &Header| {
        let time = |header: &Header| (header.seconds, header.frame, header.thread);
        let is_near = one.epoch == other.epoch && one.seconds.abs_diff(other.seconds) <= 1;
        is_near && time(one) != time(other)
    };
    let mut places = (1..bytes.len().saturating_sub(31)).filter_map(|at| {
        let header = Header::parse(&bytes[at..]).ok()?;
        next(at, &header).is_some_and(|next| is_near(&header, &next)).then_some((at, header))
    });
    let found = places.next();
    match (at_start, found) {
        // The first frame is followed by other bytes.
        (Ok(first), Some((_, header))) if first.has_format(&header) => Ok((0, first)),
        (_, Some(found)) => Ok(found),
        // A file of one frame, or of frames longer than what was read.
        (at_start, None) => at_start.map(|header| (0, header)),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A legacy frame of 24 bytes of samples with 8 bits.
    fn frame(number: u32) -> Vec<u8> {
        let zeros = [0, 0, 0, 64, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0];
        let header = Header { frame: number, bits: 8, ..Header::parse(&zeros).unwrap() };
        let mut bytes = vec![number as u8; 40];
        header.write(&mut bytes);
        bytes
    }

    /// Numbers of the frames in `bytes`, and the bytes that were skipped.
    fn numbers(bytes: &[u8]) -> (Vec<u32>, u64) {
        let mut reader = Reader::new(bytes).unwrap().unwrap();
        let mut numbers = Vec::new();
        loop {
            match reader.step().unwrap() {
                Step::Frame(header, payload) => {
                    assert_eq!(payload.len(), header.payload_bytes() as usize);
                    numbers.push(header.frame);
                }
                Step::Searching => continue,
                Step::End => return (numbers, reader.skipped_bytes()),
            }
            reader.following().unwrap();
            reader.advance();
        }
    }

    #[test]
    fn reader_finds_the_next_frame_after_other_bytes() {
        let junk = vec![0xff; 16];
        let bytes = [frame(1), frame(2), junk, frame(3), frame(4)[..39].to_vec()].concat();
        assert_eq!(numbers(&bytes), (vec![1, 2, 3], 16 + 39));
    }

    #[test]
    fn reader_rejects_a_file_without_a_header_at_its_beginning() {
        assert_eq!(Reader::new(&[][..]).unwrap().err(), Some(HeaderError::TooShort(0)));
        assert_eq!(Reader::new(&[0; 64][..]).unwrap().err(), Some(HeaderError::FrameBytes(0)));
    }

    #[test]
    fn reader_finds_the_first_frame_of_a_file_that_begins_within_one() {
        let whole = [frame(1), frame(2), frame(3)].concat();
        for cut in 1..40 {
            assert_eq!(numbers(&whole[cut..]), (vec![2, 3], 40 - cut as u64), "{cut}");
        }
        let junk = vec![0xff; 16];
        let bytes = [frame(1), junk, frame(2), frame(3)].concat();
        assert_eq!(numbers(&bytes), (vec![1, 2, 3], 16));
        // One frame after other bytes could be a chance.
        assert!(Reader::new(&[vec![0xff; 16], frame(1)].concat()[..]).unwrap().is_err());
    }

    #[test]
    fn long_file_is_read_in_a_bounded_buffer() {
        let mut input = Vec::new();
        (0..200_000).for_each(|n| input.extend(frame(n)));
        let mut reader = Reader::new(&input[..]).unwrap().unwrap();
        for n in 0..200_000 {
            let Step::Frame(header, _) = reader.step().unwrap() else { panic!("frame {n}") };
            assert_eq!(header.frame, n);
            reader.advance();
            assert!(reader.buffer.capacity() <= 3 * FIRST_BYTES as usize);
        }
        assert!(matches!(reader.step().unwrap(), Step::End));
    }

    proptest! {
        #[test]
        fn arbitrary_files_end(
            head in proptest::collection::vec(any::<u8>(), 0..200),
            damage in proptest::collection::vec((0..400_usize, any::<u8>()), 0..8),
        ) {
            if let Ok(mut reader) = Reader::new(&head[..]).unwrap() {
                while matches!(reader.step().unwrap(), Step::Frame(..)) {
                    reader.advance();
                }
            }
            let mut bytes: Vec<u8> = (0..10).flat_map(frame).collect();
            damage.iter().for_each(|(at, byte)| bytes[*at] = *byte);
            if let Ok(mut reader) = Reader::new(&bytes[..]).unwrap() {
                while matches!(reader.step().unwrap(), Step::Frame(..)) {
                    let _ = reader.following().unwrap();
                    reader.advance();
                }
            }
        }
    }
}
