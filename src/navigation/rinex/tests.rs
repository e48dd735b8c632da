//! Lines as the specification has them.
#![allow(clippy::unwrap_used, clippy::float_cmp, reason = "values are read as they are written")]

use super::*;
use crate::ephemeris::{Klobuchar, Message, NeQuick, SatelliteId, UtcParameters, week_of};
use crate::tests::orbit;
use proptest::prelude::*;

/// A file of version 2 with a record whose reference time of the orbit is in the week after that of the clock.
const VERSION_2: &str =
    "     2              NAVIGATION DATA                         RINEX VERSION / TYPE
    0.1211D-07 -0.7451D-08 -0.5960D-07  0.1192D-06          ION ALPHA
    0.1167D+06 -0.2458D+06 -0.6554D+05  0.1114D+07          ION BETA
    0.279396772385D-08 0.799360577730D-14   147456     2191 DELTA-UTC: A0,A1,T,W
    18                                                      LEAP SECONDS
                                                            END OF HEADER
 7 22  1  1 23 59 44.0 0.297150108963D-03 0.397903932026D-11 0.000000000000D+00
    0.110000000000D+02-0.875000000000D+00 0.483984445609D-08-0.128130415089D+01
    0.540167093277D-07 0.153936393326D-01 0.844523310661D-05 0.515370270729D+04
    0.000000000000D+00 0.391155481339D-06 0.209930953089D+01 0.160187482834D-06
    0.954107623389D+00 0.224500000000D+03-0.232157223418D+01-0.821105631168D-08
    0.385730350000D-09 0.100000000000D+01 0.219100000000D+04 0.000000000000D+00
    0.280000000000D+01 0.000000000000D+00-0.116415321827D-07 0.110000000000D+02
    0.604788000000D+06 0.400000000000D+01 0.000000000000D+00 0.000000000000D+00
";

#[test]
fn version_2_is_read() {
    let navigation = read_navigation(VERSION_2).unwrap();
    let klobuchar = navigation.klobuchar.unwrap();
    assert_eq!(klobuchar.alpha, [0.1211e-7, -0.7451e-8, -0.5960e-7, 0.1192e-6]);
    assert_eq!(klobuchar.beta, [0.1167e6, -0.2458e6, -0.6554e5, 0.1114e7]);
    let utc = navigation.utc.unwrap();
    assert_eq!((utc.leap_seconds, utc.reference_week, utc.a0), (18, 2191, 0.279_396_772_385e-8));
    let [ephemeris] = &navigation.ephemerides[..] else { panic!("{navigation:?}") };
    assert_eq!(ephemeris.satellite, SatelliteId::gps(7));
    // 1 January 2022 was a Saturday, the last day of week 2190.
    assert_eq!((ephemeris.week, ephemeris.toe_seconds), (2191, 0.0));
    assert_eq!(week_of(ephemeris.toc().unwrap()), (2190, 604_784.0));
    assert_eq!((ephemeris.accuracy, ephemeris.iodc, ephemeris.codes_on_l2), (1, 11, 1));
    assert_eq!((ephemeris.af0, ephemeris.cuc), (0.297_150_108_963e-3, 0.540_167_093_277e-7));
    assert_eq!(
        (ephemeris.perigee, ephemeris.node_rate),
        (-2.321_572_234_18, -0.821_105_631_168e-8)
    );
    assert_eq!(ephemeris.transmission_seconds, 604_788.0);
}

fn all() -> Navigation {
    let gps = crate::Ephemeris {
        is_long_fit: true,
        l2_p_data_off: true,
        ..orbit(SatelliteId::gps(9), 0.1, -2.0)
    };
    let galileo = crate::Ephemeris {
        message: Message::Inav,
        accuracy: 107,
        group_delays: [-1.5e-9, 2.5e-9],
        codes_on_l2: 0b10_0000_0101,
        iode: 1000,
        iodc: 1000,
        ..orbit(SatelliteId::galileo(33), -3.0, 1.0)
    };
    let free = crate::Ephemeris {
        message: Message::Fnav,
        codes_on_l2: 0b01_0000_0010,
        accuracy: 255,
        ..galileo
    };
    Navigation {
        ephemerides: vec![gps, galileo, free],
        klobuchar: Some(Klobuchar {
            alpha: [1.211e-8, -7.451e-9, 0.0, 1.192e-7],
            beta: [1.167e5, 0.0, -6.554e4, 1.114e6],
        }),
        ne_quick: Some(NeQuick { ionisation: [45.25, -0.1289, 0.003], storms: 0 }),
        utc: Some(UtcParameters {
            a0: 9.313_225_746e-10,
            a1: -1.776_356_84e-15,
            reference_seconds: 147_456.0,
            reference_week: 2191,
            leap_seconds: 18,
            leap_week: 1929,
            leap_day: 7,
            leap_seconds_after: 18,
        }),
    }
}

#[test]
fn written_navigation_is_read_again() {
    let navigation = all();
    let text = navigation_file("fxgraph", &navigation);
    assert_eq!(read_navigation(&text).unwrap(), navigation);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines.iter().all(|line| line.len() <= 80), "{text}");
    assert_eq!(&lines[0][..61], "     3.04           N: GNSS NAV DATA    M: MIXED            R");
    let record = lines.iter().position(|line| line.starts_with("G09")).unwrap();
    assert_eq!(
        lines[record],
        "G09 2021 12 31 23 59 44 4.690000000000D-04-1.000000000000D-11 1.000000000000D-18"
    );
    assert_eq!(
        lines[record + 1],
        "     3.900000000000D+01-1.411250000000D+02 3.988000000000D-09-2.000000000000D+00"
    );
}

#[test]
fn version_4_names_records() {
    let version_3 = navigation_file("fxgraph", &all());
    let (_, body) = version_3.split_once("END OF HEADER").unwrap();
    let (_, body) = body.split_once('\n').unwrap();
    let mut text =
        "     4.00           NAVIGATION DATA     M                   RINEX VERSION / TYPE\n"
            .to_owned();
    text += &format!("{:60}END OF HEADER\n", "");
    for line in body.lines() {
        if !line.starts_with(' ') {
            text += &format!("> EPH {} LNAV\n", &line[..3]);
        }
        text += line;
        text.push('\n');
    }
    text += "> ION G09 LNAV\n    2022 01 01 00 00 00 1.210000000000E-08-7.450000000000E-09 0.000000000000E+00\n     1.190000000000E-07 1.160000000000E+05 0.000000000000E+00-6.550000000000E+04\n     1.110000000000E+06 0.000000000000E+00\n";
    text += "> STO G09 LNAV\n    2022 01 01 00 00 00 GPUT\n     0.0\n";
    let navigation = read_navigation(&text).unwrap();
    assert_eq!(navigation.ephemerides, all().ephemerides);
    let klobuchar = navigation.klobuchar.unwrap();
    assert_eq!(klobuchar.alpha, [1.21e-8, -7.45e-9, 0.0, 1.19e-7]);
    assert_eq!(klobuchar.beta, [1.16e5, 0.0, -6.55e4, 1.11e6]);
}

#[test]
fn nearest_ephemeris_is_not_older_than_4_hours() {
    let mut navigation = all();
    let old = navigation.ephemerides[0];
    let new = crate::Ephemeris { toe_seconds: 525_600.0, ..old };
    navigation.ephemerides.push(new);
    let time = |seconds: f64| crate::ephemeris::time_of_week(2190, seconds).unwrap();
    let nearest =
        |seconds: f64| navigation.nearest(old.satellite, time(seconds)).map(|e| e.toe_seconds);
    assert_eq!(nearest(521_900.0), Some(518_400.0));
    // Messages change to the next ephemeris between two frames.
    assert_eq!(nearest(522_000.0), Some(525_600.0));
    assert_eq!(nearest(522_100.0), Some(525_600.0));
    assert_eq!(nearest(540_100.0), None);
    assert_eq!(navigation.satellites().len(), 2);
}

#[test]
fn mistakes_are_named_with_their_line() {
    let fault = |text: &str| read_navigation(text).unwrap_err();
    assert_eq!(fault("").fault, Fault::NoRinex);
    assert_eq!(fault("hello\nworld").fault, Fault::NoRinex);
    let observation = VERSION_2.replacen('N', "O", 1);
    assert!(matches!(fault(&observation).fault, Fault::Version(_)));
    let (header, _) = VERSION_2
        .split_once("                                                            END")
        .unwrap();
    assert_eq!(fault(header), RinexError { line: 5, fault: Fault::NoHeaderEnd });
    let wrong = VERSION_2.replace("0.153936393326D-01", "0.15393x393326D-01");
    let error = fault(&wrong);
    assert_eq!(error.line, 9);
    assert_eq!(
        error.to_string(),
        "line 9: columns 23 to 41 must be a number, got `0.15393x393326D-01`"
    );
    assert_eq!(fault(&VERSION_2.replace(" 7 22  1  1 23", " 7 22 13  1 23")).fault, Fault::Epoch);
    assert_eq!(
        fault(&VERSION_2.replace(" 7 22  1  1 23", " 0 22  1  1 23")).fault,
        Fault::Satellite
    );
    let short = &VERSION_2[..VERSION_2.len() - 80];
    assert!(read_navigation(short).is_err());
}

#[test]
fn observations_are_in_their_columns() {
    let time = crate::ephemeris::time_of_week(2190, 518_459.999_999_99).unwrap();
    let header = observation_header("fxgraph", time, [1.5, -2.25, 6_356_752.0], 1.0);
    let lines: Vec<&str> = header.lines().collect();
    assert!(lines.iter().all(|line| line.len() == 80), "{header}");
    assert!(lines[0].starts_with("     3.04           OBSERVATION DATA    M"));
    assert!(lines.contains(
        &"        1.5000       -2.2500  6356752.0000                  APPROX POSITION XYZ "
    ));
    assert!(lines.iter().any(|line| line.starts_with("E    4 C1B L1B D1B S1B      ")));
    let observation = Observation {
        satellite: SatelliteId::gps(7),
        pseudorange_metres: 21_234_567.123_4,
        carrier_cycles: Some(-111_589_012.5),
        has_slipped: true,
        is_half_ambiguous: true,
        doppler_hz: -1234.567,
        cn0_db_hz: 45.25,
    };
    let mut text = String::new();
    let code_only = Observation {
        satellite: SatelliteId::galileo(11),
        carrier_cycles: None,
        doppler_hz: f64::NAN,
        ..observation
    };
    observation_epoch(&mut text, time, -1.25e-4, &[observation, code_only]);
    assert_eq!(
        text,
        "> 2022 01 01 00 01  0.0000000  0  2      -0.000125000000\n\
         G07  21234567.123  -111589012.50037     -1234.567          45.250\n\
         E11  21234567.123                                          45.250\n"
    );
}

proptest! {
    #[test]
    fn broken_files_are_errors(
        at in 0..VERSION_2.len(),
        len in 0..200_usize,
        insert in "[ -~\n\u{e9}]{0,30}",
        version in 2..5_u32,
    ) {
        let text = if version == 2 { VERSION_2.to_owned() } else { navigation_file("x", &all()) };
        let text = if version == 4 { text.replacen("3.04", "4.00", 1) } else { text };
        let at = at.min(text.len());
        let end = (at + len).min(text.len());
        let _ = read_navigation(&format!("{}{insert}{}", &text[..at], &text[end..]));
        let _ = read_navigation(&insert);
    }
}
