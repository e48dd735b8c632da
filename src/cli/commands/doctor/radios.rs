//! Radios of this machine.

use super::Check;
use fxgraph_blocks::radio::sdr_source::device::{Found, find};

const NAME: &str = "radios";

/// One check for each device, and for each driver that cannot look for devices.
pub fn checks() -> Vec<Check> {
    as_checks(find())
}

fn as_checks(found: Vec<Found>) -> Vec<Check> {
    let drivers: Vec<&str> = found.iter().map(|found| found.driver).collect();
    let nothing = format!("none found by the drivers {}", drivers.join(", "));
    let of_driver = |Found { driver, devices }| match devices {
        Ok(devices) => devices.into_iter().map(|device| Check::good("radio", device)).collect(),
        Err(why) => {
            let found = format!("{driver}: {why}");
            let fix = "give this user access to the USB device: install the udev rules of its maker, connect it again";
            vec![Check::advice("radio", found, fix)]
        }
    };
    let checks: Vec<Check> = found.into_iter().flat_map(of_driver).collect();
    if checks.is_empty() { vec![Check::good(NAME, nothing)] } else { checks }
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;

    #[test]
    fn devices_are_listed_and_a_driver_that_fails_gets_advice() {
        let found = |driver, devices| Found { driver, devices };
        let device = "driver=rtlsdr, serial=7".to_owned();
        let checks = as_checks(vec![
            found("rtlsdr", Ok(vec![device.clone()])),
            found("hackrf", Ok(Vec::new())),
            found("pluto", Err("permission denied".to_owned())),
        ]);
        let seen: Vec<_> = checks.iter().map(|check| (check.state, check.found.as_str())).collect();
        assert_eq!(seen, [(State::Good, &*device), (State::Advice, "pluto: permission denied")]);
        let none =
            as_checks(vec![found("rtlsdr", Ok(Vec::new())), found("hackrf", Ok(Vec::new()))]);
        assert_eq!(none[0].found, "none found by the drivers rtlsdr, hackrf");
    }
}
