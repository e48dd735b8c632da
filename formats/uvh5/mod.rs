//! UVH5: visibilities in HDF5, of pyuvdata. A writer whose file can be read while it grows.
//!
//! The file is `Header` with descriptions and `Data` with `visdata`, `flags` and `nsamples`, each
//! `[baseline-time][channel][polarisation]`, as pyuvdata's memo "UVH5 file format" defines them (version 1.2). All arrays
//! with a baseline-time axis grow by one dump at a time. Data and indices of new dumps go to parts of the file
//! that readers do not see, until a [`Commit`] changes the lengths of all arrays, the end of the file and the
//! numbers of times and baseline-times: all within the first 4096 bytes, in one write. It waits for the disk before,
//! and another thread can run it while the writer writes the next dumps.

pub mod arrange;
pub mod hdf5;
mod header;
mod index;

pub use header::{Antenna, Description, Feed, PhaseCentre, Telescope, polarisations};

use arrange::Chunk;
use flate2::{Compress, Compression, FlushCompress};
use hdf5::{Chunked, Head, Type};
use index::{Fields, Index};
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;

/// Part of the file that a commit writes at once. The kernel does not interrupt a write within a page.
const PAGE: usize = 4096;
/// Size of a chunk of visibilities that is aimed at, in bytes.
const CHUNK_BYTES: u64 = 8 << 20;
/// Level of compression of flags and numbers of samples.
const LEVEL: u32 = 1;
/// Polarisation products of a baseline.
pub const PRODUCTS: usize = 4;

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
    /// Rows per dump.
    rows: u64,
    /// Place of the number of rows in the first bytes of the file.
    length_place: usize,
    index: Index,
}

/// Writer of one file.
#[derive(Debug)]
pub struct Writer {
    file: Arc<File>,
    /// The part of the file that a commit writes.
    page: Vec<u8>,
    /// First address after everything written.
    end: u64,
    /// `visdata`, `flags`, `nsamples`.
    data: [Growing; 3],
    /// Arrays with a row per baseline and dump, and the one with a row per dump, in the order of `header::TIMES`.
    times: Vec<Growing>,
    /// Places of `Nblts` and `Ntimes`.
    counter_places: [usize; 2],
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
    /// Channels of the file.
    pub channels: usize,
    /// Channels of a chunk; the last chunk of a dump is filled up.
    pub chunk_channels: usize,
}

impl Shape {
    /// Returns the layout for dumps of this size; `None` if a chunk would exceed the limit of HDF5 (4 GiB).
    #[must_use]
    pub fn new(baselines: usize, channels: usize) -> Option<Self> {
        let channel = (baselines as u64).checked_mul(8 * PRODUCTS as u64)?;
        if channel == 0 || channels == 0 || channel > u64::from(u32::MAX) {
            return None;
        }
        let most = (CHUNK_BYTES / channel).max(1) as usize;
        let chunks = channels.div_ceil(most);
        Some(Self { baselines, channels, chunk_channels: channels.div_ceil(chunks) })
    }

    /// Chunks of a dump.
    #[must_use]
    pub fn chunks(&self) -> usize {
        self.channels.div_ceil(self.chunk_channels)
    }

    /// Values of a chunk.
    #[must_use]
    pub fn chunk_values(&self) -> usize {
        self.baselines * self.chunk_channels * PRODUCTS
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
        let rows = description.rows();
        let baselines = rows.len() as u64;
        let too_large = || io::Error::other("a channel of a dump must have less than 4 GiB");
        let shape =
            Shape::new(rows.len(), description.frequencies_hz.len()).ok_or_else(too_large)?;
        let inner = [shape.channels as u64, PRODUCTS as u64];
        let chunk = vec![baselines, shape.chunk_channels as u64, PRODUCTS as u64];
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
        let arrays: Vec<&Chunked> = data.iter().chain(&times).collect();
        // The indices come after the head, whose length does not depend on their addresses.
        let describe = |begin: u64| {
            let mut head = Head::new();
            let mut address = begin;
            let mut places = Vec::new();
            for array in &arrays {
                places.push((head.growing(array, address), address));
                address += Index::bytes(array.chunk.len());
            }
            let counters = [head.counter(), head.counter()];
            let page = head.bytes.len();
            let headers: Vec<u64> = places.iter().map(|((header, _), _)| *header).collect();
            description.write(&mut head, &headers, counters.map(|(header, _)| header));
            (head, address, places, counters, page)
        };
        let begin = (describe(0).0.bytes.len() as u64).next_multiple_of(PAGE as u64);
        let (head, end, places, counters, page) = describe(begin);
        if page > PAGE {
            return Err(io::Error::other("the headers of growing arrays exceed a page"));
        }
        let grown = arrays.iter().zip(&places).map(|(array, ((_, length), address))| Growing {
            rows: array.chunk[0],
            length_place: *length as usize,
            index: Index::new(*address, array.chunk.len(), array.chunk[0]),
        });
        let mut data: Vec<Growing> = grown.collect();
        let times = data.split_off(3);
        let data = <[Growing; 3]>::try_from(data)
            .map_err(|_| io::Error::other("there must be an index for each array of data"))?;
        let number = |antenna: fn(&(usize, usize)) -> usize| {
            rows.iter().flat_map(|row| (antenna(row) as i64).to_le_bytes()).collect()
        };
        let mut writer = Self {
            page: head.bytes[..page].to_vec(),
            file: Arc::new(file),
            end,
            data,
            times,
            counter_places: counters.map(|(_, value)| value as usize),
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
        writer.file.write_all_at(&head.bytes[page..], page as u64)?;
        for growing in writer.data.iter().chain(&writer.times) {
            growing.index.begin(&writer.file)?;
        }
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
        self.end
    }

    /// Writes chunk `number` of the data of the next dump. The chunks of a dump come in order, then
    /// [`dump`](Self::dump).
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn chunk(&mut self, number: usize, chunk: &Chunk) -> io::Result<()> {
        let offsets = [self.dumps * self.baselines, (number * self.shape.chunk_channels) as u64, 0];
        let [visibilities, flags, samples] = &mut self.data;
        let mut put = |growing: &mut Growing, bytes: &[u8]| {
            append(&self.file, &mut self.end, growing, &offsets, bytes)
        };
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
            let offsets = [self.dumps * growing.rows, 0];
            let rank = 1 + usize::from(name == "uvw_array");
            append(&self.file, &mut self.end, growing, &offsets[..rank], bytes)?;
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
    /// If the file cannot be written, or if nobody could read it because it has been removed.
    pub fn begin_commit(&mut self) -> io::Result<Commit> {
        if self.file.metadata()?.nlink() == 0 {
            return Err(io::Error::other("the file was removed while it was written"));
        }
        let mut fields = Vec::new();
        for growing in self.data.iter_mut().chain(&mut self.times) {
            growing.index.write(&self.file)?;
            growing.index.take(&mut fields);
        }
        // The last bytes can be the unused part of an index.
        self.file.set_len(self.end)?;
        let mut set = |place: usize, value: u64| {
            self.page[place..place + 8].copy_from_slice(&value.to_le_bytes());
        };
        for growing in self.data.iter().chain(&self.times) {
            let per_dump = if growing.rows == 1 { 1 } else { self.baselines };
            set(growing.length_place, self.dumps * per_dump);
        }
        set(self.counter_places[0], self.dumps * self.baselines);
        set(self.counter_places[1], self.dumps);
        hdf5::set_end(&mut self.page, self.end);
        self.committed = self.dumps;
        Ok(Commit { file: Arc::clone(&self.file), fields, page: self.page.clone() })
    }

    /// Commits all complete dumps, and waits for the disk.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn close(mut self) -> io::Result<()> {
        self.begin_commit()?.close()
    }
}

/// Complete dumps that readers do not see yet.
#[derive(Debug)]
#[must_use = "readers do not see the dumps before it runs"]
pub struct Commit {
    file: Arc<File>,
    /// Fields of the nodes of indices.
    fields: Vec<Fields>,
    /// The first bytes of the file, with the lengths.
    page: Vec<u8>,
}

impl Commit {
    /// Makes the dumps visible to readers. If `is_synced` is set, each step waits until the disk has the one before: data
    /// and entries of indices, the numbers of these entries, and then the lengths. So a power failure at any time
    /// leaves a file with the dumps of this commit or of the one before.
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
        self.file.write_all_at(&self.page, 0)
    }

    /// Runs the last commit of a file, and waits until the disk has all of it.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn close(&self) -> io::Result<()> {
        self.run(true)?;
        self.file.sync_data()
    }
}

/// Appends `bytes` to the file as a chunk of `growing` that begins at `offsets`.
fn append(
    file: &File,
    end: &mut u64,
    growing: &mut Growing,
    offsets: &[u64],
    bytes: &[u8],
) -> io::Result<()> {
    let address = *end;
    file.write_all_at(bytes, address)?;
    *end = (address + bytes.len() as u64).next_multiple_of(8);
    growing.index.push(file, offsets, bytes.len() as u32, address, end)
}

#[cfg(test)]
mod tests;
