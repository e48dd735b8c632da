use super::arrange::{Chunk, Counts, Flagged, Order, Part, Visibilities};
use super::hdf5::Values;
use super::*;
use std::fs::OpenOptions;
use std::path::Path;

/// A description of `antennas` antennas on a line to the east of a telescope on the equator.
pub(super) fn description(antennas: usize, channels: usize) -> Description {
    let antenna = |n: usize| Antenna {
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
        feeds: [Feed::X, Feed::Y],
        feed_angles: [std::f64::consts::FRAC_PI_2, 0.0],
        frequencies_hz: (0..channels).map(|c| 1e9 + 1e6 * c as f64).collect(),
        channel_width_hz: 1e6,
        integration_seconds: 0.5,
        phase_centre: PhaseCentre::Unprojected,
        has_sidereal_time: false,
        history: "a test".to_owned(),
        keywords: vec![("config_hash".to_owned(), Values::text("abc"))],
    }
}

fn create(path: &Path, description: &Description) -> Writer {
    let file = OpenOptions::new().write(true).create_new(true).open(path).unwrap();
    Writer::create(file, description).unwrap()
}

/// Writes a dump whose values are those of a correlator without any loss.
fn write(writer: &mut Writer, antennas: usize, seconds: f64) {
    let shape = writer.shape();
    let values: Vec<i32> =
        (0..2 * PRODUCTS * shape.baselines * shape.channels).map(|n| n as i32).collect();
    let part = Part {
        visibilities: Visibilities::Integers(&values),
        counts: &vec![8; shape.baselines],
        places: Counts::new(&[(1, shape.baselines)], [shape.channels, shape.baselines, 4]).unwrap(),
        full: 8,
    };
    let order = Order {
        rows: (0..shape.baselines).collect(),
        polarisations: [0, 3, 2, 1],
        samples: None,
    };
    let mut chunk = Chunk::new(&shape);
    for number in 0..shape.chunks() {
        chunk.begin();
        let first = number * shape.chunk_channels;
        let last = (first + shape.chunk_channels).min(shape.channels);
        assert_eq!(chunk.fill(&part, &order, first..last, 0), Flagged::default());
        assert!(chunk.lacks_nothing());
        writer.chunk(number, &chunk).unwrap();
    }
    let uvw: Vec<[f64; 3]> =
        header::rows(antennas).iter().map(|(a, b)| [10.0 * (*b as f64 - *a as f64), 0.0, 0.0]).collect();
    let time = DumpTime {
        julian_date: 2_460_000.5 + seconds / 86400.0,
        sidereal_time: 0.0,
        uvw_metres: &uvw,
        phase_centre: [0.0; 3],
        config_id: 7,
    };
    writer.dump(&time).unwrap();
}

#[test]
fn writer_file_is_read() {
    let folder = std::env::var("UVH5_OUT").unwrap_or("/tmp/uvh5".into());
    let path = Path::new(&folder).join("a.uvh5");
    let _ = std::fs::remove_file(&path);
    let mut writer = create(&path, &description(3, 5));
    for n in 0..300 {
        write(&mut writer, 3, n as f64);
        if n % 7 == 0 {
            writer.commit(false).unwrap();
        }
    }
    writer.close().unwrap();
}
