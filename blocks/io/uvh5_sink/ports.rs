//! Checks of parameters and inputs.

use super::Uvh5Sink;
use crate::common::axes::reject_means;
use crate::common::visibilities::pairs;
use fxgraph::diagnostic::codes;
use fxgraph::{At, Dtype, PortType, Rejection};
use fxgraph_dsp::stefcal::antennas_of;
use fxgraph_formats::uvh5::arrange::Counts;
use fxgraph_formats::uvh5::{self, Shape};

/// Names of the axes of visibilities.
const AXES: [&str; 3] = ["channel", "baseline", "product"];
/// Largest number of an antenna.
const MAX_NUMBER: u32 = 1_000_000;
/// Largest distance of an antenna from the telescope, in metres.
const MAX_METRES: f64 = 1e7;

/// Checked layout of the file and of the inputs.
#[derive(Clone, Debug)]
pub struct Layout {
    /// Layout of the data of a dump.
    pub shape: Shape,
    /// Inputs in the order of their channels.
    pub inputs: Vec<InputLayout>,
    /// Places of the antennas of each baseline of the inputs among the antennas of the file.
    pub baselines: Vec<(usize, usize)>,
    /// Polarisations.
    pub pols: usize,
}

/// Channels of one input.
#[derive(Clone, Copy, Debug)]
pub struct InputLayout {
    /// Number of the input.
    pub input: usize,
    /// Place of its first channel in the file.
    pub at: usize,
    /// Number of its channels.
    pub channels: usize,
    /// Places of its counts.
    pub counts: Counts,
}

impl Uvh5Sink {
    /// Checks the parameters.
    pub(super) fn check(&self, rejections: &mut Vec<Rejection>) {
        if let Err(message) = self.orientations() {
            let help = "give a file such as finals2000A.all of the IERS";
            rejections.push(Rejection::parameter("earth_orientation_file", message).help(help));
        }
        rejections.extend(self.files.rejections(&["uvh5"], "visibilities.uvh5"));
        self.check_telescope(rejections);
        self.check_antennas(rejections);
        let feeds: Vec<uvh5::Feed> = self.feeds.iter().copied().map(Into::into).collect();
        if !feeds.is_empty() && uvh5::polarisations(&feeds).is_none() {
            let message = "`feeds` must be x and y, or r and l, each once, or one of them";
            rejections.push(Rejection::parameter("feeds", message).help("write `[x, y]`"));
        }
        if let Some(angle) =
            self.feed_angles_degrees.iter().find(|angle| !is_within(**angle, 360.0))
        {
            let message = format!("`feed_angles_degrees` must be within +-360, got {angle}");
            rejections.push(Rejection::parameter("feed_angles_degrees", message));
        }
        if let Some(centre) = &self.phase_centre {
            let (ra, dec) = (centre.right_ascension_degrees, centre.declination_degrees);
            let mut reject = |message: String| {
                rejections.push(Rejection::parameter("phase_centre", message));
            };
            if !(0.0..360.0).contains(&ra) {
                reject(format!("`right_ascension_degrees` must be from 0 to 360, got {ra}"));
            }
            if !(-90.0..=90.0).contains(&dec) {
                reject(format!("`declination_degrees` must be within +-90, got {dec}"));
            }
            if centre.name.is_empty() || centre.name == "unprojected" {
                reject(format!("the name of `phase_centre` must not be `{}`", centre.name));
            }
        }
    }

    fn check_telescope(&self, rejections: &mut Vec<Rejection>) {
        let telescope = &self.telescope;
        for (name, value, most) in [
            ("latitude_degrees", telescope.latitude_degrees, 90.0),
            ("longitude_degrees", telescope.longitude_degrees, 360.0),
            ("height_metres", telescope.height_metres, 1e5),
        ] {
            if !is_within(value, most) {
                let message = format!("`{name}` must be within +-{most}, got {value}");
                rejections.push(Rejection::parameter("telescope", message));
            }
        }
        let centre = self.phase_centre.as_ref();
        let texts = [
            ("telescope", Some(&telescope.name)),
            ("telescope", Some(&telescope.instrument)),
            ("phase_centre", centre.map(|centre| &centre.name)),
        ];
        let names = self.antennas.iter().map(|antenna| ("antennas", antenna.name.as_ref()));
        for (parameter, text) in texts.into_iter().chain(names) {
            let is_plain = |text: &&String| text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
            if let Some(text) = text.filter(|text| !is_plain(text)) {
                let message =
                    format!("names in `{parameter}` must be printable ASCII, got {text:?}");
                let help = "use letters without accents: UVFITS and Miriad files have no others";
                rejections.push(Rejection::parameter(parameter, message).help(help));
            }
        }
        if telescope.name.is_empty() {
            let message = "the telescope must have a name";
            let help = "write for example `name: laboratory`";
            rejections.push(Rejection::parameter("telescope", message).help(help));
        }
    }

    fn check_antennas(&self, rejections: &mut Vec<Rejection>) {
        let lists = [
            ("antennas", self.antennas.is_empty()),
            ("antennas_enu_metres", self.antennas_enu_metres.is_empty()),
        ];
        match lists {
            [(_, true), (_, true)] => rejections.push(
                Rejection::new(
                    codes::PARAMETER_OUT_OF_RANGE,
                    At::Block,
                    "the antennas have no positions",
                )
                .help("set `antennas_enu_metres`, for example `[[0, 0, 0], [31, 5, 0]]`"),
            ),
            [(_, false), (_, false)] => rejections.push(
                Rejection::parameter(
                    "antennas",
                    "`antennas` and `antennas_enu_metres` exclude each other",
                )
                .help("omit one of them"),
            ),
            _ => {}
        }
        let parameter = if self.antennas.is_empty() { "antennas_enu_metres" } else { "antennas" };
        let all = self.all_antennas();
        let places = all.iter().flat_map(|antenna| antenna.enu_metres);
        if let Some(value) = places.into_iter().find(|value| !is_within(*value, MAX_METRES)) {
            let message =
                format!("positions in `{parameter}` must be within 10000 km, got {value} m");
            let help = "give positions in metres, for example `[31, 5, 0]`";
            rejections.push(Rejection::parameter(parameter, message).help(help));
        }
        let diameters = all.iter().filter_map(|antenna| antenna.diameter_metres);
        for diameter in diameters.filter(|d| !(d.is_finite() && *d > 0.0)).take(1) {
            let message = format!("`diameter_metres` must be positive and finite, got {diameter}");
            rejections.push(Rejection::parameter("antennas", message));
        }
        let mut names: Vec<&String> = all.iter().filter_map(|a| a.name.as_ref()).collect();
        names.sort_unstable();
        if let Some([twice, ..]) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            let message = format!("the names in `antennas` must differ, got `{twice}` twice");
            rejections.push(Rejection::parameter("antennas", message));
        }
        if names.iter().any(|name| name.is_empty()) {
            let message = "the names in `antennas` must not be empty";
            rejections.push(Rejection::parameter("antennas", message).help("omit `name`"));
        }
        let mut numbers = self.antenna_numbers();
        numbers.sort_unstable();
        if let Some([twice, _]) = numbers.array_windows().find(|[a, b]| a == b) {
            let message = format!("the numbers in `antennas` must differ, got {twice} twice");
            let help = "give each antenna a `number`, or omit all of them";
            rejections.push(Rejection::parameter("antennas", message).help(help));
        }
        if let Some(number) = self.antennas.iter().filter_map(|antenna| antenna.number).max()
            && number > MAX_NUMBER
        {
            let message =
                format!("`number` of an antenna must be at most {MAX_NUMBER}, got {number}");
            rejections.push(Rejection::parameter("antennas", message));
        }
    }

    /// Checks the inputs, and returns the layout of the file.
    pub(super) fn layout(
        &self,
        inputs: &[PortType],
        rejections: &mut Vec<Rejection>,
    ) -> Option<Layout> {
        let before = rejections.len();
        for (n, input) in inputs.iter().enumerate() {
            check_input(n, input, rejections);
        }
        if rejections.len() > before {
            return None;
        }
        let first = &inputs[0];
        for (n, input) in inputs.iter().enumerate().skip(1) {
            check_alike(n, input, first, rejections);
        }
        let baselines = self.baselines(first, rejections);
        let pols = first.axes[2].len.isqrt();
        for (name, len) in
            [("feeds", self.feeds.len()), ("feed_angles_degrees", self.feed_angles_degrees.len())]
        {
            if len > 0 && len != pols {
                let message = format!(
                    "`{name}` must have an entry for each polarisation of the input, {pols}, got {len}"
                );
                rejections.push(
                    Rejection::parameter(name, message)
                        .note(At::InputAxis(0, "product"), "polarisations are set here"),
                );
            }
        }
        let mut order: Vec<usize> = (0..inputs.len()).collect();
        let first_of = |n: usize| inputs[n].band.map_or(0, |band| band.first_channel);
        order.sort_by_key(|n| first_of(*n));
        for pair in order.windows(2) {
            let end = first_of(pair[0]).saturating_add(inputs[pair[0]].axes[0].len);
            if first_of(pair[1]) < end {
                let message = format!(
                    "channel {} of the band is in inputs {} and {}",
                    first_of(pair[1]),
                    pair[0],
                    pair[1]
                );
                rejections.push(
                    Rejection::new(codes::INPUTS_DIFFER, At::Input(pair[1]), message)
                        .help("connect correlators of different channels"),
                );
            }
        }
        if rejections.len() > before {
            return None;
        }
        let mut channels = 0_usize;
        let mut layouts = Vec::new();
        for input in order {
            let port = &inputs[input];
            let of_input = port.axes[0].len;
            let counts = counts_of(port)?;
            layouts.push(InputLayout { input, at: channels, channels: of_input, counts });
            channels = channels.checked_add(of_input)?;
        }
        let Some(shape) = Shape::new(baselines.len(), channels, pols * pols) else {
            let message = "a channel of a dump must have less than 4 GiB";
            rejections.push(Rejection::new(
                codes::INPUT_AXIS,
                At::InputAxis(0, "baseline"),
                message,
            ));
            return None;
        };
        Some(Layout { shape, inputs: layouts, baselines, pols })
    }

    /// Places of the antennas of each baseline of a checked input.
    fn baselines(&self, input: &PortType, rejections: &mut Vec<Rejection>) -> Vec<(usize, usize)> {
        let parameter = if self.antennas.is_empty() { "antennas_enu_metres" } else { "antennas" };
        let mut reject = |message: String, help: String| {
            rejections.push(
                Rejection::parameter(parameter, message)
                    .note(At::InputAxis(0, "baseline"), "baselines are set here")
                    .help(help),
            );
        };
        let antennas = self.antennas.len().max(self.antennas_enu_metres.len());
        let axis = &input.axes[1];
        // Without labels the antennas are those at all places; without positions there is a diagnostic already.
        let all = antennas_of(axis.len).filter(|_| axis.labels.is_empty());
        if let Some(wanted) = all.filter(|wanted| *wanted != antennas && antennas > 0) {
            let message = format!(
                "`{parameter}` must have the antennas of the {} baselines, got {antennas}",
                axis.len
            );
            reject(message, format!("give {wanted} positions"));
        }
        if all.is_some_and(|wanted| wanted != antennas) {
            return Vec::new();
        }
        let mut baselines = Vec::with_capacity(axis.len);
        for (one, two) in pairs(input).unwrap_or_default() {
            let place = |number: u32| {
                let place =
                    if all.is_some() { Some(number as usize) } else { self.place_of(number) };
                place.ok_or(number)
            };
            match (place(one), place(two)) {
                (Ok(one), Ok(two)) => baselines.push((one, two)),
                (Err(number), _) | (_, Err(number)) => {
                    let message = format!("`{parameter}` must have antenna {number} of the input");
                    let help = "give each antenna in `antennas` its `number`, as in `antenna_numbers` of `antenna_stack`";
                    reject(message, help.to_owned());
                    break;
                }
            }
        }
        baselines
    }
}

/// Whether a value is within +-`most`; NaN is not.
fn is_within(value: f64, most: f64) -> bool {
    value.abs() <= most
}

/// Places of the counts of an input; `None` if they do not fit its visibilities.
fn counts_of(input: &PortType) -> Option<Counts> {
    let axes: Option<Vec<(usize, usize)>> = input
        .validity
        .axes
        .iter()
        .map(|axis| Some((AXES.iter().position(|name| *name == axis.name)?, axis.len)))
        .collect();
    Counts::new(&axes?, [0, 1, 2].map(|axis| input.axes[axis].len))
}

fn check_input(n: usize, input: &PortType, rejections: &mut Vec<Rejection>) {
    let names: Vec<&str> = input.axes.iter().map(|axis| axis.name).collect();
    if names != AXES || ![1, 4].contains(&input.axes[2].len) {
        rejections.push(
            Rejection::new(codes::INPUT_AXIS, At::Input(n), "the input must be visibilities")
                .label(format!("this is {input}"))
                .help("connect a `correlator`: [channel][baseline][product]"),
        );
        return;
    }
    if !matches!(input.dtype, Dtype::Ci32 | Dtype::Cf32) {
        let message = format!("the input must be ci32 or cf32, got {}", input.dtype);
        rejections.push(Rejection::new(codes::INPUT_DTYPE, At::Input(n), message));
    }
    if pairs(input).is_none() {
        let message = format!(
            "the baselines must be all pairs of antennas, autocorrelations included, or have labels, got {}",
            input.axes[1].len
        );
        rejections.push(Rejection::new(codes::INPUT_AXIS, At::InputAxis(n, "baseline"), message));
    }
    if let Some(rejection) = reject_means(n, input) {
        rejections.push(rejection);
    } else if counts_of(input).is_none() {
        let axes = input.validity.axes.iter();
        let found: Vec<String> = axes.map(|axis| format!("[{} {}]", axis.name, axis.len)).collect();
        let found = found.concat();
        let message = format!(
            "the axes of the validity must be among channel, baseline and product, got {found}"
        );
        rejections.push(Rejection::new(codes::INPUT_AXIS, At::Input(n), message));
    }
    match input.band {
        None => rejections.push(
            Rejection::new(
                codes::INPUT_AXIS,
                At::Input(n),
                "the input has no band, so its frequencies are not known",
            )
            .help("insert a `pfb`, or set `band` of the source"),
        ),
        Some(band) => {
            let width = band.step_hz().abs();
            if !width.is_normal() {
                let message = format!("the width of a channel must be positive, got {width} Hz");
                rejections.push(Rejection::new(codes::INPUT_AXIS, At::Input(n), message));
            }
        }
    }
    let seconds = 1.0 / input.clock.frames_per_second();
    if !seconds.is_normal() {
        let message = format!("the length of a dump must be positive and finite, got {seconds} s");
        rejections.push(Rejection::new(codes::INPUT_AXIS, At::Input(n), message));
    }
}

fn check_alike(n: usize, input: &PortType, first: &PortType, rejections: &mut Vec<Rejection>) {
    let band = |port: &PortType| {
        port.band.map(|band| {
            let width = band.signed_bandwidth_hz();
            (band.channels, band.centre_hz.to_bits(), width.to_bits())
        })
    };
    let is_alike = input.axes[1..] == first.axes[1..]
        && input.axes[1].labels == first.axes[1].labels
        && input.clock.counts_alike(&first.clock)
        && input.clock.samples_per_frame == first.clock.samples_per_frame
        && band(input) == band(first);
    if !is_alike {
        let message = format!("input {n} has other baselines, dumps or another band than input 0");
        rejections.push(
            Rejection::new(codes::INPUTS_DIFFER, At::Input(n), message)
                .label(format!("this is {input}"))
                .note(At::Input(0), format!("this is {first}"))
                .help("connect correlators of one band with dumps of equal length, or use a sink for each"),
        );
    }
}
