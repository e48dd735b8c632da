//! Arrangement of visibilities, and files without an HDF5 library: the tests of the program read them with h5py and
//! pyuvdata.
#![allow(clippy::unwrap_used)]

use super::arrange::{Chunk, Counts, Flagged, Order, Part, Visibilities};
use super::hdf5::Values;
use super::*;
use std::fs::OpenOptions;
use std::io::Read;
use std::path::Path;

/// A description of `antennas` antennas on a line to the east of a telescope on the equator.
fn description(antennas: usize, channels: usize) -> Description {
    let antenna = |n: usize| Antenna {
        number: n as u32 + 1,
        name: format!("m{n:03}"),
        position_metres: [0.0, 10.0 * n as f64, 0.0],
        diameter_metres: Some(13.5),
    };
    Description {
        telescope: Telescope {
            name: "test".to_owned(),
            instrument: "fxgraph".to_owned(),
            latitude_degrees: 0.0,
            longitude_degrees: 0.0,
            height_metres: 0.0,
            mount: "fixed".to_owned(),
        },
        antennas: (0..antennas).map(antenna).collect(),
        baselines: (0..antennas).flat_map(|a| (a..antennas).map(move |b| (a, b))).collect(),
        feeds: vec![Feed::X, Feed::Y],
        feed_angles: vec![std::f64::consts::FRAC_PI_2, 0.0],
        frequencies_hz: (0..channels).map(|c| 1e9 + 1e6 * c as f64).collect(),
        channel_width_hz: 1e6,
        integration_seconds: 0.5,
        phase_centre: PhaseCentre::Unprojected,
        has_sidereal_time: false,
        history: "a test".to_owned(),
        keywords: vec![("FXCONFIG", Values::text("abc"))],
        texts: vec![("flowgraph", Values::text("blocks: {}\n"))],
    }
}

fn create(path: &Path, description: &Description) -> Writer {
    let file = OpenOptions::new().write(true).create_new(true).open(path).unwrap();
    Writer::create(file, description).unwrap()
}

fn write(writer: &mut Writer) {
    let shape = writer.shape();
    let mut chunk = Chunk::new(&shape);
    chunk.begin(0);
    (0..shape.chunks()).for_each(|number| writer.chunk(number, &chunk).unwrap());
    let time = DumpTime {
        julian_date: 2_460_000.5 + writer.dumps() as f64 / 86400.0,
        sidereal_time: 0.0,
        uvw_metres: &vec![[0.0; 3]; shape.baselines],
        phase_centre: [0.0; 3],
        config_id: 7,
    };
    writer.dump(&time).unwrap();
}

/// Value number `n` of a chunk: real and imaginary part, flag, number of samples.
fn value(chunk: &Chunk, n: usize) -> (f32, f32, u8, f32) {
    let float =
        |bytes: &[u8], n: usize| f32::from_le_bytes(bytes[4 * n..][..4].try_into().unwrap());
    let [re, im] = [2 * n, 2 * n + 1].map(|n| float(&chunk.visibilities, n));
    (re, im, chunk.flags[n], float(&chunk.samples, n))
}

const ORDER: [usize; 4] = [0, 3, 2, 1];

fn order(rows: Vec<usize>, samples: Option<f64>) -> Order {
    Order { rows, polarisations: ORDER.to_vec(), samples }
}

#[test]
fn chunk_has_conjugated_means_in_the_order_of_the_file() {
    let shape = Shape { baselines: 3, products: 4, channels: 2, chunk_channels: 2 };
    let values: Vec<i32> = (0..2 * 2 * 3 * 4).collect();
    let part = Part {
        visibilities: Visibilities::Integers(&values),
        counts: &[10, 5, 10],
        places: Counts::new(&[(1, 3)], [2, 3, 4]).unwrap(),
        full: 10,
        is_inverted: false,
    };
    let mut chunk = Chunk::new(&shape);
    chunk.begin(shape.chunk_channels);
    let rows = vec![0, 2, 1];
    let flagged = chunk.fill(&part, &order(rows.clone(), Some(100.0)), 0..2, 0);
    assert_eq!(flagged, Flagged::default());
    assert!(!chunk.lacks_nothing());
    for channel in 0..2 {
        for (baseline, row) in rows.iter().enumerate() {
            for (product, polarisation) in ORDER.into_iter().enumerate() {
                let re = 2 * ((channel * 3 + baseline) * 4 + product);
                let samples: f32 = if baseline == 1 { 0.5 } else { 1.0 };
                let divisor = 100.0 * samples;
                let expected = (re as f32 / divisor, -(re as f32 + 1.0) / divisor, 0, samples);
                let place = (row * 2 + channel) * 4 + polarisation;
                assert_eq!(value(&chunk, place), expected);
            }
        }
    }
    // Sums, as they are.
    chunk.begin(1);
    chunk.fill(&part, &order(rows, None), 1..2, 0);
    assert_eq!(value(&chunk, 0), (24.0, -25.0, 0, 1.0));
}

#[test]
fn counts_of_channels_and_products_flag_only_theirs() {
    let lens = [4, 1, 4];
    let shape = Shape { baselines: 1, products: 4, channels: 4, chunk_channels: 4 };
    let values = vec![8.0_f32; 2 * 4 * 4];
    // Two blocks of two channels; four products.
    let axes: [&[(usize, usize)]; 3] = [&[(0, 2)], &[(0, 2), (2, 4)], &[(2, 4), (0, 2)]];
    let counts: [&[u32]; 3] = [&[4, 0], &[4, 4, 4, 4, 0, 4, 2, 4], &[4, 0, 4, 4, 4, 2, 4, 4]];
    for (axes, counts) in axes.into_iter().zip(counts) {
        let part = Part {
            visibilities: Visibilities::Floats(&values),
            counts,
            places: Counts::new(axes, lens).unwrap(),
            full: 4,
            is_inverted: false,
        };
        let mut chunk = Chunk::new(&shape);
        chunk.begin(shape.chunk_channels);
        let flagged = chunk.fill(&part, &order(vec![0], Some(2.0)), 0..4, 0);
        let is_of_blocks = axes.len() == 1;
        assert_eq!(flagged.missing, if is_of_blocks { 8 } else { 2 });
        for channel in 0..4 {
            for (product, polarisation) in ORDER.into_iter().enumerate() {
                let found = value(&chunk, channel * 4 + polarisation);
                let expected = match (channel >= 2, product) {
                    (true, _) if is_of_blocks => (0.0, 0.0, 1, 0.0),
                    (true, 0) if !is_of_blocks => (0.0, 0.0, 1, 0.0),
                    (true, 2) if !is_of_blocks => (8.0, -8.0, 0, 0.5),
                    _ => (4.0, -4.0, 0, 1.0),
                };
                assert_eq!(found, expected, "{axes:?} {channel} {product}");
            }
        }
    }
}

#[test]
fn counts_reject_axes_that_do_not_divide_the_visibilities() {
    let lens = [6, 3, 4];
    assert!(Counts::new(&[], lens).is_some());
    assert!(Counts::new(&[(0, 3), (1, 3)], lens).is_some());
    for axes in [&[(0, 4)][..], &[(0, 0)], &[(3, 1)], &[(1, 3), (1, 3)], &[(1, 6)]] {
        assert_eq!(Counts::new(axes, lens), None, "{axes:?}");
    }
}

#[test]
fn values_that_are_not_finite_are_flagged() {
    let shape = Shape { baselines: 1, products: 4, channels: 1, chunk_channels: 1 };
    let values = [f32::NAN, 0.0, 1.0, f32::INFINITY, 1.0, 2.0, f32::MAX, 0.0];
    let part = Part {
        visibilities: Visibilities::Floats(&values),
        counts: &[1],
        places: Counts::new(&[], [1, 1, 4]).unwrap(),
        full: 1,
        is_inverted: false,
    };
    let mut chunk = Chunk::new(&shape);
    chunk.begin(shape.chunk_channels);
    let flagged = chunk.fill(&part, &order(vec![0], Some(0.5)), 0..1, 0);
    assert_eq!(flagged, Flagged { missing: 0, not_finite: 3 });
    assert_eq!(value(&chunk, 2), (2.0, -4.0, 0, 1.0));
    assert_eq!(value(&chunk, 0), (0.0, 0.0, 1, 1.0));
}

#[test]
fn missing_channels_are_flagged_for_all_baselines() {
    let shape = Shape { baselines: 2, products: 4, channels: 3, chunk_channels: 3 };
    let mut chunk = Chunk::new(&shape);
    chunk.begin(0);
    assert!(chunk.lacks_nothing());
    assert_eq!(chunk.miss(1, 1), 8);
    for n in 0..24 {
        let expected = if n / 4 % 3 == 1 { (0.0, 0.0, 1, 0.0) } else { (0.0, 0.0, 0, 1.0) };
        assert_eq!(value(&chunk, n), expected);
    }
}

#[test]
fn shape_divides_large_dumps_into_chunks() {
    let shape = Shape::new(2080, 1024, 4).unwrap();
    assert!(shape.chunk_values() * 8 <= 8 << 20);
    assert!(shape.chunk_values() * 8 > 7 << 20);
    assert_eq!(Shape::new(3, 5, 4).map(|shape| shape.chunks()), Some(1));
    assert_eq!(Shape::new(1 << 27, 1, 4), None);
    assert_eq!(Shape::new(usize::MAX, 1, 4), None);
    assert_eq!(Shape::new(0, 1, 4), None);
}

#[test]
fn polarisations_are_in_the_order_of_pyuvdata() {
    let (x, y, r, l) = (Feed::X, Feed::Y, Feed::R, Feed::L);
    // Products (0, 0), (1, 0), (0, 1), (1, 1).
    let of = |feeds: &[Feed]| polarisations(feeds);
    assert_eq!(of(&[x, y]), Some((vec![-5, -6, -7, -8], vec![0, 3, 2, 1])));
    assert_eq!(of(&[y, x]), Some((vec![-5, -6, -7, -8], vec![1, 2, 3, 0])));
    assert_eq!(of(&[r, l]), Some((vec![-1, -2, -3, -4], vec![0, 3, 2, 1])));
    let single = [x, y, r, l].map(|feed| of(&[feed]));
    assert_eq!(single, [-5, -6, -1, -2].map(|number| Some((vec![number], vec![0]))));
    assert!([&[x, x][..], &[x, l], &[], &[x, y, x]].into_iter().all(|feeds| of(feeds).is_none()));
}

/// A snapshot of a file as a reader finds it that reads the superblock now and everything else later: the root group,
/// and the end of the file.
fn superblock(path: &Path) -> [u64; 2] {
    let mut bytes = [0; hdf5::SUPERBLOCK];
    File::open(path).unwrap().read_exact(&mut bytes).unwrap();
    let [extension, end, root] = [20, 28, 36].map(|place| address(&bytes, place));
    assert_eq!(hdf5::superblock(end, root, extension), bytes);
    [root, end]
}

/// The bytes before `end`, without the hole behind them.
fn contents(path: &Path, end: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    File::open(path).unwrap().take(end).read_to_end(&mut bytes).unwrap();
    bytes
}

fn address(bytes: &[u8], place: usize) -> u64 {
    u64::from_le_bytes(bytes[place..place + 8].try_into().unwrap())
}

/// Types, places and data of the messages of the object at `address`.
fn messages(bytes: &[u8], address: u64) -> Vec<(u8, Vec<u8>)> {
    let place = address as usize;
    assert_eq!(bytes[place..place + 2], [1, 0], "an object header of version 1");
    let (mut all, mut at) = (Vec::new(), place + 16);
    for _ in 0..bytes[place + 2] {
        let len = usize::from(u16::from_le_bytes([bytes[at + 2], bytes[at + 3]]));
        all.push((bytes[at], bytes[at + 8..at + 8 + len].to_vec()));
        at += 8 + len;
    }
    all
}

/// The member `name` of the group at `group`.
fn member(bytes: &[u8], group: u64, name: &str) -> u64 {
    let links = messages(bytes, group).into_iter().filter(|(kind, _)| *kind == 6);
    let mut found = links.filter(|(_, link)| link[3..].starts_with(name.as_bytes()));
    let (_, link) = found.find(|(_, link)| usize::from(link[2]) == name.len()).unwrap();
    address(&link, 3 + name.len())
}

/// Lengths of all growing arrays, and addresses of the nodes and chunks within them, for a reader of the file that ends
/// at `end` with the root group `root`; each must be before the end.
fn snapshot(bytes: &[u8], [root, end]: [u64; 2]) -> Vec<(u64, Vec<u64>)> {
    let [data, header] = ["Data", "Header"].map(|name| member(bytes, root, name));
    let names = ["visdata", "flags", "nsamples"].map(|name| (data, name));
    let times = header::TIMES.map(|(name, ..)| (header, name));
    let mut all = Vec::new();
    for (group, name) in names.into_iter().chain(times).filter(|(_, name)| *name != "lst_array") {
        let messages = messages(bytes, member(bytes, group, name));
        let of = |kind| messages.iter().find(|message| message.0 == kind).map(|(_, data)| data);
        let (space, layout) = (of(1).unwrap(), of(8).unwrap());
        let (rows, tree, rank) = (address(space, 8), address(layout, 3), usize::from(space[1]));
        let mut addresses = Vec::new();
        if tree != hdf5::UNDEFINED {
            let entry = 8 + 8 * (rank + 1) + 8;
            let mut nodes = vec![tree];
            while let Some(node) = nodes.pop() {
                assert!(node < end, "{name}: a node at {node}, beyond {end}");
                addresses.push(node);
                let at = node as usize;
                assert_eq!(bytes[at..at + 4], *b"TREE");
                let is_root = bytes[at + 5] == 1;
                for n in 0..usize::from(u16::from_le_bytes([bytes[at + 6], bytes[at + 7]])) {
                    let key = at + 24 + n * entry;
                    let child = address(bytes, key + entry - 8);
                    let is_within = address(bytes, key + 8) < rows;
                    match is_root {
                        true => nodes.push(child),
                        false if is_within => {
                            assert!(child < end, "{name}: a chunk at {child}, beyond {end}");
                            addresses.push(child);
                        }
                        false => {}
                    }
                }
            }
        }
        all.push((rows, addresses));
    }
    all
}

#[test]
fn reader_that_began_at_any_time_sees_the_dumps_of_one_commit() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.uvh5");
    let mut writer = create(&path, &description(3, 5));
    let mut readers = Vec::new();
    // More dumps than fill a node of the indices.
    for dumps in 0..300 {
        let known = superblock(&path);
        let before = snapshot(&contents(&path, known[1]), known);
        assert_eq!(before[0].0, 6 * dumps);
        readers.push((known, before));
        write(&mut writer);
        assert_eq!(superblock(&path), known, "a dump before its commit");
        let commit = writer.begin_commit().unwrap();
        assert_eq!(superblock(&path), known, "a commit that has not run");
        commit.run(false).unwrap();
    }
    assert_eq!((writer.dumps(), writer.committed()), (300, 300));
    // The hole at the end: readers ask for the size of the file before they read the superblock.
    assert!(path.metadata().unwrap().len() > writer.bytes() + (AHEAD / 2));
    writer.close().unwrap();
    let bytes = std::fs::read(&path).unwrap();
    for (known, before) in readers {
        assert_eq!(snapshot(&bytes, known), before);
    }
    let [root, end] = superblock(&path);
    assert_eq!(snapshot(&bytes, [root, end])[0].0, 1800);
    assert_eq!(path.metadata().unwrap().len(), end);
}

#[test]
fn growing_file_is_locked_for_writers_and_open_to_readers() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.uvh5");
    let writer = create(&path, &description(2, 3));
    let other = || OpenOptions::new().read(true).write(true).open(&path).unwrap();
    other().try_lock_shared().unwrap();
    assert!(matches!(other().try_lock(), Err(TryLockError::WouldBlock)));
    writer.close().unwrap();
    let locked = other();
    locked.try_lock().unwrap();
    let error = Writer::create(other(), &description(2, 3)).unwrap_err().to_string();
    assert_eq!(error, "another program has opened the file for writing");
}

#[test]
fn checksum_is_that_of_the_hdf5_library() {
    // The superblock of a file of h5py 3.16 with `libver="v108"`.
    let written = hdf5::superblock(2056, 48, hdf5::UNDEFINED);
    assert_eq!(written[44..], [0x05, 0xe9, 0xde, 0xc3]);
}

#[test]
fn writer_is_full_after_all_entries_of_its_indices() {
    let directory = tempfile::tempdir().unwrap();
    let mut writer = create(&directory.path().join("a.uvh5"), &description(1, 1));
    let mut dumps = 0;
    while !writer.is_full() {
        write(&mut writer);
        dumps += 1;
    }
    assert_eq!(dumps, 1 << 16);
    writer.close().unwrap();
}

#[test]
fn text_lists_are_filled_up_with_zeros() {
    let list = Values::texts(&["ab".to_owned(), String::new(), "c".to_owned()]);
    assert_eq!((list.bytes.as_slice(), list.shape), (&b"ab\0\0c\0"[..], vec![3]));
    assert_eq!(Values::text("").bytes, [0]);
}

/// The fields of all nodes of indices in `bytes`, by address.
fn nodes(bytes: &[u8]) -> Vec<(usize, Vec<u8>)> {
    let places = bytes.windows(4).enumerate().filter(|(_, window)| window == b"TREE");
    places.map(|(place, _)| (place, bytes[place..place + 24].to_vec())).collect()
}

#[test]
fn power_failure_before_a_commit_has_run_leaves_the_commit_before() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.uvh5");
    let mut writer = create(&path, &description(2, 3));
    // A node of each index is full within the second commit, and one within the third.
    (0..200).for_each(|_| write(&mut writer));
    writer.commit(false).unwrap();
    let mut before = contents(&path, writer.bytes());
    for dumps in [100, 300] {
        (0..dumps).for_each(|_| write(&mut writer));
        let commit = writer.begin_commit().unwrap();
        // All that the disk can have at this time: the superblock and the numbers of entries are the old ones.
        let now = contents(&path, writer.bytes());
        assert_eq!(now[..hdf5::SUPERBLOCK], before[..hdf5::SUPERBLOCK]);
        let (known, all) = (nodes(&before), nodes(&now));
        assert!(known.iter().all(|node| all.contains(node)));
        // New roots and new leaves are complete before the first sync.
        assert_eq!(all.len(), known.len() + 2 * 14);
        // The next dumps do not touch them either.
        write(&mut writer);
        let later = nodes(&contents(&path, writer.bytes()));
        assert!(known.iter().all(|node| later.contains(node)));
        commit.run(true).unwrap();
        before = contents(&path, writer.bytes());
        assert_ne!(before[..hdf5::SUPERBLOCK], now[..hdf5::SUPERBLOCK]);
        let changed = nodes(&before).iter().filter(|node| !all.contains(node)).count();
        // The leaf that was full.
        assert_eq!(changed, 14);
    }
    writer.close().unwrap();
}

#[test]
fn commit_of_a_truncated_file_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.uvh5");
    let mut writer = create(&path, &description(2, 3));
    OpenOptions::new().write(true).open(&path).unwrap().set_len(0).unwrap();
    let error = writer.commit(true).unwrap_err().to_string();
    assert_eq!(error, "the file was truncated while it was written");
}

#[test]
fn commit_of_a_removed_file_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.uvh5");
    let mut writer = create(&path, &description(2, 3));
    write(&mut writer);
    std::fs::remove_file(&path).unwrap();
    let error = writer.commit(true).unwrap_err().to_string();
    assert_eq!(error, "the file was removed while it was written");
}
