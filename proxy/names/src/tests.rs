//! The table of questions and answers, and properties for arbitrary bytes.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::HashMap;

use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::{DNSClass, Name, RecordType};
use model::ids::{AppName, ServiceName};
use model::network::address::{AddressName, PoolAddress};
use proptest::prelude::*;

use super::answer::{NameLookup, Names, Needed, QuestionDecision, QuestionTransport, Questioner, decide};

struct Known {
    addresses: HashMap<AddressName, PoolAddress>,
    ready: HashMap<ServiceName, Vec<u32>>,
    aliases: HashMap<&'static str, ServiceName>,
    others: fn() -> NameLookup<()>,
}

impl Known {
    fn other<T>(&self) -> NameLookup<T> {
        match (self.others)() {
            NameLookup::Found(()) | NameLookup::Missing => NameLookup::Missing,
            NameLookup::NotAsked => NameLookup::NotAsked,
            NameLookup::Unavailable => NameLookup::Unavailable,
        }
    }
}

impl Names for Known {
    fn alias(&self, app: &AppName, name: &str) -> Option<ServiceName> {
        self.aliases.get(name).filter(|_| app.as_str() == "shop").cloned()
    }

    fn address(&self, name: &AddressName) -> NameLookup<PoolAddress> {
        self.addresses.get(name).map_or_else(|| self.other(), |address| NameLookup::Found(*address))
    }

    fn name_of(&self, address: PoolAddress) -> NameLookup<AddressName> {
        let found = self.addresses.iter().find(|(_, known)| **known == address);
        found.map_or_else(|| self.other(), |(name, _)| NameLookup::Found(name.clone()))
    }

    fn ready_slots(&self, service: &ServiceName) -> NameLookup<Vec<u32>> {
        self.ready.get(service).map_or_else(|| self.other(), |slots| NameLookup::Found(slots.clone()))
    }
}

/// Slot 1 of `web` is ready, `idle` has none, and `big` has 300 ready slots.
fn known(others: fn() -> NameLookup<()>) -> Known {
    let address = |number| PoolAddress::from_number(number).unwrap();
    let names =
        [("web", 7), ("0.web", 8), ("1.web", 9), ("idle", 10), ("db", 11), ("shop-db", 12), ("big", 13)];
    let mut addresses: HashMap<AddressName, PoolAddress> =
        names.into_iter().map(|(name, number)| (name.parse().unwrap(), address(number))).collect();
    let big = (0..300).map(|slot| (format!("{slot}.big").parse().unwrap(), address(1000 + slot)));
    addresses.extend(big);
    let ready = [("web", vec![1]), ("idle", vec![]), ("big", (0..300).collect())];
    let ready = ready.into_iter().map(|(name, slots)| (ServiceName::new(name).unwrap(), slots)).collect();
    let aliases = [("database", "shop-db"), ("db.internal", "shop-db"), ("idle", "web"), ("lost", "gone")];
    let aliases = aliases.into_iter().map(|(alias, name)| (alias, ServiceName::new(name).unwrap())).collect();
    Known { addresses, ready, aliases, others }
}

fn question(name: &str, kind: RecordType) -> Message {
    let mut message = Message::new(4711, MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(Name::from_ascii(name).unwrap(), kind));
    message
}

fn client(transport: QuestionTransport) -> Questioner<'static> {
    Questioner { app: None, may_be_of_app: None, transport, random: 1 }
}

fn answer_to(message: &Message, client: &Questioner<'_>, known: &Known) -> Message {
    match decide(&message.to_vec().unwrap(), client, known) {
        QuestionDecision::Answer(bytes) => Message::from_vec(&bytes).unwrap(),
        other => panic!("{message:?}: {other:?}"),
    }
}

fn shown(answer: &Message) -> String {
    let code = match answer.metadata.response_code {
        ResponseCode::NoError => "ok",
        ResponseCode::NXDomain => "no such name",
        ResponseCode::ServFail => "failed",
        _ => "refused",
    };
    let records = answer.answers.iter().map(|record| format!(" {} {}", record.ttl, record.data));
    let soa = answer.authorities.iter().map(|record| format!(" soa {} {}", record.name, record.ttl));
    std::iter::once(code.to_owned()).chain(records).chain(soa).collect()
}

#[test]
fn names_are_answered_by_the_table() {
    use RecordType::{A, AAAA, ANY, MX, PTR, SOA, SRV, TXT};
    let known = known(|| NameLookup::Missing);
    let empty = "ok soa kubeleet. 2";
    let unknown = "no such name soa kubeleet. 2";
    for (name, kind, expected) in [
        ("web.kubeleet.", A, "ok 30 198.18.0.7"),
        ("KUBELEET.", AAAA, "ok soa KUBELEET. 2"),
        ("WEB.Kubeleet.", A, "ok 30 198.18.0.7"),
        ("web.", A, "ok 30 198.18.0.7"),
        ("idle.kubeleet.", A, "ok 30 198.18.0.10"),
        ("web.kubeleet.", AAAA, empty),
        ("web.", AAAA, "ok soa . 2"),
        ("web.kubeleet.", MX, empty),
        ("web.kubeleet.", ANY, empty),
        ("web.kubeleet.", SRV, empty),
        ("other.kubeleet.", A, unknown),
        ("other.kubeleet.", AAAA, unknown),
        ("other.", A, "no such name soa . 2"),
        ("0.web.kubeleet.", A, "ok 30 198.18.0.8"),
        ("0.web.kubeleet.", AAAA, empty),
        ("2.web.kubeleet.", A, unknown),
        ("00.web.kubeleet.", A, unknown),
        ("0.other.kubeleet.", A, unknown),
        ("all.web.kubeleet.", A, "ok 5 198.18.0.9"),
        ("all.idle.kubeleet.", A, empty),
        ("all.web.kubeleet.", AAAA, empty),
        ("all.other.kubeleet.", A, unknown),
        ("_8080._tcp.web.kubeleet.", SRV, "ok 5 0 1 8080 1.web.kubeleet."),
        ("_8080._tcp.idle.kubeleet.", SRV, empty),
        ("_8080._tcp.web.kubeleet.", A, empty),
        ("_8080._tcp.other.kubeleet.", SRV, unknown),
        ("_8080._udp.web.kubeleet.", SRV, unknown),
        ("_70000._tcp.web.kubeleet.", SRV, unknown),
        ("7.0.18.198.in-addr.arpa.", PTR, "ok 30 web.kubeleet."),
        ("8.0.18.198.in-addr.arpa.", PTR, "ok 30 0.web.kubeleet."),
        ("7.0.18.198.in-addr.arpa.", TXT, "ok soa 18.198.in-addr.arpa. 2"),
        ("99.0.18.198.in-addr.arpa.", PTR, "no such name soa 18.198.in-addr.arpa. 2"),
        ("1.0.18.198.in-addr.arpa.", PTR, "no such name soa 18.198.in-addr.arpa. 2"),
        ("kubeleet.", A, empty),
        ("kubeleet.", SOA, "ok 2 resolver.kubeleet. resolver.kubeleet. 1 2 2 2 2"),
        ("a.b.c.d.kubeleet.", A, unknown),
    ] {
        for transport in [QuestionTransport::Udp, QuestionTransport::Tcp] {
            let asked = question(name, kind);
            let answer = answer_to(&asked, &client(transport), &known);
            assert_eq!(shown(&answer), expected, "{name} {kind} {transport:?}");
            assert_eq!((answer.metadata.id, &answer.queries), (4711, &asked.queries), "{name} {kind}");
            let metadata = answer.metadata;
            assert!(metadata.authoritative && metadata.recursion_available && metadata.recursion_desired);
        }
    }
}

#[test]
fn other_names_are_forwarded() {
    let known = known(|| NameLookup::Missing);
    for name in
        ["example.com.", "web.example.", "0.web.", "1.0.0.10.in-addr.arpa.", "x.18.198.in-addr.arpa.", "."]
    {
        let bytes = question(name, RecordType::A).to_vec().unwrap();
        assert_eq!(
            decide(&bytes, &client(QuestionTransport::Udp), &known),
            QuestionDecision::Forward,
            "{name}"
        );
    }
}

#[test]
fn within_an_app_its_short_names_come_first() {
    let known = known(|| NameLookup::Missing);
    let [shop, blog] = ["shop", "blog"].map(|app| AppName::new(app).unwrap());
    for (app, name, expected) in [
        (None, "db.kubeleet.", "ok 30 198.18.0.11"),
        (Some(&shop), "db.kubeleet.", "ok 30 198.18.0.12"),
        (Some(&shop), "shop-db.kubeleet.", "ok 30 198.18.0.12"),
        (Some(&shop), "web.kubeleet.", "ok 30 198.18.0.7"),
        (Some(&shop), "0.web.kubeleet.", "ok 30 198.18.0.8"),
        (Some(&blog), "db.kubeleet.", "ok 30 198.18.0.11"),
    ] {
        let client = Questioner { app, ..client(QuestionTransport::Udp) };
        let answer = answer_to(&question(name, RecordType::A), &client, &known);
        assert_eq!(shown(&answer), expected, "{app:?} {name}");
    }
}

#[test]
fn a_short_name_has_no_answer_while_the_app_of_the_pod_is_unknown() {
    let known = known(|| NameLookup::Missing);
    for (service, name, expected) in [
        ("shop-web", "db.kubeleet.", "failed"),
        ("shop-web", "0.web.kubeleet.", "failed"),
        ("shop-web", "other.kubeleet.", "failed"),
        ("shop-web", "shop-db.kubeleet.", "ok 30 198.18.0.12"),
        ("web", "db.kubeleet.", "ok 30 198.18.0.11"),
    ] {
        let service = ServiceName::new(service).unwrap();
        let client = Questioner { may_be_of_app: Some(&service), ..client(QuestionTransport::Udp) };
        let answer = answer_to(&question(name, RecordType::A), &client, &known);
        assert_eq!(shown(&answer), expected, "{service} {name}");
    }
}

#[test]
fn within_an_app_an_alias_leads_to_its_service_in_all_forms() {
    use RecordType::{A, AAAA, SRV};
    let known = known(|| NameLookup::Missing);
    let [shop, blog] = ["shop", "blog"].map(|app| AppName::new(app).unwrap());
    for (app, name, kind, expected) in [
        (Some(&shop), "database.", A, "ok 30 198.18.0.12"),
        (Some(&shop), "DATABASE.kubeleet.", A, "ok 30 198.18.0.12"),
        (Some(&shop), "database.", AAAA, "ok soa . 2"),
        (Some(&shop), "DB.internal.", A, "ok 30 198.18.0.12"),
        (Some(&shop), "db.internal.", AAAA, "ok soa . 2"),
        (Some(&shop), "idle.kubeleet.", A, "ok 30 198.18.0.7"),
        (Some(&shop), "0.idle.kubeleet.", A, "ok 30 198.18.0.8"),
        (Some(&shop), "all.idle.kubeleet.", A, "ok 5 198.18.0.9"),
        (Some(&shop), "_80._tcp.idle.kubeleet.", SRV, "ok 5 0 1 80 1.web.kubeleet."),
        (Some(&shop), "lost.kubeleet.", A, "no such name soa kubeleet. 2"),
        (Some(&blog), "database.kubeleet.", A, "no such name soa kubeleet. 2"),
        (Some(&blog), "idle.kubeleet.", A, "ok 30 198.18.0.10"),
        (None, "database.kubeleet.", A, "no such name soa kubeleet. 2"),
    ] {
        let client = Questioner { app, ..client(QuestionTransport::Udp) };
        let answer = answer_to(&question(name, kind), &client, &known);
        assert_eq!(shown(&answer), expected, "{app:?} {name}");
    }
    let elsewhere = question("db.internal.", A).to_vec().unwrap();
    assert_eq!(decide(&elsewhere, &client(QuestionTransport::Udp), &known), QuestionDecision::Forward);
}

#[test]
fn a_slot_of_a_service_of_the_app_is_not_that_of_another_service() {
    let mut known = known(|| NameLookup::Missing);
    known.addresses.insert("0.db".parse().unwrap(), PoolAddress::from_number(50).unwrap());
    let shop = AppName::new("shop").unwrap();
    let client = Questioner { app: Some(&shop), ..client(QuestionTransport::Udp) };
    let answer = answer_to(&question("0.db.kubeleet.", RecordType::A), &client, &known);
    assert_eq!(answer.metadata.response_code, ResponseCode::NXDomain, "`db` is shop-db, which has no slot 0");
}

#[test]
fn what_is_not_known_is_asked_for() {
    let known = known(|| NameLookup::NotAsked);
    let address = |name: &str| QuestionDecision::Ask(vec![Needed::Address(name.parse().unwrap())]);
    let endpoints =
        |name: &str| QuestionDecision::Ask(vec![Needed::Endpoints(ServiceName::new(name).unwrap())]);
    for (name, kind, expected) in [
        ("other.kubeleet.", RecordType::A, address("other")),
        ("other.kubeleet.", RecordType::AAAA, address("other")),
        ("5.web.kubeleet.", RecordType::A, address("5.web")),
        ("all.db.kubeleet.", RecordType::A, endpoints("db")),
        ("_1._tcp.db.kubeleet.", RecordType::SRV, endpoints("db")),
    ] {
        let bytes = question(name, kind).to_vec().unwrap();
        assert_eq!(decide(&bytes, &client(QuestionTransport::Udp), &known), expected, "{name}");
    }
}

#[test]
fn while_redis_is_away_what_is_known_is_answered_and_the_rest_fails() {
    let known = known(|| NameLookup::Unavailable);
    for (name, kind, expected) in [
        ("web.kubeleet.", RecordType::A, "ok 30 198.18.0.7"),
        ("all.web.kubeleet.", RecordType::A, "ok 5 198.18.0.9"),
        ("other.kubeleet.", RecordType::A, "failed"),
        ("all.db.kubeleet.", RecordType::A, "failed"),
        ("99.0.18.198.in-addr.arpa.", RecordType::PTR, "failed"),
    ] {
        let answer = answer_to(&question(name, kind), &client(QuestionTransport::Udp), &known);
        assert_eq!(shown(&answer), expected, "{name}");
    }
}

#[test]
fn all_pods_are_answered_in_another_order_for_each_question_and_what_is_cut_says_so() {
    let known = known(|| NameLookup::Missing);
    let ask = |random, transport, payload: Option<u16>| {
        let client = Questioner { random, ..client(transport) };
        let mut asked = question("all.big.kubeleet.", RecordType::A);
        asked.edns = payload.map(|payload| {
            let mut edns = Edns::new();
            edns.set_max_payload(payload);
            edns
        });
        let message = asked.to_vec().unwrap();
        let QuestionDecision::Answer(bytes) = decide(&message, &client, &known) else { panic!("no answer") };
        (bytes.len(), Message::from_vec(&bytes).unwrap())
    };
    for (payload, limit, fit) in [(None, 512, 29), (Some(512), 512, 29), (Some(1232), 1232, 74)] {
        let (bytes, answer) = ask(1, QuestionTransport::Udp, payload);
        assert!(bytes <= limit, "{payload:?}: {bytes}");
        assert_eq!((answer.answers.len(), answer.metadata.truncation), (fit, true), "{payload:?}");
    }
    let (_, answer) = ask(1, QuestionTransport::Tcp, None);
    assert_eq!((answer.answers.len(), answer.metadata.truncation), (300, false));
    assert_eq!(ask(1, QuestionTransport::Tcp, None).1, answer, "the same question is decided the same way");
    assert_ne!(ask(2, QuestionTransport::Tcp, None).1.answers, answer.answers);
}

#[test]
fn an_answer_that_is_too_long_for_the_client_is_cut() {
    let known = known(|| NameLookup::Missing);
    let mut asked = question("_80._tcp.big.kubeleet.", RecordType::SRV);
    for payload in [None, Some(100), Some(1232), Some(65535)] {
        asked.edns = payload.map(|payload| {
            let mut edns = Edns::new();
            edns.set_max_payload(payload);
            edns
        });
        let answer = answer_to(&asked, &client(QuestionTransport::Udp), &known);
        assert_eq!((answer.answers.len(), answer.metadata.truncation), (0, true), "{payload:?}");
        assert_eq!(answer.edns.is_some(), payload.is_some());
        let answer = answer_to(&asked, &client(QuestionTransport::Tcp), &known);
        assert_eq!((answer.answers.len(), answer.metadata.truncation), (256, false), "{payload:?}");
    }
}

#[test]
fn what_is_no_usual_question_is_refused() {
    let known = known(|| NameLookup::Missing);
    let usual = || question("web.kubeleet.", RecordType::A);
    let edited = |edit: fn(&mut Message)| {
        let mut message = usual();
        edit(&mut message);
        answer_to(&message, &client(QuestionTransport::Udp), &known).metadata.response_code
    };
    assert_eq!(edited(|message| message.metadata.op_code = OpCode::Status), ResponseCode::NotImp);
    assert_eq!(edited(|message| message.queries.clear()), ResponseCode::FormErr);
    assert_eq!(edited(|message| message.queries.push(message.queries[0].clone())), ResponseCode::FormErr);
    assert_eq!(
        edited(|message| {
            message.queries[0].set_query_class(DNSClass::CH);
        }),
        ResponseCode::Refused
    );
    let mut newer = usual();
    newer.edns = Some(Edns::new());
    newer.edns.as_mut().unwrap().set_version(1);
    let answer = answer_to(&newer, &client(QuestionTransport::Udp), &known);
    assert_eq!(answer.edns.unwrap().rcode_high(), ResponseCode::BADVERS.high());

    let mut response = usual();
    response.metadata.message_type = MessageType::Response;
    let bytes = response.to_vec().unwrap();
    assert_eq!(decide(&bytes, &client(QuestionTransport::Udp), &known), QuestionDecision::Ignore);
    assert_eq!(decide(b"short", &client(QuestionTransport::Udp), &known), QuestionDecision::Ignore);
    let cut = &usual().to_vec().unwrap()[..20];
    let QuestionDecision::Answer(bytes) = decide(cut, &client(QuestionTransport::Udp), &known) else {
        panic!("no answer")
    };
    let answer = Message::from_vec(&bytes).unwrap();
    assert_eq!((answer.metadata.id, answer.metadata.response_code), (4711, ResponseCode::FormErr));
}

fn messages() -> impl Strategy<Value = Vec<u8>> {
    let names = ["web", "all.big", "_80._tcp.big", "0.web", "x"].map(|name| format!("{name}.kubeleet."));
    let kinds = [RecordType::A, RecordType::SRV, RecordType::ANY, RecordType::OPT];
    let usual = (prop::sample::select(names.to_vec()), prop::sample::select(kinds.to_vec()))
        .prop_map(|(name, kind)| question(&name, kind).to_vec().unwrap());
    let changes = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6);
    let changed =
        (usual, changes, prop::collection::vec(any::<u8>(), 0..40)).prop_map(|(mut bytes, changes, tail)| {
            bytes.extend(tail);
            for (index, byte) in changes {
                let at = index.index(bytes.len());
                bytes[at] = byte;
            }
            bytes
        });
    prop_oneof![prop::collection::vec(any::<u8>(), 0..700), changed]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn any_bytes_are_answered_within_limits(bytes in messages(), is_tcp in any::<bool>(), random in any::<u64>()) {
        let transport = if is_tcp { QuestionTransport::Tcp } else { QuestionTransport::Udp };
        let client = Questioner { random, ..client(transport) };
        if let QuestionDecision::Answer(answer) = decide(&bytes, &client, &known(|| NameLookup::Missing)) {
            let limit = match transport {
                QuestionTransport::Tcp => usize::from(u16::MAX),
                QuestionTransport::Udp => Message::from_vec(&bytes).map_or(512, |asked| asked.max_payload().min(1232).into()),
            };
            prop_assert!(answer.len() <= limit, "{} bytes of at most {limit}", answer.len());
            let answer = Message::from_vec(&answer).unwrap();
            prop_assert_eq!(answer.metadata.message_type, MessageType::Response);
            prop_assert_eq!(answer.metadata.id.to_be_bytes(), [bytes[0], bytes[1]]);
        }
    }
}
