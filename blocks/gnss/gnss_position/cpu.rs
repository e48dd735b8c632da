//! The block: pairs the outputs of the tracker, and computes a position at the end of each interval.

use super::clients::Clients;
use super::files::{ObservationFile, near_week, write_navigation};
use super::receiver::{Position as Fixed, Receiver};
use super::satellites::{Measured, Satellites};
use super::{GnssPosition, SATELLITE_VALUES, Shape, VALUES};
use crate::gnss::gnss_tracker::{PROMPT_VALUES, VALUES as TRACKED_VALUES};
use crate::io::files::output_file::{Report as Files, try_to_write};
use fxgraph::access::WrittenPath;
use fxgraph::{
    Block, BlockError, Clock, Counter, Env, Frame, FrameMut, Gauge, Io, Next, PortType, Time,
    TimeBase,
};
use fxgraph_navigation::ephemeris::week_of;
use fxgraph_navigation::nmea::Report;
use fxgraph_navigation::solve::{Raim, Used};
use std::fmt::Write as _;
use std::net::SocketAddr;

/// The running block.
pub(super) struct Position {
    clock: Clock,
    frames: u64,
    base: TimeBase,
    /// Timestamp of the frame that follows the last one.
    next: Option<u64>,
    satellites: Satellites,
    receiver: Receiver,
    observation_file: Option<ObservationFile>,
    navigation_file: Option<WrittenPath>,
    nmea: Option<SocketAddr>,
    clients: Option<Clients>,
    /// Sentences, and measurements of an epoch; kept for their memory.
    text: String,
    measured: Vec<Measured>,
    report: Metrics,
}

/// Counters and gauges.
struct Metrics {
    epochs: Counter,
    without: Counter,
    ephemerides: Counter,
    units: Counter,
    failed: Counter,
    contradicted: Counter,
    excluded: Counter,
    faulty: Counter,
    unpaired: Counter,
    nmea_dropped: Counter,
    gauges: [Gauge; 6],
    first_fix: Gauge,
    first_seconds: Option<f64>,
    last: Option<String>,
    files: Files,
}

impl Metrics {
    fn new(frames: u64, env: &Env) -> Self {
        let count = |name, help| env.counters.count(name, help);
        let gauge = |name, help| env.counters.measurement_every(frames, name, help);
        Self {
            epochs: count("epochs", "intervals at whose end a position was tried"),
            without: count(
                "epochs_without_position",
                "intervals without a position: too few satellites, or a fault",
            ),
            ephemerides: count("ephemerides_decoded", "ephemerides decoded from messages"),
            units: count(
                "message_units_decoded",
                "subframes and pages of messages whose parity or CRC is right",
            ),
            failed: count(
                "message_units_failed",
                "subframes and pages with a wrong parity or CRC, or with missing symbols",
            ),
            contradicted: count(
                "message_units_contradicted",
                "subframes and pages that contradict the time of others or are of another satellite, and implausible ephemerides",
            ),
            excluded: count(
                "raim_exclusions",
                "intervals in which the check of the residuals excluded a satellite",
            ),
            faulty: count(
                "raim_failures",
                "intervals whose residuals no single satellite explains: the position is flagged",
            ),
            unpaired: count(
                "frames_unpaired",
                "frames of one input without the frame of the other, which are dropped",
            ),
            nmea_dropped: count(
                "nmea_clients_dropped",
                "clients that were closed because they did not read, or were too many",
            ),
            gauges: [
                gauge("latitude_degrees", "geodetic latitude of the receiver"),
                gauge("longitude_degrees", "longitude of the receiver, east positive"),
                gauge("height_metres", "height of the receiver above the ellipsoid"),
                gauge("pdop", "dilution of precision of the position"),
                gauge("satellites_used", "satellites that the position uses"),
                gauge("clock_seconds", "clock of the stream minus GPS time"),
            ],
            first_fix: env.counters.state(
                "first_fix_seconds",
                "time of the first position after the first frame; 0 before it",
            ),
            first_seconds: None,
            last: None,
            files: Files::new(env),
        }
    }
}

impl Position {
    pub(super) fn new(
        parameters: &GnssPosition,
        shape: &Shape,
        input: &PortType,
        env: &Env,
    ) -> Self {
        let clock = input.clock;
        let interval_seconds =
            (clock.samples_per_frame * shape.frames) as f64 / clock.adc_sample_rate_hz;
        let written = |path: &Option<WrittenPath>| {
            path.as_ref().map(|path| path.begin_at(&env.output_directory))
        };
        Self {
            clock,
            frames: shape.frames,
            base: TimeBase::default(),
            next: None,
            satellites: Satellites::new(shape.satellites, shape.slots),
            receiver: Receiver::new(parameters, &shape.navigation),
            observation_file: written(&parameters.observation_file)
                .map(|path| ObservationFile::new(path, interval_seconds)),
            navigation_file: written(&parameters.navigation_file),
            nmea: shape.nmea,
            clients: None,
            text: String::new(),
            measured: Vec::with_capacity(shape.satellites),
            report: Metrics::new(shape.frames, env),
        }
    }

    /// End of a frame.
    fn end(&self, frame: &Frame) -> u64 {
        frame.header().timestamp.saturating_add(self.clock.samples_per_frame)
    }

    /// Whether an interval ends with a frame. One that ended in a gap has no position, and no frame.
    fn ends_interval(&self, frame: &Frame) -> bool {
        let ticks = self.frames * self.clock.samples_per_frame;
        self.end(frame) / ticks > frame.header().timestamp / ticks
    }

    /// Time of the stream at a timestamp.
    fn time(&self, timestamp: u64) -> Option<Time> {
        let sync_time = self.base.sync_time.unwrap_or(self.clock.sync_time);
        sync_time
            .plus_samples(timestamp.saturating_sub(self.base.from), self.clock.adc_sample_rate_hz)
    }

    /// Takes a pair of frames of the tracker.
    fn take(&mut self, tracked: &Frame, prompts: &Frame) -> Result<(), BlockError> {
        let header = tracked.header();
        let base = std::mem::replace(&mut self.base, header.base);
        let is_later = self.next.is_none_or(|next| header.timestamp >= next);
        if !is_later || !base.is(&self.base) {
            self.satellites.clear();
            self.receiver.restart();
            if let Some(file) = &mut self.observation_file {
                file.begin_again(&mut self.report.files)?;
            }
        }
        let is_gap = self.next.is_some_and(|next| header.timestamp > next);
        if (is_gap || header.validity.contains(&0))
            && let Some(file) = &mut self.observation_file
        {
            file.lose_all_but(&[]);
        }
        let end = self.end(tracked);
        self.next = Some(end);
        let week = near_week(self.time(end).unwrap_or_default());
        let rows = tracked.as_slice::<[f64; TRACKED_VALUES]>().expect(fxgraph::ON_HOST);
        let sums = prompts.as_slice::<[f64; PROMPT_VALUES]>().expect(fxgraph::ON_HOST);
        let Self { satellites, receiver, report, .. } = self;
        satellites.take(rows, sums, week, |decoded| {
            report.ephemerides.add(u64::from(receiver.take(decoded)));
        });
        Ok(())
    }

    /// Computes the position at the end of `tracked`, and writes the outputs.
    fn locate(
        &mut self,
        tracked: &Frame,
        output: &mut FrameMut,
        of_satellites: &mut FrameMut,
    ) -> Result<(), BlockError> {
        let end = self.end(tracked);
        let stream = self.time(end).unwrap_or_default();
        // Extrapolated phases are no measurements.
        let is_whole = !tracked.header().validity.contains(&0);
        self.measured.clear();
        if is_whole {
            self.measured.extend(self.satellites.measured().map(|(_, measured)| *measured));
        }
        let position = self.receiver.locate(stream, &self.measured);
        let usable = position.as_ref().filter(|position| !position.is_faulty());
        self.report.add(position.as_ref(), stream, || end as f64 / self.clock.adc_sample_rate_hz);
        self.report.count(self.satellites.counts());
        let start = end.saturating_sub(self.frames * self.clock.samples_per_frame);
        for frame in [&mut *output, &mut *of_satellites] {
            frame.header_mut().continue_from(tracked.header());
            frame.header_mut().timestamp = start.max(self.base.from);
            frame.fill_validity(u32::from(usable.is_some()));
        }
        let values = output.as_mut_slice::<[f64; VALUES]>().expect(fxgraph::ON_HOST);
        values[0] = position.as_ref().map_or([0.0; VALUES], |p| p.values(self.measured.len()));
        let rows = of_satellites.as_mut_slice::<[f64; SATELLITE_VALUES]>().expect(fxgraph::ON_HOST);
        rows.fill([0.0; SATELLITE_VALUES]);
        for (n, measured) in self.satellites.measured().filter(|_| is_whole) {
            rows[n] = row(measured, position.as_ref());
        }
        self.send(stream, usable);
        let Some(file) = &mut self.observation_file else { return Ok(()) };
        file.lose_all_but(&self.measured);
        usable.map_or(Ok(()), |position| file.write(position, stream, &self.measured))
    }

    /// Sends sentences to the clients.
    fn send(&mut self, stream: Time, position: Option<&Fixed>) {
        let Some(clients) = &mut self.clients else { return };
        let cn0 = |used: &Used| {
            let measured = self.measured.iter().find(|m| m.id == used.satellite);
            measured.map_or(0.0, |measured| measured.cn0_db_hz)
        };
        let satellites: Vec<(Used, f64)> = position
            .map(|position| {
                position.solution.satellites.iter().map(|used| (*used, cn0(used))).collect()
            })
            .unwrap_or_default();
        self.text.clear();
        Report {
            time: position.map_or(stream, |position| position.time),
            place: position.map(|position| position.place),
            velocity: position.and_then(|position| position.velocity),
            dops: position.map(|position| position.solution.dops).unwrap_or_default(),
            satellites: &satellites,
        }
        .write(&mut self.text);
        clients.send(&self.text);
    }

    /// Prints the last position, and writes the navigation file.
    fn conclude(&mut self) -> Result<(), BlockError> {
        self.report.finish();
        let Some(path) = &self.navigation_file else { return Ok(()) };
        write_navigation(path, &self.receiver.broadcast(), &mut self.report.files)
    }
}

impl Metrics {
    /// Adds an epoch; `seconds` is its time after timestamp 0.
    fn add(&mut self, position: Option<&Fixed>, stream: Time, seconds: impl Fn() -> f64) {
        self.epochs.add(1);
        let Some(position) = position.filter(|position| !position.is_faulty()) else {
            self.without.add(1);
            self.faulty.add(u64::from(position.is_some()));
            return;
        };
        self.excluded.add(u64::from(matches!(position.solution.raim, Raim::Excluded(_))));
        let place = position.place;
        let values = [
            place.latitude.to_degrees(),
            place.longitude.to_degrees(),
            place.height_metres,
            position.solution.dops.position,
            position.solution.used() as f64,
            stream.seconds_since(position.time),
        ];
        self.gauges.iter().zip(values).for_each(|(gauge, value)| gauge.set(value));
        let first = *self.first_seconds.get_or_insert_with(seconds);
        self.first_fix.set(first);
        let [latitude, longitude, height, pdop, used, clock] = values;
        let deviations = position.deviations.map(|deviation| format!("{deviation:.2}")).join(", ");
        let mut text =
            format!("latitude   {latitude:.8} degrees\nlongitude  {longitude:.8} degrees\n");
        // Writing to a string cannot fail.
        let _ =
            writeln!(text, "height     {height:.3} m\ndeviation  {deviations} m (east, north, up)");
        let _ = writeln!(
            text,
            "satellites {used}, PDOP {pdop:.2}\nclock      {clock:.9} s after GPS time"
        );
        let _ = writeln!(text, "first fix  after {first:.2} s");
        self.last = Some(text);
    }

    /// Sets the counters of message units.
    fn count(&self, counts: fxgraph_navigation::message::Counts) {
        for (counter, count) in [
            (&self.units, counts.decoded),
            (&self.failed, counts.failed),
            (&self.contradicted, counts.contradicted),
        ] {
            counter.add(count.saturating_sub(counter.get()));
        }
    }

    fn finish(&mut self) {
        let text = self.last.as_deref().map_or("no position", str::trim_end);
        self.files.note(text.to_owned());
    }
}

impl Fixed {
    /// Values of the output; `seen` satellites are locked.
    fn values(&self, seen: usize) -> [f64; VALUES] {
        let [x, y, z] = self.itrf;
        let [east, north, up] = self.velocity.unwrap_or([f64::NAN; 3]);
        let [east_error, north_error, up_error] = self.deviations;
        let (week, seconds) = week_of(self.time);
        let solution = &self.solution;
        let dops = solution.dops;
        let (raim, excluded) = match solution.raim {
            Raim::Unavailable => (0.0, [0.0; 2]),
            Raim::Passed => (1.0, [0.0; 2]),
            Raim::Excluded(id) => {
                (2.0, [f64::from(id.constellation as u8) + 1.0, f64::from(id.prn)])
            }
            Raim::Failed => (3.0, [0.0; 2]),
        };
        [
            f64::from(self.fix as u8),
            x,
            y,
            z,
            self.place.latitude.to_degrees(),
            self.place.longitude.to_degrees(),
            self.place.height_metres,
            east,
            north,
            up,
            east_error,
            north_error,
            up_error,
            f64::from(week),
            seconds,
            self.clock_seconds,
            self.clock_rate,
            solution.galileo_offset_seconds,
            dops.geometric,
            dops.position,
            dops.horizontal,
            dops.vertical,
            dops.time,
            solution.used() as f64,
            seen as f64,
            raim,
            excluded[0],
            excluded[1],
            solution.chi_square,
        ]
    }
}

/// Row of a satellite in the output `satellites`.
fn row(measured: &Measured, position: Option<&Fixed>) -> [f64; SATELLITE_VALUES] {
    let used = position.and_then(|position| {
        position.solution.satellites.iter().find(|used| used.satellite == measured.id)
    });
    let range = position.and_then(|position| {
        let found = position.pseudoranges.iter().find(|(id, _)| *id == measured.id);
        found.map(|(_, range)| *range)
    });
    let of = |value: fn(&Used) -> f64| used.map_or(f64::NAN, value);
    [
        measured.system.number() as f64,
        measured.prn as f64,
        of(|used| f64::from(u8::from(used.is_used))).max(0.0),
        of(|used| used.direction.azimuth.to_degrees()),
        of(|used| used.direction.elevation.to_degrees()),
        measured.cn0_db_hz,
        range.unwrap_or(f64::NAN),
        of(|used| used.residual_metres),
        measured.doppler_hz,
        measured.turns,
        f64::from(u8::from(range.is_some())),
    ]
}

impl Block for Position {
    fn start(&mut self) -> Result<(), BlockError> {
        if let Some(path) = &self.navigation_file {
            try_to_write(path, true)?;
        }
        if let Some(file) = &mut self.observation_file {
            file.open(&mut self.report.files)?;
        }
        let Some(address) = self.nmea else { return Ok(()) };
        let dropped = self.report.nmea_dropped.clone();
        let clients = Clients::listen(address, dropped).map_err(|error| {
            BlockError::new(format!("cannot listen at `nmea_listen` {address}: {error}"))
        })?;
        self.clients = Some(clients);
        Ok(())
    }

    fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        let ([tracked, prompts], [output, of_satellites]) = (&mut *io.inputs, &mut *io.outputs)
        else {
            return Err(BlockError::new("the block has two inputs and two outputs"));
        };
        let (Some(rows), Some(sums)) = (tracked.peek(), prompts.peek()) else {
            if tracked.ended() || prompts.ended() {
                self.conclude()?;
                return Ok(Next::Finished);
            }
            return Ok(Next::Wait);
        };
        let order = rows.header().timestamp.cmp(&sums.header().timestamp);
        if order.is_ne() {
            self.report.unpaired.add(1);
            (if order.is_lt() { tracked } else { prompts }).pop();
            return Ok(Next::Again);
        }
        let mut taken = None;
        if self.ends_interval(rows) {
            // Both or none: a frame that is not pushed goes back to its pool.
            let (Some(output), Some(of_satellites)) = (output.take(), of_satellites.take()) else {
                return Ok(Next::Wait);
            };
            taken = Some((output, of_satellites));
        }
        let (Some(rows), Some(sums)) = (tracked.pop(), prompts.pop()) else {
            return Ok(Next::Wait);
        };
        self.take(&rows, &sums)?;
        if let Some((mut position, mut satellites)) = taken {
            self.locate(&rows, &mut position, &mut satellites)?;
            output.push(position);
            of_satellites.push(satellites);
        }
        Ok(Next::Again)
    }
}
