//! Decides the answer to a DNS question. Pure.
//!
//! An existing name without such records gets an empty answer: musl takes "no such name" for AAAA as no such
//! name at all.

use hickory_proto::op::{Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::{A, PTR, SRV};
use hickory_proto::rr::{DNSClass, Name, RData, Record, RecordType};
use model::ids::{AppName, ServiceName};
use model::network::address::{AddressName, DOMAIN, PoolAddress};
use model::spec::asked_for;
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;

use super::question::{NameSubject, subject};
pub use super::response::QuestionTransport;
use super::response::{encode, refusal, soa, unreadable, with_records};

/// In seconds. An address is fixed while its service or slot exists.
const ADDRESS_TTL: u32 = 30;
/// In seconds.
const READY_TTL: u32 = 5;
/// UDP clients are told to use TCP for more.
const MAX_ADDRESSES: usize = 1_000;
/// Few clients read as many over UDP; others are told to use TCP.
const MAX_PORTS: usize = 256;

pub trait Names {
    fn alias(&self, app: &AppName, name: &str) -> Option<ServiceName>;
    fn address(&self, name: &AddressName) -> NameLookup<PoolAddress>;
    fn name_of(&self, address: PoolAddress) -> NameLookup<AddressName>;
    fn ready_slots(&self, service: &ServiceName) -> NameLookup<Vec<u32>>;
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NameLookup<T> {
    Found(T),
    Missing,
    NotAsked,
    /// Redis did not answer.
    Unavailable,
}

#[derive(Debug, Clone)]
pub struct Questioner<'a> {
    /// The app of the asking pod. Aliases and short names of this app take precedence.
    pub app: Option<&'a AppName>,
    /// The asking pod's service, if Redis does not say now whether that is of an app.
    pub may_be_of_app: Option<&'a ServiceName>,
    pub transport: QuestionTransport,
    /// Keeps the order of pods over several decisions about one question.
    pub random: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QuestionDecision {
    Answer(Vec<u8>),
    Ask(Vec<Needed>),
    /// To the upstream resolver.
    Forward,
    Ignore,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Needed {
    Address(AddressName),
    Holder(PoolAddress),
    Endpoints(ServiceName),
}

enum NotKnown {
    Ask(Vec<Needed>),
    Forward,
    Unavailable,
}

/// `None` if there is no such name.
type FoundRecords = Option<Vec<Record>>;

pub fn decide(request: &[u8], client: &Questioner<'_>, names: &impl Names) -> QuestionDecision {
    let send = |message: Option<Vec<u8>>| message.map_or(QuestionDecision::Ignore, QuestionDecision::Answer);
    let Ok(request) = Message::from_vec(request) else { return send(unreadable(request)) };
    if request.metadata.message_type == MessageType::Response {
        return QuestionDecision::Ignore;
    }
    let refuse = |code| send(encode(&request, client.transport, refusal(&request, code)));
    if request.metadata.op_code != OpCode::Query {
        return refuse(ResponseCode::NotImp);
    }
    if request.version() > 0 {
        return refuse(ResponseCode::BADVERS);
    }
    let [question] = &request.queries[..] else { return refuse(ResponseCode::FormErr) };
    if question.query_class() != DNSClass::IN {
        return refuse(ResponseCode::Refused);
    }
    match find(question, client, names) {
        Ok(found) => send(encode(&request, client.transport, with_records(&request, found))),
        Err(NotKnown::Ask(needed)) => QuestionDecision::Ask(needed),
        Err(NotKnown::Forward) => QuestionDecision::Forward,
        Err(NotKnown::Unavailable) => refuse(ResponseCode::ServFail),
    }
}

pub(super) fn failure(request: &[u8], transport: QuestionTransport) -> Option<Vec<u8>> {
    let request = Message::from_vec(request).ok()?;
    encode(&request, transport, refusal(&request, ResponseCode::ServFail))
}

fn find(question: &Query, client: &Questioner<'_>, names: &impl Names) -> Result<FoundRecords, NotKnown> {
    let (name, kind) = (question.name(), question.query_type());
    let service_of = |label| existing(label, client, names);
    match subject(name) {
        // An alias may contain dots, such as `db.internal`.
        NameSubject::Elsewhere => {
            let Some(service) = alias(&name.to_ascii(), client, names) else { return Err(NotKnown::Forward) };
            let address = address_of(service, names)?;
            Ok(address.map(|(_, address)| address_record(name, kind, address)))
        }
        NameSubject::Nothing | NameSubject::Address(None) => Ok(None),
        NameSubject::Domain if kind == RecordType::SOA => Ok(Some(vec![soa(name)])),
        NameSubject::Domain => Ok(Some(Vec::new())),
        NameSubject::Address(Some(address)) => {
            let holder = known(names.name_of(address), Needed::Holder(address))?;
            Ok(holder.map(|holder| pointer(name, kind, &holder)))
        }
        NameSubject::Service(label) => {
            Ok(service_of(label)?.map(|(_, address)| address_record(name, kind, address)))
        }
        NameSubject::Slot(label, slot) => {
            let Some((service, _)) = service_of(label)? else { return Ok(None) };
            let slot = AddressName { service, slot: Some(slot) };
            Ok(known(names.address(&slot), Needed::Address(slot))?
                .map(|address| address_record(name, kind, address)))
        }
        NameSubject::ReadySlots(label) => match service_of(label)? {
            Some((service, _)) if kind == RecordType::A => {
                ready_addresses(name, &service, client, names).map(Some)
            }
            found => Ok(found.map(|_| Vec::new())),
        },
        NameSubject::Port(label, port) => match service_of(label)? {
            Some((service, _)) if kind == RecordType::SRV => {
                ready_ports(name, &service, port, client, names).map(Some)
            }
            found => Ok(found.map(|_| Vec::new())),
        },
    }
}

/// Aliases come before short names.
fn existing(
    label: ServiceName,
    client: &Questioner<'_>,
    names: &impl Names,
) -> Result<Option<(ServiceName, PoolAddress)>, NotKnown> {
    // Without its app, a pod would be led to another app's service, or told that there is no such name.
    if may_be_short(&label, client) {
        return Err(NotKnown::Unavailable);
    }
    let alias = alias(label.as_str(), client, names);
    let of_app = client.app.and_then(|app| app.service(label.as_str()).ok());
    for service in alias.into_iter().chain(of_app).chain([label]) {
        let found = address_of(service, names)?;
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

/// True if the label may be a short name of the asking pod's app, which is not known now. A label with the
/// first part of the asking service's name is a whole name.
fn may_be_short(label: &ServiceName, client: &Questioner<'_>) -> bool {
    let first_part =
        |service: &ServiceName| service.as_str().split_once('-').map(|(first, _)| first.to_owned());
    let Some(app) = client.may_be_of_app.and_then(first_part) else { return false };
    first_part(label).is_none_or(|first| first != app)
}

fn alias(name: &str, client: &Questioner<'_>, names: &impl Names) -> Option<ServiceName> {
    names.alias(client.app?, &asked_for(name))
}

fn address_of(
    service: ServiceName,
    names: &impl Names,
) -> Result<Option<(ServiceName, PoolAddress)>, NotKnown> {
    let name = AddressName { service, slot: None };
    let address = known(names.address(&name), Needed::Address(name.clone()))?;
    Ok(address.map(|address| (name.service, address)))
}

fn known<T>(lookup: NameLookup<T>, needed: Needed) -> Result<Option<T>, NotKnown> {
    match lookup {
        NameLookup::Found(found) => Ok(Some(found)),
        NameLookup::Missing => Ok(None),
        NameLookup::NotAsked => Err(NotKnown::Ask(vec![needed])),
        NameLookup::Unavailable => Err(NotKnown::Unavailable),
    }
}

fn address_record(name: &Name, kind: RecordType, address: PoolAddress) -> Vec<Record> {
    let record = || Record::from_rdata(name.clone(), ADDRESS_TTL, RData::A(A(address.ip())));
    if kind == RecordType::A { vec![record()] } else { Vec::new() }
}

fn pointer(name: &Name, kind: RecordType, holder: &AddressName) -> Vec<Record> {
    let target = full_name(holder).filter(|_| kind == RecordType::PTR);
    let record = |target| Record::from_rdata(name.clone(), ADDRESS_TTL, RData::PTR(PTR(target)));
    target.map(record).into_iter().collect()
}

fn ready_slots(
    service: &ServiceName,
    client: &Questioner<'_>,
    names: &impl Names,
    count: usize,
) -> Result<Vec<u32>, NotKnown> {
    let ready = names.ready_slots(service);
    let mut slots = known(ready, Needed::Endpoints(service.clone()))?.unwrap_or_default();
    slots.sort_unstable();
    slots.shuffle(&mut StdRng::seed_from_u64(client.random));
    slots.truncate(count);
    Ok(slots)
}

fn ready_addresses(
    name: &Name,
    service: &ServiceName,
    client: &Questioner<'_>,
    names: &impl Names,
) -> Result<Vec<Record>, NotKnown> {
    let slots = ready_slots(service, client, names, MAX_ADDRESSES)?;
    let (mut records, mut needed, mut is_complete) = (Vec::new(), Vec::new(), true);
    for slot in slots {
        let slot = AddressName { service: service.clone(), slot: Some(slot) };
        match names.address(&slot) {
            NameLookup::Found(address) => {
                records.push(Record::from_rdata(name.clone(), READY_TTL, RData::A(A(address.ip()))));
            }
            NameLookup::Missing => {}
            NameLookup::NotAsked => needed.push(Needed::Address(slot)),
            NameLookup::Unavailable => is_complete = false,
        }
    }
    if !needed.is_empty() {
        return Err(NotKnown::Ask(needed));
    }
    // An incomplete list is usable, but an empty one would be wrong.
    if records.is_empty() && !is_complete { Err(NotKnown::Unavailable) } else { Ok(records) }
}

fn ready_ports(
    name: &Name,
    service: &ServiceName,
    port: u16,
    client: &Questioner<'_>,
    names: &impl Names,
) -> Result<Vec<Record>, NotKnown> {
    let slots = ready_slots(service, client, names, MAX_PORTS)?;
    let record = |slot| {
        let target = full_name(&AddressName { service: service.clone(), slot: Some(slot) })?;
        Some(Record::from_rdata(name.clone(), READY_TTL, RData::SRV(SRV::new(0, 1, port, target))))
    };
    Ok(slots.into_iter().filter_map(record).collect())
}

fn full_name(name: &AddressName) -> Option<Name> {
    Name::from_ascii(format!("{name}.{DOMAIN}.")).ok()
}
