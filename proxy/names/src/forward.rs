//! Forwards other questions to this host's upstream resolvers.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use model::network::address::PoolAddress;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::{Instant, timeout};

use super::answer::QuestionTransport;

pub const RESOLV_CONF: &str = "/etc/resolv.conf";
const REREAD_AFTER: Duration = Duration::from_secs(5);
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// Programs ask again after 5 s.
const ALL_WITHIN: Duration = Duration::from_millis(4_500);
/// As for other programs that read the file.
const MAX_UPSTREAMS: usize = 3;
const PORT: u16 = 53;
/// In bytes; the first two are the id.
const HEADER: usize = 12;

pub struct Forwarder {
    file: PathBuf,
    port: u16,
    upstreams: Mutex<Option<(Instant, Vec<IpAddr>)>>,
}

impl Forwarder {
    pub fn new(file: PathBuf) -> Self {
        Self { file, port: PORT, upstreams: Mutex::default() }
    }

    #[cfg(test)]
    pub(super) fn on_port(file: PathBuf, port: u16) -> Self {
        Self { port, ..Self::new(file) }
    }

    pub(super) async fn forward(&self, request: &[u8], transport: QuestionTransport) -> Option<Vec<u8>> {
        let question = question(request)?;
        let upstreams = self.upstreams();
        let all = async {
            // Twice: a datagram can be lost.
            for upstream in upstreams.iter().chain(&upstreams) {
                let upstream = SocketAddr::new(*upstream, self.port);
                let answer = async {
                    match transport {
                        QuestionTransport::Udp => over_udp(upstream, request, question).await,
                        QuestionTransport::Tcp => over_tcp(upstream, request).await,
                    }
                };
                match timeout(ANSWER_WITHIN, answer).await {
                    Ok(Ok(answer)) => return Some(answer),
                    Ok(Err(error)) => tracing::debug!(%upstream, %error, "a resolver gave no answer"),
                    Err(_) => tracing::debug!(%upstream, "a resolver gave no answer in time"),
                }
            }
            None
        };
        timeout(ALL_WITHIN, all).await.ok().flatten()
    }

    fn upstreams(&self) -> Vec<IpAddr> {
        let mut known = self.upstreams.lock();
        match &*known {
            Some((read, upstreams)) if read.elapsed() < REREAD_AFTER => upstreams.clone(),
            Some(_) | None => {
                let text = std::fs::read_to_string(&self.file).unwrap_or_default();
                let upstreams = nameservers(&text);
                *known = Some((Instant::now(), upstreams.clone()));
                upstreams
            }
        }
    }
}

/// Without our own address: this resolver would ask itself.
fn nameservers(text: &str) -> Vec<IpAddr> {
    let own = IpAddr::V4(PoolAddress::RESOLVER.ip());
    let address = |line: &str| line.trim().strip_prefix("nameserver")?.trim().parse().ok();
    text.lines().filter_map(address).filter(|address| *address != own).take(MAX_UPSTREAMS).collect()
}

fn question(message: &[u8]) -> Option<&[u8]> {
    let is_one = message.get(4..6) == Some(&[0, 1]);
    let mut at = HEADER;
    loop {
        match *message.get(at)? {
            0 => break,
            label @ 1..=63 => at += 1 + usize::from(label),
            _ => return None,
        }
    }
    let end = at + 1 + 4;
    message.get(HEADER..end).filter(|_| is_one)
}

async fn over_udp(upstream: SocketAddr, request: &[u8], asked: &[u8]) -> io::Result<Vec<u8>> {
    let any: IpAddr =
        if upstream.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    // A random port and id prevent spoofed answers.
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(upstream).await?;
    let id: [u8; 2] = rand::random();
    let mut message = request.to_vec();
    message[..2].copy_from_slice(&id);
    socket.send(&message).await?;
    let mut answer = vec![0; usize::from(u16::MAX)];
    loop {
        let length = socket.recv(&mut answer).await?;
        let received = &answer[..length];
        if received.starts_with(&id) && question(received) == Some(asked) {
            answer.truncate(length);
            answer[..2].copy_from_slice(&request[..2]);
            return Ok(answer);
        }
    }
}

async fn over_tcp(upstream: SocketAddr, request: &[u8]) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(upstream).await?;
    write_message(&mut stream, request).await?;
    read_message(&mut stream).await
}

pub(super) async fn read_message(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut message = vec![0; usize::from(stream.read_u16().await?)];
    stream.read_exact(&mut message).await?;
    Ok(message)
}

pub(super) async fn write_message(stream: &mut TcpStream, message: &[u8]) -> io::Result<()> {
    let length = u16::try_from(message.len()).map_err(io::Error::other)?;
    let framed = [&length.to_be_bytes()[..], message].concat();
    stream.write_all(&framed).await
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    fn asked(id: [u8; 2]) -> Vec<u8> {
        let name = b"\x07example\x03com\0";
        [&id[..], &[1, 0, 0, 1, 0, 0, 0, 0, 0, 0], name, &[0, 1, 0, 1]].concat()
    }

    fn answer_of(request: &[u8], last: u8) -> Vec<u8> {
        let mut answer = request.to_vec();
        answer[2] |= 0x80;
        answer[7] = 1;
        [&answer[..], &[0xc0, 0x0c, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, last]].concat()
    }

    async fn forwarder(port: u16) -> (tempfile::TempDir, Forwarder) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("resolv.conf");
        std::fs::write(&file, "search intra\nnameserver 198.18.0.1\nnameserver 127.0.0.1\n").unwrap();
        (folder, Forwarder::on_port(file, port))
    }

    #[test]
    fn the_resolvers_of_a_host_are_those_of_its_file_without_this_one() {
        let text = "# nameserver 192.0.2.9\nsearch a b\nnameserver 198.18.0.1\n nameserver\t192.0.2.1\n\
                    nameserver 2001:db8::1\nnameserver x\nnameserver 192.0.2.3\nnameserver 192.0.2.4\n";
        let expected: Vec<IpAddr> =
            ["192.0.2.1", "2001:db8::1", "192.0.2.3"].map(|text| text.parse().unwrap()).into();
        assert_eq!(nameservers(text), expected);
        assert_eq!(nameservers(""), Vec::<IpAddr>::new());
    }

    #[test]
    fn a_question_is_found_whatever_the_message() {
        let message = asked([1, 2]);
        assert_eq!(question(&message), Some(&message[12..]));
        for end in 0..message.len() {
            assert_eq!(question(&message[..end]), None, "{end}");
        }
        assert_eq!(question(&[0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0xc0, 0x0c, 0, 1, 0, 1]), None);
    }

    #[tokio::test]
    async fn only_an_answer_to_this_very_question_is_passed_on() {
        let upstream = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let (_folder, forwarder) = forwarder(upstream.local_addr().unwrap().port()).await;
        let server = tokio::spawn(async move {
            let mut bytes = [0; 512];
            let (length, client) = upstream.recv_from(&mut bytes).await.unwrap();
            let request = bytes[..length].to_vec();
            let mut other_id = answer_of(&request, 1);
            other_id[0] ^= 1;
            let mut other_name = answer_of(&request, 2);
            other_name[13] = b'x';
            for answer in [other_id, other_name, answer_of(&request, 3)] {
                upstream.send_to(&answer, client).await.unwrap();
            }
        });
        let request = asked([1, 2]);
        let answer = forwarder.forward(&request, QuestionTransport::Udp).await.unwrap();
        assert_eq!(answer, answer_of(&request, 3), "with the client's id");
        server.await.unwrap();
    }

    #[tokio::test]
    async fn a_lost_datagram_is_sent_again_and_silence_ends() {
        tokio::time::pause();
        let upstream = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let (_folder, forwarder) = forwarder(upstream.local_addr().unwrap().port()).await;
        let started = Instant::now();
        assert_eq!(forwarder.forward(&asked([1, 2]), QuestionTransport::Udp).await, None);
        assert!(started.elapsed() <= ALL_WITHIN);
        let mut bytes = [0; 512];
        for _ in 0..2 {
            assert!(upstream.try_recv(&mut bytes).is_ok());
        }
        assert!(upstream.try_recv(&mut bytes).is_err());
    }

    #[tokio::test]
    async fn a_question_that_came_over_a_connection_is_passed_on_over_one() {
        let upstream = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (_folder, forwarder) = forwarder(upstream.local_addr().unwrap().port()).await;
        let server = tokio::spawn(async move {
            let (mut stream, _) = upstream.accept().await.unwrap();
            let request = read_message(&mut stream).await.unwrap();
            write_message(&mut stream, &answer_of(&request, 5)).await.unwrap();
        });
        let request = asked([1, 2]);
        let answer = forwarder.forward(&request, QuestionTransport::Tcp).await.unwrap();
        assert_eq!(answer, answer_of(&request, 5));
        server.await.unwrap();
    }
}
