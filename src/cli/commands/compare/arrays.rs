//! Comparison of two NumPy arrays, value by value.

use super::report::{Report, Side};
use crate::failure::Failure;
use fxgraph::Dtype;
use fxgraph::difference::{Difference, StreamDifference};
use fxgraph::elements::value;
use fxgraph::files::open_regular;
use fxgraph::npy;
use fxgraph::recording::array::Header;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Values per read.
const VALUES: u64 = 1 << 18;

/// Whether `path` is a plain array, without the side file of a recording.
pub fn is_plain(path: &Path) -> bool {
    !Path::new(&format!("{}.json", path.display())).exists()
}

/// NumPy array in a file.
struct Array<'a> {
    path: &'a Path,
    file: File,
    header: Header,
    dtype: Dtype,
}

impl<'a> Array<'a> {
    fn open(path: &'a Path) -> Result<Self, Failure> {
        let cannot = |error| Failure::because(&format!("cannot read `{}`", path.display()), &error);
        let file = open_regular(path).map_err(cannot)?;
        let reject = |why: String| Failure::failed(format!("`{}`: {why}", path.display()));
        let header = Header::read(&file, 0).map_err(reject)?;
        let dtype = npy::dtype(&header.descr).map_err(reject)?;
        let bytes = file.metadata().map_err(cannot)?.len();
        let array = Self { path, file, header, dtype };
        let end = array.values().and_then(|values| array.place(values));
        if end.is_none_or(|end| end > bytes) {
            return Err(reject(format!("the file is too short for {} values", array.shape())));
        }
        Ok(array)
    }

    fn shape(&self) -> String {
        let lens: Vec<String> = self.header.shape.iter().map(u64::to_string).collect();
        if lens.is_empty() { "1".to_owned() } else { lens.join(" x ") }
    }

    /// Number of values; `None` on overflow.
    fn values(&self) -> Option<u64> {
        self.header.shape.iter().try_fold(1u64, |all, len| all.checked_mul(*len))
    }

    /// Offset of value `index` in the file, in bytes.
    fn place(&self, index: u64) -> Option<u64> {
        let bytes = index.checked_mul(self.dtype.bytes(1) as u64)?;
        self.header.data_offset.checked_add(bytes)
    }

    /// Reads the bytes of `count` values from `start` on.
    fn read(&self, start: u64, count: u64) -> Result<Vec<u8>, Failure> {
        let mut bytes = vec![0; self.dtype.bytes(count as usize)];
        // The length of the file was checked when it was opened.
        let place = self.place(start).unwrap_or(u64::MAX);
        self.file.read_exact_at(&mut bytes, place).map_err(|error| {
            Failure::because(&format!("cannot read `{}`", self.path.display()), &error)
        })?;
        Ok(bytes)
    }

    fn side(&self) -> Side {
        let (path, descr) = (self.path.display(), &self.header.descr);
        Side { name: format!("{path}: {} values `{descr}`", self.shape()), ..Side::default() }
    }

    /// Indices of value `number`, one for each axis.
    fn index(&self, mut number: u64) -> Vec<u64> {
        let mut index: Vec<u64> = Vec::new();
        for len in self.header.shape.iter().rev() {
            index.push(number % len);
            number /= len;
        }
        index.reverse();
        index
    }
}

/// Compares two arrays of the same shape; their dtypes may differ.
pub fn arrays(files: [&Path; 2], stops_at_difference: bool) -> Result<Report, Failure> {
    let (a, b) = (Array::open(files[0])?, Array::open(files[1])?);
    if a.header.shape != b.header.shape {
        let shapes = [&a, &b].map(|one| format!("`{}` has {}", one.path.display(), one.shape()));
        let shapes = shapes.join(", ");
        return Err(Failure::failed(format!("the shapes of the arrays must be equal: {shapes}")));
    }
    let values = a.values().unwrap_or(0);
    let (mut found, mut first, mut start) = (Difference::default(), None, 0);
    while start < values && !(stops_at_difference && first.is_some()) {
        let count = VALUES.min(values - start);
        let (ours, theirs) = (a.read(start, count)?, b.read(start, count)?);
        for n in 0..count as usize {
            found.see(value(&ours, a.dtype, n), value(&theirs, b.dtype, n));
            if found.values_different > 0 && first.is_none() {
                first = Some(start + n as u64);
                if stops_at_difference {
                    break;
                }
            }
        }
        start += count;
    }
    Ok(Report {
        a: a.side(),
        b: b.side(),
        difference: StreamDifference { values: found, ..StreamDifference::default() },
        first_difference_index: first.map(|first| a.index(first)),
        ..Report::default()
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::fs;

    fn written(directory: &Path, name: &str, descr: &str, shape: &[u64], data: &[u8]) -> String {
        let path = directory.join(name);
        fs::write(&path, [&npy::header(descr, shape, 0)[..], data].concat()).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn compared(a: &str, b: &str, stops: bool) -> Result<Report, String> {
        arrays([a, b].map(Path::new), stops).map_err(|failure| format!("{failure:?}"))
    }

    #[test]
    fn arrays_of_different_dtypes_are_compared() {
        let directory = tempfile::tempdir().unwrap();
        let integers = [1_i16, -2, 300, 4, 5, 6].iter().flat_map(|n| n.to_le_bytes());
        let a = integers.collect::<Vec<u8>>();
        let floats = [1.0_f32, -2.0, 300.0, 4.0, 8.0, 2.0].iter().flat_map(|n| n.to_le_bytes());
        let b = floats.collect::<Vec<u8>>();
        let a = written(directory.path(), "a.npy", "<i2", &[2, 3], &a);
        let b = written(directory.path(), "b.npy", "<f4", &[2, 3], &b);
        let report = compared(&a, &b, false).unwrap();
        let values = report.difference.values;
        assert_eq!((values.values, values.values_different), (6, 2));
        assert_eq!((values.max, values.squares), (4.0, 25.0));
        assert_eq!(report.first_difference_index, Some(vec![1, 1]));
        assert_eq!(compared(&a, &b, true).unwrap().difference.values.values, 5);
        let same = compared(&a, &a, true).unwrap();
        assert_eq!((same.difference.values.values, same.first_difference_index), (6, None));
    }

    #[test]
    fn arrays_rejects_other_shapes_short_files_and_text() {
        let directory = tempfile::tempdir().unwrap();
        let a = written(directory.path(), "a.npy", "<f4", &[2], &[0; 8]);
        let longer = written(directory.path(), "longer.npy", "<f4", &[1, 2], &[0; 8]);
        let rejected = |b: &str| compared(&a, b, false).unwrap_err();
        assert!(rejected(&longer).contains("shapes of the arrays must be equal"));
        let cut = written(directory.path(), "cut.npy", "<f4", &[2], &[0; 7]);
        assert!(rejected(&cut).contains("too short for 2 values"));
        let huge = written(directory.path(), "huge.npy", "<f4", &[u64::MAX, 2], &[0; 8]);
        assert!(rejected(&huge).contains("too short"));
        let text = written(directory.path(), "text.npy", "<U4", &[2], &[0; 32]);
        assert!(rejected(&text).contains("type `<U4`"));
        assert!(rejected("nowhere.npy").contains("cannot read `nowhere.npy`"));
    }
}
