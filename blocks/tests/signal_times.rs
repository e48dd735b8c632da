//! Times in files: a pulse is where the samples had it, through every chain of filters and in every format, and leap
//! seconds count in all of them alike.

use fxgraph::Time;
use fxgraph::control::Control;
use fxgraph::flowgraph::load_text;
use fxgraph::runtime::{Options, Prepared};
use fxgraph_dsp::random::Random;
use fxgraph_formats::{dada, filterbank, guppi, sigmf, vdif};
use std::fmt::Write;
use std::fs;
use std::path::Path;

/// Sample rate of the ADC.
const RATE_HZ: f64 = 1.024e6;
/// Sample at the centre of the pulse: 250 ms after the sync time.
const PULSE: usize = 256_000;
/// Length of the pulse in samples: 0.5 ms.
const LEN: usize = 512;
/// Length of the recording in samples.
const SAMPLES: usize = 24 * 32_768;

fn run(text: &str) {
    let registry = || crate::kinds();
    let loaded = load_text("g.yaml", text, &[], &registry()).result;
    let plan = loaded.unwrap_or_else(|problems| panic!("{problems:?}"));
    let prepared = Prepared::new(plan.build().unwrap()).unwrap();
    let control = Control::new(plan, registry(), prepared.handle());
    let running = prepared.start(Options::default()).unwrap();
    assert!(control.wait_timeout(std::time::Duration::from_mins(5)), "the flowgraph does not end");
    let failures = running.wait().failures;
    assert!(failures.is_empty(), "{failures:?}");
}

/// Two polarisations of noise with a pulse of noise, or with an impulse of one sample.
fn write_samples(directory: &Path, is_impulse: bool) {
    let mut random = Random::new(7);
    for pol in 0..2 {
        let mut bytes = Vec::with_capacity(2 * SAMPLES);
        for n in 0..SAMPLES {
            let amplitude = if n.abs_diff(PULSE) <= LEN / 2 { 9000.0 } else { 30.0 };
            let noise = amplitude * random.normal_pair()[0];
            let value = match (is_impulse, n == PULSE) {
                (true, true) => 32_000.0,
                (true, false) => 0.0,
                (false, _) => noise,
            };
            bytes.extend_from_slice(&(value.clamp(-32000.0, 32000.0) as i16).to_le_bytes());
        }
        fs::write(directory.join(format!("pulse{pol}.i16")), bytes).unwrap();
    }
}

/// Flowgraph that filters the samples in `directory` with `blocks`, which read `s[0]` and `s[1]`.
fn flowgraph(directory: &Path, sync: &str, blocks: &[String]) -> String {
    let mut text = format!(
        "flowgraph: pulse
blocks:
  s:
    kind: file_source
    replicate: 2
    parameters:
      path: \"{}/pulse${{index}}.i16\"
      raw: {{dtype: i16, axes: [{{name: sample, len: 32768}}], validity_axes: [{{name: heap, len: 8}}],
        samples_per_frame: 32768, adc_sample_rate_hz: {RATE_HZ}, sync_time_seconds: {sync}}}
",
        directory.display()
    );
    for block in blocks {
        writeln!(text, "  {block}").unwrap();
    }
    text
}

/// Begin of a file, distance of its elements in seconds, and power of each element.
struct Series {
    start: Time,
    step_seconds: f64,
    power: Vec<f64>,
    /// Centre of an element after its time, in steps: 0 for time samples, 1/2 for spectra.
    middle: f64,
}

impl Series {
    /// Seconds from `sync` to the centre of the pulse.
    fn pulse_seconds(&self, sync: Time) -> f64 {
        let mut sorted = self.power.clone();
        sorted.sort_by(f64::total_cmp);
        let floor = sorted[sorted.len() / 2];
        let peak =
            (0..self.power.len()).max_by(|a, b| self.power[*a].total_cmp(&self.power[*b])).unwrap();
        let near = (LEN as f64 / RATE_HZ / self.step_seconds) as usize + 20;
        let (mut sum, mut moment) = (0.0, 0.0);
        for n in peak.saturating_sub(near)..(peak + near).min(self.power.len()) {
            let excess = self.power[n] - floor;
            (sum, moment) = (sum + excess, moment + excess * n as f64);
        }
        self.start.seconds_since(sync) + (moment / sum + self.middle) * self.step_seconds
    }
}

/// Powers of groups of `per_element` numbers of one byte.
fn powers(bytes: &[u8], per_element: usize) -> Vec<f64> {
    let square = |byte: &u8| f64::from(byte.cast_signed()).powi(2);
    bytes.chunks_exact(per_element).map(|element| element.iter().map(square).sum()).collect()
}

fn of_filterbank(path: &Path) -> Series {
    let bytes = fs::read(path).unwrap();
    let (header, begin) = filterbank::Header::read(&bytes[..]).unwrap();
    let values: Vec<f64> = bytes[begin as usize..]
        .chunks_exact(4)
        .map(|value| f64::from(f32::from_le_bytes(value.try_into().unwrap())))
        .collect();
    let per_spectrum = (header.nchans * header.nifs) as usize;
    Series {
        start: Time::from_mjd_f64(header.tstart_mjd).unwrap(),
        step_seconds: header.tsamp_seconds,
        power: values.chunks_exact(per_spectrum).map(|one| one.iter().sum()).collect(),
        middle: 0.5,
    }
}

fn of_dada(path: &Path) -> Series {
    let bytes = fs::read(path).unwrap();
    let header = dada::Header::parse(&bytes).unwrap();
    let step_seconds = header.sample_us * 1e-6;
    let before = (header.offset_bytes / header.sample_bytes()) as f64 * step_seconds;
    let sample_bytes = header.sample_bytes() as usize;
    let power = if header.bits == 32 {
        let square =
            |value: &[u8]| f64::from(f32::from_le_bytes(value.try_into().unwrap())).powi(2);
        let samples = bytes[header.header_bytes..].chunks_exact(sample_bytes);
        samples.map(|sample| sample.chunks_exact(4).map(square).sum()).collect()
    } else {
        powers(&bytes[header.header_bytes..], sample_bytes)
    };
    let middle = if header.channels > 1 { 0.5 } else { 0.0 };
    Series { start: header.start.plus_seconds(before).unwrap(), step_seconds, power, middle }
}

fn of_guppi(path: &Path) -> Series {
    let bytes = fs::read(path).unwrap();
    let (first, _) = guppi::Header::parse(&bytes).unwrap();
    let (mut power, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let (header, begin) = guppi::Header::parse(&bytes[at..]).unwrap();
        let len = header.block_bytes as usize;
        // [channel][spectrum][pol]
        let of_spectrum = 2 * header.pols;
        let spectra = len / header.channels / of_spectrum;
        let begin = at + begin;
        let values = powers(&bytes[begin..begin + len], of_spectrum);
        power.extend((0..spectra).map(|n| values.iter().skip(n).step_by(spectra).sum::<f64>()));
        at = begin + len;
    }
    let before = first.first_spectrum().unwrap_or(0) as f64 * first.spectrum_seconds;
    Series {
        start: first.start.plus_seconds(before).unwrap(),
        step_seconds: first.spectrum_seconds,
        power,
        middle: 0.5,
    }
}

/// A recording of complex samples of 32 bits.
fn of_sigmf(path: &Path) -> Series {
    let meta: sigmf::Meta = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    assert_eq!((&*meta.global.datatype, meta.captures.len()), ("cf32_le", 1));
    let bytes = fs::read(path.with_extension("sigmf-data")).unwrap();
    let square = |value: &[u8]| f64::from(f32::from_le_bytes(value.try_into().unwrap())).powi(2);
    Series {
        start: Time::from_iso(meta.captures[0].datetime.as_deref().unwrap()).unwrap(),
        step_seconds: 1.0 / meta.global.sample_rate.unwrap(),
        power: bytes.chunks_exact(8).map(|z| z.chunks_exact(4).map(square).sum()).collect(),
        middle: 0.0,
    }
}

/// Time of the first sample of a file at `rate_hz`.
fn vdif_start(header: &vdif::Header, rate_hz: f64) -> Time {
    let of_frame = f64::from(header.frame) * header.samples() as f64 / rate_hz;
    vdif::epoch_time(header.epoch).plus_seconds(f64::from(header.seconds) + of_frame).unwrap()
}

/// A file of complex samples of 16 bits at `rate_hz`, in one thread.
fn of_vdif(path: &Path, rate_hz: f64) -> Series {
    let bytes = fs::read(path).unwrap();
    let header = vdif::Header::parse(&bytes).unwrap();
    assert_eq!((header.is_complex, header.bits), (true, 16));
    let square = |code: &[u8]| {
        let code = u16::from_le_bytes(code.try_into().unwrap());
        (f64::from(code) - 32_768.0).powi(2)
    };
    let payloads = bytes
        .chunks_exact(header.frame_bytes as usize)
        .flat_map(|frame| frame[header.header_bytes() as usize..].chunks_exact(4));
    Series {
        start: vdif_start(&header, rate_hz),
        step_seconds: 1.0 / rate_hz,
        power: payloads.map(|z| z.chunks_exact(2).map(square).sum()).collect(),
        middle: 0.0,
    }
}

#[test]
fn pulse_is_at_its_time_in_files_of_spectra_with_any_number_of_channels() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    write_samples(at, false);
    for (channels, taps) in [(64, 16), (4096, 16), (1024, 1)] {
        let file = |name: &str| at.join(format!("{channels}_{name}"));
        let sink = |kind: &str, input: &str, name: &str| {
            let path = file(name);
            format!(
                "{kind}: {{kind: {kind}, input: {input}, parameters: {{path: {}}}}}",
                path.display()
            )
        };
        let blocks = [
            format!(
                "p: {{kind: pfb, inputs: [\"s[*]\"], parameters: {{channels: {channels}, taps: {taps}}}}}"
            ),
            "t: {kind: fft, input: p}".to_owned(),
            "d: {kind: detect, input: t, parameters: {products: intensity}}".to_owned(),
            "q: {kind: postproc, input: t, parameters: {spectra_per_heap: 16, gains: 0.003}}"
                .to_owned(),
            sink("filterbank_sink", "d", "pulse.fil"),
            sink("guppi_sink", "q", "pulse.raw"),
            sink("dada_sink", "q", "pulse.dada"),
        ];
        run(&flowgraph(at, "1790000000.123456789", &blocks));
        let sync = Time::from_decimal("1790000000.123456789").unwrap();
        let files = [
            of_filterbank(&file("pulse.fil")),
            of_guppi(&file("pulse.raw")),
            of_dada(&file("pulse.dada")),
        ];
        let sample = 1.0 / RATE_HZ;
        for (n, series) in files.iter().enumerate() {
            let error = series.pulse_seconds(sync) - PULSE as f64 / RATE_HZ;
            assert!(
                error.abs() < 0.3 * series.step_seconds + 20.0 * sample,
                "{channels} channels, file {n}: {error} s"
            );
            let apart = series.start.seconds_since(files[0].start).abs() % series.step_seconds;
            assert!(apart.min(series.step_seconds - apart) < sample, "{channels} {n} {apart}");
        }
    }
}

#[test]
fn impulse_is_at_its_time_behind_chains_of_filters() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    write_samples(at, true);
    let name = |name: &str| at.join(name).display().to_string();
    let blocks = [
        "c: {kind: ddc, replicate: 2, input: \"s[${index}]\", parameters: {centre_hz: 2.56e+5, decimation: 4, \
         taps: 64, samples_per_frame: 8192}}"
            .to_owned(),
        "p: {kind: pfb, inputs: [\"c[*]\"], parameters: {channels: 64, taps: 16, centre_hz: 1.0e+6}}".to_owned(),
        "t: {kind: fft, input: p}".to_owned(),
        "d: {kind: detect, input: t, parameters: {products: intensity}}".to_owned(),
        format!("fil: {{kind: filterbank_sink, input: d, parameters: {{path: {}}}}}", name("c.fil")),
        format!("dada: {{kind: dada_sink, input: \"c[0]\", parameters: {{path: {}}}}}", name("c.dada")),
        format!("meta: {{kind: sigmf_sink, input: \"c[0]\", parameters: {{path: {}}}}}", name("c.sigmf-meta")),
        format!(
            "vdif: {{kind: vdif_sink, input: \"c[0]\", parameters: {{path: {}, bits: 16, scale: 1}}}}",
            name("c.vdif")
        ),
        "r: {kind: resampler, input: \"c[0]\", parameters: {bandwidth_hz: 6.4e+4, stop_band_db: 40, \
         samples_per_frame: 1024}}"
            .to_owned(),
        format!("rm: {{kind: sigmf_sink, input: r, parameters: {{path: {}}}}}", name("r.sigmf-meta")),
        format!("rd: {{kind: dada_sink, input: r, parameters: {{path: {}}}}}", name("r.dada")),
        "f: {kind: f_engine, inputs: [\"s[*]\"], parameters: {channels: 64, taps: 16, gains: 0.02}}".to_owned(),
        "y: {kind: synthesiser, input: f, parameters: {output: real}}".to_owned(),
        format!("yd: {{kind: dada_sink, input: y, parameters: {{path: {}}}}}", name("y.dada")),
    ];
    run(&flowgraph(at, "1790000000", &blocks));
    let sync = Time::unix(1_790_000_000);
    for (name, series) in [
        ("ddc and pfb", of_filterbank(&at.join("c.fil"))),
        ("ddc", of_dada(&at.join("c.dada"))),
        ("ddc, SigMF", of_sigmf(&at.join("c.sigmf-meta"))),
        ("ddc, VDIF", of_vdif(&at.join("c.vdif"), RATE_HZ / 4.0)),
        ("ddc and resampler", of_dada(&at.join("r.dada"))),
        ("ddc and resampler, SigMF", of_sigmf(&at.join("r.sigmf-meta"))),
        ("f_engine and synthesiser", of_dada(&at.join("y.dada"))),
    ] {
        let error = series.pulse_seconds(sync) - PULSE as f64 / RATE_HZ;
        assert!(error.abs() < 0.3 * series.step_seconds + 8.0 / RATE_HZ, "{name}: {error} s");
    }
}

#[test]
fn all_files_agree_across_a_leap_second() {
    let directory = tempfile::tempdir().unwrap();
    let name = |name: &str| directory.path().join(name).display().to_string();
    // The stream begins 3 s after the sync time: the leap second is between them.
    let text = format!(
        "flowgraph: leap
blocks:
  n: {{kind: digitiser_simulator, parameters: {{signals: wgn(0.1), frames: 8, adc_sample_rate_hz: 1.024e+6,
    samples_per_frame: 32768, sync_time_seconds: '2016-12-31T23:59:58.5Z', first_timestamp: 3080192}}}}
  f: {{kind: f_engine, inputs: [n.pol0, n.pol1], parameters: {{channels: 64, taps: 1, gains: 0.3}}}}
  p: {{kind: pfb, inputs: [n.pol0, n.pol1], parameters: {{channels: 64, taps: 1}}}}
  t: {{kind: fft, input: p}}
  d: {{kind: detect, input: t, parameters: {{products: intensity, spectra: 16}}}}
  fil: {{kind: filterbank_sink, input: d, parameters: {{path: {}}}}}
  raw: {{kind: guppi_sink, input: f, parameters: {{path: {}}}}}
  dada: {{kind: dada_sink, input: f, parameters: {{path: {}}}}}
  c: {{kind: ddc, input: n.pol0, parameters: {{centre_hz: 2.56e+5, decimation: 4, taps: 4, samples_per_frame: 8192}}}}
  meta: {{kind: sigmf_sink, input: c, parameters: {{path: {}}}}}
  vdif: {{kind: vdif_sink, input: c, parameters: {{path: {}}}}}
",
        name("l.fil"),
        name("l.raw"),
        name("l.dada"),
        name("l.sigmf-meta"),
        name("l.vdif"),
    );
    run(&text);
    // 3080192 samples are 3.008 s, of which one is the leap second.
    let expected = Time::from_iso("2017-01-01T00:00:00.508Z").unwrap();
    let at = |name: &str| directory.path().join(name);
    let meta: sigmf::Meta = serde_json::from_slice(&fs::read(at("l.sigmf-meta")).unwrap()).unwrap();
    let header = vdif::Header::parse(&fs::read(at("l.vdif")).unwrap()).unwrap();
    for (name, start, after, tolerance) in [
        ("filterbank", of_filterbank(&at("l.fil")).start, 0.0, 1e-6),
        ("guppi", of_guppi(&at("l.raw")).start, 0.0, 1e-9),
        ("dada", of_dada(&at("l.dada")).start, 0.0, 1e-9),
        // The centre of 4 taps is 1.5 ADC samples after the first one; the file has nanoseconds.
        (
            "sigmf",
            Time::from_iso(meta.captures[0].datetime.as_deref().unwrap()).unwrap(),
            1.5 / 1.024e6,
            1e-9,
        ),
        // Frames of 16000 samples, 8000 bytes: the first one that begins after 0.508 s is the tenth, at 0.5625 s.
        ("vdif", vdif_start(&header, 2.56e5), 0.0545, 1e-9),
    ] {
        let error = start.seconds_since(expected) - after;
        assert!(error.abs() <= tolerance, "{name}: {start}, {error} s");
    }
}
