//! The wrong values of a key, as commands. Pure.

use kubeleet_tests::keyspace::KeyEntry;

pub(crate) type Command = Vec<Vec<u8>>;

/// As another program or a mistyped command writes it.
#[derive(Debug, Clone)]
pub(crate) struct WrongValue {
    pub(crate) key: String,
    pub(crate) what: String,
    pub(crate) commands: Vec<Command>,
}

const WRONG_FIELDS: [&[u8]; 6] = [b"\xff\x00nonsense", b"-1", b"9223372036854775808", b"1e300", b"NaN", b""];
const MEBIBYTE: usize = 1 << 20;

fn command(words: &[&[u8]]) -> Command {
    words.iter().map(|word| word.to_vec()).collect()
}

fn of_type(kind: &str, key: &[u8]) -> Command {
    match kind {
        "string" => command(&[b"SET", key, b"written by another program"]),
        "list" => command(&[b"LPUSH", key, b"x"]),
        "set" => command(&[b"SADD", key, b"x"]),
        "hash" => command(&[b"HSET", key, b"x", b"y"]),
        "zset" => command(&[b"ZADD", key, b"1", b"x"]),
        _ => command(&[b"XADD", key, b"*", b"x", b"y"]),
    }
}

pub(crate) fn type_of(entry: &KeyEntry) -> &'static str {
    match entry {
        KeyEntry::Text(_) => "string",
        KeyEntry::List(_) => "list",
        KeyEntry::Set(_) => "set",
        KeyEntry::Hash(_) => "hash",
        KeyEntry::Sorted(_) => "zset",
        KeyEntry::Stream(_) => "stream",
    }
}

/// Wrong types first, then no value, then invalid values of the right type. `fields` are those of a hash.
pub(crate) fn wrong_values(key: &str, kind: &str, fields: &[String]) -> Vec<WrongValue> {
    let name = key.as_bytes();
    let wrong = |what: String, commands: Vec<Command>| WrongValue { key: key.to_owned(), what, commands };
    let delete = || command(&[b"DEL", name]);
    let mut values = Vec::new();
    for other in ["string", "list", "set", "hash", "zset", "stream"] {
        if other != kind {
            values.push(wrong(format!("a {other}"), vec![delete(), of_type(other, name)]));
        }
    }
    values.push(wrong("deleted".to_owned(), vec![delete()]));
    let large = vec![b'x'; MEBIBYTE];
    for (what, text) in [("nonsense", &b"\xff\x00nonsense"[..]), ("empty text", b""), ("1 MiB", &large)] {
        let added = match kind {
            "string" => command(&[b"SET", name, text]),
            "list" => command(&[b"LPUSH", name, text]),
            "set" => command(&[b"SADD", name, text]),
            "hash" => command(&[b"HSET", name, text, text]),
            "zset" => command(&[b"ZADD", name, b"1e300", text]),
            _ => command(&[b"XADD", name, b"*", text, text]),
        };
        values.push(wrong(format!("with {what}"), vec![added]));
    }
    for field in fields {
        values.push(wrong(format!("without {field}"), vec![command(&[b"HDEL", name, field.as_bytes()])]));
        for value in WRONG_FIELDS {
            let what = format!("{field} = {:?}", String::from_utf8_lossy(value));
            values.push(wrong(what, vec![command(&[b"HSET", name, field.as_bytes(), value])]));
        }
    }
    values
}
