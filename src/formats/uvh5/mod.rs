//! UVH5: visibilities in HDF5, of pyuvdata. A writer whose file can be read while it grows.
//!
//! The file is `Header` with descriptions and `Data` with `visdata`, `flags` and `nsamples`, each
//! `[baseline-time][channel][polarisation]`, as pyuvdata's memo "UVH5 file format" defines them (version 1.2), and
//! `fxgraph` with texts of the program. All arrays with a baseline-time axis grow by one dump at a time.
//!
//! A reader follows addresses from the superblock, which it reads once. So a [`Commit`] writes new headers of all
//! objects that change (the growing arrays, their numbers of rows, the groups) to the end of the file, and then
//! replaces the superblock: 48 bytes with the end of the file and the address of the root group. A reader that has
//! opened the file at any time sees the dumps of one commit for as long as it has the file open. The commit waits
//! for the disk before, and another thread can run it while the writer writes the next dumps.
//!
//! The HDF5 library asks for the size of the file before it reads the superblock, and accepts no superblock with an end
//! beyond this size. So the file is longer than its contents while it grows, by a hole (`AHEAD`).
//!
//! The writer holds the shared lock (`flock`) that readers of the HDF5 library take: the library opens the file for
//! reading, and not for writing.

pub mod arrange;
pub mod hdf5;
mod header;
mod index;

pub use header::{Antenna, Description, Feed, PhaseCentre, Telescope, polarisations};

use arrange::Chunk;
use flate2::{Compress, Compression, FlushCompress};
use hdf5::{Chunked, Objects, Type};
use index::{Fields, Index};
use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;

/// Least size of the hole at the end of a growing file, in bytes. It also has room for this many dumps.
const AHEAD: u64 = 16 << 20;
const DUMPS_AHEAD: u64 = 8;
/// Size of a chunk of visibilities that is aimed at, in bytes.
const CHUNK_BYTES: u64 = 8 << 20;
/// Level of compression of flags and numbers of samples.
const LEVEL: u32 = 1;

/// Rows of one dump, apart from the data.
#[derive(Clone, Copy, Debug)]
pub struct DumpTime<'a> {
    /// Julian date of the centre of the dump, UTC.
    pub julian_date: f64,
    /// Local apparent sidereal time in radians.
    pub sidereal_time: f64,
    /// Baseline vectors in metres, `[row]`.
    pub uvw_metres: &'a [[f64; 3]],
    /// Apparent right ascension, apparent declination and position angle of the phase centre, in radians.
    pub phase_centre: [f64; 3],
    /// Configuration that made the dump.
    pub config_id: u64,
}

/// An array that grows by the rows of a dump.
#[derive(Debug)]
struct Growing {
    /// A chunk has the rows of a dump.
    array: Chunked,
    index: Index,
}

/// The file, which grows at its end.
#[derive(Debug)]
struct Tail {
    file: Arc<File>,
    /// First address after everything written.
    end: u64,
    /// Size of the hole after it, in bytes.
    ahead: u64,
    /// Size of the file, if no other program changes it.
    size: u64,
}

impl Tail {
    /// Writes `bytes` to the end and returns their address.
    fn append(&mut self, bytes: &[u8]) -> io::Result<u64> {
        self.check()?;
        let address = self.end;
        self.file.write_all_at(bytes, address)?;
        self.end = (address + bytes.len() as u64).next_multiple_of(8);
        self.size = self.size.max(address + bytes.len() as u64);
        Ok(address)
    }

    /// Checks that the file is still there.
    fn check(&self) -> io::Result<()> {
        let there = self.file.metadata()?;
        if there.is_file() && there.nlink() == 0 {
            return Err(io::Error::other("the file was removed while it was written"));
        }
        if there.is_file() && there.len() < self.size {
            return Err(io::Error::other("the file was truncated while it was written"));
        }
        Ok(())
    }

    /// Makes room for the end that readers may find in the superblock after they have asked for the size of the file.
    /// The hole is not needed to read the file, so a limit on the size of files (`ulimit -f`) is no error.
    fn lengthen(&mut self) {
        let size = self.end + self.ahead;
        if self.size < self.end + self.ahead / 2 && self.file.set_len(size).is_ok() {
            self.size = size;
        }
    }
}

/// Writer of one file.
#[derive(Debug)]
pub struct Writer {
    tail: Tail,
    /// Address of the extension of the superblock.
    extension: u64,
    /// Objects that do not change.
    fixed: header::Fixed,
    /// `visdata`, `flags`, `nsamples`.
    data: [Growing; 3],
    /// Arrays with a row per baseline and dump, and the one with a row per dump, in the order of `header::TIMES`.
    times: Vec<Growing>,
    baselines: u64,
    dumps: u64,
    committed: u64,
    /// Numbers of the antennas of each row of a dump, as bytes.
    antennas: [Vec<u8>; 2],
    integration_seconds: f64,
    shape: Shape,
    bytes: Vec<u8>,
    packed: Vec<u8>,
    /// Compressed flags and numbers of samples of a chunk that lacks nothing.
    whole: Option<[Vec<u8>; 2]>,
    deflate: Deflate,
}

/// Layout of the data of a dump in chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Baselines, autocorrelations included.
    pub baselines: usize,
    /// Polarisation products of a baseline: 4, or 1 of one polarisation.
    pub products: usize,
    /// Channels of the file.
    pub channels: usize,
    /// Channels of a chunk; the last chunk of a dump is filled up.
    pub chunk_channels: usize,
}

impl Shape {
    /// Returns the layout for dumps of this size; `None` if a chunk would exceed the limit of HDF5 (4 GiB).
    #[must_use]
    pub fn new(baselines: usize, channels: usize, products: usize) -> Option<Self> {
        let channel = (baselines as u64).checked_mul(8 * products as u64)?;
        if channel == 0 || channels == 0 || channel > u64::from(u32::MAX) {
            return None;
        }
        let most = (CHUNK_BYTES / channel).max(1) as usize;
        let chunks = channels.div_ceil(most);
        Some(Self { baselines, products, channels, chunk_channels: channels.div_ceil(chunks) })
    }

    /// Chunks of a dump.
    #[must_use]
    pub fn chunks(&self) -> usize {
        self.channels.div_ceil(self.chunk_channels)
    }

    /// Values of a chunk.
    #[must_use]
    pub fn chunk_values(&self) -> usize {
        self.baselines * self.chunk_channels * self.products
    }
}

/// Compressor with a reused state.
struct Deflate(Compress);

impl std::fmt::Debug for Deflate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Deflate")
    }
}

impl Deflate {
    /// Replaces `packed` by the compressed `bytes`.
    fn run(&mut self, bytes: &[u8], packed: &mut Vec<u8>) -> io::Result<()> {
        packed.clear();
        self.0.reset();
        loop {
            packed.reserve((bytes.len() / 64).max(1 << 12));
            let from = self.0.total_in() as usize;
            let done = self.0.compress_vec(&bytes[from..], packed, FlushCompress::Finish);
            if done.map_err(io::Error::other)? == flate2::Status::StreamEnd {
                return Ok(());
            }
        }
    }
}

impl Writer {
    /// Begins an empty file with this description; `file` must be empty and open for writing.
    ///
    /// # Errors
    /// If the file cannot be written, or if the description is too large for the format.
    pub fn create(file: File, description: &Description) -> io::Result<Self> {
        let rows = &description.baselines;
        let baselines = rows.len() as u64;
        let too_large = || io::Error::other("a channel of a dump must have less than 4 GiB");
        let products = description.feeds.len().pow(2);
        let shape = Shape::new(rows.len(), description.frequencies_hz.len(), products);
        let shape = shape.ok_or_else(too_large)?;
        let products = products as u64;
        let inner = [shape.channels as u64, products];
        let chunk = vec![baselines, shape.chunk_channels as u64, products];
        let data = [(Type::Complex, None), (Type::Bool, Some(LEVEL)), (Type::F32, Some(LEVEL))]
            .map(|(dtype, deflate)| Chunked {
                dtype,
                inner: inner.to_vec(),
                chunk: chunk.clone(),
                deflate,
            });
        let times = header::TIMES.map(|(_, dtype, columns, is_per_dump)| Chunked {
            dtype,
            inner: columns.into_iter().collect(),
            chunk: [if is_per_dump { 1 } else { baselines }].into_iter().chain(columns).collect(),
            deflate: None,
        });
        let growing = |array: Chunked| Growing {
            index: Index::new(array.chunk.len(), array.chunk[0]),
            array,
        };
        let number = |antenna: fn(&(usize, usize)) -> usize| -> Vec<u8> {
            let numbers = rows.iter().map(|row| description.antennas[antenna(row)].number);
            numbers.flat_map(|number| i64::from(number).to_le_bytes()).collect()
        };
        lock(&file)?;
        let mut head = Objects::at(hdf5::SUPERBLOCK as u64);
        let extension = head.extension();
        let fixed = description.write(&mut head);
        let dump_bytes = (13 * shape.chunk_values() * shape.chunks()) as u64;
        let tail = Tail {
            file: Arc::new(file),
            end: head.end(),
            ahead: AHEAD.max(DUMPS_AHEAD * dump_bytes),
            size: 0,
        };
        tail.file.write_all_at(&head.bytes, hdf5::SUPERBLOCK as u64)?;
        let mut writer = Self {
            tail,
            extension,
            fixed,
            data: data.map(growing),
            times: times.map(growing).into(),
            baselines,
            dumps: 0,
            committed: 0,
            antennas: [number(|row| row.0), number(|row| row.1)],
            integration_seconds: description.integration_seconds,
            shape,
            bytes: Vec::new(),
            packed: Vec::new(),
            whole: None,
            deflate: Deflate(Compress::new(Compression::new(LEVEL), true)),
        };
        writer.commit(false)?;
        Ok(writer)
    }

    /// Layout of the data of a dump.
    #[must_use]
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Number of dumps in the file, committed or not.
    #[must_use]
    pub fn dumps(&self) -> u64 {
        self.dumps
    }

    /// Number of dumps in commits, the last of which may not have run yet.
    #[must_use]
    pub fn committed(&self) -> u64 {
        self.committed
    }

    /// Whether the indices have no room for another dump.
    #[must_use]
    pub fn is_full(&self) -> bool {
        let chunks = self.shape.chunks() as u64;
        self.data.iter().any(|growing| growing.index.room() < chunks)
            || self.times.iter().any(|growing| growing.index.room() < 1)
    }

    /// Size of the file in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.tail.end
    }

    /// Writes chunk `number` of the data of the next dump. The chunks of a dump come in order, then
    /// [`dump`](Self::dump).
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn chunk(&mut self, number: usize, chunk: &Chunk) -> io::Result<()> {
        let offsets = [self.dumps * self.baselines, (number * self.shape.chunk_channels) as u64, 0];
        let [visibilities, flags, samples] = &mut self.data;
        let mut put =
            |growing: &mut Growing, bytes: &[u8]| append(&mut self.tail, growing, &offsets, bytes);
        put(visibilities, &chunk.visibilities)?;
        if chunk.lacks_nothing() {
            if self.whole.is_none() {
                let mut whole = [Vec::new(), Vec::new()];
                self.deflate.run(&chunk.flags, &mut whole[0])?;
                self.deflate.run(&chunk.samples, &mut whole[1])?;
                self.whole = Some(whole);
            }
            if let Some([whole_flags, whole_samples]) = &self.whole {
                put(flags, whole_flags)?;
                put(samples, whole_samples)?;
            }
            return Ok(());
        }
        self.deflate.run(&chunk.flags, &mut self.packed)?;
        put(flags, &self.packed)?;
        self.deflate.run(&chunk.samples, &mut self.packed)?;
        put(samples, &self.packed)
    }

    /// Completes a dump after all of its chunks.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn dump(&mut self, time: &DumpTime<'_>) -> io::Result<()> {
        let rows = self.baselines as usize;
        let repeat = |bytes: &mut Vec<u8>, value: [u8; 8], rows: usize| {
            (0..rows).for_each(|_| bytes.extend(value));
        };
        let [right_ascension, declination, angle] = time.phase_centre.map(f64::to_le_bytes);
        for (growing, (name, ..)) in self.times.iter_mut().zip(header::TIMES) {
            let bytes = &mut self.bytes;
            bytes.clear();
            match name {
                "ant_1_array" => bytes.extend(&self.antennas[0]),
                "ant_2_array" => bytes.extend(&self.antennas[1]),
                "time_array" => repeat(bytes, time.julian_date.to_le_bytes(), rows),
                "lst_array" => repeat(bytes, time.sidereal_time.to_le_bytes(), rows),
                "integration_time" => repeat(bytes, self.integration_seconds.to_le_bytes(), rows),
                "uvw_array" => {
                    bytes.extend(time.uvw_metres.iter().flatten().flat_map(|u| u.to_le_bytes()));
                }
                "phase_center_app_ra" => repeat(bytes, right_ascension, rows),
                "phase_center_app_dec" => repeat(bytes, declination, rows),
                "phase_center_frame_pa" => repeat(bytes, angle, rows),
                "phase_center_id_array" => repeat(bytes, [0; 8], rows),
                _ => repeat(bytes, time.config_id.to_le_bytes(), 1),
            }
            let offsets = [self.dumps * growing.array.chunk[0], 0];
            let rank = 1 + usize::from(name == "uvw_array");
            append(&mut self.tail, growing, &offsets[..rank], bytes)?;
        }
        self.dumps += 1;
        Ok(())
    }

    /// Makes all complete dumps visible to readers. After a power failure they are there, too, if `is_synced` is set;
    /// the call then waits for the disk.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn commit(&mut self, is_synced: bool) -> io::Result<()> {
        self.begin_commit()?.run(is_synced)
    }

    /// Begins a commit of all complete dumps. Commits of a file must run in this order, one at a time.
    ///
    /// # Errors
    /// If the file cannot be written, or if it has been removed or truncated.
    pub fn begin_commit(&mut self) -> io::Result<Commit> {
        let Self { tail, data, times, dumps, .. } = self;
        let mut fields = Vec::new();
        for growing in data.iter_mut().chain(times.iter_mut()) {
            growing.index.write(&tail.file, &mut tail.end)?;
            growing.index.take(&mut fields);
        }
        let mut objects = Objects::at(tail.end);
        let arrays = data.iter().chain(times.iter()).map(|growing| {
            let rows = *dumps * growing.array.chunk[0];
            objects.growing(&growing.array, rows, growing.index.address())
        });
        let arrays: Vec<u64> = arrays.collect();
        let root = self.fixed.write(&mut objects, &arrays, [*dumps * self.baselines, *dumps]);
        tail.append(&objects.bytes)?;
        tail.lengthen();
        self.committed = *dumps;
        let superblock = hdf5::superblock(tail.end, root, self.extension);
        Ok(Commit { file: Arc::clone(&tail.file), fields, superblock, end: tail.end })
    }

    /// Commits all complete dumps, and waits for the disk.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn close(mut self) -> io::Result<()> {
        self.begin_commit()?.close()
    }
}

/// Takes the lock of readers, which keeps the HDF5 library from opening the file for writing. File systems without locks
/// are used without.
fn lock(file: &File) -> io::Result<()> {
    match file.try_lock_shared() {
        Err(TryLockError::WouldBlock) => {
            Err(io::Error::other("another program has opened the file for writing"))
        }
        _ => Ok(()),
    }
}

/// Complete dumps that readers do not see yet.
#[derive(Debug)]
#[must_use = "readers do not see the dumps before it runs"]
pub struct Commit {
    file: Arc<File>,
    /// Fields of the nodes of indices.
    fields: Vec<Fields>,
    superblock: [u8; hdf5::SUPERBLOCK],
    /// End of the contents of the file.
    end: u64,
}

impl Commit {
    /// Makes the dumps visible to readers. If `is_synced` is set, each step waits until the disk has the one before: data,
    /// headers and entries of indices, the numbers of these entries, and then the superblock. So a power failure at
    /// any time leaves a file with the dumps of this commit or of the one before.
    ///
    /// # Errors
    /// If the file cannot be written; readers then see the dumps of the commit before.
    pub fn run(&self, is_synced: bool) -> io::Result<()> {
        let sync = || if is_synced { self.file.sync_data() } else { Ok(()) };
        sync()?;
        for fields in &self.fields {
            fields.write(&self.file)?;
        }
        sync()?;
        self.file.write_all_at(&self.superblock, 0)
    }

    /// Runs the last commit of a file, removes the hole at its end, and waits until the disk has all of it.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn close(&self) -> io::Result<()> {
        self.run(true)?;
        self.file.set_len(self.end)?;
        self.file.sync_data()
    }
}

/// Appends `bytes` to the file as a chunk of `growing` that begins at `offsets`.
fn append(tail: &mut Tail, growing: &mut Growing, offsets: &[u64], bytes: &[u8]) -> io::Result<()> {
    let address = tail.append(bytes)?;
    growing.index.push(&tail.file, offsets, bytes.len() as u32, address, &mut tail.end)
}

#[cfg(test)]
mod tests;
