//! Index of the chunks of a dataset: a B-tree of two levels.
//!
//! Leaves grow in place: their entries are written first, and readers do not see them before the fields of their node,
//! which have the number of entries. The fields are left to a [`Commit`](super::Commit), which writes them after the
//! disk has the entries and their data. Entries of rows that a reader's dataset does not have are ignored by it.
//! A root with another leaf is written to another place, and the next commit's dataset refers to it, so that no reader
//! finds a node beyond the end of the file that it knows.

use super::hdf5::{INDEX_HALF, UNDEFINED};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Entries of a node.
const ENTRIES: usize = 2 * INDEX_HALF as usize;
/// Size of the fields of a node before its entries.
const FIELDS: usize = 24;

/// Fields of a node that are not in the file yet, and their address.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields {
    address: u64,
    bytes: [u8; FIELDS],
}

impl Fields {
    /// Writes them to the file.
    pub(super) fn write(&self, file: &File) -> io::Result<()> {
        file.write_all_at(&self.bytes, self.address)
    }
}

/// A node: entries of a key and the address of a child, and a last key.
#[derive(Debug)]
struct Node {
    /// Address in the file; [`UNDEFINED`] before it has one.
    address: u64,
    bytes: Vec<u8>,
    used: usize,
    /// Entries that are in the file.
    written: usize,
}

impl Node {
    fn new(level: u8, left: u64, key: usize) -> Self {
        let mut bytes = vec![0; node_bytes(key)];
        bytes[..6].copy_from_slice(&[b'T', b'R', b'E', b'E', 1, level]);
        bytes[8..16].copy_from_slice(&left.to_le_bytes());
        bytes[16..24].copy_from_slice(&UNDEFINED.to_le_bytes());
        Self { address: UNDEFINED, bytes, used: 0, written: 0 }
    }

    /// Appends an entry, and the key after it.
    fn push(&mut self, key: &[u8], child: u64, next: &[u8]) {
        let place = FIELDS + self.used * (key.len() + 8);
        let entry = [key, &child.to_le_bytes(), next].concat();
        self.bytes[place..place + entry.len()].copy_from_slice(&entry);
        self.used += 1;
        self.bytes[6..8].copy_from_slice(&(self.used as u16).to_le_bytes());
    }

    /// Writes the entries that are not in the file yet; returns whether there were any.
    fn write(&mut self, file: &File, key: usize) -> io::Result<bool> {
        if self.written == self.used {
            return Ok(false);
        }
        let place = |entry: usize| FIELDS + entry * (key + 8);
        let entries = place(self.written)..place(self.used) + key;
        file.write_all_at(&self.bytes[entries.clone()], self.address + entries.start as u64)?;
        self.written = self.used;
        Ok(true)
    }

    /// Takes the place `end`, which moves behind the node.
    fn take_place(&mut self, end: &mut u64) {
        self.address = *end;
        *end += self.bytes.len() as u64;
    }

    fn fields(&self) -> Fields {
        Fields { address: self.address, bytes: std::array::from_fn(|n| self.bytes[n]) }
    }
}

/// Size of a node with keys of `key` bytes.
fn node_bytes(key: usize) -> usize {
    FIELDS + ENTRIES * (key + 8) + key
}

/// Index of a dataset whose chunks are appended in order.
#[derive(Debug)]
pub struct Index {
    /// Rows of a chunk.
    rows: u64,
    key: usize,
    root: Node,
    /// Whether the file has all entries of `root` at its address.
    is_root_written: bool,
    leaf: Node,
    /// Key of the first entry of `leaf`.
    first: Vec<u8>,
    is_leaf_known: bool,
    /// Fields of nodes for the next commit.
    later: Vec<Fields>,
}

impl Index {
    /// Creates the index of chunks of `rows` rows and `rank` axes. It has no place in the file before the first chunk.
    #[must_use]
    pub fn new(rank: usize, rows: u64) -> Self {
        let key = key_bytes(rank);
        Self {
            rows,
            key,
            root: Node::new(1, UNDEFINED, key),
            is_root_written: true,
            leaf: Node::new(0, UNDEFINED, key),
            first: Vec::new(),
            is_leaf_known: false,
            later: Vec::new(),
        }
    }

    /// Number of further chunks that the index has room for.
    #[must_use]
    pub fn room(&self) -> u64 {
        let leaves = ENTRIES - self.root.used - usize::from(!self.is_leaf_known);
        (leaves * ENTRIES + ENTRIES - self.leaf.used) as u64
    }

    /// Adds the chunk that begins at `offsets` and has `bytes` bytes at `address`. `end` is the end of the file, which
    /// grows by a node if a new one is needed.
    pub fn push(
        &mut self,
        file: &File,
        offsets: &[u64],
        bytes: u32,
        address: u64,
        end: &mut u64,
    ) -> io::Result<()> {
        if self.leaf.address == UNDEFINED {
            self.leaf.take_place(end);
        } else if self.leaf.used == ENTRIES {
            // The last node gets its right neighbour together with the number of its last entries.
            self.leaf.bytes[16..24].copy_from_slice(&end.to_le_bytes());
            let was_known = self.is_leaf_known;
            self.write_leaf(file)?;
            if was_known {
                self.later.push(self.leaf.fields());
            }
            self.leaf = Node::new(0, self.leaf.address, self.key);
            self.leaf.take_place(end);
            self.is_leaf_known = false;
        }
        let key = self.key_of(bytes, offsets);
        let next = self.key_of(0, &[offsets[0] + self.rows]);
        if self.leaf.used == 0 {
            self.first.clone_from(&key);
        }
        self.leaf.push(&key, address, &next);
        Ok(())
    }

    /// Writes the entries that are not in the file yet; `end` grows by a node if there is a new root. Readers see them
    /// after the fields of [`take`](Self::take), in a dataset with the index at [`address`](Self::address).
    pub fn write(&mut self, file: &File, end: &mut u64) -> io::Result<()> {
        self.write_leaf(file)?;
        if !self.is_root_written {
            self.root.take_place(end);
            file.write_all_at(&self.root.bytes, self.root.address)?;
            self.is_root_written = true;
        }
        Ok(())
    }

    fn write_leaf(&mut self, file: &File) -> io::Result<()> {
        if self.leaf.write(file, self.key)? {
            if self.is_leaf_known {
                self.later.push(self.leaf.fields());
            } else {
                // Readers do not find a new node before they find the root with its entry.
                self.leaf.fields().write(file)?;
            }
        }
        if !self.is_leaf_known && self.leaf.used > 0 {
            // Larger than every key.
            let last = self.key_of(0, &[self.rows * ((1 << 62) / self.rows)]);
            self.root.push(&self.first, self.leaf.address, &last);
            self.is_root_written = false;
            self.is_leaf_known = true;
        }
        Ok(())
    }

    /// Address of the written root; [`UNDEFINED`] without chunks.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.root.address
    }

    /// Moves the fields that make the written entries visible to `fields`.
    pub(super) fn take(&mut self, fields: &mut Vec<Fields>) {
        fields.append(&mut self.later);
    }

    /// The key of a chunk; missing offsets are 0.
    fn key_of(&self, bytes: u32, offsets: &[u64]) -> Vec<u8> {
        let mut key = bytes.to_le_bytes().to_vec();
        key.extend([0; 4]);
        key.extend(offsets.iter().flat_map(|offset| offset.to_le_bytes()));
        key.resize(self.key, 0);
        key
    }
}

/// Size of a key: size and filters of the chunk, its offsets, and one more for the bytes of an element.
fn key_bytes(rank: usize) -> usize {
    8 + 8 * (rank + 1)
}
