//! Contents of the files, read with the header parser and by hand.

use super::*;
use crate::io::files::output_file::full_disk;
use crate::io::files::tests;
use fxgraph::edge::Harness;
use fxgraph::event::Events;
use fxgraph::{Axis, Band, BlockError, Clock, Dtype, Env, Ports, ValidityType};
use std::fs;
use std::path::Path;
use std::sync::Arc;

/// Spectra of a frame, products and channels of the stream of these tests.
const SPECTRA: usize = 4;
const PRODUCTS: usize = 2;
const CHANNELS: usize = 3;
/// ADC samples from one spectrum to the next.
const STEP: u64 = 8;

fn port() -> PortType {
    PortType {
        dtype: Dtype::F32,
        axes: vec![
            Axis::new("spectrum", SPECTRA),
            Axis::new("product", PRODUCTS),
            Axis::new("channel", CHANNELS),
        ],
        clock: Clock {
            sync_time: fxgraph::Time::unix(1_700_000_000),
            ..Clock::new(1000.0, STEP * SPECTRA as u64)
        },
        // Channels 5 to 7 of 16 over -160 MHz, with channel 8 at 1.4 GHz.
        band: Some(Band::signed(16, 5, 1.4e9, -1.6e8)),
        validity: ValidityType { axes: vec![Axis::new("spectrum", SPECTRA)], full: 4 },
    }
}

fn sink(path: &Path) -> FilterbankSink {
    serde_json::from_value(serde_json::json!({"path": path})).unwrap()
}

/// A frame: first spectrum on the grid of `STEP` samples, and validity counts.
type Sent<'a> = (u64, &'a [u32]);

/// Time whose spectrum is not finite.
const NAN_TIME: u64 = 7777;

/// Sum of the spectrum at `time` (in steps), product and channel.
fn value(time: u64, product: usize, channel: usize) -> f32 {
    if time == NAN_TIME {
        return f32::NAN;
    }
    (time * 100 + product as u64 * 10 + channel as u64) as f32
}

/// Writes the frames; returns the counters by name.
fn write(
    sink: &FilterbankSink,
    port: &PortType,
    frames: &[Sent<'_>],
) -> Result<impl Fn(&str) -> u64 + use<>, BlockError> {
    write_in(&Env::detached("out"), sink, port, frames)
}

/// An environment, and where the events of its block are kept.
fn observed() -> (Env, Arc<Events>) {
    let (env, events) = (Env::detached("fil"), Arc::new(Events::default()));
    env.events.redirect(Some((Arc::clone(&events), "fil".to_owned())));
    (env, events)
}

fn texts(events: &Events) -> Vec<String> {
    events.since(0).iter().map(|event| event.text.clone()).collect()
}

fn write_in(
    env: &Env,
    sink: &FilterbankSink,
    port: &PortType,
    frames: &[Sent<'_>],
) -> Result<impl Fn(&str) -> u64 + use<>, BlockError> {
    tests::write(sink, port, env, (frames.len(), true), |n, frame| {
        let (first, validity) = frames[n];
        let (header, payload) = frame.parts_mut::<f32>().unwrap();
        header.timestamp = 1000 + STEP * first;
        header.validity.copy_from_slice(validity);
        for (n, to) in payload.iter_mut().enumerate() {
            let (spectrum, rest) = (n / (PRODUCTS * CHANNELS), n % (PRODUCTS * CHANNELS));
            *to = value(first + spectrum as u64, rest / CHANNELS, rest % CHANNELS);
        }
    })?;
    let all = env.counters.list();
    Ok(move |name: &str| all.iter().find(|named| named.name == name).unwrap().counter.get())
}

/// Returns the header and the bytes after it.
fn load(path: &Path) -> (Header, Vec<u8>) {
    let mut bytes = fs::read(path).unwrap();
    let (header, start) = Header::read(&bytes[..]).unwrap();
    let data = bytes.split_off(start as usize);
    (header, data)
}

/// Returns the header and the spectra, as the sum of a complete spectrum of product 1, channel 2, or 0.
fn times(path: &Path) -> (Header, Vec<f32>) {
    let (header, data) = load(path);
    let values: Vec<f32> = data.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
    (header, values.chunks(PRODUCTS * CHANNELS).map(|spectrum| spectrum[5]).collect())
}

#[test]
fn file_has_the_means_and_the_header_of_the_stream() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("new/x.fil");
    let named = FilterbankSink {
        source_name: "B0531+21".to_owned(),
        right_ascension: Some("05:34:31.97".to_owned()),
        declination: Some("-22:00:52.1".to_owned()),
        telescope_id: 64,
        ..sink(&path)
    };
    let counters = write(&named, &port(), &[(0, &[4, 2, 1, 4]), (4, &[4; 4])]).unwrap();
    let names = ["steps_written", "steps_missing", "steps_dropped", "samples_clipped"];
    assert_eq!(names.map(&counters), [8, 0, 0, 0]);
    let (header, data) = load(&path);
    assert_eq!((header.nchans, header.nifs, header.nbits), (3, 2, 32));
    assert_eq!((header.fch1_mhz, header.foff_mhz), (1430.0, -10.0));
    assert_eq!(header.tsamp_seconds, 0.008);
    // 1 s after the sync time.
    assert_eq!(header.tstart_mjd, 40587.0 + 1_700_000_001.0 / 86400.0);
    assert_eq!((header.src_raj, header.src_dej), (53_431.97, -220_052.1));
    assert_eq!((header.source_name.as_str(), header.telescope_id), ("B0531+21", 64));
    assert!(header.rawdatafile.starts_with("fxgraph 0.1.0 out"), "{}", header.rawdatafile);
    let counts = [4.0, 2.0, 1.0, 4.0, 4.0, 4.0, 4.0, 4.0];
    let mut expected = Vec::new();
    for (time, count) in counts.into_iter().enumerate() {
        for (product, channel) in [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)] {
            expected.extend((value(time as u64, product, channel) / count).to_le_bytes());
        }
    }
    assert_eq!(data, expected);
    let raw = FilterbankSink { normalise: false, ..sink(&path) };
    fs::remove_file(&path).unwrap();
    drop(write(&raw, &port(), &[(0, &[4, 2, 1, 4])]).unwrap());
    assert_eq!(times(&path).1, [12.0, 112.0, 212.0, 312.0]);
}

#[test]
fn missing_spectra_are_filled_so_that_time_does_not_shift() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.fil");
    let raw = FilterbankSink { normalise: false, ..sink(&path) };
    // The first valid spectrum is number 1, frames 8 to 15 do not arrive, a frame is repeated, and the last spectra are
    // missing.
    let frames: [Sent<'_>; 5] =
        [(0, &[0, 4, 0, 4]), (4, &[0, 0, 0, 0]), (16, &[4; 4]), (16, &[4; 4]), (20, &[4, 0, 0, 0])];
    let counters = write(&raw, &port(), &frames).unwrap();
    let (header, times) = times(&path);
    assert_eq!(header.tstart_mjd, 40587.0 + 1_700_000_001.008 / 86400.0);
    let mut expected = vec![0.0; 20];
    for time in [1, 3, 16, 17, 18, 19, 20] {
        expected[time - 1] = value(time as u64, 1, 2);
    }
    assert_eq!(times, expected);
    assert_eq!(["steps_written", "steps_missing", "steps_repeated"].map(counters), [20, 13, 4]);
}

#[test]
fn missing_data_gets_the_mean_of_the_latest_frame() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.fil");
    let raw = FilterbankSink { normalise: false, fill: Fill::Mean, ..sink(&path) };
    drop(write(&raw, &port(), &[(0, &[4, 0, 4, 0]), (4, &[0, 0, 4, 4])]).unwrap());
    // No mean is known for the first gap; then that of spectra 0 and 2.
    assert_eq!(times(&path).1, [12.0, 0.0, 212.0, 112.0, 112.0, 112.0, 612.0, 712.0]);
}

#[test]
fn value_that_is_not_finite_is_no_mean() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.fil");
    let raw = FilterbankSink { normalise: false, fill: Fill::Mean, ..sink(&path) };
    drop(write(&raw, &port(), &[(NAN_TIME - 1, &[4, 4, 0, 0]), (NAN_TIME + 3, &[4; 4])]).unwrap());
    let filled = times(&path).1[2..4].to_vec();
    assert_eq!(filled, [value(NAN_TIME - 1, 1, 2); 2]);
}

#[test]
fn spectra_that_one_beam_cannot_write_are_missing_in_all() {
    let directory = tempfile::tempdir().unwrap();
    let axes =
        vec![Axis::new("spectrum", SPECTRA), Axis::new("channel", CHANNELS), Axis::new("beam", 2)];
    let ports = Ports { inputs: vec![PortType { axes, ..port() }], outputs: vec![] };
    let env = Env::detached("out");
    let sink = sink(&directory.path().join("{beam}_{timestamp}.fil"));
    let mut harness = Harness::new(sink.build(&ports.inputs, &env).unwrap(), &ports, 1).unwrap();
    // Frame 1: beam 0 can be written, beam 1 in part.
    for (n, room) in [None, Some(60), None].into_iter().enumerate() {
        assert!(harness.send(0, |frame| {
            let (header, payload) = frame.parts_mut::<f32>().unwrap();
            header.timestamp = STEP * 4 * n as u64;
            header.validity.fill(4);
            payload.fill(4.0 * n as f32 + 4.0);
        }));
        full_disk::leave(room);
        assert_eq!(Harness::block_on(harness.run()).is_ok(), room.is_none());
    }
    Harness::block_on(harness.finish()).unwrap();
    for beam in 0..2 {
        let (_, data) = load(&directory.path().join(format!("{beam}_0.fil")));
        let spectra: Vec<f32> = data.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
        let frame = |value| [value; SPECTRA * CHANNELS];
        assert_eq!(spectra, [frame(1.0), frame(0.0), frame(3.0)].concat());
    }
}

#[test]
fn beam_without_room_for_its_header_leaves_no_file() {
    let directory = tempfile::tempdir().unwrap();
    let axes =
        vec![Axis::new("spectrum", SPECTRA), Axis::new("channel", CHANNELS), Axis::new("beam", 2)];
    let ports = Ports { inputs: vec![PortType { axes, ..port() }], outputs: vec![] };
    let sink = sink(&directory.path().join("{beam}.fil"));
    let block = sink.build(&ports.inputs, &Env::detached("out")).unwrap();
    let mut harness = Harness::new(block, &ports, 1).unwrap();
    assert!(harness.send(0, |frame| frame.header_mut().validity.fill(4)));
    full_disk::leave(Some(300));
    assert!(Harness::block_on(harness.run()).is_err());
    full_disk::leave(None);
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn channels_that_are_missing_are_filled() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.fil");
    let axes = vec![Axis::new("spectrum", SPECTRA), Axis::new("channel", CHANNELS)];
    let port = PortType { validity: ValidityType { axes, full: 4 }, ..port() };
    let raw = FilterbankSink { normalise: false, ..sink(&path) };
    let counters = write(&raw, &port, &[(0, &[4, 4, 4, 4, 4, 0, 0, 4, 4, 0, 0, 4])]).unwrap();
    assert_eq!(times(&path).1, [12.0, 0.0, 212.0, 312.0]);
    assert_eq!(counters("steps_missing"), 3);
}

#[test]
fn integers_are_scaled_rounded_and_clipped() {
    let directory = tempfile::tempdir().unwrap();
    for (bits, largest) in [(8, 255_u16), (16, 65535)] {
        let path = directory.path().join(format!("x{bits}.fil"));
        let scale = if bits == 8 { 1.0 } else { 256.0 };
        let small = FilterbankSink { normalise: false, bits, scale, offset: -1.0, ..sink(&path) };
        let counters = write(&small, &port(), &[(0, &[4; 4])]).unwrap();
        let (header, data) = load(&path);
        assert_eq!(header.nbits, bits);
        let values: Vec<u16> = match bits {
            8 => data.iter().map(|byte| u16::from(*byte)).collect(),
            _ => data.as_chunks().0.iter().map(|bytes| u16::from_le_bytes(*bytes)).collect(),
        };
        // Values up to 212 fit, 300 to 312 do not, and value 0 becomes -1.
        let factor = scale as u16;
        assert_eq!(values[..4], [0, factor - 1, 2 * factor - 1, 10 * factor - 1]);
        assert_eq!(
            values[17..],
            [212 * factor - 1, largest, largest, largest, largest, largest, largest]
        );
        assert_eq!(counters("samples_clipped"), 7);
    }
}

#[test]
fn beams_have_a_file_each() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("{beam}/x.fil");
    let axes =
        vec![Axis::new("spectrum", SPECTRA), Axis::new("channel", CHANNELS), Axis::new("beam", 2)];
    let port = PortType { axes, ..port() };
    let raw = FilterbankSink { normalise: false, ..sink(&path) };
    drop(write(&raw, &port, &[(0, &[4; 4])]).unwrap());
    for beam in 0..2 {
        let (header, data) = load(&directory.path().join(format!("{beam}/x.fil")));
        assert_eq!((header.nifs, header.nbeams, header.ibeam), (1, 2, beam + 1));
        let values: Vec<f32> = data.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
        // The payload counts 0, 1, 2, 10, 11, 12, 100, ...: element channel * 2 + beam.
        let elements = [0.0, 1.0, 2.0, 10.0, 11.0, 12.0];
        let of_beam: Vec<f32> = elements.into_iter().skip(beam as usize).step_by(2).collect();
        let expected: Vec<f32> =
            (0..4).flat_map(|time| of_beam.iter().map(move |n| n + 100.0 * time as f32)).collect();
        assert_eq!(values, expected);
    }
}

#[test]
fn antennas_have_a_file_each_with_their_number() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("{antenna}_{timestamp}.fil");
    let antenna = Axis::labelled("antenna", ["7", "3"]);
    let axes =
        vec![antenna.clone(), Axis::new("spectrum", SPECTRA), Axis::new("channel", CHANNELS)];
    let axes_of_counts = vec![antenna, Axis::new("spectrum", SPECTRA)];
    let validity = ValidityType { axes: axes_of_counts, full: 4 };
    let port = PortType { axes, validity, ..port() };
    // The payload counts 0, 1, 2, 10, 11, 12, 100, ...: antenna 3 begins with element 12.
    drop(write(&sink(&path), &port, &[(0, &[4, 4, 4, 4, 1, 1, 0, 1])]).unwrap());
    let values = |antenna: u32| {
        let (header, data) = load(&directory.path().join(format!("{antenna}_1000.fil")));
        assert_eq!((header.nifs, header.nbeams, header.ibeam), (1, 0, 0));
        let values = data.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b));
        values.collect::<Vec<f32>>()
    };
    let sums = [0, 1, 2, 10, 11, 12, 100, 101, 102, 110, 111, 112].map(|n: u16| f32::from(n));
    assert_eq!(values(7), sums.map(|sum| sum / 4.0));
    let mut means = sums.map(|sum| sum + 200.0);
    means[6..9].fill(0.0);
    assert_eq!(values(3), means);
}

#[test]
fn stream_without_frequencies_or_other_axes_is_rejected() {
    let sink = sink(Path::new("x.fil"));
    let message =
        |port: &PortType| sink.outputs(std::slice::from_ref(port)).unwrap_err()[0].message.clone();
    assert!(message(&PortType { band: None, ..port() }).contains("no known frequencies"));
    assert!(
        message(&PortType { dtype: Dtype::Cf32, ..port() }).contains("real numbers, got `cf32")
    );
    let axes = |names: &[&'static str]| PortType {
        axes: names.iter().map(|name| Axis::new(name, 4)).collect(),
        ..port()
    };
    assert!(message(&axes(&["spectrum", "product"])).contains("cannot read the axes"));
    assert!(message(&axes(&["spectrum", "tap", "channel"])).contains("cannot read the axes"));
    assert!(
        message(&axes(&["antenna", "beam", "spectrum", "channel"]))
            .contains("cannot read the axes")
    );
    assert_eq!(
        message(&axes(&["antenna", "spectrum", "channel"])),
        "`path` must contain {antenna} for 4 antennas"
    );
    assert!(
        message(&axes(&["spectrum", "channel", "beam"])).contains("`path` must contain {beam}")
    );
    let odd = PortType { clock: Clock { samples_per_frame: 9, ..port().clock }, ..port() };
    assert!(message(&odd).contains("multiple of its 4 spectra"));
}

#[test]
fn parameters_out_of_range_are_rejected() {
    let message = |sink: FilterbankSink| sink.outputs(&[port()]).unwrap_err()[0].message.clone();
    let named = |name: &str| sink(Path::new(name));
    let sink = || named("x.fil");
    assert!(message(FilterbankSink { bits: 4, ..sink() }).contains("8, 16 or 32, got 4"));
    assert!(message(FilterbankSink { scale: f32::NAN, ..sink() }).contains("finite, got NaN"));
    assert!(message(named("x.txt")).contains("ending in .fil"));
    assert!(message(named("{beam}.fil")).contains("no axis `beam`"));
    let angle = FilterbankSink { right_ascension: Some("5.5h".to_owned()), ..sink() };
    assert!(message(angle).contains("hh:mm:ss.s, got `5.5h`"));
}

#[test]
fn last_spectrum_of_an_incomplete_sum_warns() {
    let directory = tempfile::tempdir().unwrap();
    let whole: Sent<'_> = (0, &[4, 1, 4, 4]);
    let warnings = |name: &str, frames: &[Sent<'_>]| {
        let (env, events) = observed();
        drop(write_in(&env, &sink(&directory.path().join(name)), &port(), frames).unwrap());
        texts(&events)
    };
    // A stream that ends within a sum.
    let short = warnings("short.fil", &[whole, (4, &[4, 4, 4, 3])]);
    assert_eq!(short, ["the last spectrum has 3 of the 4 values of its sums"]);
    assert_eq!(warnings("whole.fil", &[whole, (4, &[4; 4])]), [""; 0]);
}

#[test]
fn scale_whose_steps_exceed_the_noise_warns() {
    let directory = tempfile::tempdir().unwrap();
    // A band with a shape, and noise with a standard deviation of 4 in each spectrum.
    let mut random = fxgraph_dsp::random::Random::new(8);
    let mut value = |n: usize| (1000.0 + 100.0 * n as f64 + 4.0 * random.normal_pair()[0]) as f32;
    let spectra: Vec<f32> = (0..24_000).map(|n| value(n % 6)).collect();
    let run = |scale: f32, validity: [u32; 4]| {
        let path = directory.path().join(format!("x{scale}{}.fil", validity[1]));
        let sink = FilterbankSink { normalise: false, bits: 16, scale, offset: 0.5, ..sink(&path) };
        let ports = Ports { inputs: vec![port()], outputs: vec![] };
        let (env, events) = observed();
        let block = sink.build(&ports.inputs, &env).unwrap();
        let mut harness = Harness::new(block, &ports, 2).unwrap();
        Harness::block_on(harness.start()).unwrap();
        for (n, payload) in spectra.chunks_exact(24).enumerate() {
            assert!(harness.send(0, |frame| {
                let (header, to) = frame.parts_mut::<f32>().unwrap();
                header.timestamp = STEP * 4 * n as u64;
                header.validity.copy_from_slice(&validity);
                to.copy_from_slice(payload);
            }));
            Harness::block_on(harness.run()).unwrap();
        }
        Harness::block_on(harness.finish()).unwrap();
        let gauges = env.counters.gauges();
        let rms = gauges.iter().find(|named| named.name == "output_rms").unwrap().gauge.get();
        (rms, texts(&events))
    };
    let (rms, events) = run(0.5, [4; 4]);
    // The integers add the noise of rounding, 1/12.
    assert!((rms.unwrap() / (4.0_f64 + 1.0 / 12.0).sqrt() - 1.0).abs() < 0.1, "{rms:?}");
    assert_eq!(events, [""; 0]);
    let (rms, events) = run(0.02, [4; 4]);
    assert!(rms.unwrap() < 0.5, "{rms:?}");
    assert_eq!(events.len(), 1, "{events:?}");
    let expected = "level low: the rms of the changes between spectra of beam0 is 0.";
    assert!(events[0].starts_with(expected) && events[0].contains("raise `scale`"), "{events:?}");
    let (_, events) = run(1e-4, [4; 4]);
    assert!(
        events[0].contains("every measured value of the changes between spectra"),
        "{events:?}"
    );
    // No spectrum follows a complete one.
    let (rms, _) = run(0.02, [4, 0, 4, 0]);
    assert_eq!(rms, None);
}
