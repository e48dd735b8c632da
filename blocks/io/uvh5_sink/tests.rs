//! Diagnostics, names of files, and waiting. Contents of files are read in the tests of the program, with pyuvdata.

use super::*;
use crate::io::files::output_file::of_another_process;
use fxgraph::edge::Harness;
use fxgraph::{Axis, Band, BlockError, Clock, Dtype, Env, Next, Ports, ValidityType};
use std::path::Path;

fn port(first_channel: usize) -> PortType {
    PortType {
        dtype: Dtype::Ci32,
        axes: vec![Axis::new("channel", 4), Axis::new("baseline", 3), Axis::new("product", 4)],
        clock: Clock { sync_time: fxgraph::Time::unix(1_000_000_000), ..Clock::new(1e6, 1000) },
        band: Some(Band::signed(16, first_channel, 1e9, 1.6e6)),
        validity: ValidityType { axes: vec![Axis::new("baseline", 3)], full: 4 },
    }
}

fn sink(path: &str) -> Uvh5Sink {
    Uvh5Sink {
        files: FileParameters {
            path: path.into(),
            overwrite: false,
            frames_per_file: None,
            seconds_per_file: None,
            max_frames: None,
        },
        commit_seconds: 1.0,
        telescope: Telescope {
            name: "laboratory".to_owned(),
            latitude_degrees: 50.7,
            longitude_degrees: 7.1,
            height_metres: 60.0,
            instrument: instrument(),
            mount: Mount::Fixed,
        },
        antennas: vec![],
        antennas_enu_metres: vec![[0.0; 3], [31.0, 5.0, 0.0]],
        first_antenna_number: 0,
        feeds: vec![],
        feed_angles_degrees: vec![],
        phase_centre: None,
        earth_orientation_file: None,
        ut1_utc_seconds: None,
        normalise: true,
        wait_seconds: 0.05,
    }
}

fn overwriting(path: &str) -> Uvh5Sink {
    let mut sink = sink(path);
    sink.files.overwrite = true;
    sink
}

/// Messages of the diagnostics of a changed sink or input.
fn rejected(change: impl FnOnce(&mut Uvh5Sink, &mut Vec<PortType>)) -> String {
    let (mut sink, mut inputs) = (sink("a.uvh5"), vec![port(0), port(4)]);
    change(&mut sink, &mut inputs);
    let rejections = sink.outputs(&inputs).err().unwrap_or_default();
    rejections.iter().map(|rejection| rejection.message.as_str()).collect::<Vec<_>>().join("; ")
}

#[test]
fn invalid_parameters_are_rejected() {
    assert_eq!(rejected(|_, _| ()), "");
    type Change = fn(&mut Uvh5Sink);
    let cases: [(Change, &str); 18] = [
        (|s| s.files.path = "a.h5".into(), "`path` must be a file name ending in .uvh5"),
        (|s| s.files.path = "out/.uvh5".into(), "`path` must be a file name ending in .uvh5"),
        (|s| s.files.frames_per_file = Some(3), "must contain {timestamp} with `frames_per_file`"),
        (
            |s| s.files.seconds_per_file = Some(3.0),
            "must contain {timestamp} with `seconds_per_file`",
        ),
        (|s| s.antennas_enu_metres.clear(), "the antennas have no positions"),
        (|s| s.antennas_enu_metres.push([0.0; 3]), "the antennas of the 3 baselines, got 3"),
        (|s| s.antennas_enu_metres.truncate(1), "the antennas of the 3 baselines, got 1"),
        (|s| s.antennas_enu_metres[1][2] = f64::NAN, "must be within 10000 km, got NaN m"),
        (|s| s.antennas = s.all_antennas(), "exclude each other"),
        (|s| s.telescope.name.clear(), "the telescope must have a name"),
        (|s| s.telescope.latitude_degrees = 91.0, "`latitude_degrees` must be within +-90, got 91"),
        (|s| s.telescope.height_metres = f64::INFINITY, "`height_metres` must be within"),
        (|s| s.feeds = vec![Feed::X, Feed::L], "`feeds` must be x and y, or r and l"),
        (
            |s| s.feed_angles_degrees = vec![0.0, f64::NAN],
            "`feed_angles_degrees` must be within +-360",
        ),
        (|s| s.phase_centre = Some(centre("a", 360.0, 0.0)), "must be from 0 to 360, got 360"),
        (|s| s.phase_centre = Some(centre("", 1.0, -91.0)), "must be within +-90, got -91"),
        (|s| s.telescope.name = "Süd".to_owned(), "names in `telescope` must be printable ASCII"),
        (
            |s| s.phase_centre = Some(centre("a\n", 1.0, 1.0)),
            "must be printable ASCII, got \"a\\n\"",
        ),
    ];
    for (change, expected) in cases {
        let found = rejected(|sink, _| change(sink));
        assert!(found.contains(expected), "{expected}\n{found}");
    }
    let named = |name: &str| Antenna {
        name: Some(name.to_owned()),
        diameter_metres: Some(-1.0),
        ..Antenna::default()
    };
    let found = rejected(|sink, _| {
        sink.antennas_enu_metres.clear();
        sink.antennas = vec![named("m0"), named("m0")];
    });
    assert!(found.contains("got `m0` twice"), "{found}");
    assert!(found.contains("`diameter_metres` must be positive and finite, got -1"), "{found}");
}

#[test]
fn antenna_numbers_follow_each_other_unless_they_are_given() {
    let antennas = [None, Some(7), None].map(|number| Antenna { number, ..Antenna::default() });
    let mut sink = Uvh5Sink { antennas: antennas.into(), ..sink("a.uvh5") };
    sink.antennas_enu_metres.clear();
    assert_eq!(sink.antenna_numbers(), [0, 7, 2]);
    sink.first_antenna_number = 5;
    assert_eq!(sink.antenna_numbers(), [5, 7, 7]);
    let mut inputs = vec![port(0), port(4)];
    inputs.iter_mut().for_each(|input| input.axes[1].len = 6);
    let found = rejected(|to, of| (*to, *of) = (sink, inputs));
    assert!(found.contains("the numbers in `antennas` must differ, got 7 twice"), "{found}");
    let found = rejected(|sink, _| sink.first_antenna_number = 1_000_000);
    assert_eq!(found, "");
}

#[test]
fn antennas_of_labels_are_found_by_number_or_place() {
    let labelled = |labels: &[&str]| {
        let mut input = port(0);
        input.axes[1] = Axis::labelled("baseline", labels.iter().copied());
        input.validity.axes[0].len = labels.len();
        input
    };
    let antenna = |number| Antenna { number: Some(number), ..Antenna::default() };
    let mut numbered = Uvh5Sink { antennas: [9, 4, 7].map(antenna).into(), ..sink("a.uvh5") };
    numbered.antennas_enu_metres.clear();
    let baselines = |sink: &Uvh5Sink, labels: &[&str]| {
        let found = sink.ports(&[labelled(labels)]);
        found
            .map(|(layout, _)| layout.baselines)
            .map_err(|rejections| rejections[0].message.clone())
    };
    // Antenna 7 has no data.
    assert_eq!(baselines(&numbered, &["4-4", "4-9", "9-9"]).unwrap(), [(1, 1), (1, 0), (0, 0)]);
    let missing = baselines(&numbered, &["4-5"]).unwrap_err();
    assert_eq!(missing, "`antennas` must have antenna 5 of the input");
    // Without numbers the labels are places.
    assert_eq!(baselines(&sink("a.uvh5"), &["0-1", "1-1"]).unwrap(), [(0, 1), (1, 1)]);
    let missing = baselines(&sink("a.uvh5"), &["0-2"]).unwrap_err();
    assert_eq!(missing, "`antennas_enu_metres` must have antenna 2 of the input");
}

#[test]
fn one_polarisation_has_one_feed() {
    let one = |feeds: &[Feed], angles: &[f64]| {
        let mut input = port(0);
        input.axes[2].len = 1;
        let (feeds, feed_angles_degrees) = (feeds.to_vec(), angles.to_vec());
        let sink = Uvh5Sink { feeds, feed_angles_degrees, ..sink("a.uvh5") };
        let found = sink.outputs(&[input]).map_err(|rejections| rejections[0].message.clone());
        found.map(|_| (sink.feeds(1), sink.feed_angles_degrees(&sink.feeds(1))))
    };
    assert_eq!(one(&[], &[]).unwrap(), (vec![Feed::X], vec![90.0]));
    assert_eq!(one(&[Feed::Y], &[]).unwrap(), (vec![Feed::Y], vec![0.0]));
    assert_eq!(one(&[Feed::L], &[45.0]).unwrap(), (vec![Feed::L], vec![45.0]));
    let rejected = one(&[Feed::X, Feed::Y], &[]).unwrap_err();
    assert_eq!(rejected, "`feeds` must have an entry for each polarisation of the input, 1, got 2");
    let rejected = one(&[Feed::X], &[90.0, 0.0]).unwrap_err();
    assert!(rejected.starts_with("`feed_angles_degrees` must have an entry"), "{rejected}");
    let two = sink("a.uvh5");
    assert_eq!(two.feed_angles_degrees(&[Feed::Y, Feed::X]), [0.0, 90.0]);
}

fn centre(name: &str, right_ascension_degrees: f64, declination_degrees: f64) -> PhaseCentre {
    PhaseCentre { name: name.to_owned(), right_ascension_degrees, declination_degrees }
}

#[test]
fn inputs_that_do_not_fit_are_rejected() {
    type Change = fn(&mut Vec<PortType>);
    let cases: [(Change, &str); 13] = [
        (|p| p[1].validity.axes.push(Axis::new("mean", 1)), "must be sums, got means"),
        (|p| p[0].dtype = Dtype::Ci8, "the input must be ci32 or cf32, got ci8"),
        (|p| p[0].axes.swap(0, 1), "the input must be visibilities"),
        (|p| p[0].axes[2].len = 2, "the input must be visibilities"),
        (|p| p[1].axes[2].len = 1, "input 1 has other baselines, dumps or another band"),
        (|p| p[0].axes[1].len = 4, "the baselines must be all pairs of antennas"),
        (|p| p[0].band = None, "the input has no band, so its frequencies are not known"),
        (|p| p[0].band.as_mut().unwrap().bandwidth_hz = 0.0, "the width of a channel must be"),
        (|p| p[0].validity.axes[0].len = 2, "the axes of the validity must be among"),
        (|p| p[0].validity.axes.push(Axis::new("heap", 1)), "[baseline 3][heap 1]"),
        (
            |p| p[1].clock.samples_per_frame = 7,
            "input 1 has other baselines, dumps or another band",
        ),
        (|p| p[1].band.as_mut().unwrap().centre_hz = 0.0, "input 1 has other baselines, dumps"),
        (|p| p[1] = port(3), "channel 3 of the band is in inputs 0 and 1"),
    ];
    for (change, expected) in cases {
        let found = rejected(|_, inputs| change(inputs));
        assert!(found.contains(expected), "{expected}\n{found}");
    }
    // Counts of channels, and of products.
    let axes = [Axis::new("channel", 2), Axis::new("baseline", 3), Axis::new("product", 4)];
    assert_eq!(rejected(|_, inputs| inputs[0].validity.axes = axes.to_vec()), "");
    assert_eq!(rejected(|_, inputs| inputs[0].validity.axes = vec![]), "");
}

/// A running sink of two channel blocks.
struct Bench {
    harness: Harness,
    env: Env,
}

impl Bench {
    fn new(sink: Uvh5Sink) -> Self {
        let inputs = vec![port(0), port(4)];
        let env = Env::detached("out");
        let block = sink.build(&inputs, &env).unwrap();
        let ports = Ports { inputs, outputs: vec![] };
        let mut harness = Harness::new(block, &ports, 8).unwrap();
        Harness::block_on(harness.start()).unwrap();
        Self { harness, env }
    }

    fn send(&mut self, input: usize, dump: u64) {
        assert!(self.harness.send(input, |frame| {
            frame.header_mut().timestamp = 1000 * dump;
            frame.header_mut().validity.fill(4);
            frame.as_mut_slice::<i32>().unwrap().fill(1);
        }));
    }

    /// Ends the streams; returns the counters by name.
    fn end(mut self) -> Result<impl Fn(&str) -> u64, BlockError> {
        Harness::block_on(async {
            self.harness.end(0);
            self.harness.end(1);
            while self.harness.run().await? != Next::Finished {}
            self.harness.finish().await
        })?;
        let list = self.env.counters.list();
        Ok(move |name: &str| {
            let found = list.iter().find(|named| named.name == name);
            found.map(|named| named.counter.get()).unwrap()
        })
    }
}

#[test]
fn silent_input_is_flagged_after_the_wait_and_waited_for_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.uvh5").display().to_string();
    let mut bench = Bench::new(sink(&path));
    let step = |bench: &mut Bench| Harness::block_on(bench.harness.run()).unwrap();
    bench.send(0, 0);
    bench.send(1, 0);
    step(&mut bench);
    // Input 1 is silent for two dumps; `run` sleeps for the times that the block requests.
    bench.send(0, 1);
    bench.send(0, 2);
    step(&mut bench);
    // It returns, with a dump that comes too late.
    bench.send(1, 2);
    bench.send(1, 3);
    bench.send(0, 3);
    step(&mut bench);
    let counters = bench.end().unwrap();
    assert_eq!(counters("steps_written"), 4);
    assert_eq!(counters("input_dumps_missing"), 2);
    assert_eq!(counters("dumps_late"), 1);
    assert_eq!(counters("visibilities_missing"), 2 * 4 * 3 * 4);
    assert_eq!(counters("files_written"), 1);
}

fn write(sink: Uvh5Sink, dumps: u64) -> Result<impl Fn(&str) -> u64, BlockError> {
    let mut bench = Bench::new(sink);
    for dump in 0..dumps {
        bench.send(0, dump);
        bench.send(1, dump);
    }
    bench.end()
}

#[test]
fn existing_file_is_kept_unless_overwritten() {
    let directory = tempfile::tempdir().unwrap();
    let name = |name: &str| directory.path().join(name).display().to_string();
    let path = name("new/a.uvh5");
    drop(write(sink(&path), 2).unwrap());
    let before = std::fs::read(&path).unwrap();
    // The signature of HDF5.
    assert_eq!(before[..8], *b"\x89HDF\r\n\x1a\n");
    drop(write(sink(&path), 3).unwrap());
    assert_eq!(std::fs::read(&path).unwrap(), before);
    assert!(Path::new(&name("new/a_2.uvh5")).exists());
    // A sink that does not write a dump changes nothing.
    drop(write(overwriting(&path), 0).unwrap());
    assert_eq!(std::fs::read(&path).unwrap(), before);
    drop(write(overwriting(&path), 3).unwrap());
    assert_eq!(std::fs::read(&path).unwrap(), before, "it is of this process");
    assert!(Path::new(&name("new/a_3.uvh5")).exists());
    of_another_process(Path::new(&path));
    drop(write(overwriting(&path), 3).unwrap());
    assert_ne!(std::fs::read(&path).unwrap(), before);
}

#[test]
fn restarted_sender_begins_a_file_and_repeated_dumps_are_dropped() {
    let directory = tempfile::tempdir().unwrap();
    let mut sink = sink(&directory.path().join("a.uvh5").display().to_string());
    sink.files.max_frames = Some(4);
    let mut bench = Bench::new(sink);
    // Dump 20000 is 20 s after the first one.
    for dump in [20_000, 20_001, 20_000, 0, 1, 2] {
        bench.send(0, dump);
        bench.send(1, dump);
        Harness::block_on(bench.harness.run()).unwrap();
    }
    let counters = bench.end().unwrap();
    let names = ["files_written", "steps_written", "dumps_late", "frames_beyond_limit"];
    // The first dump of input 0 does not yet tell that all senders have begun again.
    assert_eq!(names.map(counters), [2, 4, 3, 1]);
    assert!(directory.path().join("a_2.uvh5").exists());
}

#[test]
fn files_are_named_by_their_first_timestamp() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("v_{timestamp}.uvh5").display().to_string();
    let mut sink = Uvh5Sink { commit_seconds: 0.0, ..sink(&path) };
    (sink.files.frames_per_file, sink.files.seconds_per_file) = (Some(3), Some(0.0015));
    // A dump takes 1 ms, so 1.5 ms are two dumps.
    let counters = write(sink, 5).unwrap();
    assert_eq!(counters("files_written"), 3);
    for timestamp in [0, 2000, 4000] {
        assert!(directory.path().join(format!("v_{timestamp}.uvh5")).exists());
    }
}

#[test]
fn full_disk_and_impossible_directory_are_named_in_the_error() {
    let directory = tempfile::tempdir().unwrap();
    let full = directory.path().join("full.uvh5");
    std::os::unix::fs::symlink("/dev/full", &full).unwrap();
    let sink_of = |path: &Path| overwriting(&path.display().to_string());
    let error = write(sink_of(&full), 2).err().unwrap().to_string();
    assert!(error.contains("full.uvh5: "), "{error}");
    let file = directory.path().join("file");
    std::fs::write(&file, "").unwrap();
    let inputs = vec![port(0), port(4)];
    let block = sink_of(&file.join("a.uvh5")).build(&inputs, &Env::detached("out")).unwrap();
    let mut harness = Harness::new(block, &Ports { inputs, outputs: vec![] }, 1).unwrap();
    let error = Harness::block_on(harness.start()).unwrap_err().to_string();
    assert!(error.contains("/file"), "{error}");
}

#[test]
fn file_that_is_removed_while_it_is_written_is_named_in_the_error() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("new").join("a.uvh5");
    let sink = Uvh5Sink { commit_seconds: 0.0, ..sink(&path.display().to_string()) };
    let mut bench = Bench::new(sink);
    let send = |bench: &mut Bench, dump| {
        bench.send(0, dump);
        bench.send(1, dump);
        Harness::block_on(bench.harness.run())
    };
    send(&mut bench, 0).unwrap();
    while !path.exists() {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    std::fs::remove_dir_all(path.parent().unwrap()).unwrap();
    let failed = send(&mut bench, 1).err();
    let error = failed.or_else(|| bench.end().err()).unwrap().to_string();
    assert!(error.contains("a.uvh5: the file was removed while it was written"), "{error}");
}
