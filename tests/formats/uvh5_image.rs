//! From samples that NumPy makes to images of WSClean and CASA, which must have the source at its place.

use super::{needs, run_flowgraph, script, script_in};

/// A directory with the visibilities of an array of eight antennas that sample in `zone` and count from
/// `first_antenna_number`, in `sky.uvh5`.
fn visibilities(zone: u32, first_antenna_number: u32) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let places = script(directory.path(), "uvh5_image.py", &["make", &zone.to_string()]);
    let places = places.trim();
    run_flowgraph(
        directory.path(),
        &format!(
            r#"
flowgraph: image
templates:
  antenna:
    parameters: {{number: 0}}
    blocks:
      pol:
        kind: file_source
        replicate: 2
        parameters:
          path: "a${{number}}p${{index}}.npy"
          raw:
            axes: [{{name: sample, len: 65536}}]
            samples_per_frame: 65536
            adc_sample_rate_hz: 200.0e+6
            sync_time_seconds: 1790000000
            nyquist_zone: {zone}
      f:
        kind: f_engine
        inputs: ["pol[0]", "pol[1]"]
        parameters: {{channels: 64, spectra_per_heap: 64, gains: 0.3}}
    outputs: {{output: f}}
blocks:
  antenna: {{template: antenna, replicate: 8, parameters: {{number: "${{index}}"}}}}
  array: {{kind: antenna_stack, inputs: ["antenna[*]"]}}
  x: {{kind: correlator, input: array, parameters: {{spectra_per_dump: 2048}}}}
  sky:
    kind: uvh5_sink
    input: x
    parameters:
      path: sky.uvh5
      first_antenna_number: {first_antenna_number}
      telescope: {{name: laboratory, latitude_degrees: -30.7, longitude_degrees: 21.4, height_metres: 1000}}
      antennas_enu_metres: {places}
"#
        ),
    );
    directory
}

/// Images an array of eight antennas that sample in `zone`, with WSClean.
fn source_is_at_its_place(zone: u32) {
    if !needs::formats() || !needs::wsclean() {
        return;
    }
    let directory = visibilities(zone, 0);
    let said = script(directory.path(), "uvh5_image.py", &["image", "sky.uvh5"]);
    assert!(said.contains("degrees from the source"), "{said}");
}

#[test]
fn source_is_at_its_place_in_an_image() {
    source_is_at_its_place(1);
}

#[test]
fn source_of_an_inverted_spectrum_is_at_its_place_in_an_image() {
    source_is_at_its_place(2);
}

#[test]
fn casa_imports_uvfits_and_images_the_source_at_its_place() {
    if !needs::formats() || !needs::casa() {
        return;
    }
    for zone in [1, 2] {
        // UVFITS counts antennas from 1; CASA fails at an antenna 0.
        let directory = visibilities(zone, 1);
        let place = script(directory.path(), "uvh5_image.py", &["uvfits", "sky.uvh5"]);
        let place: Vec<&str> = place.split_whitespace().collect();
        let arguments = [&["field.uvfits"][..], &place].concat();
        let said = script_in(needs::CASA, directory.path(), "uvh5_casa.py", &arguments);
        assert!(said.contains("degrees from the source"), "zone {zone}: {said}");
    }
}
