//! Session channels: the messages between client and worker during `exec`, `attach`, `port-forward` or `cp`,
//! in WebSocket messages and in Redis. Pure: encoding and flow control.

use bytes::{BufMut, Bytes, BytesMut};
use serde::{Deserialize, Serialize};

pub const SUBPROTOCOL: &str = "v1.channel.kubeleet";
pub const MAX_DATA_BYTES: usize = 32 * 1024;
pub const MAX_FRAME_BYTES: usize = MAX_DATA_BYTES + 1024;
/// The other side's unread bytes.
pub const WINDOW: u64 = 1024 * 1024;
/// Small frames take memory too.
const FRAME_OVERHEAD: u64 = 64;
const MAX_TEXT: usize = 1000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TerminalSize {
    pub columns: u16,
    pub rows: u16,
}

/// The first message of a WebSocket, as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    Exec {
        command: Vec<String>,
        #[serde(default)]
        tty: bool,
        /// Its input is the client's; otherwise empty.
        #[serde(default)]
        stdin: bool,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        size: Option<TerminalSize>,
    },
    /// If the container's input belongs to its first client, that client gets all earlier output.
    Attach {
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        stdin: bool,
        /// If the container has a terminal.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        size: Option<TerminalSize>,
    },
    Forward {
        /// Port.
        port: u16,
    },
    CopyTo {
        /// Must exist.
        directory: String,
    },
    CopyFrom {
        /// File or directory.
        path: String,
    },
}

impl Purpose {
    /// For events; without arguments, which may be secret.
    pub fn describe(&self) -> String {
        match self {
            Self::Exec { command, tty, .. } => {
                let program = command.first().map_or("", String::as_str);
                let shown: String = program.chars().filter(|c| !c.is_control()).take(100).collect();
                format!("exec of `{shown}`{}", if *tty { " in a terminal" } else { "" })
            }
            Self::Attach { .. } => "attach".to_owned(),
            Self::Forward { port } => format!("port-forward to port {port}"),
            Self::CopyTo { .. } => "copy of files to the container".to_owned(),
            Self::CopyFrom { .. } => "copy of files from the container".to_owned(),
        }
    }

    /// `last` is the worker's.
    pub fn describe_end(&self, last: &Frame) -> String {
        match (self, last) {
            (Self::Exec { .. } | Self::Attach { .. }, Frame::Exit(code)) => format!("exit code {code}"),
            (_, Frame::Failed(why)) => why.clone(),
            _ => "done".to_owned(),
        }
    }

    pub fn event_word(&self) -> &'static str {
        match self {
            Self::Exec { .. } => "Exec",
            Self::Attach { .. } => "Attach",
            Self::Forward { .. } => "PortForward",
            Self::CopyTo { .. } | Self::CopyFrom { .. } => "Copy",
        }
    }

    pub fn problem(&self) -> Option<String> {
        let is_bad = |text: &str| text.contains('\0');
        match self {
            Self::Exec { command, .. } => match command.first() {
                None => Some("the command is empty".to_owned()),
                Some(program) if program.is_empty() => Some("the command has no program".to_owned()),
                _ if command.iter().any(|word| is_bad(word)) => {
                    Some("a word of the command contains a NUL byte".to_owned())
                }
                _ => None,
            },
            Self::Forward { port: 0 } => Some("0 is no port".to_owned()),
            Self::CopyTo { directory: path } | Self::CopyFrom { path } => {
                (!path.starts_with('/') || is_bad(path)).then(|| format!("{path:?} is no absolute path"))
            }
            Self::Attach { .. } | Self::Forward { .. } => None,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// For the pod.
    Input(Bytes),
    /// From the pod.
    Output(Bytes),
    ErrorOutput(Bytes),
    Resize(TerminalSize),
    Signal(u8),
    EndOfInput,
    EndOfOutput,
    Started,
    /// Nothing follows.
    Exit(u8),
    /// Nothing follows.
    Failed(String),
    /// Total bytes that the sender has read, see [`Frame::cost`].
    Read(u64),
    /// Nothing follows.
    Closed,
    /// Ignored.
    Unknown(u8),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    #[error("a message without a type")]
    Empty,
    #[error("a message of {0} bytes; at most {MAX_FRAME_BYTES} are allowed")]
    TooLong(usize),
    #[error("a malformed message of type {0}")]
    Malformed(u8),
}

impl Frame {
    /// One byte for the type, then its content.
    pub fn encode(&self) -> Bytes {
        let of = |kind: u8, rest: &[u8]| {
            let mut bytes = BytesMut::with_capacity(rest.len() + 1);
            bytes.put_u8(kind);
            bytes.put_slice(rest);
            bytes.freeze()
        };
        match self {
            Self::Input(data) => of(0, data),
            Self::Output(data) => of(1, data),
            Self::ErrorOutput(data) => of(2, data),
            Self::Resize(TerminalSize { columns, rows }) => {
                of(3, &[columns.to_be_bytes(), rows.to_be_bytes()].concat())
            }
            Self::Signal(number) => of(4, &[*number]),
            Self::EndOfInput => of(5, &[]),
            Self::EndOfOutput => of(6, &[]),
            Self::Started => of(7, &[]),
            Self::Exit(code) => of(8, &[*code]),
            Self::Failed(why) => of(9, shortened(why).as_bytes()),
            Self::Read(bytes) => of(10, &bytes.to_be_bytes()),
            Self::Closed => of(11, &[]),
            Self::Unknown(kind) => of(*kind, &[]),
        }
    }

    pub fn decode(bytes: &Bytes) -> Result<Self, FrameError> {
        let Some(&kind) = bytes.first() else { return Err(FrameError::Empty) };
        if bytes.len() > MAX_FRAME_BYTES {
            return Err(FrameError::TooLong(bytes.len()));
        }
        let rest = bytes.slice(1..);
        let malformed = FrameError::Malformed(kind);
        let one = |rest: &[u8]| match rest {
            [byte] => Ok(*byte),
            _ => Err(FrameError::Malformed(kind)),
        };
        Ok(match kind {
            0 => Self::Input(rest),
            1 => Self::Output(rest),
            2 => Self::ErrorOutput(rest),
            3 => match rest[..] {
                [a, b, c, d] => Self::Resize(TerminalSize {
                    columns: u16::from_be_bytes([a, b]),
                    rows: u16::from_be_bytes([c, d]),
                }),
                _ => return Err(malformed),
            },
            4 => Self::Signal(one(&rest)?),
            5 => Self::EndOfInput,
            6 => Self::EndOfOutput,
            7 => Self::Started,
            8 => Self::Exit(one(&rest)?),
            9 => Self::Failed(String::from_utf8_lossy(&rest).into_owned()),
            10 => Self::Read(u64::from_be_bytes(rest[..].try_into().map_err(|_| malformed)?)),
            11 => Self::Closed,
            other => Self::Unknown(other),
        })
    }

    /// Share of the window. Frames that report read bytes are free: otherwise two full windows would wait for
    /// each other.
    pub fn cost(&self) -> u64 {
        let bytes = match self {
            Self::Input(data) | Self::Output(data) | Self::ErrorOutput(data) => data.len(),
            Self::Failed(why) => why.len().min(MAX_TEXT),
            Self::Read(_) => return 0,
            _ => 0,
        };
        bytes as u64 + FRAME_OVERHEAD
    }

    /// Nothing follows in this direction.
    pub fn is_last(&self) -> bool {
        matches!(self, Self::Exit(_) | Self::Failed(_) | Self::Closed)
    }
}

pub fn pieces(mut data: Bytes) -> impl Iterator<Item = Bytes> {
    std::iter::from_fn(move || {
        let next = data.split_to(data.len().min(MAX_DATA_BYTES));
        (!next.is_empty()).then_some(next)
    })
}

fn shortened(text: &str) -> &str {
    let end = (0..=text.len().min(MAX_TEXT)).rev().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or_default()]
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn frames_are_read_as_they_were_written() {
        let data = Bytes::from_static(b"\0\xff text");
        let frames = [
            Frame::Input(data.clone()),
            Frame::Output(Bytes::new()),
            Frame::ErrorOutput(data),
            Frame::Resize(TerminalSize { columns: 300, rows: 1 }),
            Frame::Signal(15),
            Frame::EndOfInput,
            Frame::EndOfOutput,
            Frame::Started,
            Frame::Exit(127),
            Frame::Failed("no such container: ä".to_owned()),
            Frame::Read(u64::MAX),
            Frame::Closed,
            Frame::Unknown(200),
        ];
        for frame in frames {
            assert_eq!(Frame::decode(&frame.encode()), Ok(frame));
        }
    }

    #[test]
    fn bytes_that_are_no_frame_are_refused() {
        let table: &[(&[u8], FrameError)] = &[
            (&[], FrameError::Empty),
            (&[3, 0, 80, 0], FrameError::Malformed(3)),
            (&[3, 0, 80, 0, 24, 0], FrameError::Malformed(3)),
            (&[4], FrameError::Malformed(4)),
            (&[8, 1, 2], FrameError::Malformed(8)),
            (&[10, 1], FrameError::Malformed(10)),
            (&[0; MAX_FRAME_BYTES + 1], FrameError::TooLong(MAX_FRAME_BYTES + 1)),
        ];
        for (bytes, error) in table {
            assert_eq!(Frame::decode(&Bytes::from_static(bytes)), Err(error.clone()), "{bytes:?}");
        }
        assert_eq!(Frame::decode(&Bytes::from_static(&[99, 1, 2])), Ok(Frame::Unknown(99)));
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        let Ok(Frame::Failed(why)) = Frame::decode(&Frame::Failed("ä".repeat(2000)).encode()) else {
            panic!("a failure")
        };
        assert_eq!(why, "ä".repeat(MAX_TEXT / 2));
        assert!(Frame::Output(Bytes::from(vec![0; MAX_DATA_BYTES])).encode().len() <= MAX_FRAME_BYTES);
    }

    #[test]
    fn data_is_split_into_frames_without_a_loss() {
        let data: Vec<u8> = (0..MAX_DATA_BYTES * 2 + 7).map(|n| n as u8).collect();
        let split: Vec<Bytes> = pieces(Bytes::from(data.clone())).collect();
        assert_eq!(split.iter().map(Bytes::len).collect::<Vec<_>>(), [MAX_DATA_BYTES, MAX_DATA_BYTES, 7]);
        assert_eq!(split.concat(), data);
        assert_eq!(pieces(Bytes::new()).count(), 0);
    }

    #[test]
    fn events_show_no_arguments() {
        let command = ["mysql", "-pS3cret"].map(str::to_owned).to_vec();
        let exec = Purpose::Exec { command, tty: true, stdin: true, size: None };
        assert_eq!(exec.describe(), "exec of `mysql` in a terminal");
        assert_eq!(exec.problem(), None);
    }

    #[test]
    fn requests_that_cannot_be_meant_are_refused() {
        let exec = |words: &[&str]| {
            let command = words.iter().map(|word| (*word).to_owned()).collect();
            Purpose::Exec { command, tty: false, stdin: false, size: None }
        };
        let refused = [
            exec(&[]),
            exec(&[""]),
            exec(&["sh", "a\0b"]),
            Purpose::Forward { port: 0 },
            Purpose::CopyFrom { path: "etc/passwd".to_owned() },
            Purpose::CopyTo { directory: "/a\0".to_owned() },
        ];
        for purpose in refused {
            assert!(purpose.problem().is_some(), "{purpose:?}");
        }
        let json = serde_json::to_string(&exec(&["sh"])).unwrap();
        assert_eq!(json, r#"{"exec":{"command":["sh"],"tty":false,"stdin":false}}"#);
        let attach = Purpose::Attach { stdin: false, size: None };
        assert_eq!(serde_json::from_str::<Purpose>(r#"{"attach":{}}"#).unwrap(), attach);
        assert_eq!(serde_json::to_string(&attach).unwrap(), r#"{"attach":{}}"#);
    }
}
