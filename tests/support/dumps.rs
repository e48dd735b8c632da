//! Visibilities that a flowgraph wrote with `file_sink`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Type and rows of a `.npy` file. Only what its header counts: a program that was killed leaves the start of a row.
fn rows(path: &Path) -> (String, Vec<Vec<u8>>) {
    let bytes = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert_eq!(&bytes[..6], b"\x93NUMPY");
    let start = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    let header = String::from_utf8_lossy(&bytes[10..start]).into_owned();
    let between = |from: &str, to: &str| {
        let rest = &header[header.find(from).unwrap() + from.len()..];
        rest[..rest.find(to).unwrap()].to_owned()
    };
    let kind = between("'descr': '", "'");
    let shape = between("'shape': (", ")");
    let shape: Vec<usize> = shape.split(',').filter_map(|axis| axis.trim().parse().ok()).collect();
    let item: usize = kind[2..].parse().unwrap();
    let row = item * shape[1..].iter().product::<usize>();
    (kind, bytes[start..].chunks_exact(row).take(shape[0]).map(<[u8]>::to_vec).collect())
}

/// Validity and data of a dump.
pub type Dump = (Vec<u8>, Vec<u8>);

/// The dumps that `NAME.npy` and its arrays in `directory` have, by timestamp.
pub fn dumps(directory: &Path, name: &str) -> BTreeMap<u64, Dump> {
    let (_, timestamps) = rows(&directory.join(format!("{name}.timestamp.npy")));
    let (_, validity) = rows(&directory.join(format!("{name}.validity.npy")));
    let (kind, data) = rows(&directory.join(format!("{name}.npy")));
    assert_eq!(kind, "<i4");
    assert!(!data.is_empty(), "no dump was written");
    let timestamps = timestamps.into_iter().map(|row| u64::from_le_bytes(row.try_into().unwrap()));
    timestamps.zip(validity.into_iter().zip(data)).collect()
}
