//! The part of HDF5 that UVH5 needs: types, object headers, groups, datasets in one piece.
//!
//! Files have a superblock of version 2, object headers of version 1 and groups with compact links, which every
//! release of the HDF5 library since 1.8 reads. The library reads such a superblock in one piece, with the end of
//! the file, the address of the root group and a checksum, so that one write of it replaces all that a reader sees.

/// An address that points nowhere.
pub const UNDEFINED: u64 = u64::MAX;
/// Half of the entries of a node of a chunk index.
pub const INDEX_HALF: u16 = 128;
/// Size of the superblock in bytes.
pub const SUPERBLOCK: usize = 48;

/// Type of the elements of a dataset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// Signed 64-bit integer.
    I64,
    /// Unsigned 64-bit integer.
    U64,
    /// Single precision.
    F32,
    /// Double precision.
    F64,
    /// h5py's boolean: an enumeration of 8-bit integers.
    Bool,
    /// h5py's single-precision complex number: members `r` and `i`.
    Complex,
    /// UTF-8 text of this many bytes, filled up with zeros.
    Text(u32),
}

impl Type {
    /// Size of an element in bytes.
    #[must_use]
    pub fn bytes(self) -> u32 {
        match self {
            Self::I64 | Self::U64 | Self::F64 | Self::Complex => 8,
            Self::F32 => 4,
            Self::Bool => 1,
            Self::Text(bytes) => bytes,
        }
    }

    /// The type as a datatype message.
    fn message(self) -> Vec<u8> {
        let integer = |bytes: u32, sign: u8| {
            let precision = (8 * bytes as u16).to_le_bytes();
            let mut message = vec![0x10, sign, 0, 0];
            message.extend(bytes.to_le_bytes());
            message.extend([0, 0, precision[0], precision[1]]);
            message
        };
        // Sign bit, exponent and mantissa as (place, length), bias.
        let float = |bytes: u32, sign: u8, exponent: [u8; 2], mantissa: u8, bias: u32| {
            let mut message = vec![0x11, 0x20, sign, 0];
            message.extend(bytes.to_le_bytes());
            message.extend([0, 0, 8 * bytes as u8, 0, exponent[0], exponent[1], 0, mantissa]);
            message.extend(bias.to_le_bytes());
            message
        };
        let single = || float(4, 31, [23, 8], 23, 127);
        match self {
            Self::I64 => integer(8, 8),
            Self::U64 => integer(8, 0),
            Self::F32 => single(),
            Self::F64 => float(8, 63, [52, 11], 52, 1023),
            Self::Bool => {
                let mut message = vec![0x38, 2, 0, 0, 1, 0, 0, 0];
                message.extend(integer(1, 8));
                message.extend(b"FALSE\0TRUE\0\0\x01");
                message
            }
            Self::Complex => {
                let mut message = vec![0x36, 2, 0, 0, 8, 0, 0, 0];
                for (name, place) in [(b'r', 0), (b'i', 4)] {
                    message.extend([name, 0, place]);
                    message.extend(single());
                }
                message
            }
            Self::Text(bytes) => {
                let mut message = vec![0x13, 0x11, 0, 0];
                message.extend(bytes.to_le_bytes());
                message
            }
        }
    }
}

/// Values of a dataset that do not change.
#[derive(Clone, Debug)]
pub struct Values {
    /// Type of an element.
    pub dtype: Type,
    /// Lengths of the axes; empty for a single value.
    pub shape: Vec<u64>,
    /// The elements, little-endian.
    pub bytes: Vec<u8>,
}

impl Values {
    /// A text.
    #[must_use]
    pub fn text(text: &str) -> Self {
        // A type without any bytes is not allowed.
        let bytes = if text.is_empty() { vec![0] } else { text.as_bytes().to_vec() };
        Self { dtype: Type::Text(bytes.len() as u32), shape: vec![], bytes }
    }

    /// A list of texts.
    #[must_use]
    pub fn texts(texts: &[String]) -> Self {
        Self { shape: vec![texts.len() as u64], ..Self::padded(texts) }
    }

    /// A table of texts, `[row][columns]`.
    #[must_use]
    pub fn text_rows(texts: &[String], columns: usize) -> Self {
        let rows = texts.len().checked_div(columns).unwrap_or(0);
        Self { shape: vec![rows as u64, columns as u64], ..Self::padded(texts) }
    }

    fn padded(texts: &[String]) -> Self {
        let width = texts.iter().map(String::len).max().unwrap_or(0).max(1);
        let mut bytes = Vec::with_capacity(width * texts.len());
        for text in texts {
            bytes.extend(text.as_bytes());
            bytes.resize(bytes.len().next_multiple_of(width), 0);
            if text.is_empty() {
                bytes.resize(bytes.len() + width, 0);
            }
        }
        Self { dtype: Type::Text(width as u32), shape: vec![], bytes }
    }

    /// An integer.
    #[must_use]
    pub fn integer(value: i64) -> Self {
        Self { dtype: Type::I64, shape: vec![], bytes: value.to_le_bytes().to_vec() }
    }

    /// A list of integers.
    #[must_use]
    pub fn integers(values: impl IntoIterator<Item = i64>) -> Self {
        let bytes: Vec<u8> = values.into_iter().flat_map(i64::to_le_bytes).collect();
        Self { dtype: Type::I64, shape: vec![bytes.len() as u64 / 8], bytes }
    }

    /// A number.
    #[must_use]
    pub fn float(value: f64) -> Self {
        Self { dtype: Type::F64, shape: vec![], bytes: value.to_le_bytes().to_vec() }
    }

    /// A list of numbers.
    #[must_use]
    pub fn floats(values: impl IntoIterator<Item = f64>) -> Self {
        let bytes: Vec<u8> = values.into_iter().flat_map(f64::to_le_bytes).collect();
        Self { dtype: Type::F64, shape: vec![bytes.len() as u64 / 8], bytes }
    }

    /// A table of numbers, `[row][columns]`.
    #[must_use]
    pub fn rows(values: &[f64], columns: usize) -> Self {
        let rows = values.len().checked_div(columns).unwrap_or(0);
        Self { shape: vec![rows as u64, columns as u64], ..Self::floats(values.iter().copied()) }
    }

    /// A boolean.
    #[must_use]
    pub fn boolean(value: bool) -> Self {
        Self { dtype: Type::Bool, shape: vec![], bytes: vec![u8::from(value)] }
    }
}

/// A dataset that grows along its first axis, in chunks.
#[derive(Clone, Debug)]
pub(crate) struct Chunked {
    /// Type of an element.
    pub dtype: Type,
    /// Lengths of the other axes.
    pub inner: Vec<u64>,
    /// Lengths of a chunk along all axes.
    pub chunk: Vec<u64>,
    /// Level of the deflate filter; `None` stores chunks as they are.
    pub deflate: Option<u32>,
}

/// Objects in memory that are written to the file in one piece.
#[derive(Debug)]
pub(crate) struct Objects {
    /// Address of the first byte, a multiple of 8.
    begin: u64,
    /// Their bytes.
    pub bytes: Vec<u8>,
}

/// Appends a message, filled up to a multiple of 8 bytes.
fn append(object: &mut Vec<u8>, kind: u16, data: &[u8]) {
    let len = data.len().next_multiple_of(8);
    object.extend(kind.to_le_bytes());
    object.extend((len as u16).to_le_bytes());
    object.extend([0; 4]);
    object.extend(data);
    object.resize(object.len() + len - data.len(), 0);
}

/// Returns an object header with these messages, given by type and data.
fn object(messages: &[(u16, Vec<u8>)]) -> Vec<u8> {
    let mut all = Vec::new();
    messages.iter().for_each(|(kind, data)| append(&mut all, *kind, data));
    let mut object = vec![1, 0];
    object.extend((messages.len() as u16).to_le_bytes());
    object.extend(1_u32.to_le_bytes());
    object.extend((all.len() as u32).to_le_bytes());
    object.extend([0; 4]);
    object.extend(all);
    object
}

fn dataspace(shape: &[u64], is_growing: bool) -> (u16, Vec<u8>) {
    let mut data = vec![1, shape.len() as u8, u8::from(is_growing), 0, 0, 0, 0, 0];
    data.extend(shape.iter().flat_map(|len| len.to_le_bytes()));
    if is_growing {
        data.extend(u64::MAX.to_le_bytes());
        data.extend(shape[1..].iter().flat_map(|len| len.to_le_bytes()));
    }
    (1, data)
}

/// Space is allocated incrementally (3) or early (1), and never filled.
fn fill_value(is_growing: bool) -> (u16, Vec<u8>) {
    (5, vec![2, if is_growing { 3 } else { 1 }, 1, 0])
}

/// Returns the superblock of a file that ends at `end` and has its root group at `root`; `extension` is the address
/// of `Objects::extension`.
#[must_use]
pub fn superblock(end: u64, root: u64, extension: u64) -> [u8; SUPERBLOCK] {
    let mut bytes = [0; SUPERBLOCK];
    bytes[..12].copy_from_slice(b"\x89HDF\r\n\x1a\n\x02\x08\x08\0");
    for (place, address) in [(20, extension), (28, end), (36, root)] {
        bytes[place..place + 8].copy_from_slice(&address.to_le_bytes());
    }
    let checksum = lookup3(&bytes[..44]);
    bytes[44..].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

/// Jenkins' hash lookup3 (`hashlittle` with an initial value of 0) of at least one byte: the checksum of HDF5.
fn lookup3(bytes: &[u8]) -> u32 {
    let [mut a, mut b, mut c] = [0xdead_beef_u32.wrapping_add(bytes.len() as u32); 3];
    let blocks = bytes.len().div_ceil(12);
    for (n, block) in bytes.chunks(12).enumerate() {
        let mut filled = [0; 12];
        filled[..block.len()].copy_from_slice(block);
        let word = |n: usize| u32::from_le_bytes(std::array::from_fn(|byte| filled[4 * n + byte]));
        (a, b, c) = (a.wrapping_add(word(0)), b.wrapping_add(word(1)), c.wrapping_add(word(2)));
        if n + 1 < blocks {
            for turn in [4, 6, 8, 16, 19, 4] {
                a = a.wrapping_sub(c) ^ c.rotate_left(turn);
                (a, b, c) = (b, c.wrapping_add(b), a);
            }
        }
    }
    for turn in [14, 11, 25, 16, 4, 14, 24] {
        c = (c ^ b).wrapping_sub(b.rotate_left(turn));
        (a, b, c) = (b, c, a);
    }
    b
}

impl Objects {
    /// Objects at the address `begin`.
    #[must_use]
    pub fn at(begin: u64) -> Self {
        Self { begin, bytes: Vec::new() }
    }

    /// First address after the objects.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.begin + self.bytes.len() as u64
    }

    /// Appends `bytes`, filled up to a multiple of 8, and returns their address.
    fn place(&mut self, bytes: &[u8]) -> u64 {
        let address = self.end();
        self.bytes.extend(bytes);
        self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
        address
    }

    /// Adds the extension of the superblock, which has the size of the nodes of indices; returns its address.
    pub fn extension(&mut self) -> u64 {
        let [low, high] = INDEX_HALF.to_le_bytes();
        // The default values of groups with symbol tables, which these files do not have.
        self.place(&object(&[(0x13, vec![0, low, high, 16, 0, 4, 0])]))
    }

    /// Adds a dataset with its values; returns the address of its header.
    pub fn dataset(&mut self, values: &Values) -> u64 {
        let data = self.place(&values.bytes);
        let mut layout = vec![3, 1];
        layout.extend(data.to_le_bytes());
        layout.extend((values.bytes.len() as u64).to_le_bytes());
        let space = dataspace(&values.shape, false);
        let messages = [space, (3, values.dtype.message()), fill_value(false), (8, layout)];
        self.place(&object(&messages))
    }

    /// Adds a growing dataset with `rows` rows and its index at `index`; returns the address of its header.
    pub fn growing(&mut self, chunked: &Chunked, rows: u64, index: u64) -> u64 {
        let shape: Vec<u64> = [rows].into_iter().chain(chunked.inner.iter().copied()).collect();
        let mut layout = vec![3, 2, shape.len() as u8 + 1];
        layout.extend(index.to_le_bytes());
        layout.extend(chunked.chunk.iter().flat_map(|len| (*len as u32).to_le_bytes()));
        layout.extend(chunked.dtype.bytes().to_le_bytes());
        let space = dataspace(&shape, true);
        let mut messages = vec![space, (3, chunked.dtype.message()), fill_value(true), (8, layout)];
        if let Some(level) = chunked.deflate {
            let mut filters = vec![2, 1, 1, 0, 0, 0, 1, 0];
            filters.extend(level.to_le_bytes());
            messages.push((11, filters));
        }
        self.place(&object(&messages))
    }

    /// Adds a group with links of these names to object headers; returns its address.
    pub fn group(&mut self, links: &[(&str, u64)]) -> u64 {
        let mut info = vec![0, 0];
        info.extend([0xff; 16]);
        let mut messages = vec![(2, info), (10, vec![0, 0])];
        for (name, address) in links {
            let mut link = vec![1, 0, name.len() as u8];
            link.extend(name.as_bytes());
            link.extend(address.to_le_bytes());
            messages.push((6, link));
        }
        self.place(&object(&messages))
    }
}
