//! A program on a pseudo terminal, with its screen.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A program on its own pseudo terminal.
pub struct Pty {
    child: Child,
    master: Option<File>,
    reader: Option<JoinHandle<()>>,
    is_closed: Arc<AtomicBool>,
    written: Receiver<Vec<u8>>,
    screen: vt100::Parser,
    raw: Vec<u8>,
}

impl Pty {
    /// Runs `command` on a terminal with `rows` and `columns`.
    pub fn start(command: &mut Command, rows: u16, columns: u16) -> Self {
        let master =
            openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let slave = File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
        set_size(&master, rows, columns);
        // Makes it the program's controlling terminal, which signals changes of size.
        let mut session = Command::new("setsid");
        session.args(["--ctty", "--wait"]).arg(command.get_program()).args(command.get_args());
        session.env("TERM", "xterm-256color");
        for (name, value) in command.get_envs() {
            if let Some(value) = value {
                session.env(name, value);
            }
        }
        let copy = || slave.try_clone().unwrap();
        let child = session.stdin(copy()).stdout(copy()).stderr(copy()).spawn().unwrap();
        drop(session);
        let master = File::from(master);
        let mut reader = master.try_clone().unwrap();
        let (tell, written) = mpsc::channel();
        let is_closed = Arc::new(AtomicBool::new(false));
        let closed = Arc::clone(&is_closed);
        let look = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
        let reader = std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while !closed.load(Ordering::Relaxed) {
                let mut polled = [PollFd::new(&reader, PollFlags::IN)];
                if poll(&mut polled, Some(&look)).is_ok_and(|ready| ready == 0) {
                    continue;
                }
                // An error means that the program has closed the terminal.
                let Ok(count @ 1..) = reader.read(&mut bytes) else { return };
                if tell.send(bytes[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        let screen = vt100::Parser::new(rows, columns, 0);
        let (master, reader) = (Some(master), Some(reader));
        Self { child, master, reader, is_closed, written, screen, raw: Vec::new() }
    }

    /// Closes the terminal while the program runs, and returns the exit code of the program, which must end then.
    pub fn hang_up(mut self) -> Option<i32> {
        self.is_closed.store(true, Ordering::Relaxed);
        self.reader.take().unwrap().join().unwrap();
        self.master.take();
        let deadline = Instant::now() + Duration::from_mins(1);
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            assert!(Instant::now() < deadline, "the program outlives its terminal");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until the screen satisfies `wanted`, and returns the screen.
    pub fn until(&mut self, wanted: impl Fn(&str) -> bool) -> String {
        let deadline = Instant::now() + Duration::from_mins(1);
        loop {
            let shown = self.screen.screen().contents();
            if wanted(&shown) {
                return shown;
            }
            assert!(Instant::now() < deadline, "it shows:\n{shown}");
            if let Ok(bytes) = self.written.recv_timeout(Duration::from_millis(100)) {
                self.screen.process(&bytes);
                self.raw.extend(bytes);
            }
        }
    }

    pub fn type_keys(&mut self, keys: &str) {
        self.master.as_mut().unwrap().write_all(keys.as_bytes()).unwrap();
    }

    pub fn resize(&mut self, rows: u16, columns: u16) {
        tcsetwinsize(self.master.as_ref().unwrap(), size(rows, columns)).unwrap();
        self.screen.screen_mut().set_size(rows, columns);
    }

    /// Whether anything was written in colour.
    pub fn has_colours(&self) -> bool {
        let text = String::from_utf8_lossy(&self.raw);
        let mut codes = text.split('\x1b').filter_map(|code| code.strip_prefix('['));
        codes.any(|code| {
            let code = code.split(|c: char| c.is_ascii_alphabetic()).next().unwrap_or_default();
            code.starts_with("38;") || code.starts_with("48;") || matches!(code, "31" | "32" | "33")
        })
    }

    /// Whether the program uses the alternate screen.
    pub fn is_alternate(&self) -> bool {
        self.screen.screen().alternate_screen()
    }

    /// Waits for the end of the program, and returns everything that it wrote.
    pub fn output(&mut self) -> String {
        self.child.wait().unwrap();
        while let Ok(bytes) = self.written.recv_timeout(Duration::from_secs(1)) {
            self.raw.extend(bytes);
        }
        String::from_utf8(self.raw.clone()).unwrap()
    }

    /// Waits for the end of the program, and returns the exit code.
    pub fn end(&mut self) -> Option<i32> {
        let code = self.child.wait().unwrap().code();
        while let Ok(bytes) = self.written.recv_timeout(Duration::from_secs(1)) {
            self.screen.process(&bytes);
        }
        code
    }
}

impl Drop for Pty {
    fn drop(&mut self) {
        // The program has ended, unless a test failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn size(rows: u16, columns: u16) -> Winsize {
    Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }
}

fn set_size(master: &OwnedFd, rows: u16, columns: u16) {
    tcsetwinsize(master, size(rows, columns)).unwrap();
}
