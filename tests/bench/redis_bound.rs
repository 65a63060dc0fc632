//! Redis' own bound: the commands of a recorded run, sent again by a plain pipelining client.
//!
//! MONITOR records commands within scripts too. Script calls themselves and commands that block, subscribe or
//! measure are left out.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::rig::Persistence;

#[derive(Debug, Default)]
pub struct RecordedCommands {
    bytes: Vec<u8>,
    count: usize,
}

impl RecordedCommands {
    pub fn count(&self) -> usize {
        self.count
    }

    fn push(&mut self, words: &[Vec<u8>]) {
        let Some(name) = words.first().map(|word| word.to_ascii_uppercase()) else { return };
        let words: Vec<&[u8]> = match name.as_slice() {
            b"EVALSHA" | b"EVAL" | b"SCRIPT" | b"SUBSCRIBE" | b"UNSUBSCRIBE" | b"CONFIG" | b"MONITOR"
            | b"PING" | b"ROLE" | b"CLIENT" | b"HELLO" | b"AUTH" | b"SELECT" | b"INFO" | b"LATENCY"
            | b"MULTI" | b"EXEC" | b"BLPOP" | b"BRPOP" => return,
            // The same without blocking.
            b"BRPOPLPUSH" if words.len() > 2 => {
                vec![b"LMOVE", words[1].as_slice(), words[2].as_slice(), b"RIGHT", b"LEFT"]
            }
            _ => words.iter().map(Vec::as_slice).collect(),
        };
        write!(self.bytes, "*{}\r\n", words.len()).unwrap();
        for word in words {
            write!(self.bytes, "${}\r\n", word.len()).unwrap();
            self.bytes.extend_from_slice(word);
            self.bytes.extend_from_slice(b"\r\n");
        }
        self.count += 1;
    }
}

pub struct Recorder {
    stream: TcpStream,
    reader: JoinHandle<RecordedCommands>,
}

pub async fn record(url: &str) -> Recorder {
    let mut stream = connect(url);
    stream.write_all(b"MONITOR\r\n").unwrap();
    let mut lines = BufReader::new(stream.try_clone().unwrap());
    let mut hello = String::new();
    lines.read_line(&mut hello).unwrap();
    assert_eq!(hello.trim_end(), "+OK");
    let reader = std::thread::spawn(move || {
        let mut recorded = RecordedCommands::default();
        let mut line = Vec::new();
        while lines.read_until(b'\n', &mut line).is_ok_and(|count| count > 0) {
            recorded.push(&parse_words(&line));
            line.clear();
        }
        recorded
    });
    Recorder { stream, reader }
}

impl Recorder {
    pub async fn finish(self) -> RecordedCommands {
        // Redis may not have sent the last commands yet.
        tokio::time::sleep(Duration::from_millis(500)).await;
        self.stream.shutdown(std::net::Shutdown::Both).unwrap();
        tokio::task::spawn_blocking(move || self.reader.join().unwrap()).await.unwrap()
    }
}

/// `+1700000000.123456 [0 lua] "HSET" "key" "a\"b\x00"`
fn parse_words(line: &[u8]) -> Vec<Vec<u8>> {
    let mut words = Vec::new();
    let mut word: Option<Vec<u8>> = None;
    let mut bytes = line.iter().copied();
    while let Some(byte) = bytes.next() {
        match (&mut word, byte) {
            (None, b'"') => word = Some(Vec::new()),
            (None, _) => {}
            (Some(_), b'"') => words.extend(word.take()),
            (Some(characters), b'\\') => match bytes.next() {
                Some(b'x') => {
                    let digits = [bytes.next().unwrap_or(b'0'), bytes.next().unwrap_or(b'0')];
                    let digits = std::str::from_utf8(&digits).unwrap_or("00");
                    characters.push(u8::from_str_radix(digits, 16).unwrap_or_default());
                }
                Some(b'n') => characters.push(b'\n'),
                Some(b'r') => characters.push(b'\r'),
                Some(b't') => characters.push(b'\t'),
                Some(b'a') => characters.push(7),
                Some(b'b') => characters.push(8),
                Some(other) => characters.push(other),
                None => {}
            },
            (Some(characters), other) => characters.push(other),
        }
    }
    words
}

pub async fn replay(recorded: &RecordedCommands, persistence: Persistence) -> Duration {
    let redis = persistence.redis().await;
    let mut stream = connect(&redis.url());
    let mut replies = BufReader::with_capacity(1 << 20, stream.try_clone().unwrap());
    let count = recorded.count;
    tokio::task::block_in_place(|| {
        let begin = Instant::now();
        let reader = std::thread::spawn(move || {
            for _ in 0..count {
                skip_reply(&mut replies);
            }
            Instant::now()
        });
        stream.write_all(&recorded.bytes).unwrap();
        reader.join().unwrap().duration_since(begin)
    })
}

fn connect(url: &str) -> TcpStream {
    let stream = TcpStream::connect(url.strip_prefix("redis://").unwrap()).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

fn skip_reply(replies: &mut impl BufRead) {
    let mut left = 1_u64;
    let mut line = Vec::new();
    while left > 0 {
        left -= 1;
        line.clear();
        let read = replies.read_until(b'\n', &mut line).unwrap();
        assert!(read > 2, "Redis closed the connection");
        let number = || std::str::from_utf8(&line[1..line.len() - 2]).unwrap().parse::<i64>().unwrap();
        match line[0] {
            b'*' => left += number().max(0) as u64,
            b'$' if number() >= 0 => {
                let length = number() as u64 + 2;
                std::io::copy(&mut replies.take(length), &mut std::io::sink()).unwrap();
            }
            _ => {}
        }
    }
}
