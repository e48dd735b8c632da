//! Live updates of running flowgraphs: before the effective timestamp the output equals that of a run with the
//! old values, after it that of a run with the new values, spectrum by spectrum.

use crate::kinds;
use fxgraph::control::{LiveUpdate, LiveUpdateError, Way};
use fxgraph::flowgraph::{Probe, load_text};
use fxgraph::runtime::{EventKind, Options, Prepared};
use fxgraph::{Block, BlockError, Control, Frame, Io, Next};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const LIMIT: Duration = Duration::from_mins(1);
const CHANNELS: usize = 16;
const STEP: u64 = 2 * CHANNELS as u64;
const SPECTRA_PER_HEAP: usize = 8;

#[test]
fn every_live_parameter_is_marked_in_its_schema() {
    let mut live = 0;
    for kind in kinds().iter() {
        let schema = (kind.schema)().to_value();
        for name in &kind.live {
            assert_eq!(schema["properties"][name]["x-live"], true, "{name} of {}", kind.name);
            live += 1;
        }
    }
    assert!(live > 0);
}

/// One output spectrum of all polarisations.
#[derive(Clone, Debug, PartialEq)]
struct Spectrum {
    timestamp: u64,
    config_id: u64,
    is_valid: bool,
    values: Vec<u8>,
}

/// Sink that stores the spectra it reads, up to a limit.
struct Watch {
    seen: Arc<Mutex<Vec<Spectrum>>>,
    allowed: Arc<AtomicUsize>,
    cut: Cut,
}

/// Function that divides a frame into spectra.
type Cut = Box<dyn Fn(&Frame) -> Vec<Spectrum> + Send>;

/// Divides a heap of `pols` polarisations, \[channel\]\[spectrum\]\[pol\], into spectra.
fn spectra(pols: usize) -> Cut {
    Box::new(move |frame| {
        let (header, payload) = (frame.header(), frame.as_slice::<u8>().unwrap());
        let unit = 2 * pols;
        let spectrum = |s: usize| {
            let rows = payload.chunks_exact(SPECTRA_PER_HEAP * unit);
            Spectrum {
                timestamp: header.timestamp + s as u64 * STEP,
                config_id: header.config_id,
                is_valid: header.validity[0] == 1,
                values: rows.flat_map(|row| &row[s * unit..][..unit]).copied().collect(),
            }
        };
        (0..SPECTRA_PER_HEAP).map(spectrum).collect()
    })
}

/// Divides a frame of packed samples into samples of `bits` bits.
fn samples(bits: usize) -> Cut {
    Box::new(move |frame| {
        let (header, payload) = (frame.header(), frame.as_slice::<u8>().unwrap());
        let bit = |at: usize| payload[at / 8] >> (7 - at % 8) & 1;
        let sample = |n: usize| Spectrum {
            timestamp: header.timestamp + n as u64,
            config_id: header.config_id,
            is_valid: header.validity.iter().all(|v| *v == 1),
            values: (n * bits..(n + 1) * bits).map(bit).collect(),
        };
        (0..8 * payload.len() / bits).map(sample).collect()
    })
}

impl Block for Watch {
    fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        let pause = Next::After(Duration::from_millis(1));
        while self.seen.lock().unwrap().len() < self.allowed.load(Ordering::SeqCst) {
            let Some(frame) = io.inputs[0].pop() else {
                return Ok(if io.inputs[0].ended() { Next::Finished } else { pause });
            };
            let read = (self.cut)(&frame);
            self.seen.lock().unwrap().extend(read);
        }
        Ok(pause)
    }
}

/// Returns a flowgraph with an F-engine: `pfb`, `fft` and `post`, or only `post` as `f_engine`.
fn flowgraph(in_one: bool, pols: usize, delays: &str, gains: &str, seed: u64) -> String {
    let inputs = if pols == 2 { "[dig.pol0, dig.pol1]" } else { "[dig.pol0]" };
    let filter =
        format!("channels: {CHANNELS}, taps: 4, delays: {delays}, max_delay_seconds: 0.0001, ");
    let quantiser =
        format!("spectra_per_heap: {SPECTRA_PER_HEAP}, gains: {gains}, dither_seed: {seed}, ");
    let blocks = if in_one {
        format!(
            "  post: {{kind: f_engine, inputs: {inputs}, parameters: {{{filter} {quantiser}}}}}\n"
        )
    } else {
        format!(
            "  pfb: {{kind: pfb, inputs: {inputs}, parameters: {{{filter} spectra_per_frame: 20}}}}\n  \
             fft: {{kind: fft, input: pfb}}\n  \
             post: {{kind: postproc, input: fft, parameters: {{{quantiser}}}}}\n"
        )
    };
    let unread = if pols == 2 { "" } else { "  unread: {kind: null_sink, input: dig.pol1}\n" };
    format!(
        "flowgraph: updated\nblocks:\n  \
         dig: {{kind: digitiser_simulator, parameters: {{signals: \"wgn(0.1)\", frames: 40, \
         adc_sample_rate_hz: 1.0e+6, samples_per_frame: 2048, samples_per_heap: 256, \
         period_samples: 65536}}}}\n{blocks}{unread}  end: {{kind: null_sink, input: post}}\n"
    )
}

/// Runs a flowgraph to its end; `change` is called when some of its spectra have been output and the
/// others wait.
fn run(text: &str, pols: usize, change: impl FnOnce(&Control)) -> Vec<Spectrum> {
    run_to("post", text, spectra(pols), change)
}

fn run_to(block: &str, text: &str, cut: Cut, change: impl FnOnce(&Control)) -> Vec<Spectrum> {
    let plan = load_text("test.yaml", text, &[], &kinds()).result.unwrap();
    let (seen, allowed) = (Arc::default(), Arc::new(AtomicUsize::new(200)));
    let watch = Watch { seen: Arc::clone(&seen), allowed: Arc::clone(&allowed), cut };
    let source = (plan.block(block).unwrap(), 0);
    let probe = Probe { name: "watch".to_owned(), source, block: Box::new(watch), queue: 2 };
    let prepared = Prepared::new(plan.build_with(vec![probe]).unwrap()).unwrap();
    let options = Options { config_id: plan.config_id(), ..Options::default() };
    let control = Control::new(plan, kinds(), prepared.handle());
    let running = prepared.start(options).unwrap();
    while seen.lock().unwrap().len() < 200 {
        std::thread::sleep(Duration::from_millis(1));
    }
    change(&control);
    allowed.store(usize::MAX, Ordering::SeqCst);
    assert!(control.wait_timeout(LIMIT));
    assert!(running.wait().failures.is_empty());
    let seen = seen.lock().unwrap().clone();
    assert!(seen.len() > 2000 && seen.iter().filter(|spectrum| spectrum.is_valid).count() > 2000);
    seen
}

fn untouched(text: &str, pols: usize) -> Vec<Spectrum> {
    run(text, pols, |_| {})
}

/// Returns only the values of spectra, without the identifier of the configuration.
fn values(spectra: &[Spectrum]) -> Vec<(u64, bool, &[u8])> {
    spectra.iter().map(|s| (s.timestamp, s.is_valid, &*s.values)).collect()
}

/// Returns `before` up to the timestamp, and `after` from there on.
fn joined<'a>(
    before: &'a [Spectrum],
    after: &'a [Spectrum],
    at: u64,
) -> Vec<(u64, bool, &'a [u8])> {
    let pairs = values(before).into_iter().zip(values(after));
    pairs.map(|(before, after)| if before.0 < at { before } else { after }).collect()
}

#[test]
fn gains_and_seeds_apply_from_the_effective_timestamp() {
    for (in_one, pols) in [(false, 2), (false, 1), (true, 2)] {
        // Not at the start of a spectrum, a heap or a frame of the filter bank.
        let at = 45_003;
        let text = flowgraph(in_one, pols, "[]", "20", 3);
        let before = untouched(&text, pols);
        let list: Vec<String> = (0..CHANNELS).map(|k| format!("{{re: {k}, im: 3}}")).collect();
        let gains = format!("[{}]", vec![format!("[{}]", list.join(", ")); pols].join(", "));
        let after = untouched(&flowgraph(in_one, pols, "[]", &gains, 8), pols);
        let found = run(&text, pols, |control| {
            let request = format!("post: {{gains: {gains}, dither_seed: 8}}");
            let done = control.live_update(&request, Some(at), LIMIT).unwrap();
            assert_eq!((done.effective_timestamp, done.is_late), (at, false));
            assert_eq!(control.plan().config_id(), done.config_id);
        });
        assert!(values(&found) == joined(&before, &after, at), "{in_one} {pols}");
        assert_ne!(values(&found), values(&before));
        // A frame is one heap: the heap with the change contains spectra of both configurations.
        let heap = SPECTRA_PER_HEAP as u64 * STEP;
        let ids: Vec<u64> = [before[0].config_id, after[0].config_id].into();
        for Spectrum { timestamp, config_id, .. } in &found {
            assert_eq!(*config_id == ids[0], *timestamp < at.next_multiple_of(heap), "{timestamp}");
        }
    }
}

#[test]
fn delays_apply_from_the_effective_timestamp() {
    for in_one in [false, true] {
        let at = 50_001;
        let old = "[{delay_samples: 3.3}], [{delay_samples: -7.0, phase_radians: 0.3}]";
        let new = |start: u64| {
            [
                format!("{{start_samples: {start}, delay_samples: 20.4}}"),
                format!("{{start_samples: {start}, delay_samples: -2.25, phase_radians: 1}}"),
            ]
        };
        let text = flowgraph(in_one, 2, &format!("[{old}]"), "20", 3);
        let [new0, new1] = new(40_000);
        let queued = format!(
            "[[{{delay_samples: 3.3}}, {}], [{{delay_samples: -7.0, phase_radians: 0.3}}, {}]]",
            new0.replace("40000", "50001"),
            new1.replace("40000", "50001"),
        );
        // Models without a rate: their start does not affect the output.
        let expected = untouched(&flowgraph(in_one, 2, &queued, "20", 3), 2);
        let block = if in_one { "post" } else { "pfb" };
        let found = run(&text, 2, |control| {
            let request = format!("{block}: {{delays: [[{new0}], [{new1}]]}}");
            let done = control.live_update(&request, Some(at), LIMIT).unwrap();
            assert_eq!(done.effective_timestamp, at);
        });
        assert!(values(&found) == values(&expected), "{in_one}");
        let before = untouched(&text, 2);
        assert!(values(&found) != values(&before));
    }
}

#[test]
fn transaction_updates_all_blocks_at_one_timestamp_or_none() {
    let text = flowgraph(false, 2, "[[{delay_samples: 1}], []]", "20", 3);
    let before = untouched(&text, 2);
    let reject = |control: &Control, request: &str| {
        let error = control.live_update(request, None, LIMIT).unwrap_err();
        let LiveUpdateError::Rejected(rejected) = error else { panic!("{error}") };
        assert_eq!(control.plan().config_id(), before[0].config_id);
        rejected.problems[0].message.clone()
    };
    let unchanged = run(&text, 2, |control| {
        let message =
            reject(control, "{pfb: {delays: [[{delay_samples: 9}], []]}, post: {bits: 4}}");
        assert_eq!(message, "`bits` of `postproc` cannot change while the block runs");
        let message =
            reject(control, "{pfb: {delays: [[{delay_samples: 900}], []]}, post: {gains: 2}}");
        assert!(message.contains("the delay must be between"), "{message}");
        reject(control, "{post: {gains: [1, 2, 3]}}");
        // The last block rejects its values after the others have accepted theirs.
        let gone =
            control.live_update("{post: {gains: 1}, fft: {threads: 1}, end: {}}", None, LIMIT);
        assert!(gone.is_err());
        assert!(control.live_update("{}", None, LIMIT).is_err());
        let far = control.live_update("{post: {gains: 1}}", Some(u64::MAX), LIMIT).unwrap_err();
        let too_large = "the timestamp must be below 4611686018427387904, got 18446744073709551615";
        assert_eq!(far.to_string(), too_large);
    });
    assert_eq!(unchanged, before);
    let mut done = None;
    let found = run(&text, 2, |control| {
        let request = "{pfb: {delays: [[{delay_samples: 9}], []]}, post: {gains: 30}}";
        let first: LiveUpdate = control.live_update(request, None, LIMIT).unwrap();
        assert!(!first.is_late);
        assert_eq!(control.steady_state_timestamp(), first.effective_timestamp);
        // A timestamp in the past: the change applies at once and the answer reports that.
        let late = control.live_update("{post: {gains: 30}}", Some(10), LIMIT).unwrap();
        assert!(late.is_late && late.effective_timestamp > 10);
        assert!(late.effective_timestamp <= first.effective_timestamp);
        assert_eq!(late.steady_state_timestamp, first.effective_timestamp);
        let events = control.events_since(0);
        let told: Vec<_> = events.iter().filter(|e| e.kind == EventKind::LiveUpdate).collect();
        let text = format!("`pfb`, `post` from timestamp {} on", first.effective_timestamp);
        assert_eq!((told[0].block.as_deref(), &told[0].text), (None, &text));
        assert_eq!(told[1].block.as_deref(), Some("post"));
        done = Some((first.effective_timestamp, late.effective_timestamp));
    });
    let (both, gains) = done.unwrap();
    let louder = untouched(&flowgraph(false, 2, "[[{delay_samples: 1}], []]", "30", 3), 2);
    let after = untouched(&flowgraph(false, 2, "[[{delay_samples: 9}], []]", "30", 3), 2);
    let expected: Vec<_> = joined(&before, &louder, gains)
        .into_iter()
        .zip(values(&after))
        .map(|(before, after)| if before.0 < both { before } else { after })
        .collect();
    assert!(values(&found) == expected);
}

#[test]
fn scheduled_updates_apply_in_order_of_their_timestamps() {
    let text = flowgraph(false, 2, "[]", "1", 3);
    let runs =
        [1, 20, 40, 30].map(|gain| untouched(&flowgraph(false, 2, "[]", &gain.to_string(), 3), 2));
    let found = run(&text, 2, |control| {
        for (at, gain) in [(40_000, 20), (60_000, 30), (70_000, 50), (50_000, 40), (65_000, 30)] {
            control.live_update(&format!("{{post: {{gains: {gain}}}}}"), Some(at), LIMIT).unwrap();
        }
    });
    let expected = |spectrum: &Spectrum, n: usize| {
        let which = [40_000, 50_000, 65_000].iter().filter(|at| spectrum.timestamp >= **at).count();
        runs[which][n].values == spectrum.values
    };
    assert!(found.iter().enumerate().all(|(n, spectrum)| expected(spectrum, n)));
}

#[test]
fn simulated_signals_change_at_the_exact_sample() {
    for (bits, at) in [(10, 9_001), (8, 9_001), (12, 9_003), (10, 8_192)] {
        let text = |signals: &str| {
            format!(
                "flowgraph: g\nblocks:\n  dig: {{kind: digitiser_simulator, parameters: {{\
                 signals: \"{signals}\", bits: {bits}, frames: 40, samples_per_frame: 1024, \
                 samples_per_heap: 256, period_samples: 4096}}}}\n  \
                 end: {{kind: null_sink, replicate: 2, input: \"dig.pol${{index}}\"}}\n"
            )
        };
        let whole = |signals| run_to("dig", &text(signals), samples(bits), |_| {});
        let (before, after) = (whole("wgn(0.2, 3)"), whole("cw(0.5, 3e8)"));
        let found = run_to("dig", &text("wgn(0.2, 3)"), samples(bits), |control| {
            let request = "{dig: {signals: \"cw(0.5, 3e8)\"}}";
            let done = control.live_update(request, Some(at), LIMIT).unwrap();
            assert_eq!(done.effective_timestamp, at);
            let wrong = control.live_update("{dig: {signals: \"cw(0.5\"}}", None, LIMIT);
            assert!(matches!(wrong, Err(LiveUpdateError::Rejected(_))));
        });
        assert!(values(&found) == joined(&before, &after, at), "{bits} bits at {at}");
    }
}

#[test]
fn pfb_rejects_delays_beyond_its_history_and_names_the_limit() {
    let text = flowgraph(false, 2, "[]", "1", 3).replace(", max_delay_seconds: 0.0001", "");
    run(&text, 2, |control| {
        let error = control.live_update("{pfb: {delays: [[{delay_samples: 1}], []]}}", None, LIMIT);
        let text = error.unwrap_err().to_string();
        assert!(text.contains("it buffers delays up to 0 s"), "{text}");
    });
}

/// Divides beams, \[heap\]\[beam\]\[channel\]\[spectrum\], into spectra.
fn beam_spectra(heaps: usize, spectra: usize, step: u64) -> Cut {
    Box::new(move |frame| {
        let (header, payload) = (frame.header(), frame.as_slice::<u8>().unwrap());
        let heap_bytes = payload.len() / heaps;
        let spectrum = |n: usize| {
            let heap = &payload[n / spectra * heap_bytes..][..heap_bytes];
            let rows = heap.chunks_exact(2 * spectra);
            Spectrum {
                timestamp: header.timestamp + n as u64 * step,
                config_id: header.config_id,
                is_valid: header.validity[n / spectra] > 0,
                values: rows.flat_map(|row| &row[2 * (n % spectra)..][..2]).copied().collect(),
            }
        };
        (0..heaps * spectra).map(spectrum).collect()
    })
}

#[test]
fn beam_weights_apply_from_the_effective_timestamp() {
    let step = 10;
    let text = |beams: &str| {
        format!(
            "flowgraph: g\nblocks:\n  x: {{kind: null_source, parameters: {{dtype: ci8, axes: [\
             {{name: heap, len: 2}}, {{name: antenna, len: 3}}, {{name: channel, len: 5}}, \
             {{name: spectrum, len: 7}}, {{name: pol, len: 2}}], validity_axes: [\
             {{name: heap, len: 2}}, {{name: antenna, len: 3}}], samples_per_frame: 140, \
             frames: 200, pattern: random}}}}\n  \
             b: {{kind: beamformer, input: x, parameters: {{{beams}, dither_seed: 3}}}}\n  \
             end: {{kind: null_sink, input: b}}\n"
        )
    };
    let old = "beams: [{pol: 0, gain: 0.3}, {pol: 1, phases_radians: [0, 1, 2]}]";
    let new = "beams: [{pol: 1, weights: [1, 0, 2], gain: 0.2}, {pol: 1, phases_radians: 0.5}]";
    let whole = |beams| run_to("b", &text(beams), beam_spectra(2, 7, step), |_| {});
    let (before, after) = (whole(old), whole(new));
    for at in [15_000, 15_031, 15_069, 15_070] {
        let found = run_to("b", &text(old), beam_spectra(2, 7, step), |control| {
            let done = control.live_update(&format!("{{b: {{{new}}}}}"), Some(at), LIMIT).unwrap();
            assert_eq!(done.effective_timestamp, at);
            let more = control.live_update("{b: {beams: [{pol: 0}]}}", None, LIMIT).unwrap_err();
            assert_eq!(
                more.to_string(),
                "`beamformer` would have other outputs with these parameters"
            );
        });
        assert!(values(&found) == joined(&before, &after, at), "at {at}");
    }
}

/// Divides a frame into heaps of 256 complex samples.
fn heaps(subsampling: u64) -> Cut {
    Box::new(move |frame| {
        let (header, payload) = (frame.header(), frame.as_slice::<u8>().unwrap());
        let heap = |(n, values): (usize, &[u8])| Spectrum {
            timestamp: header.timestamp + n as u64 * 256 * subsampling,
            config_id: header.config_id,
            is_valid: header.validity[n] > 0,
            values: values.to_vec(),
        };
        payload.chunks_exact(256 * 8).enumerate().map(heap).collect()
    })
}

#[test]
fn ddc_centre_applies_from_the_first_heap_at_the_timestamp() {
    let text = |centre_hz: f64| {
        format!(
            "flowgraph: g\nblocks:\n  x: {{kind: null_source, parameters: {{dtype: i8p, axes: [\
             {{name: sample, len: 65536}}], samples_per_frame: 65536, adc_sample_rate_hz: 1.0e+9, \
             frames: 25, pattern: random}}}}\n  \
             d: {{kind: ddc, input: x, parameters: {{centre_hz: {centre_hz}, decimation: 2, taps: 8, \
             samples_per_frame: 1280}}}}\n  end: {{kind: null_sink, input: d}}\n"
        )
    };
    let (old_hz, new_hz) = (251_234_567.0, 260_000_001.0);
    let whole = |centre_hz| run_to("d", &text(centre_hz), heaps(2), |_| {});
    let (before, after) = (whole(old_hz), whole(new_hz));
    for at in [512 * 600, 512 * 600 + 1, 512 * 604 - 1] {
        let found = run_to("d", &text(old_hz), heaps(2), |control| {
            let done = control
                .live_update(&format!("d: {{centre_hz: {new_hz}}}"), Some(at), LIMIT)
                .unwrap();
            assert_eq!((done.effective_timestamp, done.is_late), (at, false));
            let outside = control.live_update("d: {centre_hz: 1.0e+6}", None, LIMIT).unwrap_err();
            assert!(outside.to_string().contains("is not within"), "{outside}");
        });
        assert!(values(&found) == joined(&before, &after, at), "at {at}");
        assert_ne!(values(&found), values(&before));
    }
}

#[test]
fn plan_after_a_band_change_updates_every_edge_downstream() {
    let text = "flowgraph: narrow\nblocks:\n  \
        end: {kind: null_sink, input: heaps}\n  \
        heaps: {kind: postproc, input: fft, parameters: {channels: 32}}\n  \
        fft: {kind: fft, input: pfb}\n  \
        pfb: {kind: pfb, inputs: [ddc0, ddc1], parameters: {channels: 64}}\n  \
        ddc0: {kind: ddc, input: source, parameters: {centre_hz: 3.0e+8, decimation: 8}}\n  \
        ddc1: {kind: ddc, input: source, parameters: {centre_hz: 3.0e+8, decimation: 8}}\n  \
        source: {kind: null_source, parameters: {dtype: i10p, axes: [{name: sample, len: 65536}], \
        samples_per_frame: 65536}}\n";
    let registry = kinds();
    let plan = load_text("narrow.yaml", text, &[], &registry).result.unwrap();
    let centres = |plan: &fxgraph::flowgraph::Plan| {
        ["ddc0", "ddc1", "pfb", "fft", "heaps"].map(|name| {
            let block = plan.blocks.iter().find(|block| block.name == name).unwrap();
            block.ports.outputs[0].band.unwrap().centre_hz as u64
        })
    };
    assert_eq!(centres(&plan), [300_000_000; 5]);
    // Until both polarisations have changed, spectra have the previous band.
    let one = plan.with_change(&registry, "{ddc0: {centre_hz: 4.0e+8}}", 0).ok().unwrap();
    assert_eq!(centres(&one), [400_000_000, 300_000_000, 300_000_000, 300_000_000, 300_000_000]);
    let both = one.with_change(&registry, "{ddc1: {centre_hz: 4.0e+8}}", 0).ok().unwrap();
    assert_eq!(centres(&both), [400_000_000; 5]);
    let end = both.blocks.iter().find(|block| block.name == "end").unwrap();
    assert_eq!(end.ports.inputs[0].band.unwrap().centre_hz as u64, 400_000_000);
}

#[test]
fn feed_gains_apply_from_the_effective_timestamp() {
    let (spectra, step) = (64, 32);
    let text = |gains: &str| {
        format!(
            "flowgraph: frb\nblocks:\n  x: {{kind: null_source, parameters: {{dtype: ci8, axes: [\
             {{name: spectrum, len: {spectra}}}, {{name: channel, len: 2}}, {{name: pol, len: 2}}, \
             {{name: east_west, len: 2}}, {{name: north_south, len: 4}}], samples_per_frame: {}, \
             frames: 40, pattern: random}}}}\n  \
             b: {{kind: frb_beamformer, input: x, parameters: {{{gains}, north_south: {{points: 8}}}}}}\n  \
             end: {{kind: null_sink, input: b}}\n",
            spectra * step
        )
    };
    let cut = || -> Cut {
        Box::new(move |frame| {
            let (header, payload) = (frame.header(), frame.as_slice::<u8>().unwrap());
            let rows = payload.chunks_exact(payload.len() / spectra).enumerate();
            let spectrum = |(n, row): (usize, &[u8])| Spectrum {
                timestamp: header.timestamp + (n * step) as u64,
                config_id: header.config_id,
                is_valid: header.validity[0] == 1,
                values: row.to_vec(),
            };
            rows.map(spectrum).collect()
        })
    };
    let old = "gains: 1.5";
    let new = "gains: [[1, 2, 3, 4, 5, 6, 7, 8], [8, 7, {im: 6}, 5, 4, 3, 2, 1]]";
    let whole = |gains| run_to("b", &text(gains), cut(), |_| {});
    let (before, after) = (whole(old), whole(new));
    // Not at the start of a spectrum or a frame.
    let at = 45_003;
    let found = run_to("b", &text(old), cut(), |control| {
        let done = control.live_update(&format!("{{b: {{{new}}}}}"), Some(at), LIMIT).unwrap();
        assert_eq!(done.effective_timestamp, at);
        control.live_update("{b: {gains: [[1, 2], [3, 4]]}}", None, LIMIT).unwrap_err();
    });
    assert!(values(&found) == joined(&before, &after, at));
}

#[test]
fn move_to_another_device_is_reported_with_its_gap_and_rejected() {
    let plan = load_text("test.yaml", &flowgraph(false, 2, "[]", "1", 3), &[], &kinds());
    let (control, prepared) = Control::prepared(plan.result.unwrap(), kinds()).ok().unwrap();
    let change = control.change("fft", "device: cuda:0").ok().unwrap();
    let moved = change.differences.iter().find(|difference| difference.key == "device").unwrap();
    assert_eq!((&moved.from, &moved.to), (&"cpu".into(), &"cuda:0".into()));
    assert!(matches!(change.way, Way::Restart(_)));
    assert_eq!(change.way.gap(), "from the stop of the flowgraph to its next start");
    let rejected = control.swap(&change, LIMIT, false).unwrap_err().to_string();
    assert!(rejected.contains("stop the flowgraph and start it with the change"), "{rejected}");
    let rejected = control.shadow(&change, false).unwrap_err().to_string();
    assert!(rejected.starts_with("`fft` cannot have this shadow"), "{rejected}");
    let source = control.change("dig", "{}").ok().unwrap();
    assert_eq!(source.way, Way::Nothing);
    let rejected = control.shadow(&source, false).unwrap_err().to_string();
    assert_eq!(rejected, "`dig` cannot have a shadow: it needs inputs and outputs");
    prepared.discard();
}
