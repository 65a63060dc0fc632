//! Encodes responses within their size limits.

use hickory_proto::op::{DEFAULT_MAX_PAYLOAD_LEN, Edns, Message, Metadata, OpCode, ResponseCode};
use hickory_proto::rr::rdata::SOA;
use hickory_proto::rr::{Name, RData, Record, RecordType};
use model::network::address::DOMAIN;

const HEADER_BYTES: usize = 12;
/// Every client can read as many.
const MIN_UDP_BYTES: u16 = 512;
/// The size of a record whose name is a pointer to the question.
const ADDRESS_BYTES: usize = 16;
/// In seconds.
const NEGATIVE_TTL: u32 = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuestionTransport {
    Udp,
    Tcp,
}

pub(super) fn unreadable(request: &[u8]) -> Option<Vec<u8>> {
    let &[high, low, flags, ..] = request.get(..HEADER_BYTES)? else { return None };
    let is_response = flags & 0x80 != 0;
    let id = u16::from_be_bytes([high, low]);
    let message = Message::error_msg(id, OpCode::Query, ResponseCode::FormErr);
    if is_response { None } else { message.to_vec().ok() }
}

pub(super) fn refusal(request: &Message, code: ResponseCode) -> Message {
    let metadata = &request.metadata;
    let mut response = Message::response(metadata.id, metadata.op_code);
    response.metadata = Metadata::response_from_request(metadata);
    response.metadata.recursion_available = true;
    response.metadata.response_code = code;
    // With several questions none is repeated, so that the response stays small.
    if let [question] = &request.queries[..] {
        response.add_query(question.clone());
    }
    if request.edns.is_some() {
        let mut edns = Edns::new();
        edns.set_max_payload(DEFAULT_MAX_PAYLOAD_LEN).set_rcode_high(code.high());
        response.set_edns(edns);
    }
    response
}

pub(super) fn with_records(request: &Message, found: Option<Vec<Record>>) -> Message {
    let code = if found.is_some() { ResponseCode::NoError } else { ResponseCode::NXDomain };
    let mut response = refusal(request, code);
    response.metadata.authoritative = true;
    let records = found.unwrap_or_default();
    if let (true, Some(question)) = (records.is_empty(), request.queries.first()) {
        response.add_authority(soa(question.name()));
    }
    response.add_answers(records);
    response
}

pub(super) fn soa(name: &Name) -> Record {
    let zone = match name.iter().next_back() {
        Some(last) if last.eq_ignore_ascii_case(DOMAIN.as_bytes()) => name.trim_to(1),
        // The pool has the two zones 18.198 and 19.198 below it.
        Some(last) if last.eq_ignore_ascii_case(b"arpa") => name.trim_to(4),
        _ => Name::root(),
    };
    let resolver = Name::from_ascii(format!("resolver.{DOMAIN}.")).unwrap_or_else(|_| zone.clone());
    let negative = NEGATIVE_TTL.cast_signed();
    let soa = SOA::new(resolver.clone(), resolver, 1, negative, negative, negative, NEGATIVE_TTL);
    Record::from_rdata(zone, NEGATIVE_TTL, RData::SOA(soa))
}

/// Truncates a long response, so that the client asks again over TCP.
pub(super) fn encode(request: &Message, transport: QuestionTransport, response: Message) -> Option<Vec<u8>> {
    let limit = match transport {
        QuestionTransport::Udp => request.max_payload().clamp(MIN_UDP_BYTES, DEFAULT_MAX_PAYLOAD_LEN),
        QuestionTransport::Tcp => u16::MAX,
    };
    let encoded = response.to_vec().ok().filter(|bytes| bytes.len() <= usize::from(limit));
    encoded.or_else(|| cut(&response, limit.into()).to_vec().ok())
}

/// Keeps as many addresses as possible: old musl uses them without asking again.
fn cut(response: &Message, limit: usize) -> Message {
    let mut cut = response.clone().truncate();
    let used = cut.to_vec().map_or(limit, |bytes| bytes.len());
    let addresses = response.answers.iter().filter(|record| record.record_type() == RecordType::A);
    cut.answers = addresses.take(limit.saturating_sub(used) / ADDRESS_BYTES).cloned().collect();
    cut
}
