//! UVH5 files, read by h5py and pyuvdata.

use super::{example, fxgraph, needs, root, run_flowgraph, script};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const TELESCOPE: &str =
    "{name: laboratory, latitude_degrees: 50.73, longitude_degrees: 7.1, height_metres: 62}";
const PLACES: &str = "[[0, 0, 0], [12.5, 3, 0], [-7, 21, 0.5], [30, -18, 0.2]]";
const RATE: &str = "1712000000";
const SYNC: &str = "1790000000";

/// Returns a flowgraph of four antennas that see a source in azimuth 37 and elevation 62 degrees; the first antenna
/// lacks `lost` heaps from heap 8 on. A dump of the correlator `x` has 8 heaps. `more` are further blocks.
fn array(frames: usize, lost: usize, more: &str) -> String {
    let include = example("include/f_engine.yaml").display().to_string();
    let fault = if lost > 0 { "${'error' if number == 0 else 'none'}" } else { "none" };
    format!(
        r#"
flowgraph: array
include: ["{include}"]
parameters: {{adc_sample_rate_hz: {RATE}}}
templates:
  antenna:
    parameters: {{number: 0}}
    blocks:
      digitiser:
        kind: digitiser_simulator
        parameters:
          antenna: "${{number}}"
          antennas_enu_metres: {PLACES}
          adc_sample_rate_hz: {RATE}
          sync_time_seconds: {SYNC}
          source: {{azimuth_degrees: 37, elevation_degrees: 62, amplitude: 0.1}}
          signals: wgn(0.05)
          seed: "${{number}}"
          frames: {frames}
          samples_per_frame: 32768
          period_samples: 1048576
      f:
        template: f_engine
        inputs: [digitiser.pol0, digitiser.pol1]
        parameters: {{channels: 64, gain: 0.5, dither_seed: "${{number}}"}}
      missing:
        kind: fault_injector
        input: f
        on_fault: skip
        parameters: {{fault: "{fault}", after_frames: 8, faults: {lost}}}
    outputs: {{output: missing}}
blocks:
  antenna: {{template: antenna, replicate: 4, parameters: {{number: "${{index}}"}}}}
  array: {{kind: antenna_stack, inputs: ["antenna[*]"]}}
  x: {{kind: correlator, input: array, parameters: {{spectra_per_dump: 2048}}}}
{more}
"#,
        lost = lost.max(1)
    )
}

/// Returns a sink `name` of `inputs` with `parameters`.
fn sink(name: &str, inputs: &str, parameters: &str) -> String {
    format!(
        "  {name}:\n    kind: uvh5_sink\n    inputs: [{inputs}]\n    parameters: {{path: {name}.uvh5, \
         telescope: {TELESCOPE}, antennas_enu_metres: {PLACES}{parameters}}}\n"
    )
}

/// Returns a source `name` of zeros with a frame of 0.5 s.
fn zeros(name: &str, first_channel: usize, frames: usize, validity: &str, more: &str) -> String {
    format!(
        "  {name}:\n    kind: null_source\n    parameters:\n      dtype: ci32\n      axes: [{{name: channel, len: 8}}, \
         {{name: baseline, len: 3}}, {{name: product, len: 4}}]\n      validity_axes: [{validity}]\n      \
         samples_per_frame: 500000\n      adc_sample_rate_hz: 1000000\n      sync_time_seconds: 1727740800\n      \
         frames: {frames}\n      band: {{channels: 16, first_channel: {first_channel}, centre_hz: 1e9, \
         bandwidth_hz: 16e3}}\n{more}"
    )
}

fn two_antennas(name: &str, inputs: &str, parameters: &str) -> String {
    sink(name, inputs, parameters).replace(PLACES, "[[0, 0, 0], [3000, -4000, 12]]")
}

fn check(directory: &Path, arguments: &[&str]) -> String {
    script(directory, "uvh5.py", arguments)
}

#[test]
fn uvh5_of_an_array_agrees_with_its_recording_and_with_the_place_of_the_source() {
    if !needs::formats() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let more = [
        sink("vis", "x", ""),
        sink("first", "x", ", first_antenna_number: 1"),
        sink("sums", "x", ", normalise: false"),
        sink("linear", "x", ", feeds: [y, x]"),
        sink("circular", "x", ", feeds: [r, l]"),
        "  npz: {kind: file_sink, input: x, parameters: {path: vis.npz}}".to_owned(),
    ];
    run_flowgraph(directory.path(), &array(25, 0, &more.concat()));
    let values = ["values", "vis.uvh5", "sums.uvh5", "vis.npz", RATE, "262144", SYNC, "2048"];
    check(directory.path(), &values);
    check(directory.path(), &["source", "vis.uvh5", "37", "62"]);
    check(directory.path(), &["feeds", "linear.uvh5", "circular.uvh5", "vis.npz"]);
    for (file, first) in [("vis.uvh5", "0"), ("first.uvh5", "1"), ("circular.uvh5", "0")] {
        check(directory.path(), &["converted", file, first]);
    }
}

#[test]
fn uvh5_of_one_polarisation_has_numbers_of_antennas_and_selected_baselines() {
    if !needs::formats() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    // Polarisation 0 of the array in another F-engine, with the same parameters; antenna 12 is antenna 0, which lacks heaps.
    let places: Vec<&str> = PLACES[1..PLACES.len() - 1].split("], ").collect();
    let place = |n: usize| format!("enu_metres: {}]", places[n].trim_end_matches(']'));
    let antennas = [
        format!("{{number: 7, name: seven, {}}}", place(2)),
        format!("{{number: 12, {}}}", place(0)),
        format!("{{number: 3, {}}}", place(1)),
        "{number: 99, enu_metres: [100, 100, 0]}".to_owned(),
        format!("{{number: 5, {}}}", place(3)),
    ];
    let sink = |name: &str, input: &str| {
        let places = format!("antennas_enu_metres: {PLACES}");
        let antennas = format!("antennas: [{}]", antennas.join(", "));
        sink(name, input, ", feeds: [y]").replace(&places, &antennas)
    };
    let selection = "values: sum, baselines: {pairs: [[12, 3], [5, 7]], antennas: [7]}";
    let more = format!(
        r#"
  digitiser:
    kind: digitiser_simulator
    replicate: 4
    parameters:
      antenna: "${{index}}"
      antennas_enu_metres: {PLACES}
      adc_sample_rate_hz: {RATE}
      sync_time_seconds: {SYNC}
      source: {{azimuth_degrees: 37, elevation_degrees: 62, amplitude: 0.1}}
      signals: wgn(0.05)
      seed: "${{index}}"
      frames: 33
      samples_per_frame: 32768
      period_samples: 1048576
  unused: {{kind: null_sink, replicate: 4, input: "digitiser[${{index}}].pol1"}}
  pfb:
    kind: pfb
    replicate: 4
    inputs: ["digitiser[${{index}}].pol0"]
    parameters: {{channels: 64, taps: 16, centre_hz: "${{adc_sample_rate_hz / 4}}"}}
  fft: {{kind: fft, replicate: 4, input: "pfb[${{index}}]"}}
  f:
    kind: postproc
    replicate: 4
    input: "fft[${{index}}]"
    parameters: {{spectra_per_heap: 256, gains: 0.5, dither: uniform, dither_seed: "${{index}}"}}
  lacking: {{kind: fault_injector, input: "f[0]", on_fault: skip, parameters: {{fault: error, after_frames: 8, faults: 5}}}}
  stack:
    kind: antenna_stack
    inputs: [lacking, "f[1]", "f[2]", "f[3]"]
    parameters: {{antenna_numbers: [12, 3, 7, 5]}}
  one: {{kind: correlator, input: stack, parameters: {{spectra_per_dump: 2048}}}}
  fast: {{kind: average, input: one, parameters: {{{selection}}}}}
  slow: {{kind: average, input: one, parameters: {{dumps: 2, {selection}}}}}
"#
    );
    let sinks = [
        self::sink("vis", "x", ""),
        sink("single", "one"),
        sink("selected", "fast"),
        sink("averaged", "slow"),
    ];
    run_flowgraph(directory.path(), &array(33, 0, &(more + &sinks.concat())));
    check(directory.path(), &["one", "single.uvh5", "vis.uvh5", "selected.uvh5", "averaged.uvh5"]);
}

#[test]
fn uvh5_of_missing_data_has_flags_and_numbers_of_samples() {
    if !needs::formats() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let more =
        sink("vis", "x", "") + "  npz: {kind: file_sink, input: x, parameters: {path: vis.npz}}\n";
    // The whole second dump, and a quarter of the third.
    run_flowgraph(directory.path(), &array(33, 10, &more));
    let said = check(directory.path(), &["gaps", "vis.uvh5", "vis.npz", "8"]);
    assert!(said.contains("missing 0.2 flagged 0.1"), "{said}");
    let mut blocks = String::from("flowgraph: axes\nblocks:\n");
    let names = [
        &["baseline"][..],
        &["channel", "baseline"],
        &["channel", "baseline", "product"],
        &["channel"],
    ];
    for (n, names) in names.iter().enumerate() {
        let len = |name: &str| ["channel", "baseline", "product"].map(|other| other == name);
        let axes: Vec<String> = names
            .iter()
            .map(|name| {
                let len = [8, 3, 4].into_iter().zip(len(name)).find(|(_, is)| *is).unwrap().0;
                format!("{{name: {name}, len: {len}}}")
            })
            .collect();
        let source = format!("source{n}");
        blocks += &zeros(&source, 0, 2, &axes.join(", "), "      missing_every: 5\n");
        blocks += &two_antennas(&format!("axes{n}"), &source, "");
    }
    run_flowgraph(directory.path(), &blocks);
    for (n, names) in names.iter().enumerate() {
        let file = format!("axes{n}.uvh5");
        check(directory.path(), &[&["axes", file.as_str()], *names].concat());
    }
}

#[test]
fn uvh5_joins_channel_blocks_of_several_correlators() {
    if !needs::formats() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let half = |name: &str, first: usize| {
        format!(
            "  {name}_array: {{kind: antenna_stack, inputs: [\"antenna[*]\"], parameters: \
             {{first_channel: {first}, channels: 24}}}}\n  {name}: {{kind: correlator, input: {name}_array, \
             parameters: {{spectra_per_dump: 2048}}}}\n"
        )
    };
    let more = [
        half("low", 0),
        half("high", 40),
        sink("both", "high, low", ""),
        sink("lower", "low", ""),
        sink("higher", "high", ""),
    ];
    run_flowgraph(directory.path(), &array(17, 3, &more.concat()));
    let said = check(directory.path(), &["joined", "both.uvh5", "lower.uvh5", "higher.uvh5"]);
    assert_eq!(said, "joined 48\n");
    // A stream that ends earlier.
    let validity = "{name: baseline, len: 3}";
    let blocks = "flowgraph: blocks\nblocks:\n".to_owned()
        + &zeros("low", 0, 5, validity, "")
        + &zeros("high", 8, 2, validity, "")
        + &two_antennas("half", "high, low", "");
    run_flowgraph(directory.path(), &blocks);
    assert_eq!(check(directory.path(), &["half", "half.uvh5", "8"]), "flagged 5\n");
}

#[test]
fn uvh5_of_a_tracked_source_has_its_baseline_vectors() {
    if !needs::formats() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let centre = ", phase_centre: {name: somewhere, right_ascension_degrees: 123.4, \
                  declination_degrees: -21.5}, ut1_utc_seconds: 0.059";
    let blocks = "flowgraph: tracked\nblocks:\n".to_owned()
        + &zeros("x", 0, 7200, "{name: baseline, len: 3}", "")
        + &two_antennas("vis", "x", centre);
    run_flowgraph(directory.path(), &blocks);
    let said = check(directory.path(), &["sidereal", "vis.uvh5", "123.4", "-21.5"]);
    assert!(said.starts_with("tracked"), "{said}");
    let short = blocks.replace("frames: 7200", "frames: 10");
    run_flowgraph(directory.path(), &short.replace("path: vis", "path: short"));
    check(directory.path(), &["converted", "short.uvh5", "0"]);
}

#[test]
fn uvh5_with_a_table_of_the_earths_orientation_agrees_with_astropy() {
    if !needs::formats() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let table = root().join("src/time/tests/finals2000a.txt").display().to_string();
    let centre = ", phase_centre: {name: somewhere, right_ascension_degrees: 123.4, \
                  declination_degrees: -21.5}";
    // 44 hours from 2016-12-30T03:00:00Z on; the table has four days.
    let hours = zeros("x", 0, 44, "{name: baseline, len: 3}", "")
        .replace("samples_per_frame: 500000", "samples_per_frame: 3600000000")
        .replace("sync_time_seconds: 1727740800", "sync_time_seconds: 1483066800");
    let blocks = "flowgraph: oriented\nblocks:\n".to_owned()
        + &hours
        + &two_antennas("with", "x", &format!("{centre}, earth_orientation_file: {table}"))
        + &two_antennas("without", "x", centre);
    run_flowgraph(directory.path(), &blocks);
    let arguments = ["oriented", "with.uvh5", "without.uvh5", &table, "123.4", "-21.5"];
    let said = check(directory.path(), &arguments);
    print!("{said}");
    assert!(said.starts_with("44 dumps, sidereal times within"), "{said}");
}

#[test]
fn uvh5_begins_new_files_and_overwrites_none() {
    if !needs::formats() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let validity = "{name: baseline, len: 3}";
    let rolled = two_antennas("n_{timestamp}", "x", ", frames_per_file: 3")
        .replacen("n_{timestamp}:", "n:", 1)
        .replace("path: n_{timestamp}.uvh5", "path: \"n_{timestamp}.uvh5\"");
    let timed = two_antennas("t_{timestamp}", "x", ", seconds_per_file: 1.6")
        .replacen("t_{timestamp}:", "t:", 1)
        .replace("path: t_{timestamp}.uvh5", "path: \"t_{timestamp}.uvh5\"");
    let blocks = "flowgraph: rolled\nblocks:\n".to_owned()
        + &zeros("x", 0, 8, validity, "")
        + &rolled
        + &timed
        + &two_antennas("one", "x", "");
    run_flowgraph(directory.path(), &blocks);
    let n = ["rolled", "n_0.uvh5", "n_1500000.uvh5", "n_3000000.uvh5"];
    assert_eq!(check(directory.path(), &n), "3 3 2\n");
    assert_eq!(check(directory.path(), &["rolled", "t_0.uvh5", "t_2000000.uvh5"]), "4 4\n");
    let before = std::fs::read(directory.path().join("one.uvh5")).unwrap();
    run_flowgraph(directory.path(), &blocks.replace("frames: 8", "frames: 2"));
    assert_eq!(std::fs::read(directory.path().join("one.uvh5")).unwrap(), before);
    assert_eq!(check(directory.path(), &["rolled", "one_2.uvh5"]), "2\n");
}

#[test]
fn uvh5_of_a_killed_program_has_all_committed_dumps() {
    if !needs::formats() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let yaml = array(1 << 30, 0, &sink("vis", "x", ", commit_seconds: 0, overwrite: true"));
    std::fs::write(directory.path().join("endless.yaml"), yaml).unwrap();
    let path = directory.path().join("vis.uvh5");
    // The blocks on the disk, without the hole at the end.
    let size = || path.metadata().map_or(0, |metadata| 512 * metadata.blocks());
    for (n, bytes) in [1 << 20, 2 << 20, 3 << 20].into_iter().enumerate() {
        let _ = std::fs::remove_file(&path);
        let mut command = Command::new(env!("CARGO_BIN_EXE_fxgraph"));
        command.args(["run", "--quiet", "endless.yaml"]).current_dir(directory.path());
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let begin = Instant::now();
        while size() < bytes && begin.elapsed() < Duration::from_mins(2) {
            std::thread::sleep(Duration::from_millis(3 + 4 * n as u64));
        }
        // SIGKILL: nothing is written afterwards.
        child.kill().unwrap();
        child.wait().unwrap();
        let dumps: u64 = check(directory.path(), &["killed", "vis.uvh5"]).trim().parse().unwrap();
        assert!(dumps > 2, "{dumps}");
    }
}

#[test]
fn uvh5_that_grows_is_read_at_any_time_and_not_opened_for_writing() {
    if !needs::formats() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    // 20 dumps per second, and a commit after each.
    let yaml = array(1 << 30, 0, &sink("vis", "x", ", commit_seconds: 0"))
        .replace("frames: 1073741824", "paced: true\n          frames: 1073741824")
        .replace("adc_sample_rate_hz: 1712000000", "adc_sample_rate_hz: 5242880");
    std::fs::write(directory.path().join("growing.yaml"), yaml).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_fxgraph"));
    command.args(["run", "--quiet", "growing.yaml"]).current_dir(directory.path());
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let path = directory.path().join("vis.uvh5");
    let begin = Instant::now();
    while std::fs::metadata(&path).map_or(0, |file| file.blocks()) < 200 {
        assert!(begin.elapsed() < Duration::from_mins(2), "no data in the file");
        std::thread::sleep(Duration::from_millis(20));
    }
    let said = check(directory.path(), &["growing", "vis.uvh5", "60"]);
    assert!(said.starts_with("60 reads, "), "{said}");
    // SIGKILL.
    child.kill().unwrap();
    child.wait().unwrap();
    let dumps: u64 = check(directory.path(), &["killed", "vis.uvh5"]).trim().parse().unwrap();
    assert!(dumps > 2, "{dumps}");
}

#[test]
fn uvh5_flowgraph_of_the_examples_is_read_without_a_warning() {
    if !needs::formats() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let flowgraph = example("14_uvh5.yaml").display().to_string();
    let output = fxgraph(directory.path(), &["run", "--quiet", &flowgraph]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(check(directory.path(), &["rolled", "out/visibilities.uvh5"]), "6\n");
}

#[test]
fn uvh5_that_cannot_grow_keeps_its_committed_dumps() {
    if !needs::formats() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let blocks = "flowgraph: full\nblocks:\n".to_owned()
        + &zeros("x", 0, 2000, "{name: baseline, len: 3}", "")
        + &two_antennas("vis", "x", ", commit_seconds: 0");
    std::fs::write(directory.path().join("full.yaml"), blocks).unwrap();
    // Files of up to 600 kB (blocks of 512 bytes), as on a disk that is full then.
    let script = "ulimit -f 1200; exec \"$0\" run --quiet full.yaml";
    let mut command = Command::new("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_fxgraph")]).current_dir(directory.path());
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && errors.contains("vis.uvh5: "), "{errors}");
    let dumps: u64 = check(directory.path(), &["rolled", "vis.uvh5"]).trim().parse().unwrap();
    assert!((1..2000).contains(&dumps), "{dumps}");
}
