//! Greetings, commands and flags of ZMTP 3.0 for both sides of a connection: the protocol of ZeroMQ over TCP, with the
//! mechanism NULL.
//!
//! Source: <https://rfc.zeromq.org/spec/23/>.

/// Bytes of the greeting.
pub const GREETING: usize = 64;
/// Flags of a frame: more frames of the message follow, the length has 8 bytes, it is a command.
pub const MORE: u8 = 1;
/// The length has 8 bytes instead of 1.
pub const LONG: u8 = 2;
/// The frame is a command.
pub const COMMAND: u8 = 4;

/// Error about a peer that speaks another protocol.
pub const NO_ZMTP: &str = "it does not speak ZMTP 3";

/// Address of the parameters `bind` and `connect`, one of which is given, without its transport, and whether it is bound.
///
/// # Errors
/// Text of a diagnostic if both or none are given, or if the address has another transport.
pub fn endpoint(bind: Option<&String>, connect: Option<&String>) -> Result<(String, bool), String> {
    let (text, is_bound) = match (bind, connect) {
        (Some(text), None) => (text, true),
        (None, Some(text)) => (text, false),
        _ => return Err("`zmq` must have one of `bind` and `connect`".to_owned()),
    };
    let Some(address) = text.strip_prefix("tcp://") else {
        return Err(format!("`zmq` must be tcp://host:port, got `{text}`"));
    };
    let of_all = address.strip_prefix("*:").map(|port| format!("0.0.0.0:{port}"));
    Ok((of_all.unwrap_or_else(|| address.to_owned()), is_bound))
}

/// Writes the greeting.
pub fn write_greeting(out: &mut Vec<u8>) {
    let begin = out.len();
    out.push(0xff);
    out.extend([0; 8]);
    out.extend([0x7f, 3, 0]);
    out.extend(b"NULL");
    out.resize(begin + GREETING, 0);
}

/// Whether `bytes` may begin a greeting of version 3.
#[must_use]
pub fn is_greeting(bytes: &[u8]) -> bool {
    let is = |n: usize, value: u8| bytes.get(n).is_none_or(|byte| *byte == value);
    is(0, 0xff) && is(9, 0x7f) && bytes.get(10).is_none_or(|major| *major >= 3)
}

/// Checks a greeting. The error says how the peer differs.
///
/// # Errors
/// If the peer speaks another protocol, or asks for a security mechanism.
pub fn check_greeting(greeting: &[u8; GREETING]) -> Result<(), &'static str> {
    match greeting {
        _ if !is_greeting(greeting) => Err(NO_ZMTP),
        _ if &greeting[12..17] != b"NULL\0" => Err("it asks for a security mechanism"),
        _ => Ok(()),
    }
}

/// Name and data of a command.
#[must_use]
pub fn command(body: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = body.split_first()?;
    rest.split_at_checked(usize::from(*len))
}

/// Value of the property `Socket-Type` of a READY command.
#[must_use]
pub fn socket_type(mut properties: &[u8]) -> Option<&[u8]> {
    loop {
        let (len, rest) = properties.split_first()?;
        let (name, rest) = rest.split_at_checked(usize::from(*len))?;
        let (len, rest) = rest.split_first_chunk()?;
        let len = usize::try_from(u32::from_be_bytes(*len)).ok()?;
        let (value, rest) = rest.split_at_checked(len)?;
        if name.eq_ignore_ascii_case(b"Socket-Type") {
            return Some(value);
        }
        properties = rest;
    }
}

/// Writes a command of less than 256 bytes. A longer `data` is cut.
pub fn write_command(name: &[u8], data: &[u8], out: &mut Vec<u8>) {
    let data = &data[..data.len().min(200)];
    out.extend([COMMAND, (1 + name.len() + data.len()) as u8, name.len() as u8]);
    out.extend(name);
    out.extend(data);
}

/// Writes the command READY of a socket of type `socket`.
pub fn write_ready(socket: &str, out: &mut Vec<u8>) {
    let (key, value) = (b"Socket-Type", socket.as_bytes());
    let mut properties = vec![key.len() as u8];
    properties.extend(key);
    properties.extend((value.len() as u32).to_be_bytes());
    properties.extend(value);
    write_command(b"READY", &properties, out);
}
