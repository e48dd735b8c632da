//! Sentences of NMEA.

use crate::atmosphere::AzEl;
use crate::ephemeris::SatelliteId;
use crate::nmea::Report;
use crate::solve::{Dops, Used};
use fxgraph_time::Time;
use fxgraph_time::sky::Place;

fn satellites() -> Vec<(Used, f64)> {
    let used = |satellite, azimuth: f64, elevation: f64, is_used| Used {
        satellite,
        direction: AzEl { azimuth: azimuth.to_radians(), elevation: elevation.to_radians() },
        residual_metres: 0.0,
        is_used,
    };
    let gps = (1..=5).map(|n| used(SatelliteId::gps(n), 359.7, 45.0, n != 3));
    gps.chain([used(SatelliteId::galileo(11), 7.0, 5.2, true)]).map(|used| (used, 44.6)).collect()
}

fn time() -> Time {
    Time::from_unix(1_640_995_199, 999_000_000_000).unwrap()
}

fn report(place: Option<Place>, satellites: &[(Used, f64)]) -> Vec<String> {
    let dops = Dops { position: 1.5, horizontal: 0.9, vertical: 1.2, ..Dops::default() };
    let velocity = place.map(|_| [1852.0 / 3600.0, 0.0, 0.0]);
    let mut text = String::new();
    Report { time: time(), place, velocity, dops, satellites }.write(&mut text);
    assert!(text.ends_with("\r\n"));
    text.lines().map(str::to_owned).collect()
}

#[test]
fn sentences_are_those_of_the_standard() {
    let place = Place {
        latitude: -(30.0 + 59.999_999_9 / 60.0_f64).to_radians(),
        longitude: (21.0 + 26.5 / 60.0_f64).to_radians(),
        height_metres: 1086.6,
    };
    let lines = report(Some(place), &satellites());
    let contents: Vec<&str> = lines.iter().map(|line| line.split_once('*').unwrap().0).collect();
    assert_eq!(
        contents,
        [
            "$GNGGA,235959.99,3100.00000,S,02126.50000,E,1,05,0.90,1086.600,M,0.0,M,,",
            "$GNRMC,235959.99,A,3100.00000,S,02126.50000,E,1.000,90.00,311221,,,A,V",
            "$GNGSA,A,3,01,02,04,05,,,,,,,,,1.50,0.90,1.20,1",
            "$GPGSV,2,1,05,01,45,000,45,02,45,000,45,03,45,000,45,04,45,000,45,1",
            "$GPGSV,2,2,05,05,45,000,45,1",
            "$GNGSA,A,3,11,,,,,,,,,,,,1.50,0.90,1.20,3",
            "$GAGSV,1,1,01,11,05,007,45,7",
        ]
    );
}

#[test]
fn checksums_are_those_of_the_bytes_between_dollar_and_star() {
    for line in report(None, &[]) {
        let (content, checksum) = line[1..].split_once('*').unwrap();
        let sum = content.bytes().fold(0, |sum, byte| sum ^ byte);
        assert_eq!(format!("{sum:02X}"), checksum);
    }
}

#[test]
fn no_fix_has_empty_fields() {
    let lines = report(None, &[]);
    assert_eq!(lines.len(), 2);
    assert!(lines[0].starts_with("$GNGGA,235959.99,,,,,0,00,0.90,,M,0.0,M,,*"), "{}", lines[0]);
    assert!(lines[1].starts_with("$GNRMC,235959.99,V,,,,,,,311221,,,N,V*"), "{}", lines[1]);
}
