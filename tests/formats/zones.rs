//! Arrays whose digitisers sample in different Nyquist zones: all products are those of the sky, computed by NumPy.

use super::{needs, run_flowgraph, script};

const TELESCOPE: &str =
    "{name: laboratory, latitude_degrees: 50.73, longitude_degrees: 7.1, height_metres: 62}";
const PLACES: &str = "[[0, 0, 0], [12.5, 3, 0], [-7, 21, 0.5]]";
const RATE: f64 = 1.712e9;
const FRAME: usize = 32768;

/// Returns a flowgraph of three antennas whose samples are in files. `models` has the delay models of each antenna.
fn array(zone: u32, models: &str, tracked: bool) -> String {
    let delays = if tracked { "delays: \"${models[number]}\", " } else { "" };
    format!(
        r#"
flowgraph: zone
parameters: {{models: {{default: {models}}}}}
templates:
  antenna:
    parameters: {{number: 0}}
    blocks:
      pol:
        kind: file_source
        replicate: 2
        parameters:
          path: "samples${{number}}${{index}}.npy"
          raw:
            axes: [{{name: sample, len: {FRAME}}}]
            samples_per_frame: {FRAME}
            adc_sample_rate_hz: {RATE}
            sync_time_seconds: 1790000000
            nyquist_zone: {zone}
      f:
        kind: f_engine
        inputs: ["pol[0]", "pol[1]"]
        parameters: {{channels: 64, gains: 0.5, max_delay_seconds: 1.0e-6, {delays}spectra_per_heap: 256}}
    outputs: {{output: f}}
blocks:
  antenna: {{template: antenna, replicate: 3, parameters: {{number: "${{index}}"}}}}
  array: {{kind: antenna_stack, inputs: ["antenna[*]"]}}
  x: {{kind: correlator, input: array, parameters: {{spectra_per_dump: 2048}}}}
  vis:
    kind: uvh5_sink
    input: x
    parameters: {{path: vis.uvh5, overwrite: true, telescope: {TELESCOPE}, antennas_enu_metres: {PLACES}}}
  fringes:
    kind: fringe_check
    input: x
    parameters:
      antennas_enu_metres: {PLACES}
      source: {{azimuth_degrees: 37, elevation_degrees: 62}}
      tracked: {tracked}
      max_phase_error_degrees: 1
      max_delay_error_seconds: 2.0e-11
  powers: {{kind: detect, input: array, parameters: {{products: stokes, spectra: 256}}}}
  stokes: {{kind: file_sink, input: powers, parameters: {{path: stokes.npz, overwrite: true}}}}
  beams:
    kind: beamformer
    input: array
    parameters:
      antennas_enu_metres: {PLACES}
      beams:
        - {{pol: 0, weights: [0.2, 0, 0]}}
        - {{pol: 0, weights: 0.2, towards: {{azimuth_degrees: 37, elevation_degrees: 62}}}}
        - {{pol: 0, weights: 0.2}}
  tied: {{kind: file_sink, input: beams, parameters: {{path: beams.npz, overwrite: true}}}}
"#
    )
}

#[test]
fn products_of_every_nyquist_zone_are_those_of_the_sky() {
    if !needs::formats() {
        return;
    }
    for zone in [1, 2, 3] {
        let directory = tempfile::tempdir().unwrap();
        let number = zone.to_string();
        let models = script(directory.path(), "zones.py", &["make", &number, PLACES, "37", "62"]);
        run_flowgraph(directory.path(), &array(zone, models.trim(), false));
        script(directory.path(), "zones.py", &["check", &number, PLACES, "37", "62", "drifting"]);
        run_flowgraph(directory.path(), &array(zone, models.trim(), true));
        script(directory.path(), "zones.py", &["check", &number, PLACES, "37", "62", "tracked"]);
    }
}
