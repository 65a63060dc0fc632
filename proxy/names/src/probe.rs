//! Asks the resolver like a program of this host: an answer comes only if the host's rules lead to one.

use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;

use hickory_proto::op::{Message, MessageType, OpCode, Query};
use hickory_proto::rr::{Name, RData, RecordType};
use model::network::address::{DOMAIN, PoolAddress};
use tokio::net::UdpSocket;
use tokio::time::timeout;

pub const NO_ROUTE: &str = "this host has no route to 198.18.0.0/15, so its rules see no packet to there: add a default \
                            route, or run `ip route add 198.18.0.0/15 dev lo`";

const ANSWER_WITHIN: Duration = Duration::from_millis(500);
const TRIES: usize = 3;

pub async fn resolver_answers() -> bool {
    let Ok(domain) = Name::from_ascii(format!("{DOMAIN}.")) else { return false };
    // Any other resolver at this address would not know the domain.
    matches!(ask(&domain, RecordType::SOA).await, Some(answer) if answer.metadata.authoritative)
}

/// Without a route, programs of this host send no packet that a rule could redirect.
pub async fn has_route() -> bool {
    // Connecting a UDP socket sends nothing, but looks up a route.
    let look = async {
        UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).await?.connect((PoolAddress::RESOLVER.ip(), 53)).await
    };
    !matches!(look.await, Err(error) if error.kind() == io::ErrorKind::NetworkUnreachable)
}

pub async fn address_of(name: &str) -> Option<Ipv4Addr> {
    let name =
        Name::from_ascii(format!("{}.{DOMAIN}.", name.trim_end_matches(&format!(".{DOMAIN}")))).ok()?;
    let answer = ask(&name, RecordType::A).await?;
    answer.answers.iter().find_map(|record| match &record.data {
        RData::A(address) => Some(address.0),
        _ => None,
    })
}

async fn ask(name: &Name, kind: RecordType) -> Option<Message> {
    for _ in 0..TRIES {
        if let Ok(Ok(answer)) = timeout(ANSWER_WITHIN, ask_once(name, kind)).await {
            return Some(answer);
        }
    }
    None
}

async fn ask_once(name: &Name, kind: RecordType) -> io::Result<Message> {
    let id = rand::random();
    let mut question = Message::new(id, MessageType::Query, OpCode::Query);
    question.add_query(Query::query(name.clone(), kind));
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).await?;
    socket.connect((PoolAddress::RESOLVER.ip(), 53)).await?;
    socket.send(&question.to_vec().map_err(io::Error::other)?).await?;
    let mut answer = [0; 512];
    let length = socket.recv(&mut answer).await?;
    let answer = Message::from_vec(&answer[..length]).map_err(io::Error::other)?;
    if answer.metadata.id == id { Ok(answer) } else { Err(io::Error::other("an answer to another question")) }
}
