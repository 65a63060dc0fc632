//! Checks that the requests on an HTTP/1 connection are unambiguous. Pure.
//!
//! A lenient parser accepts requests that another server splits differently (request smuggling). So this runs
//! before the parser.

use crate::scanner::{
    ALPHANUMERIC, Ambiguous, Bytes, FramingState, MessageHead, MessageScanner, TOKEN, field,
};

pub(crate) type Scanner = MessageScanner<RequestHead>;

static HOST: Bytes = Bytes::new(ALPHANUMERIC, b"-._~:[]%!$&'()*+;=");
static TARGET: Bytes = Bytes::new(&[(b'!', b'"'), (b'$', b'~')], b"");

#[derive(Debug, Default)]
pub(crate) struct RequestHead {
    is_http_10: bool,
    authority: Option<Vec<u8>>,
    has_host: bool,
    is_host_other_than_authority: bool,
    content_length: Option<u64>,
    is_chunked: bool,
    is_connection_upgrade: bool,
    has_upgrade: bool,
}

impl MessageHead for RequestHead {
    const MOST_BYTES: usize = 64 * 1024;

    fn first_line(&mut self, line: &[u8]) -> Result<(), Ambiguous> {
        let mut parts = line.split(|byte| *byte == b' ');
        let (Some(method), Some(target), Some(version), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(Ambiguous("a request line that is not method, target and version"));
        };
        if method.is_empty() || !TOKEN.has_all(method) {
            return Err(Ambiguous("an invalid method"));
        }
        if method == b"CONNECT" {
            return Err(Ambiguous("CONNECT: this is no forward proxy"));
        }
        self.target(target)?;
        self.is_http_10 = match version {
            b"HTTP/1.1" => false,
            b"HTTP/1.0" => true,
            _ => return Err(Ambiguous("a version other than HTTP/1.0 and HTTP/1.1")),
        };
        Ok(())
    }

    fn field(&mut self, line: &[u8]) -> Result<(), Ambiguous> {
        let (name, value) = field(line)?;
        match name.len() {
            4 if name.eq_ignore_ascii_case(b"host") => self.host(value),
            7 if name.eq_ignore_ascii_case(b"upgrade") => {
                self.has_upgrade |= upgrade_protocols(value).next().is_some();
                Ok(())
            }
            10 if name.eq_ignore_ascii_case(b"connection") => {
                self.is_connection_upgrade |= value
                    .split(|byte| *byte == b',')
                    .any(|o| o.trim_ascii().eq_ignore_ascii_case(b"upgrade"));
                Ok(())
            }
            14 if name.eq_ignore_ascii_case(b"content-length") => self.content_length(value),
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => self.transfer_encoding(value),
            _ => Ok(()),
        }
    }

    fn end(self) -> Result<FramingState, Ambiguous> {
        if self.is_chunked && self.content_length.is_some() {
            return Err(Ambiguous("Content-Length and Transfer-Encoding"));
        }
        if self.is_chunked && self.is_http_10 {
            return Err(Ambiguous("Transfer-Encoding in HTTP/1.0"));
        }
        if !self.has_host && !self.is_http_10 {
            return Err(Ambiguous("no Host"));
        }
        if self.is_host_other_than_authority || (self.authority.is_some() && !self.has_host) {
            return Err(Ambiguous("a URL with another host than Host"));
        }
        let has_body = self.is_chunked || self.content_length.is_some_and(|length| length > 0);
        let is_upgrade = self.is_connection_upgrade && self.has_upgrade && !self.is_http_10;
        match self.content_length {
            _ if is_upgrade && has_body => Err(Ambiguous("a body in a request to upgrade")),
            _ if is_upgrade => Ok(FramingState::Upgrade),
            _ if self.is_chunked => Ok(FramingState::ChunkSize),
            Some(length) if length > 0 => Ok(FramingState::Body(length)),
            _ => Ok(FramingState::Between),
        }
    }
}

impl RequestHead {
    fn target(&mut self, target: &[u8]) -> Result<(), Ambiguous> {
        if target.is_empty() || !TARGET.has_all(target) {
            return Err(Ambiguous("a target with invalid characters"));
        }
        if target[0] == b'/' || target == b"*" {
            return Ok(());
        }
        let lower = target.to_ascii_lowercase();
        let rest = lower.strip_prefix(b"http://").or_else(|| lower.strip_prefix(b"https://"));
        let rest = rest.ok_or(Ambiguous("a target that is neither a path nor a URL of HTTP"))?;
        let end = rest.iter().position(|byte| matches!(byte, b'/' | b'?')).unwrap_or(rest.len());
        self.authority = Some(rest[..end].to_vec());
        Ok(())
    }

    fn host(&mut self, value: &[u8]) -> Result<(), Ambiguous> {
        if value.is_empty() || !HOST.has_all(value) {
            return Err(Ambiguous("an invalid Host"));
        }
        if std::mem::replace(&mut self.has_host, true) {
            return Err(Ambiguous("two Hosts"));
        }
        self.is_host_other_than_authority =
            self.authority.as_ref().is_some_and(|authority| !authority.eq_ignore_ascii_case(value));
        Ok(())
    }

    fn content_length(&mut self, value: &[u8]) -> Result<(), Ambiguous> {
        if !(1..=18).contains(&value.len()) || !value.iter().all(u8::is_ascii_digit) {
            return Err(Ambiguous("an invalid Content-Length"));
        }
        let number = value.iter().fold(0, |number, digit| number * 10 + u64::from(digit - b'0'));
        match self.content_length.replace(number) {
            None => Ok(()),
            Some(_) => Err(Ambiguous("two Content-Lengths")),
        }
    }

    fn transfer_encoding(&mut self, value: &[u8]) -> Result<(), Ambiguous> {
        if !value.eq_ignore_ascii_case(b"chunked") {
            return Err(Ambiguous("a Transfer-Encoding other than chunked"));
        }
        if std::mem::replace(&mut self.is_chunked, true) {
            return Err(Ambiguous("two Transfer-Encodings"));
        }
        Ok(())
    }
}

/// Omits `h2c`: many clients offer it with each request, servers ignore it, and after it this proxy would see
/// no requests.
pub(crate) fn upgrade_protocols(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    let protocols = value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    protocols.filter(|name| !name.is_empty() && !name.eq_ignore_ascii_case(b"h2c"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn feed(bytes: &[u8]) -> Result<usize, &'static str> {
        Scanner::default().feed(bytes).map_err(|(_, Ambiguous(why))| why)
    }

    #[test]
    fn well_formed_requests_pass_and_are_counted() {
        for (text, heads) in [
            ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", 1),
            ("GET / HTTP/1.0\r\n\r\n", 1),
            ("GET http://A.b/x HTTP/1.1\r\nHost: a.B\r\n\r\n", 1),
            ("OPTIONS * HTTP/1.1\r\nHost: a:80\r\n\r\n", 1),
            ("\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", 2),
            ("GET / HTTP/1.1\r\nHost:a\r\nX: \t yé \r\nY:\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", 2),
            (
                "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n\n\n\n\
                 GET / HTTP/1.1\r\nHost: a\r\n\r\n",
                2,
            ),
            (
                "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n\
                 3;x=\"y\"\r\nabc\r\n0a\r\n0123456789\r\n\
              0\r\nX: y\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
                2,
            ),
        ] {
            assert_eq!(feed(text.as_bytes()), Ok(heads), "{text:?}");
        }
    }

    #[test]
    fn ambiguous_requests_are_refused() {
        let with = |field: &str| format!("POST / HTTP/1.1\r\nHost: a\r\n{field}\r\n\r\n");
        let chunked = |body: &str| format!("{}{body}", with("Transfer-Encoding: chunked"));
        for text in [
            "GET /\r\n\r\n".to_owned(),
            "\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
            "\nGET / HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
            "GET / HTTP/1.1\r\n\r\n".to_owned(),
            "GET / HTTP/2.0\r\nHost: a\r\n\r\n".to_owned(),
            "GET  / HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
            "GET / HTTP/1.1\nHost: a\r\n\r\n".to_owned(),
            "GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
            "CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n".to_owned(),
            "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned(),
            with("Host: a"),
            with("Content-Length: 1\r\nContent-Length: 1"),
            with("Content-Length: 1, 1"),
            with("Content-Length: +1"),
            with("Content-Length:"),
            with("Content-Length: 1\r\nTransfer-Encoding: chunked"),
            with("Transfer-Encoding: chunked\r\nContent-Length: 1"),
            with("Transfer-Encoding: gzip, chunked"),
            with("Transfer-Encoding: \x0bchunked"),
            with("Transfer-Encoding : chunked"),
            with("X: y\r\n z"),
            with("X: y\rz"),
            with("X: y\nz: 1"),
            with(": y"),
            with("nothing"),
            with("Connection: upgrade\r\nUpgrade: websocket\r\nContent-Length: 1"),
            with("Connection: Upgrade, x\r\nUpgrade: websocket\r\nX: y") + "z",
            chunked("x\r\n"),
            chunked("-1\r\n"),
            chunked("1 \r\na\r\n"),
            chunked("1\na\r\n"),
            chunked("1\r\nab\r\n"),
            chunked("10000000000000000\r\n"),
            chunked("1;\ra\r\na\r\n"),
            chunked("0\r\nHost: b\r\n\r\n"),
        ] {
            assert!(feed(text.as_bytes()).is_err(), "{text:?}");
        }
    }

    #[test]
    fn nothing_passes_after_a_request_to_upgrade_until_it_was_answered() {
        let head =
            b"GET / HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\r\n";
        let mut scanner = Scanner::default();
        assert_eq!(scanner.feed(head), Ok(1));
        assert_eq!(scanner.state(), FramingState::Upgrade);
        assert_eq!(scanner.feed(b"x").unwrap_err().0, 0);
        scanner.upgrade_was_refused();
        assert_eq!(scanner.feed(head), Ok(1));
    }

    proptest! {
        #[test]
        fn pieces_do_not_change_the_verdict(
            fields in proptest::collection::vec(
                "(Content-Length: [0-3]|Transfer-Encoding: chunked|X: [a-z \r\n]{0,4}|Host: b)", 0..3),
            body in "([0-3]\r\n|[a-c\r\n]){0,8}",
            cut in proptest::collection::vec(0_usize..120, 0..6),
        ) {
            let lines: String = fields.iter().map(|field| format!("{field}\r\n")).collect();
            let text = format!("POST / HTTP/1.1\r\nHost: a\r\n{lines}\r\n{body}");
            let whole = Scanner::default().feed(text.as_bytes()).map_err(|(at, _)| at);
            let mut cuts: Vec<_> = cut.into_iter().filter(|cut| *cut < text.len()).collect();
            cuts.push(text.len());
            cuts.sort_unstable();
            let (mut scanner, mut from, mut heads) = (Scanner::default(), 0, 0);
            let mut pieces = Ok(0);
            for to in cuts {
                match scanner.feed(&text.as_bytes()[from..to]) {
                    Ok(more) => heads += more,
                    Err((at, _)) => {
                        pieces = Err(from + at);
                        break;
                    }
                }
                from = to;
            }
            prop_assert_eq!(pieces.map(|_| heads), whole);
        }
    }
}
