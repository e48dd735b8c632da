//! The process of a block: interpreter, socket, log, and its end.
//!
//! Host and process send packets over a pair of sockets, which keep their order: sources of the runner, messages in
//! JSON, and 40 bytes for each frame, or more for one in GPU memory that is new to the process. The process dies with the
//! host: it holds the reading end of a pipe, and the kernel kills its group when the writing end is gone.

use super::fault::{Fault, Raised};
use super::lines::Lines;
use super::patience::Patience;
use super::port;
use super::program::Program;
use fxgraph::PortType;
use fxgraph::frame::SharedMemory;
use fxgraph::lock::lock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_passcred;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, pidfd_send_signal};
use serde_json::{Map, Value, json};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Text of the class API, which authors import; also a module of the Python package.
const API: &str = include_str!("../../../python/src/fxgraph/block.py");
const RUNNER: &str = include_str!("runner.py");
const GPU: &str = include_str!("gpu.py");
/// Makes modules of the sources that come over the socket (descriptor 0), and runs the last one.
const BOOT: &str = include_str!("boot.py");

/// Time limit for the start of the interpreter, for imports and for `start` of a block, as [`Patience`] counts it.
pub const START_LIMIT: Duration = Duration::from_secs(30);
/// Time for a process that does not answer to write its stack.
const STACK_TIME: Duration = Duration::from_millis(300);
/// Time for a process whose socket is closed to end by itself.
const END_TIME: Duration = Duration::from_millis(500);
/// Longest message in a packet; longer ones go through memory of their own.
const PACKET_BYTES: usize = 32 << 10;
/// Longest packet of the process.
const REPLY_BYTES: usize = 64 << 10;
/// Number of lines of the log that a report of an end shows.
const LAST_LINES: usize = 40;

/// Packet of the process.
#[derive(Debug)]
pub enum Packet {
    /// A frame was computed, or dropped by the block.
    Done { job: u64, is_dropped: bool, timestamp: u64 },
    /// A message in JSON.
    Message(Value),
}

/// Sends packets to a process.
#[derive(Clone, Debug)]
pub struct Sender(Arc<OwnedFd>);

impl Sender {
    /// Sends one packet with these descriptors, without waiting. A process that has ended gets nothing; its end is
    /// reported by the receiver.
    pub fn send(&self, packet: &[u8], files: &[BorrowedFd<'_>]) -> Result<(), Fault> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(files));
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        match sendmsg(&*self.0, &[IoSlice::new(packet)], &mut control, flags) {
            Ok(_) | Err(Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN) => Ok(()),
            Err(error) => {
                Err(Fault::System(format!("cannot send to the process of the block: {error}")))
            }
        }
    }

    /// Sends a message with at most one descriptor.
    pub fn tell(&self, message: &Value, file: Option<BorrowedFd<'_>>) -> Result<(), Fault> {
        let text = message.to_string();
        let files: Vec<_> = file.into_iter().collect();
        if text.len() <= PACKET_BYTES {
            return self.send(text.as_bytes(), &files);
        }
        let mut memory = SharedMemory::new(text.len()).map_err(no_memory)?;
        memory.bytes_mut()[..text.len()].copy_from_slice(text.as_bytes());
        let long = json!({ "long": text.len() }).to_string();
        // The process takes the last descriptor for the text.
        let files: Vec<_> = files.into_iter().chain([memory.file()]).collect();
        self.send(long.as_bytes(), &files)
    }
}

fn no_memory(error: std::io::Error) -> Fault {
    Fault::System(format!("cannot allocate shared memory: {error}"))
}

/// Kills the group of a process, from any thread, until the process has been waited for.
#[derive(Clone, Default)]
pub struct Killer(Arc<Mutex<Option<Pid>>>);

impl Killer {
    /// Number of the process, until it has been waited for.
    pub fn pid(&self) -> Option<Pid> {
        *lock(&self.0)
    }

    /// Kills the process and its children.
    pub fn kill(&self) {
        // Under the lock, because the number may belong to another process after the wait.
        let pid = lock(&self.0);
        if let Some(pid) = *pid {
            let _ = kill_process_group(pid, Signal::KILL);
        }
    }
}

/// Gets each line that a process writes, with its syslog level.
pub type Log = Box<dyn FnMut(u8, &str) + Send>;

/// A running process. One thread receives from it.
pub struct Process {
    child: Child,
    pidfd: OwnedFd,
    sender: Sender,
    killer: Killer,
    /// The process dies when this end of the pipe is closed, by the host or with it.
    _life: OwnedFd,
    streams: [Lines; 2],
    log: Log,
    last_lines: VecDeque<String>,
    buffer: Vec<u8>,
    /// Process that sent the first packet: the interpreter, which a script may have started. Its children have its
    /// socket, too.
    speaker: Option<Pid>,
}

impl Process {
    /// Starts the interpreter and hands over the program with the parameters `values`, for a block with these `inputs`.
    /// `visible` names the only GPU that it finds.
    pub fn start(
        program: &Program,
        values: &Map<String, Value>,
        inputs: &[PortType],
        visible: Option<&str>,
        log: Log,
    ) -> Result<Self, Fault> {
        let system =
            |error: Errno| Fault::System(format!("cannot start the process of the block: {error}"));
        let pair =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
        let (socket, theirs) = pair.map_err(system)?;
        set_socket_passcred(&socket, true).map_err(system)?;
        let pipe = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC);
        let (life_read, life) = pipe.map_err(system)?;
        let mut command = Command::new(&program.python);
        command
            .args(["-c", BOOT])
            .env("PYTHONUNBUFFERED", "1")
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Ctrl-C in the terminal is for the host, which ends the block.
            .process_group(0);
        // Threads of a linear algebra library would take cores from other blocks.
        for name in ["OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"] {
            if std::env::var_os(name).is_none() {
                command.env(name, "1");
            }
        }
        if let Some(visible) = visible {
            command.env("CUDA_VISIBLE_DEVICES", visible);
        }
        let mut child = command.spawn().map_err(|error| Fault::NoInterpreter(error.to_string()))?;
        drop(command);
        let pid = Pid::from_child(&child);
        let streams = (child.stdout.take(), child.stderr.take());
        let made = (|| {
            let (Some(out), Some(err)) = streams else { return Err(Errno::BADF) };
            Ok((pidfd_open(pid, PidfdFlags::empty())?, [Lines::new(out, 6)?, Lines::new(err, 4)?]))
        })();
        let (pidfd, streams) = match made {
            Ok(made) => made,
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(system(error));
            }
        };
        let process = Self {
            child,
            pidfd,
            sender: Sender(Arc::new(socket)),
            killer: Killer(Arc::new(Mutex::new(Some(pid)))),
            _life: life,
            streams,
            log,
            last_lines: VecDeque::new(),
            buffer: vec![0; REPLY_BYTES],
            speaker: None,
        };
        for (name, text) in
            [("fxgraph.block", API), ("fxgraph_gpu", GPU), ("fxgraph_runner", RUNNER)]
        {
            process.sender.send(format!("{name}\n{text}").as_bytes(), &[])?;
        }
        // An empty packet would read as the end.
        process.sender.send(b"\n", &[])?;
        let start = json!({"start": {
            "name": program.name,
            "directory": program.directory,
            "text": &*program.text,
            "class": program.class,
            "function": program.function,
            "values": values,
            "inputs": inputs.iter().map(port::to_json).collect::<Vec<_>>(),
            "host": std::process::id(),
            "memory_limit_bytes": program.memory_limit_bytes,
        }});
        process.sender.tell(&start, Some(life_read.as_fd()))?;
        Ok(process)
    }

    /// Sender of packets.
    pub fn sender(&self) -> Sender {
        self.sender.clone()
    }

    /// Killer of the process.
    pub fn killer(&self) -> Killer {
        self.killer.clone()
    }

    /// The next packet; `None` if there is none within `timeout`.
    pub fn receive(&mut self, timeout: Duration) -> Result<Option<Packet>, Fault> {
        let until = Instant::now() + timeout;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let [is_answered, has_ended] = self.wait(left, true);
            if is_answered {
                match self.read_packet() {
                    Ok((0, _)) => return Err(self.ended()),
                    Ok((length, sender)) => {
                        self.check_sender(sender)?;
                        return self.packet(length).map(Some);
                    }
                    Err(Errno::AGAIN | Errno::INTR) => {}
                    Err(_) => return Err(self.ended()),
                }
            } else if has_ended {
                return Err(self.ended());
            } else if left.is_zero() {
                return Ok(None);
            }
        }
    }

    /// Reads a packet into the buffer; returns its length and the process that sent it.
    fn read_packet(&mut self) -> Result<(usize, Option<Pid>), Errno> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut self.buffer)];
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let message = recvmsg(&*self.sender.0, &mut parts, &mut control, flags)?;
        let sender = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmCredentials(of_sender) => Some(of_sender.pid),
            _ => None,
        });
        Ok((message.bytes, sender))
    }

    /// Checks that a packet comes from the process that sent the first one. An answer of a child of that process would
    /// count as the answer for another frame.
    fn check_sender(&mut self, sender: Option<Pid>) -> Result<(), Fault> {
        let Some(sender) = sender else { return Ok(()) };
        if *self.speaker.get_or_insert(sender) == sender {
            return Ok(());
        }
        self.end();
        Err(Fault::System(
            "the process must answer itself, got an answer of its child: end a child of `os.fork` with `os._exit`, or \
             start it with `subprocess`"
                .to_owned(),
        ))
    }

    /// The next message, within `limit` of the time in which the process could run.
    pub fn hear(&mut self, limit: Duration) -> Result<Value, Fault> {
        let mut patience = Patience::new(limit, self.killer.pid());
        loop {
            match self.receive(patience.tick())? {
                Some(Packet::Message(message)) => return Ok(message),
                Some(Packet::Done { .. }) => {
                    return Err(Fault::System("the process answered without a frame".to_owned()));
                }
                None if patience.is_over() => return Err(self.hung(limit)),
                None => {}
            }
        }
    }

    /// Waits until there is something to read, or until the process ends, and reads its log. Returns whether a packet
    /// has arrived, and whether the process has ended.
    fn wait(&mut self, timeout: Duration, also_packets: bool) -> [bool; 2] {
        let timeout = Timespec {
            tv_sec: timeout.as_secs() as i64,
            tv_nsec: i64::from(timeout.subsec_nanos()),
        };
        let [out, err] = &self.streams;
        // A stream that has ended, and a socket that is not read, are replaced by the process.
        let socket = if also_packets { self.sender.0.as_fd() } else { self.pidfd.as_fd() };
        let process = self.pidfd.as_fd();
        let [out, err] = [out, err].map(|lines| lines.stream.as_ref().map_or(process, File::as_fd));
        let mut waits = [
            PollFd::from_borrowed_fd(socket, PollFlags::IN),
            PollFd::from_borrowed_fd(self.pidfd.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(out, PollFlags::IN),
            PollFd::from_borrowed_fd(err, PollFlags::IN),
        ];
        if poll(&mut waits, Some(&timeout)).is_err() {
            return [false; 2];
        }
        let [packet, end, out, err] = waits.map(|wait| !wait.revents().is_empty());
        for (stream, has_lines) in [out, err].into_iter().enumerate() {
            if has_lines {
                self.read_lines(stream);
            }
        }
        [packet && also_packets, end]
    }

    fn read_lines(&mut self, stream: usize) {
        let (log, last_lines) = (&mut self.log, &mut self.last_lines);
        self.streams[stream].read(&mut |level, line| {
            log(level, line);
            if last_lines.len() == LAST_LINES {
                last_lines.pop_front();
            }
            last_lines.push_back(line.to_owned());
        });
    }

    fn packet(&mut self, length: usize) -> Result<Packet, Fault> {
        let packet = &self.buffer[..length];
        if let [b'D', _, is_dropped, _, _, _, _, _, words @ ..] = packet
            && let ([job, timestamp], []) = words.as_chunks::<8>()
        {
            let [job, timestamp] = [job, timestamp].map(|word| u64::from_le_bytes(*word));
            return Ok(Packet::Done { job, is_dropped: *is_dropped != 0, timestamp });
        }
        let unknown =
            |error| Fault::System(format!("the process sent an unknown message: {error}"));
        let mut message: Value = serde_json::from_slice(packet).map_err(unknown)?;
        let Some(error) = message.get_mut("error") else { return Ok(Packet::Message(message)) };
        let raised: Raised = serde_json::from_value(error.take()).map_err(unknown)?;
        if raised.ended {
            // A process that ends writes its last lines first.
            self.end();
        }
        Err(Fault::Raised(raised))
    }

    /// Ends the process, which has not answered for `after`; its stack is part of the fault.
    pub fn hung(&mut self, after: Duration) -> Fault {
        self.last_lines.clear();
        let _ = pidfd_send_signal(&self.pidfd, Signal::USR1);
        let until = Instant::now() + STACK_TIME;
        while let left = until.saturating_duration_since(Instant::now())
            && !left.is_zero()
            && !self.wait(left, false)[1]
        {
            let is_complete = self.last_lines.len() > 1;
            if is_complete && !self.wait(Duration::from_millis(20), false)[1] {
                break;
            }
        }
        self.end();
        Fault::Hung { after, stack: self.stack() }
    }

    /// The last lines, without those of the runner.
    fn stack(&self) -> String {
        let is_own =
            |line: &&String| !line.contains("\"<fxgraph") && !line.contains("\"<string>\"");
        self.last_lines.iter().filter(is_own).cloned().collect::<Vec<_>>().join("\n")
    }

    /// The fault of a process that has ended or closed its socket.
    fn ended(&mut self) -> Fault {
        let how = self.end();
        Fault::Died { how, last_lines: self.stack() }
    }

    /// Waits a moment for the end of the process, then kills its group. Returns how it ended.
    fn end(&mut self) -> String {
        let until = Instant::now() + END_TIME;
        while let left = until.saturating_duration_since(Instant::now())
            && !left.is_zero()
            && !self.wait(left, false)[1]
        {}
        let how = self.kill();
        (0..2).for_each(|stream| self.read_lines(stream));
        how
    }

    /// Kills the process and its children, and waits for it.
    fn kill(&mut self) -> String {
        self.killer.kill();
        // No kill from another thread between the wait and the removal of the number.
        let mut pid = lock(&self.killer.0);
        let status = self.child.wait();
        *pid = None;
        status.map_or_else(|error| error.to_string(), |status| status.to_string())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}
