//! Headers: known bytes, hostile bytes; values of every width.

use super::*;
use proptest::prelude::*;

fn header() -> Header {
    Header {
        source_name: "B0531+21".to_owned(),
        rawdatafile: "fxgraph".to_owned(),
        telescope_id: 64,
        machine_id: 0,
        nbeams: 4,
        ibeam: 2,
        nchans: 16,
        nifs: 2,
        nbits: 8,
        is_signed: false,
        fch1_mhz: 1500.5,
        foff_mhz: -0.25,
        tsamp_seconds: 64e-6,
        tstart_mjd: 60262.925,
        src_raj: 53_431.97,
        src_dej: 220_052.1,
        nsamples: None,
    }
}

/// Appends a keyword.
fn keyword(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend((text.len() as u32).to_le_bytes());
    bytes.extend(text.as_bytes());
}

/// Returns a header written by hand, with the keywords that every file has and `others`.
fn by_hand(others: &[(&str, &[u8])]) -> Vec<u8> {
    let mut bytes = Vec::new();
    keyword(&mut bytes, "HEADER_START");
    let values: [(&str, &[u8]); 5] = [
        ("nchans", &4_i32.to_le_bytes()),
        ("nbits", &2_i32.to_le_bytes()),
        ("fch1", &1400.0_f64.to_le_bytes()),
        ("tsamp", &1e-3_f64.to_le_bytes()),
        ("tstart", &60000.0_f64.to_le_bytes()),
    ];
    for (name, value) in values.iter().chain(others) {
        keyword(&mut bytes, name);
        bytes.extend(*value);
    }
    keyword(&mut bytes, "HEADER_END");
    bytes
}

fn error(bytes: &[u8]) -> String {
    Header::read(bytes).unwrap_err().to_string()
}

#[test]
fn header_written_by_hand_is_read_with_its_defaults() {
    let bytes = by_hand(&[
        ("foff", &(-2.0_f64).to_le_bytes()),
        ("source_name", b"\x03\0\0\0J1\x07"),
        ("refdm", &1.0_f64.to_le_bytes()),
        ("barycentric", &0_i32.to_le_bytes()),
        ("signed", &[1]),
        ("nsamples", &1000_i32.to_le_bytes()),
    ]);
    let (header, len) = Header::read(&bytes[..]).unwrap();
    assert_eq!(len, bytes.len() as u64);
    assert_eq!((header.nchans, header.nifs, header.nbits, header.is_signed), (4, 1, 2, true));
    assert_eq!((header.fch1_mhz, header.foff_mhz, header.tsamp_seconds), (1400.0, -2.0, 1e-3));
    assert_eq!((header.source_name.as_str(), header.nsamples), ("J1?", Some(1000)));
    assert_eq!(header.spectrum_bytes(), 1);
}

#[test]
fn table_of_frequencies_with_equal_steps_replaces_fch1_and_foff() {
    let table = |frequencies: [f64; 4]| {
        let frequencies = frequencies.map(f64::to_le_bytes);
        let mut parts: Vec<(&str, &[u8])> = vec![("FREQUENCY_START", &[])];
        parts.extend(frequencies.iter().map(|bytes| ("fchannel", &bytes[..])));
        parts.push(("FREQUENCY_END", &[]));
        by_hand(&parts)
    };
    let (header, _) = Header::read(&table([1400.0, 1399.5, 1399.0, 1398.5])[..]).unwrap();
    assert_eq!((header.fch1_mhz, header.foff_mhz), (1400.0, -0.5));
    assert!(error(&table([1400.0, 1399.5, 1399.0, 1398.0])).contains("equal steps"));
}

#[test]
fn header_that_cannot_be_used_is_rejected_with_its_reason() {
    let foff: (&str, &[u8]) = ("foff", &[0; 8]);
    assert!(error(b"").contains("HEADER_START"));
    assert!(error(b"\x0c\0\0\0HEADER_STAR").contains("HEADER_START"));
    assert!(error(b"\0\0\0\x0cHEADER_START").contains("big-endian"));
    assert!(error(b"\x0c\0\0\0HEADER_START").contains("ends within"));
    assert!(error(b"\x0c\0\0\0HEADER_START\xff\xff\xff\xff").contains("found -1"));
    assert!(error(&by_hand(&[])).contains("no `foff`"));
    assert!(error(&by_hand(&[("a\x1bb", &[])])).contains("unknown keyword `a?b`"));
    let with = |name, value: i32| error(&by_hand(&[foff, (name, &value.to_le_bytes())]));
    assert_eq!(with("nchans", 0), "`nchans` must be between 1 and 16777216, found 0");
    assert_eq!(with("nchans", -5), "`nchans` must be positive, found -5");
    assert!(with("nchans", 3).contains("whole bytes"), "{}", with("nchans", 3));
    assert_eq!(with("nbits", 12), "`nbits` must be 1, 2, 4, 8, 16 or 32, found 12");
    assert!(with("nifs", i32::MAX).contains("`nifs` must be between 1"));
    let tsamp = error(&by_hand(&[foff, ("tsamp", &f64::NAN.to_le_bytes())]));
    assert_eq!(tsamp, "`tsamp` must be positive and finite, found NaN");
    // A header without an end.
    let endless =
        [&by_hand(&[foff])[..16], &b"\x04\0\0\0foff\0\0\0\0\0\0\0\0".repeat(70_000)].concat();
    assert!(error(&endless).contains("no HEADER_END"));
}

#[test]
fn header_texts_are_written_as_printable_ascii_of_at_most_80_bytes() {
    let named = Header { source_name: format!("\u{394}\n{}", "x".repeat(100)), ..header() };
    let (read, _) = Header::read(&named.to_bytes()[..]).unwrap();
    assert_eq!(read.source_name, format!("??{}", "x".repeat(78)));
}

#[test]
fn angles_become_their_digits() {
    assert_eq!(right_ascension("05:34:31.973"), Some(53_431.973));
    assert_eq!(declination("+22:00:52.06"), Some(220_052.06));
    assert_eq!(declination("-00:30:01"), Some(-3001.0));
    for text in [
        "", "5", "05:34", "24:00:00", "05:60:00", "05:34:61", "a:b:c", "1:2:3:4", "1.5:0:0",
        "-1:0:0", "nan:0:0", "001:2:3",
    ] {
        assert_eq!(right_ascension(text), None, "{text}");
    }
    for text in ["91:00:00", "90:00:01", "--1:0:0", "+-1:0:0"] {
        assert_eq!(declination(text), None, "{text}");
    }
}

#[test]
fn values_of_every_width_are_unpacked() {
    let mut values = [0.0; 8];
    unpack(1, false, &[0b1000_0101], &mut values);
    assert_eq!(values, [1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0]);
    unpack(2, false, &[0b1110_0100, 0b0001_1011], &mut values);
    assert_eq!(values, [0.0, 1.0, 2.0, 3.0, 3.0, 2.0, 1.0, 0.0]);
    unpack(4, false, &[0x1f, 0x20], &mut values[..4]);
    assert_eq!(values[..4], [15.0, 1.0, 0.0, 2.0]);
    unpack(8, false, &[255, 128], &mut values[..2]);
    assert_eq!(values[..2], [255.0, 128.0]);
    unpack(8, true, &[255, 128], &mut values[..2]);
    assert_eq!(values[..2], [-1.0, -128.0]);
    unpack(16, false, &[1, 2], &mut values[..1]);
    assert_eq!(values[0], 513.0);
    unpack(32, false, &1.5_f32.to_le_bytes(), &mut values[..1]);
    assert_eq!(values[0], 1.5);
}

#[test]
fn quantiser_rounds_halves_to_even_and_counts_clipped_values() {
    let values = [0.0, 0.25, 0.75, 100.0, -2.0, 127.0, 128.0, f32::NAN, f32::INFINITY];
    let mut bytes = Vec::new();
    let clipped = Quantiser { nbits: 8, scale: 2.0, offset: 1.0 }.pack(&values, &mut bytes);
    assert_eq!(bytes, [1, 2, 2, 201, 0, 255, 255, 0, 255]);
    // -2, 128, NaN and infinity.
    assert_eq!(clipped, 4);
    bytes.clear();
    let clipped =
        Quantiser { nbits: 16, scale: 256.0, offset: 0.0 }.pack(&[1.0, 256.0], &mut bytes);
    assert_eq!((bytes.as_slice(), clipped), (&[0, 1, 255, 255][..], 1));
    bytes.clear();
    let clipped = Quantiser { nbits: 32, scale: 2.0, offset: 1.0 }.pack(&[-0.5], &mut bytes);
    assert_eq!((bytes.as_slice(), clipped), (&(-0.5_f32).to_le_bytes()[..], 0));
}

proptest! {
    #[test]
    fn written_header_is_read_back(
        nchans in 1..5000_u32, nifs in 1..5_u32, nbits in 3..6_u32,
        numbers in proptest::collection::vec(-1e6..1e6_f64, 6),
        name in "[ -~]{0,80}", nsamples in proptest::option::of(1..i32::MAX as u64),
    ) {
        let written = Header {
            source_name: name, nchans, nifs, nbits: 1 << nbits, fch1_mhz: numbers[0], foff_mhz: numbers[1],
            tsamp_seconds: numbers[2].abs() + 1e-9, tstart_mjd: numbers[3], src_raj: numbers[4],
            src_dej: numbers[5], nsamples, is_signed: nbits == 3, ..header()
        };
        let bytes = written.to_bytes();
        let (read, len) = Header::read(&bytes[..]).unwrap();
        prop_assert_eq!(len, bytes.len() as u64);
        prop_assert_eq!(read, written);
    }

    #[test]
    fn damaged_headers_are_read_or_rejected(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        end in any::<prop::sample::Index>(),
    ) {
        let mut bytes = header().to_bytes();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes.truncate(end.index(bytes.len() + 1));
        if let Ok((header, len)) = Header::read(&bytes[..]) {
            prop_assert!(len <= bytes.len() as u64);
            prop_assert!((1..=MAX_SPECTRUM_BYTES).contains(&header.spectrum_bytes()));
        }
    }

    #[test]
    fn arbitrary_bytes_and_widths_do_not_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..200), nbits in 0..40_u32, len in 0..100_usize,
    ) {
        let _ = Header::read(&bytes[..]);
        let started = [&b"\x0c\0\0\0HEADER_START"[..], &bytes].concat();
        let _ = Header::read(&started[..]);
        unpack(nbits, false, &bytes, &mut vec![0.0; len]);
    }
}
