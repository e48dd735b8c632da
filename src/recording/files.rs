//! Writer of a recording: its arrays and its side file.

use super::Checksum;
use super::PLACEHOLDER;
use super::array::ArrayWriter;
use super::side_file::SideFile;
use fxgraph_core::access::WrittenPath;
use fxgraph_core::files::Files;
use fxgraph_core::{BlockError, Header, PortType, files, npy};
use rustix::fs::FileType;
use std::fs::File;
use std::io::{
    self,
    ErrorKind::{AlreadyExists, Interrupted, InvalidInput, NotFound, Unsupported},
    Seek, SeekFrom, Write,
};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

/// Interval at which the side file is updated.
const SIDE_FILE_INTERVAL: Duration = Duration::from_secs(1);

/// Largest number of recordings with the same name.
const MOST_NAMESAKES: usize = 9999;

/// Member of a `.npz` with the text of the side file.
pub const DESCRIPTION: &str = "recording.json";

/// Writer of a recording, which grows frame by frame.
pub struct RecordingWriter {
    path: PathBuf,
    /// Access to the files of the recording.
    files: Files,
    /// Directory of the arrays until the `.npz` is assembled.
    parts: Option<PathBuf>,
    data: ArrayWriter,
    sequence: ArrayWriter,
    timestamp: ArrayWriter,
    config_id: ArrayWriter,
    validity: ArrayWriter,
    checksum: ArrayWriter,
    /// Arrays of the annotations, in the order of their names.
    annotations: Vec<(&'static str, ArrayWriter)>,
    /// Buffer for the bytes of a row.
    row: Vec<u8>,
    side: SideFile,
    side_written: Instant,
}

/// Converts an I/O error at `path`.
fn at(path: &Path) -> impl Fn(io::Error) -> BlockError {
    let path = path.display().to_string();
    move |error| BlockError::new(format!("cannot write {path}: {}", files::reason(&error)))
}

/// Appends `row` and adds it to the frame's checksum.
fn put(writer: &mut ArrayWriter, row: &[u8], checksum: &mut Checksum) -> Result<(), BlockError> {
    checksum.add(row);
    writer.append(row).map_err(at(writer.path()))
}

/// Checks that a file can be written at `path`, without changing existing files. With `overwrites` an existing
/// file must be writable, otherwise a new file beside it.
///
/// # Errors
/// If the file or its directory cannot be written.
pub fn try_path(path: &WrittenPath, overwrites: bool) -> Result<(), BlockError> {
    try_directory(path)?;
    let (files, path) = (path.files(), path.path());
    match files.file_type(path) {
        // Opening a pipe would wait for its reader.
        Ok(there) if there.is_fifo() || there.is_dir() => {
            Err(at(path)(io::Error::new(InvalidInput, "it is not a regular file")))
        }
        Ok(there) if there.is_file() && !overwrites => Ok(()),
        Ok(_) => files.open_to_write(path).map(drop).map_err(at(path)),
        Err(_) => Ok(()),
    }
}

/// Checks that files can be created in the directory of `path`, up to the first path component with a timestamp;
/// creates this directory.
///
/// # Errors
/// If the directory or a file in it cannot be created.
pub fn try_directory(path: &WrittenPath) -> Result<(), BlockError> {
    let start = path.split(PLACEHOLDER).next().unwrap_or_default();
    let (files, start) = (path.files(), PathBuf::from(format!("{start}x")));
    create_directory_of(files, &start)?;
    let directory = start.parent().filter(|directory| !directory.as_os_str().is_empty());
    // A unique name, because several sinks may check the same directory at once.
    let named = tempfile::Builder::new();
    let tried = named.make_in(directory.unwrap_or(Path::new(".")), |path| files.create_new(path));
    let tried = tried.and_then(|tried| Ok(tried.into_temp_path().keep()?));
    tried.and_then(|tried| files.remove_file(&tried)).map_err(at(path.path()))
}

/// Reserves the name `path` for a new recording; `false` if another recording has the name. No other
/// program can reserve the name at the same time.
fn claim(files: &Files, path: &Path) -> Result<bool, BlockError> {
    let taken = |made: io::Result<()>, name: &Path| match made {
        Err(error) if error.kind() == AlreadyExists => Ok(false),
        made => made.map(|()| true).map_err(at(name)),
    };
    match files.file_type(path) {
        Ok(there) if there.is_file() => return Ok(false),
        // A device or pipe is written to as it is.
        Ok(_) => return Ok(true),
        Err(_) => {}
    }
    if !is_archive(path) {
        return taken(files.create_new(path).map(drop), path);
    }
    let parts = parts_of(path);
    if !taken(files.make_directory(&parts), &parts)? {
        return Ok(false);
    }
    // A recording finished since the check above, or a link, has the name.
    if files.is_taken(path) {
        let _ = files.remove_directory(&parts);
        return Ok(false);
    }
    Ok(true)
}

/// Releases the reserved name `path`.
fn release(files: &Files, path: &Path) {
    if is_archive(path) {
        let _ = files.remove_directory(&parts_of(path));
    } else if files.file_type(path).is_ok_and(FileType::is_file) {
        let _ = files.remove_file(path);
    }
}

fn is_archive(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "npz")
}

/// Returns the directory of the arrays of the archive at `path` until it is assembled.
fn parts_of(path: &Path) -> PathBuf {
    PathBuf::from(format!("{}.parts", path.display()))
}

fn create_directory_of(files: &Files, path: &Path) -> Result<(), BlockError> {
    files.make_directories_to(path).map_err(at(path.parent().unwrap_or(path)))
}

impl RecordingWriter {
    /// Creates a recording at `path`, which ends in `.npy` or `.npz`. If another recording has that name, the first
    /// free one of `x_2.npz`, `x_3.npz`, ... is used.
    ///
    /// # Errors
    /// If a file cannot be created, or if all these names are taken.
    pub fn create_new(
        path: &WrittenPath,
        port: &PortType,
        side: SideFile,
    ) -> Result<Self, BlockError> {
        let (files, path) = (path.files(), path.path());
        create_directory_of(files, path)?;
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        let extension = path.extension().unwrap_or_default().to_string_lossy();
        let numbered = |n| path.with_file_name(format!("{stem}_{n}.{extension}"));
        for name in [path.to_owned()].into_iter().chain((2..=MOST_NAMESAKES).map(numbered)) {
            if claim(files, &name)? {
                // Released after an error, so that the next try uses this name again.
                let created = Self::begin(files, name.clone(), port, side);
                return created.inspect_err(|_| release(files, &name));
            }
        }
        let path = path.display();
        Err(BlockError::new(format!("there are {MOST_NAMESAKES} recordings named {path} already")))
    }

    /// Creates a recording at `path`, which ends in `.npy` or `.npz`; overwrites one of another process. One of this
    /// process stays, as in [`create_new`](Self::create_new).
    ///
    /// # Errors
    /// If a file cannot be created.
    pub fn create(path: &WrittenPath, port: &PortType, side: SideFile) -> Result<Self, BlockError> {
        let (files, name) = (path.files(), path.path());
        // The arrays of an archive that is not assembled yet.
        let parts = is_archive(name).then(|| parts_of(name));
        let data = array_path(name, parts.as_deref(), "data");
        if files.is_recorded(name) || files.is_recorded(&data) {
            return Self::create_new(path, port, side);
        }
        create_directory_of(files, name)?;
        Self::begin(files, name.to_owned(), port, side)
    }

    fn begin(
        files: &Files,
        path: PathBuf,
        port: &PortType,
        side: SideFile,
    ) -> Result<Self, BlockError> {
        let parts = is_archive(&path).then(|| parts_of(&path));
        if let Some(parts) = &parts {
            create_directory_of(files, &parts.join("x"))?;
            // An archive from an earlier run could be mistaken for this one.
            match files.remove_file(&path) {
                Err(error) if error.kind() != NotFound => return Err(at(&path)(error)),
                _ => {}
            }
        }
        let create = |name: &str, descr, shape: Vec<usize>, bytes| {
            let file = array_path(&path, parts.as_deref(), name);
            ArrayWriter::create(files, &file, descr, shape, bytes).map_err(at(&file))
        };
        let number = |name: &str| create(name, "<u8", vec![], size_of::<u64>());
        let units = port.validity.axes.iter().map(|axis| axis.len).collect();
        let data =
            create("data", npy::layout(port.dtype).0, npy::frame_shape(port), port.frame_bytes())?;
        let (sequence, timestamp) = (number("sequence")?, number("timestamp")?);
        let config_id = number("config_id")?;
        let validity_bytes = port.validity.units() * size_of::<u32>();
        let validity = create("validity", "<u4", units, validity_bytes)?;
        let checksum = create("checksum", "<u4", vec![], size_of::<u32>())?;
        let mut recording = Self {
            path,
            files: files.clone(),
            parts,
            data,
            sequence,
            timestamp,
            config_id,
            validity,
            checksum,
            annotations: Vec::new(),
            row: Vec::new(),
            side,
            side_written: Instant::now(),
        };
        for name in ["data", "sequence", "timestamp", "config_id", "validity", "checksum"] {
            recording.name_array(name);
        }
        recording.write_side_file()?;
        Ok(recording)
    }

    /// Path of the recording: of its data array or its archive.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Number of frames completely on disk.
    #[must_use]
    pub fn frames(&self) -> u64 {
        self.side.frames
    }

    /// Returns the files of the recording after it is closed.
    #[must_use]
    pub fn files(&self) -> Vec<PathBuf> {
        let side = PathBuf::from(format!("{}.json", self.path.display()));
        if self.parts.is_some() {
            return vec![self.path.clone(), side];
        }
        let arrays = self.side.arrays.values().map(|name| self.path.with_file_name(name));
        arrays.chain([side]).collect()
    }

    /// Whether the arrays are assembled into an archive when the recording is closed.
    #[must_use]
    pub fn is_archive(&self) -> bool {
        self.parts.is_some()
    }

    fn name_array(&mut self, name: &str) {
        let file = array_path(&self.path, self.parts.as_deref(), name);
        let file_name = file.file_name().map(|name| name.to_string_lossy().into_owned());
        self.side.arrays.insert(name.to_owned(), file_name.unwrap_or_default());
    }

    /// Appends a frame to all arrays; `payload` is its data in bytes.
    ///
    /// # Errors
    /// If a file cannot be written. No array has a row of this frame then.
    pub fn append(&mut self, header: &Header, payload: &[u8]) -> Result<(), BlockError> {
        let appended = self.append_rows(header, payload);
        if appended.is_err() {
            let arrays = [
                &mut self.data,
                &mut self.sequence,
                &mut self.timestamp,
                &mut self.config_id,
                &mut self.validity,
                &mut self.checksum,
            ];
            let annotations = self.annotations.iter_mut().map(|(_, writer)| writer);
            for writer in arrays.into_iter().chain(annotations) {
                writer.shorten(self.side.frames);
            }
        }
        appended
    }

    fn append_rows(&mut self, header: &Header, payload: &[u8]) -> Result<(), BlockError> {
        let time = header.timestamp;
        let mut checksum = Checksum::default();
        let numbers = [
            (&mut self.sequence, header.sequence),
            (&mut self.timestamp, time),
            (&mut self.config_id, header.config_id),
        ];
        for (writer, number) in numbers {
            put(writer, &number.to_le_bytes(), &mut checksum)?;
        }
        self.row.clear();
        self.row.extend(header.validity.iter().flat_map(|count| count.to_le_bytes()));
        put(&mut self.validity, &self.row, &mut checksum)?;
        self.append_annotations(header, &mut checksum)?;
        checksum.add(payload);
        let sum = checksum.value().to_le_bytes();
        self.checksum.append(&sum).map_err(at(self.checksum.path()))?;
        // Last, so that every frame in the data array has its row in the others.
        self.data.append(payload).map_err(at(self.data.path()))?;
        if self.side.frames == 0 {
            self.side.first_timestamp = Some(time);
            self.side.start_unix_seconds = self.side.clock.unix_seconds(time);
        }
        self.side.frames += 1;
        if self.side_written.elapsed() > SIDE_FILE_INTERVAL {
            self.write_side_file()?;
        }
        Ok(())
    }

    fn append_annotations(
        &mut self,
        header: &Header,
        checksum: &mut Checksum,
    ) -> Result<(), BlockError> {
        let all = &header.annotations;
        for (name, values) in all.iter() {
            if self.annotations.iter().any(|(known, _)| *known == name) {
                continue;
            }
            let file = array_path(&self.path, self.parts.as_deref(), name);
            let bytes = size_of_val(values);
            let lens = vec![values.len()];
            let writer =
                ArrayWriter::create(&self.files, &file, "<f8", lens, bytes).map_err(at(&file))?;
            self.annotations.push((name, writer));
            self.annotations.sort_by_key(|(name, _)| *name);
            self.name_array(name);
        }
        for (name, writer) in &mut self.annotations {
            let values = all.get(name);
            let row_bytes = writer.row_bytes();
            // Frames before the first one with this annotation, and those without it, get rows of NaN.
            while writer.rows() < self.side.frames + 1 {
                self.row.clear();
                let is_now = writer.rows() == self.side.frames;
                if is_now {
                    self.row.extend(values.iter().flat_map(|value| value.to_le_bytes()));
                    self.row.truncate(row_bytes);
                }
                while self.row.len() < row_bytes {
                    self.row.extend(f64::NAN.to_le_bytes());
                }
                // A row of NaN means that the frame has no such annotation.
                if is_now && !values.iter().all(|value| value.is_nan()) {
                    checksum.add(&self.row);
                }
                writer.append(&self.row).map_err(at(writer.path()))?;
            }
        }
        Ok(())
    }

    /// Replaces the side file atomically, so that a reader never sees an incomplete one.
    fn write_side_file(&mut self) -> Result<(), BlockError> {
        let path = PathBuf::from(format!("{}.json", self.path.display()));
        let draft = PathBuf::from(format!("{}.json.new", self.path.display()));
        let mut file = self.files.create(&draft).map_err(at(&draft))?;
        file.write_all(self.description()?.as_bytes()).map_err(at(&draft))?;
        self.files.rename(&draft, &path).map_err(at(&path))?;
        self.side_written = Instant::now();
        Ok(())
    }

    fn description(&self) -> Result<String, BlockError> {
        let text = serde_json::to_string_pretty(&self.side)
            .map_err(|error| BlockError::new("cannot describe the recording").because(error))?;
        Ok(text + "\n")
    }

    /// Closes all files; `complete` is whether the stream had ended.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn close(mut self, complete: bool) -> Result<(), BlockError> {
        let annotations = self.annotations.iter().map(|(_, writer)| writer);
        let numbers = [&self.sequence, &self.timestamp, &self.config_id, &self.checksum];
        for writer in [&self.data, &self.validity].into_iter().chain(numbers).chain(annotations) {
            match writer.sync() {
                // Pipes and devices do not support `sync`.
                Err(error) if !matches!(error.kind(), InvalidInput | Unsupported) => {
                    return Err(at(writer.path())(error));
                }
                _ => {}
            }
        }
        self.side.complete = complete;
        if let Some(parts) = self.parts.take() {
            if let Err(error) = self.zip(&parts) {
                // An incomplete archive would hide the arrays; an error of its removal does not matter.
                let _ = self.files.remove_file(&self.path);
                let message = format!("{error}; the arrays are still in {}", parts.display());
                return Err(BlockError::new(message));
            }
            self.files.remove_directory(&parts).map_err(at(&parts))?;
        }
        self.write_side_file()
    }

    /// Assembles the arrays into the `.npz`, the payloads last: in a truncated file, the frames before the cut are
    /// complete.
    fn zip(&self, parts: &Path) -> Result<(), BlockError> {
        let path = &self.path;
        let file = self.files.create(path).map_err(at(path))?;
        files::note_recorded(&file).map_err(at(path))?;
        let mut zip = ZipWriter::new(FailsOnce { file: &file, has_failed: false });
        let options = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
        zip.start_file(DESCRIPTION, options).map_err(|error| at(path)(error.into()))?;
        zip.write_all(self.description()?.as_bytes()).map_err(at(path))?;
        let data = self.side.arrays.get("data");
        let others = self.side.arrays.values().filter(|name| Some(*name) != data);
        for file_name in others.chain(data) {
            let part = parts.join(file_name);
            let mut from = self.files.open(&part).map_err(at(&part))?;
            let len = from.metadata().map_err(at(&part))?.len();
            let options = options.large_file(len >= u64::from(u32::MAX));
            zip.start_file(file_name, options).map_err(|error| at(path)(error.into()))?;
            io::copy(&mut from, &mut zip).map_err(at(path))?;
        }
        zip.finish().map_err(|error| at(path)(error.into()))?;
        file.sync_all().map_err(at(path))
    }
}

/// A file that ignores writes after the first failed one: an archive tries to finish itself when dropped, and prints
/// every error.
struct FailsOnce<'a> {
    file: &'a File,
    has_failed: bool,
}

impl Write for FailsOnce<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.has_failed {
            return Ok(bytes.len());
        }
        let written = self.file.write(bytes);
        self.has_failed = written.as_ref().is_err_and(|error| error.kind() != Interrupted);
        written
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for FailsOnce<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}

/// Returns the path of the array `name` of the recording at `path`.
fn array_path(path: &Path, parts: Option<&Path>, name: &str) -> PathBuf {
    match parts {
        Some(parts) => parts.join(format!("{name}.npy")),
        None if name == "data" => path.to_owned(),
        None => path.with_extension(format!("{name}.npy")),
    }
}
