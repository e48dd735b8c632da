//! Captures in pcapng, written by scapy and by hand, against the same packets in pcap.

use super::{needs, run_flowgraph, script};

#[test]
fn pcapng_has_the_same_samples_as_pcap() {
    if !needs::python() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    script(directory.path(), "pcapng.py", &[]);
    let mut yaml = "flowgraph: captures\nblocks:\n".to_owned();
    for format in ["pcap", "pcapng"] {
        yaml += &format!(
            "  {format}:
    kind: spead_source
    parameters: {{stream: digitiser, pcap: capture.{format}, adc_sample_rate_hz: 1712000, samples_per_frame: 32768}}
  {format}_out: {{kind: file_sink, input: {format}, parameters: {{path: {format}.npy}}}}
"
        );
    }
    run_flowgraph(directory.path(), &yaml);
    let read = |name: &str| std::fs::read(directory.path().join(name)).unwrap();
    for array in ["npy", "timestamp.npy", "validity.npy"] {
        assert!(read(&format!("pcap.{array}")) == read(&format!("pcapng.{array}")), "{array}");
    }
    // 64 heaps of 5120 bytes, all of which have arrived.
    assert!(read("pcapng.npy").len() >= 64 * 5120);
    let validity = read("pcapng.validity.npy");
    let flags = &validity[validity.len() - 4 * 64..];
    assert!(flags.chunks(4).all(|flag| flag == [1, 0, 0, 0]), "{flags:?}");
}
