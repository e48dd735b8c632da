//! Visibilities that a flowgraph wrote with `file_sink`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Header and data of a `.npy` file.
fn array(path: &Path) -> (String, Vec<u8>) {
    let bytes = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert_eq!(&bytes[..6], b"\x93NUMPY");
    let start = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    (String::from_utf8_lossy(&bytes[10..start]).into_owned(), bytes[start..].to_vec())
}

/// Validity and data of a dump.
pub type Dump = (Vec<u8>, Vec<u8>);

/// The dumps in `folder`, by timestamp.
pub fn dumps(folder: &Path) -> BTreeMap<u64, Dump> {
    let (_, timestamps) = array(&folder.join("visibilities.timestamp.npy"));
    let (_, validity) = array(&folder.join("visibilities.validity.npy"));
    let (header, data) = array(&folder.join("visibilities.npy"));
    assert!(header.contains("<i4"), "{header}");
    let timestamps: Vec<u64> =
        timestamps.chunks(8).map(|row| u64::from_le_bytes(row.try_into().unwrap())).collect();
    let count = timestamps.len();
    assert!(count > 0, "no dump was written");
    let (validity_row, data_row) = (validity.len() / count, data.len() / count);
    let rows = validity.chunks(validity_row).zip(data.chunks(data_row));
    let rows = rows.map(|(validity, data)| (validity.to_vec(), data.to_vec()));
    timestamps.into_iter().zip(rows).collect()
}
