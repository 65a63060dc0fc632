//! A connection to the Redis that all commands are carried out on, one at a time and without any runtime.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use ::redis::{Value, parse_redis_value};

/// See the module.
pub(super) struct Redis {
    stream: BufReader<UnixStream>,
    pending: Vec<u8>,
}

impl Redis {
    pub(super) fn connect(socket: &Path) -> Self {
        let stream = UnixStream::connect(socket).unwrap();
        Self { stream: BufReader::new(stream), pending: Vec::new() }
    }

    /// Adds a command to those that [`Redis::answers`] asks in one go.
    pub(super) fn add(&mut self, words: &[impl AsRef<[u8]>]) {
        let pending = &mut self.pending;
        pending.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
        for word in words {
            let word = word.as_ref();
            pending.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            pending.extend_from_slice(word);
            pending.extend_from_slice(b"\r\n");
        }
    }

    /// Asks what was added; gives the last `count` answers.
    pub(super) fn answers<const COUNT: usize>(&mut self, before: usize) -> [Value; COUNT] {
        self.stream.get_mut().write_all(&self.pending).unwrap();
        self.pending.clear();
        for _ in 0..before {
            self.read();
        }
        std::array::from_fn(|_| self.read())
    }

    /// Asks one thing. It must not fail.
    pub(super) fn ask(&mut self, words: &[impl AsRef<[u8]>]) -> Value {
        self.add(words);
        let [answer] = self.answers(0);
        assert!(
            !matches!(answer, Value::ServerError(_)),
            "{:?}: {answer:?}",
            words.iter().map(|word| String::from_utf8_lossy(word.as_ref()).into_owned()).collect::<Vec<_>>()
        );
        answer
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stream.read_line(&mut line).unwrap();
        assert!(line.ends_with("\r\n"), "Redis hung up");
        line
    }

    fn read(&mut self) -> Value {
        let line = self.line();
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
