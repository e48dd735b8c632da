//! Options of `run` to serve a flowgraph over HTTP.

use crate::failure::Failure;
use crate::terminal::Terminal;
use fxgraph::Control;
use fxgraph_web::{BODY_BYTES, Options, Permission, Server, Tls, Token};
use std::error::Error;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};

/// Default address of the server and of clients.
pub const USUAL_ADDRESS: &str = "127.0.0.1:8080";

/// Options of the HTTP server.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Serving")]
pub struct Serve {
    /// Serves the REST API and a web page, by default at 127.0.0.1:8080. With a port only (8080),
    /// the server is reachable from this machine only. Port 0 selects a free port
    #[arg(
        long, value_name = "HOST:PORT", value_parser = parse_address,
        num_args = 0..=1, default_missing_value = USUAL_ADDRESS
    )]
    listen: Option<SocketAddr>,

    /// Prepares the flowgraph, waits for a start request over HTTP, and can be started again after it ends
    #[arg(long, requires = "listen")]
    pub hold: bool,

    /// Prepares the flowgraph and waits for a start request over HTTP; the program ends with the flowgraph
    #[arg(long, requires = "listen", conflicts_with = "hold")]
    pub hold_once: bool,

    /// File with a token that clients must send; required if other machines can reach the address
    #[arg(long, value_name = "FILE", requires = "listen")]
    token_file: Option<PathBuf>,

    /// Certificate file (PEM), to serve over TLS
    #[arg(long, value_name = "FILE", requires_all = ["listen", "tls_key"])]
    tls_cert: Option<PathBuf>,

    /// Private key file (PEM) of the certificate
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,

    /// Directory for recordings that clients request
    #[arg(long, value_name = "DIR", requires = "listen")]
    recordings: Option<PathBuf>,

    /// Maximum total size of the recordings in that directory
    #[arg(
        long, value_name = "GB", requires = "recordings", default_value = "100",
        value_parser = parse_gigabytes
    )]
    recordings_limit: u64,

    /// Disk space that recordings keep free
    #[arg(
        long, value_name = "GB", requires = "recordings",
        default_value = "1", value_parser = parse_gigabytes
    )]
    recordings_min_free: u64,

    /// Permission of clients: change live parameters only, or also swap blocks and replace the flowgraph
    #[arg(
        long, value_name = "live|full", requires = "listen", default_value = "full",
        value_parser = parse_permission
    )]
    control: Permission,

    /// Directory in which clients may let blocks read and write files; files named in the flowgraph
    /// file are always allowed
    #[arg(
        long, value_name = "DIR", requires = "listen",
        conflicts_with_all = ["read_files", "write_files"]
    )]
    files: Option<PathBuf>,

    /// Like `--files`, for reading only
    #[arg(long, value_name = "DIR", requires = "listen")]
    read_files: Option<PathBuf>,

    /// Like `--files`, for writing only
    #[arg(long, value_name = "DIR", requires = "listen")]
    write_files: Option<PathBuf>,

    /// Directory with code that clients on this machine may run, such as a block in Python to be tried in the running
    /// flowgraph; clients on the network may not
    #[arg(long, value_name = "DIR", requires = "listen")]
    code: Option<PathBuf>,

    /// Largest body of a request, such as new gains of all channels of an array, in MiB
    #[arg(
        long, value_name = "MIB", requires = "listen", default_value_t = (BODY_BYTES >> 20) as u16,
        value_parser = clap::value_parser!(u16).range(1..=1024)
    )]
    max_body: u16,

    /// Allows requests from pages of another origin, like https://board.example; may be given several times
    #[arg(long, value_name = "ORIGIN", requires = "listen")]
    cors_origin: Vec<String>,
}

impl Serve {
    /// Binds the server if `--listen` is given; it does not respond yet.
    pub fn bind(&self, terminal: &Terminal) -> Result<Option<Server>, Failure> {
        let Some(listen) = self.listen else { return Ok(None) };
        let rejected =
            |error: &(dyn Error + 'static)| Failure::because("nothing was started", error);
        let token = self.token_file.as_deref().map(Token::read).transpose();
        let token = token.map_err(|error| rejected(&error))?;
        let files = self.tls_cert.as_ref().zip(self.tls_key.as_ref());
        let tls = files.map(|(certificate, key)| Tls::read(certificate, key)).transpose();
        let tls = tls.map_err(|error| rejected(&error))?;
        if token.is_some() && tls.is_none() && !listen.ip().is_loopback() {
            terminal.note(
                "the token is sent unencrypted; use `--tls-cert` and `--tls-key` to encrypt it",
            );
        }
        let cors_origins = self.cors_origin.clone();
        let (read_files, write_files) = (
            self.read_files.clone().or_else(|| self.files.clone()),
            self.write_files.clone().or_else(|| self.files.clone()),
        );
        let make = |directory: &Path| fs::create_dir_all(directory);
        // If this fails, binding the server reports the directory as unusable.
        let _ = write_files.as_deref().map(make);
        let (permission, body_bytes) = (self.control, usize::from(self.max_body) << 20);
        let options = Options {
            listen,
            token,
            tls,
            cors_origins,
            permission,
            read_files,
            write_files,
            code: self.code.clone(),
            body_bytes,
            manual: crate::manual::pages,
        };
        let server = Server::bind(options);
        Ok(Some(server.map_err(|error| rejected(&error))?))
    }
}

impl Serve {
    /// Returns an error if an option is given that only a process with blocks can keep.
    pub fn reject_for_fleet(&self) -> Result<(), Failure> {
        let files =
            [&self.recordings, &self.files, &self.read_files, &self.write_files, &self.code];
        if !self.hold && !self.hold_once && files.iter().all(|path| path.is_none()) {
            return Ok(());
        }
        let message = "`--hold`, `--hold-once`, `--recordings` and options for files belong to the parts, not to the fleet";
        Err(Failure::failed(message))
    }

    /// Lets clients of `control` record, if `--recordings` is given.
    pub fn allow_recordings(&self, control: &Control) -> Result<(), Failure> {
        let Some(directory) = &self.recordings else { return Ok(()) };
        let (most_bytes, left_free_bytes) = (self.recordings_limit, self.recordings_min_free);
        let allowed = control.allow_recordings(directory, most_bytes, left_free_bytes);
        allowed.map_err(|error| Failure::because("nothing was started", &error))
    }
}

/// Adds the loopback address to a bare port: `8080` and `:8080` become `127.0.0.1:8080`.
pub fn with_host(text: &str) -> String {
    let port = text.strip_prefix(':').unwrap_or(text);
    match port.parse::<u16>() {
        Ok(_) => format!("{}:{port}", Ipv4Addr::LOCALHOST),
        Err(_) => text.to_owned(),
    }
}

fn parse_address(text: &str) -> Result<SocketAddr, String> {
    let text = with_host(text);
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let help = || "give it like 8080, localhost:8080, 192.0.2.1:8080 or [::1]:8080".to_owned();
    let (host, port) = text.rsplit_once(':').ok_or_else(help)?;
    let port: u16 = port.parse().map_err(|_| help())?;
    if host == "localhost" {
        // `localhost` has an IPv4 and an IPv6 address; all clients try the IPv4 one.
        return Ok((Ipv4Addr::LOCALHOST, port).into());
    }
    if host.is_empty() || host.contains([':', '[', '/']) {
        return Err(help());
    }
    let mut addresses = (host, port)
        .to_socket_addrs()
        .map_err(|error| format!("the host `{host}` has no address: {error}"))?;
    addresses.next().ok_or_else(|| format!("the host `{host}` has no address"))
}

fn parse_permission(text: &str) -> Result<Permission, String> {
    [Permission::Live, Permission::Full]
        .into_iter()
        .find(|permission| permission.name() == text)
        .ok_or_else(|| "give `live` or `full`".to_owned())
}

/// Parses a number of GB and returns bytes.
fn parse_gigabytes(text: &str) -> Result<u64, String> {
    match text.parse::<f64>() {
        Ok(gigabytes) if (0.0..1e9).contains(&gigabytes) => Ok((gigabytes * 1e9) as u64),
        _ => Err("give a number of GB, like 100 or 0.5".to_owned()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{parse_address, parse_gigabytes};

    #[test]
    fn parse_address_without_host_returns_loopback() {
        for local in ["127.0.0.1:8080", "localhost:8080", ":8080", "8080"] {
            let address = parse_address(local).map(|address| address.to_string());
            assert_eq!(address.as_deref(), Ok("127.0.0.1:8080"), "{local}");
        }
        let others = [("[::1]:80", "[::1]:80"), ("0.0.0.0:0", "0.0.0.0:0"), ("0", "127.0.0.1:0")];
        for (text, expected) in others {
            assert_eq!(parse_address(text).unwrap().to_string(), expected);
        }
        for bad in ["", ":", "localhost", "127.0.0.1", "::1:80", "65536", ":-1", "http://a:80"] {
            assert!(parse_address(bad).unwrap_err().starts_with("give it like 8080"), "{bad}");
        }
    }

    #[test]
    fn parse_gigabytes_rejects_negative_and_huge_numbers() {
        assert_eq!(parse_gigabytes("0.5"), Ok(500_000_000));
        for bad in ["-1", "NaN", "inf", "1e12", "1 GB", ""] {
            assert!(parse_gigabytes(bad).is_err(), "{bad}");
        }
    }
}
