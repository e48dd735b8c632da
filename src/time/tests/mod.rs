#[rustfmt::skip]
#[allow(clippy::unreadable_literal, clippy::type_complexity, reason = "written by a program")]
mod reference;

use super::*;
use crate::sky::{Place, Pointing, Sky};
use proptest::prelude::*;
use reference::{INSTANTS, ORIENTATIONS, SAMPLES, SKIES};
use std::f64::consts::{FRAC_PI_2, TAU};

fn time(text: &str) -> Time {
    Time::from_iso(text).unwrap_or_else(|| panic!("{text} is a time"))
}

#[test]
fn scales_agree_with_astropy() {
    for (text, unix, tai, gps, day, part) in INSTANTS {
        let time = time(text);
        assert_eq!(time.to_unix(), (*unix, 0), "{text}");
        assert_eq!(time.to_tai(), (*tai, 0), "{text}");
        assert_eq!(time.to_gps(), (*gps, 0), "{text}");
        assert_eq!(Time::from_gps(*gps, 0), Some(time), "{text}");
        assert_eq!(time.to_mjd().0, *day, "{text}");
        let [date, found] = time.to_julian_date();
        assert!(
            (found - part).abs() < 1e-15 && date == *day as f64 + 2_400_000.5,
            "{text} {found}"
        );
        assert_eq!(time.to_string(), *text);
        let again = Time::from_mjd_f64(time.to_mjd_f64());
        assert!(
            again.is_some_and(|again| again.seconds_since(time).abs() < 1e-6),
            "{text} {again:?}"
        );
    }
}

#[test]
fn sample_times_are_exact_after_years_and_across_leap_seconds() {
    for (sync, rate, samples, expected) in SAMPLES {
        let found = time(sync).plus_samples(*samples, *rate);
        assert_eq!(found, Some(time(expected)), "{sync} + {samples} / {rate}");
        let count = time(expected).samples_since(time(sync), *rate);
        assert_eq!(count, Some(i128::from(*samples)), "{sync} + {samples} / {rate}");
    }
    let start = Time::unix(0);
    assert_eq!(start.plus_samples(1, 0.0), None);
    assert_eq!(start.plus_samples(1, f64::NAN), None);
    assert_eq!(start.plus_samples(u64::MAX, 1e3), None);
    assert_eq!(start.plus_samples(u64::MAX, 5e-324), None);
    assert_eq!(start.samples_since(start, -1.0), None);
}

#[test]
fn numbers_keep_all_digits_of_their_text() {
    for (text, unix, picoseconds) in [
        ("1638307198.123456789", 1_638_307_198, 123_456_789_000),
        ("1.638307198123456789e9", 1_638_307_198, 123_456_789_000),
        ("1638307198123456789e-9", 1_638_307_198, 123_456_789_000),
        ("18e8", 1_800_000_000, 0),
        ("+.5", 0, 500_000_000_000),
        ("-0.25", -1, 750_000_000_000),
        ("0.0000000000005", 0, 1),
        ("0.9999999999999", 1, 0),
        ("1e-400", 0, 0),
        ("-0", 0, 0),
    ] {
        assert_eq!(Time::from_decimal(text), Time::from_unix(unix, picoseconds), "{text}");
    }
    for text in ["", ".", "1e", "e3", "1.2.3", "0x10", "1e12", "nan", "inf", "--1", "1 ", "1e99999"]
    {
        assert_eq!(Time::from_decimal(text), None, "{text}");
    }
    // 1.8e9 + 0.1 is not a float; the shortest decimal number is meant.
    let tenth = Time::from_unix_f64(1_800_000_000.1);
    assert_eq!(tenth, Time::from_unix(1_800_000_000, 100_000_000_000));
    assert_eq!(tenth.map(Time::to_unix_f64), Some(1_800_000_000.1));
    assert_eq!(tenth.map(Time::decimal).as_deref(), Some("1800000000.1"));
}

#[test]
fn from_iso_rejects_other_texts() {
    for text in [
        "",
        "Z",
        "2026-11-25",
        "2026-11-25T14:20:40",
        "2026-02-29T00:00:00Z",
        "2026-13-01T00:00:00Z",
        "2026-01-00T00:00:00Z",
        "2026-01-01T24:00:00Z",
        "2026-01-01T00:60:00Z",
        "2026-01-01T00:00:61Z",
        "2026-01-01T00:00:00.Z",
        "2026-01-01T00:00:00.-1Z",
        "+2026-01-01T00:00:00Z",
        "2026-01-01T00:00:00+01:00",
        "0000-01-01T00:00:00Z",
        "2026-1-1-1T00:00:00Z",
    ] {
        assert_eq!(Time::from_iso(text), None, "{text}");
    }
}

#[test]
fn iso_rounds_to_its_digits() {
    let late = time("2016-12-31T23:59:60.9999999996Z");
    assert_eq!(late.iso(9), "2017-01-01T00:00:00.000000000Z");
    assert_eq!(late.iso(0), "2017-01-01T00:00:00Z");
    assert_eq!(late.iso(12), "2016-12-31T23:59:60.999999999600Z");
}

#[test]
fn json_has_a_number_if_it_is_exact_and_otherwise_text() {
    for (text, json) in [
        ("2027-01-15T08:00:00.1Z", "1800000000.1"),
        ("2021-11-30T21:19:58.123456789Z", "\"2021-11-30T21:19:58.123456789Z\""),
    ] {
        assert_eq!(serde_json::to_string(&time(text)).ok().as_deref(), Some(json));
        assert_eq!(serde_json::from_str::<Time>(json).ok(), Some(time(text)));
    }
    assert_eq!(serde_json::from_str::<Time>("1638307198").ok(), Some(Time::unix(1_638_307_198)));
    for wrong in ["\"today\"", "true", "1e300", "[1]"] {
        assert!(serde_json::from_str::<Time>(wrong).is_err(), "{wrong}");
    }
}

fn arcseconds_apart([ra_1, dec_1]: [f64; 2], [ra_2, dec_2]: [f64; 2]) -> f64 {
    let turn = (ra_1 - ra_2 + TAU / 2.0).rem_euclid(TAU) - TAU / 2.0;
    (turn * dec_1.cos()).hypot(dec_1 - dec_2).to_degrees() * 3600.0
}

#[test]
fn sky_agrees_with_erfa() {
    for (text, ut1_utc_seconds, pole, place, [ra, dec], lst, apparent, north) in SKIES {
        let orientation = EarthOrientation { ut1_utc_seconds: *ut1_utc_seconds, pole: *pole };
        let [latitude, longitude, height_metres] = *place;
        let place = Place { latitude, longitude, height_metres };
        let sky = Sky::new(time(text), &orientation, &place).expect("a sky");
        // A microarcsecond.
        let turn = arcseconds_apart([sky.sidereal_time(), 0.0], [*lst, 0.0]);
        assert!(turn < 1e-6, "{text} {turn}");
        let found = sky.apparent(*ra, *dec);
        let apart = arcseconds_apart(found, *apparent);
        assert!(apart < 1e-6, "{text} {apart}");
        let [_, _, angle] = sky.apparent_with_north(*ra, *dec);
        assert!((angle - north).abs() < 1e-10, "{text} {angle} {north}");
    }
}

#[test]
fn orientation_agrees_with_astropy() {
    let table = EarthOrientations::finals2000a(include_str!("finals2000a.txt")).expect("a table");
    assert_eq!(table.days(), [57_752, 57_755]);
    for (text, ut1_utc, pole) in ORIENTATIONS {
        let found = table.at(time(text)).expect("an orientation");
        assert!((found.ut1_utc_seconds - ut1_utc).abs() < 1e-6, "{text} {found:?}");
        for (found, expected) in found.pole.iter().zip(pole) {
            let arcseconds = found.to_degrees() * 3600.0;
            assert!((arcseconds - expected).abs() < 1e-5, "{text} {arcseconds} {expected}");
        }
    }
    // In the leap second UT1 - UTC is still that of the old year.
    let leap = table.at(time("2016-12-31T23:59:60.5Z")).expect("an orientation");
    assert!((leap.ut1_utc_seconds + 0.4087).abs() < 1e-4, "{leap:?}");
    assert_eq!(table.at(time("2016-12-29T23:00:00Z")), None);
    assert!(table.at(time("2017-01-02T00:00:00Z")).is_some());
    assert_eq!(table.at(time("2017-01-02T00:00:01Z")), None);
    let [first, last] =
        ["2016-12-30T00:00:00Z", "2017-01-02T00:00:00Z"].map(|text| table.at(time(text)));
    assert_eq!(Some(table.nearest(time("2016-12-01T00:00:00Z"))), first);
    assert_eq!(Some(table.nearest(time("2017-02-01T00:00:00Z"))), last);
}

#[test]
fn orientations_reject_other_files() {
    let said = |text: &str| EarthOrientations::finals2000a(text).unwrap_err();
    assert!(said("").contains("no line"));
    assert!(said("MJD, x, y").contains("no line"));
    let table = include_str!("finals2000a.txt");
    assert!(said(&table.replace("57753.00", "57x53.00")).contains("line 2: MJD is not a number"));
    assert!(said(&table.replace("57753.00", "57752.00")).contains("line 2: the MJD must be later"));
}

fn close(a: [f64; 3], b: [f64; 3], tolerance: f64) -> bool {
    a.iter().zip(b).all(|(a, b)| (a - b).abs() < tolerance)
}

#[test]
fn places_agree_with_astropy() {
    let meerkat = Place {
        latitude: (-30.712_919_44_f64).to_radians(),
        longitude: 21.443_803_33_f64.to_radians(),
        height_metres: 1053.0,
    };
    // astropy.coordinates.EarthLocation.from_geodetic, in metres.
    let expected = [5_109_237.996_231_675, 2_006_795.806_487_737, -3_239_108.653_765_41];
    assert!(close(meerkat.itrf_metres(), expected, 1e-6));
    let pole = Place { latitude: FRAC_PI_2, longitude: 1.0, height_metres: 0.0 };
    assert!(close(pole.itrf_metres(), [0.0, 0.0, 6_356_752.314_245], 1e-6));
}

#[test]
fn enu_axes_point_along_the_differences_of_places() {
    let place = Place { latitude: -0.5, longitude: 2.0, height_metres: 1000.0 };
    let again = Place::from_itrf_metres(place.itrf_metres());
    assert!((again.latitude + 0.5).abs() < 1e-12 && (again.longitude - 2.0).abs() < 1e-12);
    assert!((again.height_metres - 1000.0).abs() < 1e-6);
    let back = place.itrf_to_enu(place.enu_to_itrf([3.0, -5.0, 7.0]));
    assert!(back.iter().zip([3.0, -5.0, 7.0]).all(|(a, b)| (a - b).abs() < 1e-12));
    let change = 1e-6;
    let near = |latitude: f64, longitude: f64, height_metres: f64| {
        let moved = Place {
            latitude: place.latitude + latitude,
            longitude: place.longitude + longitude,
            height_metres: place.height_metres + height_metres,
        };
        let (a, b) = (place.itrf_metres(), moved.itrf_metres());
        let d: [f64; 3] = std::array::from_fn(|n| b[n] - a[n]);
        let len = d.iter().map(|x| x * x).sum::<f64>().sqrt();
        d.map(|x| x / len)
    };
    assert!(close(place.enu_to_itrf([1.0, 0.0, 0.0]), near(0.0, change, 0.0), 1e-5));
    assert!(close(place.enu_to_itrf([0.0, 1.0, 0.0]), near(change, 0.0, 0.0), 1e-5));
    assert!(close(place.enu_to_itrf([0.0, 0.0, 1.0]), near(0.0, 0.0, 1.0), 1e-5));
}

#[test]
fn uvw_of_the_zenith_is_enu() {
    let place = Place { latitude: 0.7, longitude: -1.2, height_metres: 0.0 };
    let pointing = Pointing {
        greenwich_hour_angle: -place.longitude,
        declination: place.latitude,
        north_angle: 0.0,
    };
    let enu = [31.0, -5.0, 2.0];
    assert!(close(pointing.uvw(place.enu_to_itrf(enu)), enu, 1e-12));
}

#[test]
fn north_angle_turns_the_map() {
    let at = |north_angle| Pointing { greenwich_hour_angle: 0.0, declination: 0.0, north_angle };
    // North of date is at the position angle -90 degrees of a map whose north points to the east.
    assert!(close(at(FRAC_PI_2).uvw([0.0, 0.0, 1.0]), [-1.0, 0.0, 0.0], 1e-12));
    assert!(close(at(0.0).uvw([2.0, 3.0, 1.0]), [3.0, 1.0, 2.0], 1e-12));
}

proptest! {
    #[test]
    fn instants_survive_every_notation(
        seconds in -62_135_596_800_i64..253_402_300_800, picoseconds in 0..SECOND_PICOSECONDS,
    ) {
        let time = Time::from_unix(seconds, picoseconds).unwrap();
        prop_assert_eq!(time.to_unix(), (seconds, picoseconds));
        prop_assert_eq!(Time::from_utc(&time.to_utc()), Some(time));
        prop_assert_eq!(Time::from_iso(&time.to_string()), Some(time));
        prop_assert_eq!(Time::from_decimal(&time.decimal()), Some(time));
        let (day, second, picoseconds) = time.to_mjd();
        prop_assert_eq!(Time::from_mjd(day, second, picoseconds), Some(time));
    }

    #[test]
    fn arbitrary_texts_and_numbers_do_not_panic(
        text in "[-+0-9.eETZ:]{0,40}", bits in any::<u64>(), n in any::<u64>(), ps in any::<i128>(),
    ) {
        let number = f64::from_bits(bits);
        let times = [
            Time::read(&text),
            Time::from_unix_f64(number),
            Time::from_mjd_f64(number),
            Time::from_unix(n as i64, 0),
            Time::from_mjd(n as i64, bits as i64, n),
            Time::from_gps(n as i64, bits),
            Time::unix(7).plus_picoseconds(ps),
        ];
        for time in times.into_iter().flatten() {
            let later = time.plus_samples(n, number.abs()).or(time.plus_seconds(number));
            let _ = (time.iso(3), time.decimal(), time.to_mjd_f64(), later.map(Time::to_utc));
            let _ = later.map(|later| later.samples_since(time, number.abs()));
        }
    }
}
