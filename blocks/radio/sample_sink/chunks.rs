//! Buffers with raw samples, which the queues of all readers share.

use std::sync::Arc;

/// Bytes before the samples: the header of a ZMTP frame, a byte of flags and 8 of the length.
pub const HEAD: usize = 9;
/// Flag of a length of 8 bytes.
const LONG: u8 = 2;

/// Samples of a frame, or zeros in their place, after the header of a ZMTP frame.
pub type Chunk = Arc<Vec<u8>>;

/// Buffers that queues use, and those that they have returned.
#[derive(Default)]
pub struct Chunks(Vec<Chunk>);

impl Chunks {
    /// Takes a buffer that is in no queue, and fills its `len` bytes of samples. Allocates while the queues get longer than
    /// they have ever been.
    pub fn fill(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) -> Chunk {
        let unused = self.0.iter_mut().position(|chunk| Arc::get_mut(chunk).is_some());
        let mut chunk = unused.map(|n| self.0.swap_remove(n)).unwrap_or_default();
        if let Some(bytes) = Arc::get_mut(&mut chunk) {
            bytes.resize(HEAD + len, 0);
            bytes[0] = LONG;
            bytes[1..HEAD].copy_from_slice(&(len as u64).to_be_bytes());
            fill(&mut bytes[HEAD..]);
        }
        self.0.push(Arc::clone(&chunk));
        chunk
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_used_again_and_their_header_has_the_length() {
        let mut chunks = Chunks::default();
        let first = chunks.fill(3, |bytes| bytes.fill(7));
        assert_eq!(&first[..], [2, 0, 0, 0, 0, 0, 0, 0, 3, 7, 7, 7]);
        let second = chunks.fill(1, |bytes| bytes.fill(8));
        let address = first.as_ptr();
        drop(first);
        let third = chunks.fill(2, |bytes| bytes.fill(9));
        assert_eq!((third.as_ptr(), &third[8..]), (address, &[2, 9, 9][..]));
        assert_eq!((&second[9..], chunks.0.len()), (&[8][..], 2));
    }
}
