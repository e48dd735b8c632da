//! Devices, opened, set and described through seify.

use fxgraph::BlockError;
use schemars::JsonSchema;
use seify::{
    Args, Capability, Direction, Driver, DynDevice, DynRxStreamer, Error, Range, Registry,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// Largest difference of a rate or a frequency from the requested one, as a fraction: less than the error of a device's
/// oscillator.
const SAME: f64 = 1e-6;

/// Drivers of this program, by the names in `device`.
const DRIVERS: &[&str] = &[
    "bladerf",
    "hackrf",
    "hydrasdr",
    "pluto",
    "rtlsdr",
    #[cfg(feature = "soapysdr")]
    "soapy",
    "dummy",
];

/// Gain of a receiver.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(untagged, expecting = "expected a number in dB, or a mapping of stages to numbers in dB")]
pub enum Gain {
    /// Gain of the whole receiver.
    Overall(f64),
    /// Gain of each named stage.
    Stages(BTreeMap<String, f64>),
}

impl Gain {
    /// All gains in dB.
    pub fn values(&self) -> impl Iterator<Item = f64> {
        let (overall, stages) = match self {
            Self::Overall(db) => (Some(*db), None),
            Self::Stages(stages) => (None, Some(stages.values().copied())),
        };
        overall.into_iter().chain(stages.into_iter().flatten())
    }
}

/// A setting of a device, for all of its channels.
#[derive(Clone, Debug, PartialEq)]
pub enum Setting {
    /// Frequency at the centre of the band.
    CentreHz(f64),
    /// Width of the analogue filter.
    BandwidthHz(f64),
    /// Gain.
    GainDb(Gain),
    /// Whether the device controls its gain itself.
    Agc(bool),
    /// Name of the antenna port.
    Antenna(String),
}

/// Arguments of a device, with its driver.
#[derive(Clone, Debug)]
pub struct Arguments(Args);

impl Arguments {
    /// Reads `driver=NAME, key=value, ...`.
    ///
    /// # Errors
    /// A message if the text is something else, or if this program has no such driver.
    pub fn read(text: &str) -> Result<Self, String> {
        let read = || format!("`device` must be `driver=NAME, key=value, ...`, got `{text}`");
        let args = Args::from(text).map_err(|_| read())?;
        // Without a driver, the first one with any device would be taken, and `dummy` has one.
        let name = args.get::<String>("driver").map_err(|_| read())?;
        let is_known = name.parse::<Driver>().is_ok_and(|driver| {
            let known = DRIVERS.iter().filter_map(|known| known.parse::<Driver>().ok());
            known.into_iter().any(|known| known == driver)
        });
        if is_known {
            return Ok(Self(args));
        }
        let hint = match name.parse() {
            Ok(Driver::Soapy) if cfg!(not(feature = "soapysdr")) => {
                ", which needs a program built with `--features soapysdr`"
            }
            Ok(Driver::Uhd) => ", whose devices `driver=soapy, soapy_driver=uhd` has",
            _ => "",
        };
        Err(format!("the driver must be one of {}, got `{name}`{hint}", DRIVERS.join(", ")))
    }
}

/// Opens a device.
pub(super) type Open = Arc<dyn Fn(&Args) -> Result<DynDevice, Error> + Send + Sync>;

/// Opens a device of this machine.
pub(super) fn open() -> Open {
    Arc::new(|args| Registry::default().open_args(args))
}

/// Devices of one driver on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Name of the driver.
    pub driver: &'static str,
    /// Arguments of each device, for `device`, or the reason why the driver cannot look for devices.
    pub devices: Result<Vec<String>, String>,
}

/// Looks for devices on this machine, with every driver but `dummy`.
#[must_use]
pub fn find() -> Vec<Found> {
    let drivers = DRIVERS.iter().filter(|driver| **driver != "dummy");
    let found = drivers.map(|driver| {
        let devices = match probe(driver) {
            // This machine has no USB, which all drivers but SoapySDR's need.
            Err(_) if *driver != "soapy" && !has_usb() => Ok(Vec::new()),
            Ok(devices) => Ok(devices.iter().map(|args| sorted(driver, args)).collect()),
            Err(Error::DeviceNotFound) => Ok(Vec::new()),
            Err(error) => Err(error.to_string()),
        };
        Found { driver, devices }
    });
    found.collect()
}

/// Whether this machine has a USB bus, as far as Linux tells.
fn has_usb() -> bool {
    cfg!(not(target_os = "linux")) || Path::new("/sys/bus/usb/devices").exists()
}

/// Arguments of the devices of `driver`.
fn probe(driver: &str) -> Result<Vec<Args>, Error> {
    #[cfg(feature = "soapysdr")]
    if driver == "soapy" {
        // `driver=soapy` would be a driver of SoapySDR, which it does not have.
        return seify::impls::Soapy::probe(&Args::new());
    }
    let found = Registry::default().probe(format!("driver={driver}"))?;
    Ok(found.into_iter().map(seify::DeviceDescriptor::into_args).collect())
}

/// Text of `args`, the driver first.
fn sorted(driver: &str, args: &Args) -> String {
    let mut others: Vec<_> = args.iter().filter(|(key, _)| *key != "driver").collect();
    others.sort();
    let quoted = |value: &str| {
        let is_plain = !value.chars().any(|c| c == ',' || c == '=' || c.is_whitespace());
        if is_plain { value.to_owned() } else { format!("'{value}'") }
    };
    let others = others.into_iter().map(|(key, value)| format!(", {key}={}", quoted(value)));
    format!("driver={driver}{}", others.collect::<String>())
}

/// An open device. Cheap to clone.
#[derive(Clone)]
pub(super) struct Radio {
    /// The arguments, for messages.
    name: Arc<str>,
    device: DynDevice,
    channels: Arc<[usize]>,
}

/// A value that the device took instead of the requested one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rounding {
    pub requested: f64,
    pub actual: f64,
}

impl Rounding {
    fn of(requested: f64, actual: f64) -> Option<Self> {
        (requested.to_bits() != actual.to_bits()).then_some(Self { requested, actual })
    }

    /// Whether the difference is larger than the error of an oscillator.
    pub fn is_large(&self) -> bool {
        (self.actual - self.requested).abs() > SAME * self.requested.abs()
    }
}

impl Radio {
    /// Opens the device `name`.
    pub fn open(name: &str, channels: &[usize], open: &Open) -> Result<Self, BlockError> {
        let Arguments(args) = Arguments::read(name).map_err(BlockError::new)?;
        let device = open(&args).map_err(|error| match error {
            Error::DeviceNotFound => BlockError::new(format!(
                "no device is `{name}`; connect it, or see `fxgraph doctor` for the devices of this machine"
            )),
            Error::Busy => BlockError::new(format!(
                "the device `{name}` is in use; end the other program, or unload the kernel's driver for it"
            )),
            error => BlockError::new(format!("cannot open the device `{name}`")).because(error),
        })?;
        let radio = Self { name: name.into(), device, channels: channels.into() };
        let count = radio.device.num_channels(Direction::Rx);
        let count =
            count.map_err(|error| radio.fault("cannot be asked for its channels", error))?;
        match channels.iter().find(|channel| **channel >= count) {
            Some(_) if count == 0 => {
                Err(BlockError::new(format!("the device `{name}` has no receive channel")))
            }
            Some(channel) => Err(BlockError::new(format!(
                "`channels` must be less than {count}, the receive channels of `{name}`, got {channel}"
            ))),
            None => Ok(radio),
        }
    }

    /// Whether samples come in real time. The samples of `dummy` are there as soon as they are asked for.
    pub fn is_real(&self) -> bool {
        self.device.driver() != Driver::Dummy
    }

    /// Error of the device that `problem` says.
    pub fn fault(&self, problem: &str, error: Error) -> BlockError {
        BlockError::new(format!("the device `{}` {problem}", self.name)).because(error)
    }

    /// Error of a read.
    pub fn read_fault(&self, error: Error) -> BlockError {
        let problem = match error {
            Error::DeviceDisconnected => "was disconnected",
            _ => "sends no more samples",
        };
        self.fault(problem, error)
    }

    /// Opens a stream of all channels.
    pub fn stream(&self) -> Result<DynRxStreamer, BlockError> {
        let stream = self.device.rx_streamer(&self.channels);
        stream.map_err(|error| self.fault("cannot stream these channels", error))
    }

    /// Sets the sample rate. Returns the rate that the device took, if it is another one.
    pub fn set_rate(&self, rate_hz: f64) -> Result<Option<Rounding>, BlockError> {
        let set = |channel: &usize| {
            let rx = self.device.rx(*channel)?;
            let rate = rx.sample_rate();
            rate.set(rate_hz)?;
            rate.value()
        };
        let actual = self.channels.iter().map(set).collect::<Result<Vec<f64>, _>>();
        let actual = actual.map_err(|error| {
            let problem =
                format!("cannot sample at `adc_sample_rate_hz` ({rate_hz} Hz){}", self.rates());
            self.fault(&problem, error)
        })?;
        let rounding = actual.into_iter().find_map(|actual| Rounding::of(rate_hz, actual));
        match rounding {
            Some(Rounding { actual, .. }) if rounding.is_some_and(|it| it.is_large()) => {
                Err(BlockError::new(format!(
                    "the device `{}` samples at {actual} Hz and not at {rate_hz} Hz; set `adc_sample_rate_hz: {actual}`",
                    self.name
                )))
            }
            rounding => Ok(rounding),
        }
    }

    /// Rates of the device, for messages.
    fn rates(&self) -> String {
        let first = self.channels.first().and_then(|channel| self.device.rx(*channel).ok());
        let range = first.and_then(|channel| channel.sample_rate().range().ok());
        range.map_or_else(String::new, |range| format!("; its rates are {} Hz", between(&range)))
    }

    /// Checks that the device supports `setting`.
    pub fn check(&self, setting: &Setting) -> Result<(), BlockError> {
        self.channels.iter().try_for_each(|channel| self.check_channel(*channel, setting))
    }

    fn check_channel(&self, channel: usize, setting: &Setting) -> Result<(), BlockError> {
        let unsupported = |name: &str, error| {
            self.fault(&format!("has no setting for `{name}`; omit the parameter"), error)
        };
        let within = |name: &str, value: f64, range: Result<Range, Error>| match range {
            Ok(range) if !range.contains(value) => Err(BlockError::new(format!(
                "`{name}` of the device `{}` must be {}, got {value}",
                self.name,
                between(&range)
            ))),
            Err(error) if error.is_unsupported() => Err(unsupported(name, error)),
            // A driver that does not know its range rejects a value when it is set.
            Ok(_) | Err(_) => Ok(()),
        };
        let rx = self
            .device
            .rx(channel)
            .map_err(|error| self.fault("has no such channel any more", error))?;
        match setting {
            Setting::CentreHz(hz) => within("centre_hz", *hz, rx.frequency().range()),
            Setting::BandwidthHz(hz) => within("bandwidth_hz", *hz, rx.bandwidth().range()),
            Setting::GainDb(Gain::Overall(db)) => within("gain_db", *db, rx.gain().range()),
            Setting::GainDb(Gain::Stages(stages)) => {
                let known = rx.gain().elements().map_err(|error| unsupported("gain_db", error))?;
                stages.iter().try_for_each(|(stage, db)| {
                    self.one_of("stage of `gain_db`", stage, &known)?;
                    within(&format!("gain_db.{stage}"), *db, rx.gain().element(stage).range())
                })
            }
            Setting::Agc(agc) => match rx.agc().enabled() {
                Err(error) if *agc && error.is_unsupported() => Err(unsupported("agc", error)),
                _ => Ok(()),
            },
            Setting::Antenna(name) => {
                let known = rx.antenna().ports().map_err(|error| unsupported("antenna", error))?;
                self.one_of("`antenna`", name, &known)
            }
        }
    }

    fn one_of(&self, what: &str, name: &String, known: &[String]) -> Result<(), BlockError> {
        let wrong = || {
            let known = known.join(", ");
            BlockError::new(format!(
                "the {what} of the device `{}` must be one of {known}, got `{name}`",
                self.name
            ))
        };
        known.contains(name).then_some(()).ok_or_else(wrong)
    }

    /// Sets `setting` in all channels. Returns the centre frequency of the device, if it is another one than the requested.
    pub fn apply(&self, setting: &Setting) -> Result<Option<Rounding>, BlockError> {
        let set = |channel: &usize| self.apply_to(*channel, setting);
        let roundings = self.channels.iter().map(set).collect::<Result<Vec<_>, _>>();
        let roundings = roundings
            .map_err(|error| self.fault(&format!("cannot take the setting {setting}"), error))?;
        Ok(roundings.into_iter().flatten().next())
    }

    fn apply_to(&self, channel: usize, setting: &Setting) -> Result<Option<Rounding>, Error> {
        let rx = self.device.rx(channel)?;
        match setting {
            Setting::CentreHz(hz) => {
                rx.frequency().set(*hz)?;
                return Ok(Rounding::of(*hz, rx.frequency().value()?));
            }
            Setting::BandwidthHz(hz) => rx.bandwidth().set(*hz)?,
            Setting::GainDb(Gain::Overall(db)) => rx.gain().set(*db)?,
            Setting::GainDb(Gain::Stages(stages)) => {
                stages.iter().try_for_each(|(stage, db)| rx.gain().element(stage).set(*db))?;
            }
            Setting::Agc(agc) => match rx.agc().set_enabled(*agc) {
                // A device without automatic gain control has it off.
                Err(Error::Unsupported { capability: Capability::Agc, .. }) if !agc => {}
                result => result?,
            },
            Setting::Antenna(name) => rx.antenna().select(name)?,
        }
        Ok(None)
    }

    /// Text of the event that the centre frequency of the device is not the requested one.
    pub fn tuned_elsewhere(&self, Rounding { requested, actual }: Rounding) -> String {
        format!(
            "`{}` is tuned to {actual} Hz, requested were {requested} Hz; frequencies follow the requested one",
            self.name
        )
    }

    /// The arguments, for messages.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl std::fmt::Display for Setting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::CentreHz(hz) => write!(f, "`centre_hz: {hz}`"),
            Self::BandwidthHz(hz) => write!(f, "`bandwidth_hz: {hz}`"),
            Self::GainDb(Gain::Overall(db)) => write!(f, "`gain_db: {db}`"),
            Self::GainDb(Gain::Stages(stages)) => write!(f, "`gain_db: {stages:?}`"),
            Self::Agc(agc) => write!(f, "`agc: {agc}`"),
            Self::Antenna(name) => write!(f, "`antenna: {name}`"),
        }
    }
}

/// Text of a range.
fn between(range: &Range) -> String {
    format!("between {} and {}", range.min(), range.max())
}
