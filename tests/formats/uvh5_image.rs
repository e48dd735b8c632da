//! From samples that NumPy makes to images of WSClean and CASA, which must have the source at its place.

use super::{needs, run_flowgraph, script, script_in};
use serde_json::{Value, json};

/// A directory with the visibilities of an array of eight antennas that sample in `zone` and count from
/// `first_antenna_number`, in `sky.uvh5`; unprojected, or of F-engines that follow a phase centre.
fn visibilities(zone: u32, first_antenna_number: u32, is_tracked: bool) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let made = script(directory.path(), "uvh5_image.py", &["make", &zone.to_string()]);
    let made: Value = serde_json::from_str(&made).unwrap();
    let places = &made["places"];
    let none = json!([[], []]);
    let antennas: Vec<String> = (0..8)
        .map(|n| {
            let delays = if is_tracked { &made["delays"][n] } else { &none };
            let parameters = json!({"number": n, "delays": delays});
            format!("  antenna{n}: {{template: antenna, parameters: {parameters}}}\n")
        })
        .collect();
    let antennas = antennas.concat();
    let inputs = (0..8).map(|n| format!("antenna{n}")).collect::<Vec<_>>().join(", ");
    let centre = if is_tracked {
        format!("      phase_centre: {}\n", made["centre"])
    } else {
        String::new()
    };
    run_flowgraph(
        directory.path(),
        &format!(
            r#"
flowgraph: image
templates:
  antenna:
    parameters: {{number: 0, delays: [[], []]}}
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
        parameters: {{channels: 64, spectra_per_heap: 64, gains: 0.3, delays: "${{delays}}"}}
    outputs: {{output: f}}
blocks:
{antennas}  array: {{kind: antenna_stack, inputs: [{inputs}]}}
  x: {{kind: correlator, input: array, parameters: {{spectra_per_dump: 2048}}}}
  sky:
    kind: uvh5_sink
    input: x
    parameters:
      path: sky.uvh5
      first_antenna_number: {first_antenna_number}
      telescope: {{name: laboratory, latitude_degrees: -30.7, longitude_degrees: 21.4, height_metres: 1000}}
      antennas_enu_metres: {places}
{centre}"#
        ),
    );
    directory
}

/// Images an array of eight antennas that sample in `zone`, with WSClean.
fn source_is_at_its_place(zone: u32, is_tracked: bool) {
    if !needs::formats() || !needs::wsclean() {
        return;
    }
    let directory = visibilities(zone, 0, is_tracked);
    let check = if is_tracked { "image_as_tracked" } else { "image" };
    let said = script(directory.path(), "uvh5_image.py", &[check, "sky.uvh5"]);
    assert!(said.contains("degrees from the source"), "{said}");
}

#[test]
fn source_is_at_its_place_in_an_image() {
    source_is_at_its_place(1, false);
}

#[test]
fn source_of_an_inverted_spectrum_is_at_its_place_in_an_image() {
    source_is_at_its_place(2, false);
}

#[test]
fn source_beside_a_tracked_phase_centre_is_at_its_place_in_an_image() {
    source_is_at_its_place(1, true);
    source_is_at_its_place(2, true);
}

/// Images an array of eight antennas, in UVFITS, with CASA.
fn source_is_at_its_place_in_casa(is_tracked: bool) {
    if !needs::formats() || !needs::casa() {
        return;
    }
    for zone in [1, 2] {
        // UVFITS counts antennas from 1; CASA fails at an antenna 0.
        let directory = visibilities(zone, 1, is_tracked);
        let written = if is_tracked { "uvfits_as_tracked" } else { "uvfits" };
        let place = script(directory.path(), "uvh5_image.py", &[written, "sky.uvh5"]);
        let place: Vec<&str> = place.split_whitespace().collect();
        let arguments = [&["field.uvfits"][..], &place].concat();
        let said = script_in(needs::CASA, directory.path(), "uvh5_casa.py", &arguments);
        print!("zone {zone}: {said}");
        assert!(said.contains("degrees from the source"), "zone {zone}: {said}");
    }
}

#[test]
#[ignore = "installs CASA and images for a minute: .ci/full runs it"]
fn casa_imports_uvfits_and_images_the_source_at_its_place() {
    source_is_at_its_place_in_casa(false);
}

#[test]
#[ignore = "installs CASA and images for a minute: .ci/full runs it"]
fn casa_imports_uvfits_of_a_tracked_phase_centre_and_images_the_source_at_its_place() {
    source_is_at_its_place_in_casa(true);
}
