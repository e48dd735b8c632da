//! A client that speaks plain HTTP/1.1, and a program that serves a running flowgraph.

#![allow(dead_code, reason = "each test uses a part of it")]

use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

/// Noise through a filter bank, at a constant rate.
pub const FILTERED: &str = "flowgraph: filtered
blocks:
  source:
    kind: digitiser_simulator
    parameters: {adc_sample_rate_hz: 1000000, samples_per_frame: 8192, paced: true, signals: wgn(0.1)}
  f: {kind: pfb, input: source.pol0, parameters: {channels: 16, taps: 4, spectra_per_frame: 64}}
  end: {kind: null_sink, input: source.pol1}
  sink: {kind: null_sink, input: f}
";

/// `fxgraph run` with a server on a free port.
pub struct Program {
    pub child: Child,
    pub address: SocketAddr,
    stderr: BufReader<std::process::ChildStderr>,
}

impl Program {
    /// Runs `flowgraph`, written to a file in `directory`, with additional `arguments`.
    pub fn start(directory: &Path, flowgraph: &str, arguments: &[&str]) -> Self {
        std::fs::write(directory.join("flowgraph.yaml"), flowgraph).unwrap();
        Self::serving(directory, &[&["run", "flowgraph.yaml", "--json"], arguments].concat())
    }

    /// Runs the program in `directory` with `arguments` and a server, and waits until it serves.
    pub fn serving(directory: &Path, arguments: &[&str]) -> Self {
        // `nohup`, with which the tests may run, makes programs ignore SIGHUP.
        let mut child = Command::new("env")
            .args(["--default-signal=HUP", env!("CARGO_BIN_EXE_fxgraph")])
            .args(arguments)
            .args(["--listen", "127.0.0.1:0"])
            .current_dir(directory)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut said = String::new();
        while !said.contains("serving ") {
            let before = said.len();
            stderr.read_line(&mut said).unwrap();
            assert!(said.len() > before, "nothing is served:\n{said}");
        }
        let (_, address) = said.trim_end().rsplit_once("://").unwrap();
        Self { child, address: address.parse().unwrap(), stderr }
    }

    /// Like [`Self::start`], and waits until the flowgraph runs.
    pub fn running(directory: &Path, flowgraph: &str, arguments: &[&str]) -> Self {
        let program = Self::start(directory, flowgraph, arguments);
        program.wait("running");
        program
    }

    /// Waits until the flowgraph is in `state`.
    pub fn wait(&self, state: &str) {
        while self.get("/api/v1/health").json()["state"] != state {
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Reads stderr until it contains `wanted`, and returns these lines.
    pub fn until(&mut self, wanted: &str) -> String {
        let mut said = String::new();
        while !said.contains(wanted) {
            assert!(self.stderr.read_line(&mut said).unwrap() > 0, "no `{wanted}` in:\n{said}");
        }
        said
    }

    /// Sends `signal`, like `-INT`, to the program.
    pub fn signal(&self, signal: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
    }

    /// Waits for the end of the program, and returns its output.
    pub fn end(mut self) -> Output {
        let mut output = Output {
            status: std::process::ExitStatus::default(),
            stdout: Vec::new(),
            stderr: Vec::new(),
        };
        self.child.stdout.take().unwrap().read_to_end(&mut output.stdout).unwrap();
        self.stderr.read_to_end(&mut output.stderr).unwrap();
        output.status = self.child.wait().unwrap();
        output
    }

    pub fn get(&self, path: &str) -> Response {
        request(self.address, "GET", path, &[], b"")
    }

    pub fn post(&self, path: &str) -> Response {
        request(self.address, "POST", path, &[], b"")
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // The program has ended, unless a test failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An HTTP response.
#[derive(Debug)]
pub struct Response {
    pub status: u16,
    head: String,
    pub body: String,
}

impl Response {
    /// Value of a header, if present.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(':'));
        lines.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("{self:?}"))
    }

    /// Checks for a problem document with this status, and returns its detail.
    pub fn problem(&self, status: u16) -> String {
        assert_eq!(self.status, status, "{self:?}");
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        assert_eq!(self.json()["status"], status);
        self.json()["detail"].as_str().unwrap().to_owned()
    }
}

/// Opens a connection with time limits.
pub fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
    stream
}

/// Sends one request on its own connection.
pub fn request(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Response {
    let mut stream = connect(address);
    let mut head = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
    if !headers.iter().any(|(name, _)| *name == "Host") {
        head += &format!("Host: {address}\r\n");
    }
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    if !body.is_empty() {
        head += &format!("Content-Length: {}\r\n", body.len());
    }
    stream.write_all(format!("{head}\r\n").as_bytes()).unwrap();
    // The response may arrive before all of the body is sent.
    let _ = stream.write_all(body);
    read(stream)
}

/// Reads a response until the connection ends.
pub fn read(mut stream: impl Read) -> Response {
    let mut bytes = Vec::new();
    // A server that ignores the rest of a body resets the connection after its response.
    if let Err(error) = stream.read_to_end(&mut bytes) {
        assert!(!bytes.is_empty(), "{error}");
    }
    let text = String::from_utf8(bytes).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text}"));
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Response { status, head: head.to_owned(), body: body.to_owned() }
}
