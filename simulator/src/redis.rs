//! A blocking connection to the Redis that executes all commands, without any async runtime.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use ::redis::{Value, parse_redis_value};

/// See the module.
pub(crate) struct RedisConnection {
    stream: BufReader<UnixStream>,
    pending: Vec<u8>,
}

impl RedisConnection {
    pub(crate) fn connect(socket: &Path) -> Self {
        let stream = UnixStream::connect(socket).unwrap();
        Self { stream: BufReader::new(stream), pending: Vec::new() }
    }

    /// Adds a command to the pipeline that [`Self::send`] sends.
    pub(crate) fn add(&mut self, words: &[impl AsRef<[u8]>]) {
        let pending = &mut self.pending;
        write!(pending, "*{}\r\n", words.len()).unwrap();
        for word in words {
            let word = word.as_ref();
            write!(pending, "${}\r\n", word.len()).unwrap();
            pending.extend_from_slice(word);
            pending.extend_from_slice(b"\r\n");
        }
    }

    /// Sends the pipeline; skips the first `skipped` replies and returns the other `COUNT`.
    pub(crate) fn send<const COUNT: usize>(&mut self, skipped: usize) -> [Value; COUNT] {
        self.stream.get_mut().write_all(&self.pending).unwrap();
        self.pending.clear();
        for _ in 0..skipped {
            self.read();
        }
        std::array::from_fn(|_| self.read())
    }

    /// Executes one command, which must not fail.
    pub(crate) fn execute(&mut self, words: &[impl AsRef<[u8]>]) -> Value {
        self.add(words);
        let [reply] = self.send(0);
        assert!(
            !matches!(reply, Value::ServerError(_)),
            "{:?}: {reply:?}",
            words.iter().map(|word| String::from_utf8_lossy(word.as_ref()).into_owned()).collect::<Vec<_>>()
        );
        reply
    }

    /// Loads a script and returns its hash.
    pub(crate) fn load_script(&mut self, source: &str) -> String {
        match self.execute(&["SCRIPT", "LOAD", source]) {
            Value::BulkString(hash) => String::from_utf8(hash).unwrap(),
            other => panic!("SCRIPT LOAD: {other:?}"),
        }
    }

    fn read_line(&mut self) -> String {
        let mut line = String::new();
        self.stream.read_line(&mut line).unwrap();
        assert!(line.ends_with("\r\n"), "Redis closed the connection");
        line
    }

    fn read(&mut self) -> Value {
        let line = self.read_line();
        let (kind, rest) = (line.as_bytes()[0], line[1..].trim_end());
        let number = || rest.parse::<i64>().unwrap();
        match kind {
            b'*' if number() >= 0 => Value::Array((0..number()).map(|_| self.read()).collect()),
            b'$' if number() >= 0 => {
                let mut bytes = vec![0; number() as usize + 2];
                self.stream.read_exact(&mut bytes).unwrap();
                bytes.truncate(bytes.len() - 2);
                Value::BulkString(bytes)
            }
            b':' => Value::Int(number()),
            b'*' | b'$' => Value::Nil,
            _ => parse_redis_value(line.as_bytes()).unwrap(),
        }
    }
}
