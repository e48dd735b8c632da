//! Gains of all channels, in every way in which a flowgraph takes them.

use super::http::{Program, Response, request};
use super::stop;
use serde_json::{Map, Value, json};
use std::fs;
use std::time::{Duration, Instant};

/// Channels of the block with the most, and of each of 64 antennas.
const WIDE: usize = 32_768;
const CHANNELS: usize = 4096;
const ANTENNAS: usize = 64;

/// Noise in `channels` channels of two polarisations, two frames of two spectra a second, for `antennas` blocks with `gains`.
fn flowgraph(channels: usize, antennas: usize, gains: &str) -> String {
    let samples = 4 * channels;
    let rate = 2 * samples;
    format!(
        "flowgraph: bulk
blocks:
  source:
    kind: digitiser_simulator
    parameters: {{adc_sample_rate_hz: {rate}, samples_per_frame: {samples}, period_samples: {samples}, paced: true, signals: wgn(0.1)}}
  f: {{kind: pfb, inputs: [source.pol0, source.pol1], parameters: {{channels: {channels}, taps: 4, spectra_per_frame: 2}}}}
  t: {{kind: fft, input: f}}
  p:
    kind: postproc
    replicate: {antennas}
    input: t
    parameters: {{gains: {gains}, dither: none, spectra_per_heap: 2}}
  end: {{kind: null_sink, replicate: {antennas}, input: 'p[${{index}}]'}}
"
    )
}

/// Whether the gain of a channel is not 0: in one of `groups` groups of channels, `group[pol]`.
fn is_on(channels: usize, groups: usize, group: [usize; 2], pol: usize, channel: usize) -> bool {
    channel * groups / channels == group[pol]
}

/// A `.npy` file with the complex gains of two polarisations.
fn npy(channels: usize, groups: usize, group: [usize; 2]) -> Vec<u8> {
    let gain = |pol, channel| {
        if is_on(channels, groups, group, pol, channel) { [0.6_f32, 0.8] } else { [0.0; 2] }
    };
    let mut file = fxgraph::npy::header("<c8", &[2, channels as u64], 0);
    for pol in 0..2 {
        (0..channels).for_each(|n| file.extend(gain(pol, n).map(f32::to_le_bytes).concat()));
    }
    file
}

/// Base64 of `bytes` (RFC 4648).
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let byte = |n: usize| three.get(n).copied().map_or(0, u32::from);
        let word = (byte(0) << 16) | (byte(1) << 8) | byte(2);
        let digits = (0..=three.len()).map(|n| DIGITS[(word >> (18 - 6 * n)) as usize % 64]);
        text.extend(digits.map(char::from));
        text.extend(std::iter::repeat_n('=', 3 - three.len()));
    }
    text
}

fn send(program: &Program, method: &str, path: &str, media_type: &str, body: &[u8]) -> Response {
    let headers = [("Content-Type", media_type)];
    request(program.address, method, &format!("/api/v1/blocks{path}"), &headers, body)
}

fn accepted(answer: &Response) {
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.json()["is_late"], false);
}

/// Waits until the gains of `block` in force are `expected`.
fn wait_for_gains(program: &Program, block: &str, expected: &Value) {
    let began = Instant::now();
    while program.get(&format!("/api/v1/blocks/{block}")).json()["parameters"]["gains"] != *expected
    {
        assert!(began.elapsed() < Duration::from_mins(2), "{block} has other gains");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Groups of channels with power in a view.
fn powers(view: &Value) -> Vec<usize> {
    let values = view["series"][0]["values"].as_array().into_iter().flatten();
    let has_power = |(group, value): (usize, &Value)| value.is_number().then_some(group);
    values.enumerate().filter_map(has_power).collect()
}

/// Waits until the output of `block` has power in the groups `group` of channels only, one for each polarisation.
fn wait_for_power(program: &Program, block: &str, groups: usize, group: [usize; 2]) {
    let began = Instant::now();
    for (pol, group) in group.into_iter().enumerate() {
        let view = format!("views/band_pass?once=true&pol={pol}&points={groups}");
        let path = format!("/api/v1/blocks/{block}/outputs/output/{view}");
        loop {
            let answer = program.get(&path);
            if powers(&answer.json()) == [group] {
                break;
            }
            assert!(began.elapsed() < Duration::from_mins(2), "not {group}: {answer:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

#[test]
fn gains_of_32_768_channels_come_from_a_file_and_from_a_body() {
    let directory = tempfile::tempdir().unwrap();
    let groups = 4096;
    fs::write(directory.path().join("gains.npy"), npy(WIDE, groups, [1000, 3000])).unwrap();
    let text = flowgraph(WIDE, 1, "{npy: gains.npy}");
    let program = Program::running(directory.path(), &text, &[]);
    wait_for_power(&program, "p[0]", groups, [1000, 3000]);
    // 0.5 MiB, within the default limit of a body.
    let file = npy(WIDE, groups, [17, 4095]);
    let path = "/p[0]/parameters/gains";
    accepted(&send(&program, "PUT", path, "application/x-npy", &file));
    wait_for_gains(&program, "p[0]", &json!({ "npy_base64": base64(&file) }));
    wait_for_power(&program, "p[0]", groups, [17, 4095]);
    stop(program);
}

#[test]
fn one_request_sets_the_gains_of_64_antennas() {
    let directory = tempfile::tempdir().unwrap();
    let text = flowgraph(CHANNELS, ANTENNAS, "1");
    let program = Program::running(directory.path(), &text, &["--max-body", "8"]);
    let name = |antenna: usize| format!("p[{antenna}]");
    let group =
        |antenna: usize, shift: usize| [(antenna + shift) % ANTENNAS, ANTENNAS - 1 - antenna];
    let all = |gains: &dyn Fn(usize) -> Value| -> Map<String, Value> {
        let of_antenna = |antenna| (name(antenna), json!({ "gains": gains(antenna) }));
        (0..ANTENNAS).map(of_antenna).collect()
    };
    let set = |values: &Map<String, Value>| {
        let body = Value::Object(values.clone()).to_string();
        assert!(body.len() > 1 << 20, "more than the default limit");
        accepted(&send(&program, "PATCH", "", "application/json", body.as_bytes()));
        for (block, values) in values {
            wait_for_gains(&program, block, &values["gains"]);
        }
    };
    // Contents of NumPy files, and lists.
    let content = |antenna| base64(&npy(CHANNELS, ANTENNAS, group(antenna, 0)));
    set(&all(&|antenna| json!({ "npy_base64": content(antenna) })));
    for antenna in [0, 1, 63] {
        wait_for_power(&program, &name(antenna), ANTENNAS, group(antenna, 0));
    }
    let list = |antenna, pol| -> Vec<u8> {
        let is_on = |n| is_on(CHANNELS, ANTENNAS, group(antenna, 7), pol, n);
        (0..CHANNELS).map(|n| u8::from(is_on(n))).collect()
    };
    set(&all(&|antenna| json!([list(antenna, 0), list(antenna, 1)])));
    for antenna in [0, 1, 63] {
        wait_for_power(&program, &name(antenna), ANTENNAS, group(antenna, 7));
    }
    stop(program);
}

#[test]
#[cfg(target_os = "linux")]
fn list_of_three_million_numbers_takes_at_most_8_times_the_memory_of_its_body() {
    let directory = tempfile::tempdir().unwrap();
    let program =
        Program::running(directory.path(), &flowgraph(CHANNELS, 1, "1"), &["--max-body", "32"]);
    let process = format!("/proc/{}", program.child.id());
    let kib = |name: &str| -> usize {
        let status = fs::read_to_string(format!("{process}/status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().strip_suffix(" kB").unwrap().parse().unwrap()
    };
    let numbers: Vec<String> = (0..3_000_000).map(|n| format!("{}.{n:07}", n % 3)).collect();
    let body = format!("{{\"p[0]\": {{\"gains\": [[{}]]}}}}", numbers.join(","));
    let before = kib("VmRSS:");
    let answer = send(&program, "PATCH", "", "application/json", body.as_bytes());
    assert_eq!(answer.status, 422, "{answer:?}");
    let most = kib("VmHWM:") - before;
    assert!(most <= 8 * body.len() / 1024, "{most} KiB for {} bytes", body.len());
    stop(program);
}
