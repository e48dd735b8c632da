//! A program on a pseudo terminal, with its screen.

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

/// A program on its own pseudo terminal.
pub struct Pty {
    child: Child,
    master: File,
    written: Receiver<Vec<u8>>,
    screen: vt100::Parser,
    raw: Vec<u8>,
}

impl Pty {
    /// Runs `command` on a terminal with `rows` and `columns`.
    pub fn start(command: &mut Command, rows: u16, columns: u16) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
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
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // An error means that the terminal is closed.
            while let Ok(count @ 1..) = reader.read(&mut bytes) {
                if tell.send(bytes[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        let screen = vt100::Parser::new(rows, columns, 0);
        Self { child, master, written, screen, raw: Vec::new() }
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
        self.master.write_all(keys.as_bytes()).unwrap();
    }

    pub fn resize(&mut self, rows: u16, columns: u16) {
        tcsetwinsize(&self.master, size(rows, columns)).unwrap();
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
