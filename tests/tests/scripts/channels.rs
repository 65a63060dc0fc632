//! Session channels: data of both sides arrives once and in order, and nothing is left behind.

use std::time::Duration;

use bytes::Bytes;
use kubeleet_tests::Fixture;
use kubeleet_tests::fixture::{Placed, node};
use model::ids::RequestId;
use model::pod::lifecycle::Phase;
use model::stream::channel::{Frame, Purpose, TerminalSize, WINDOW};
use store::{Channel, ChannelError, ChannelOutcome, ConnectRequest, NodeQuestion, NodeRequest};
use testkit::eventually;

fn id(id: &str) -> RequestId {
    RequestId::new(id).unwrap()
}

fn connect(placed: &Placed) -> ConnectRequest {
    let command = vec!["sh".to_owned(), "secret".to_owned()];
    let purpose = Purpose::Exec { command, tty: false, stdin: true, size: None };
    ConnectRequest { pod: placed.record.id.clone(), container: None, purpose }
}

fn request(placed: &Placed, name: &str) -> NodeRequest {
    NodeRequest { id: id(name), question: NodeQuestion::Connect(connect(placed)) }
}

async fn leave(fixture: &Fixture, placed: &Placed, name: &str, is_quiet: bool) -> ChannelOutcome {
    let connect = connect(placed);
    fixture.store.request_channel(&node("w1"), &id(name), &connect, "begun", is_quiet).await.unwrap()
}

async fn open(fixture: &Fixture, placed: &Placed, name: &str) -> (Channel, Channel) {
    let request = request(placed, name);
    assert_eq!(leave(fixture, placed, name, false).await, ChannelOutcome::Requested);
    let client = fixture.store.client_channel(&request.id);
    assert_eq!(fixture.store.take_requests(&node("w1")).await.unwrap(), std::slice::from_ref(&request));
    let worker = fixture.store.accept_channel(&request).await.unwrap().unwrap();
    (client, worker)
}

async fn keys_of(fixture: &Fixture, id: &str) -> Vec<String> {
    let mut keys: Vec<String> = fixture.redis.cli(&["KEYS", &format!("x?:{id}")]).await;
    keys.sort();
    keys
}

#[tokio::test]
async fn frames_arrive_in_order_in_both_directions_and_nothing_is_left() {
    let fixture = Fixture::new().await;
    let placed = fixture.pod_in(Phase::Running, "web", "w1").await;
    let (mut client, mut worker) = open(&fixture, &placed, "c1").await;
    client.reader.answered().await;
    let resize = Frame::Resize(TerminalSize { columns: 120, rows: 40 });
    for frame in [Frame::Input(Bytes::from_static(b"\0ls\n")), resize, Frame::EndOfInput] {
        client.writer.send(frame.clone()).await.unwrap();
        assert_eq!(worker.reader.next().await.unwrap().0, frame);
    }
    // More than fits unread.
    let data = Bytes::from((0..3 * WINDOW as usize).map(|n| (n % 251) as u8).collect::<Vec<_>>());
    let sent = data.clone();
    let sending = tokio::spawn(async move {
        worker.writer.send_data(sent, Frame::Output).await.unwrap();
        worker.writer.finish(Frame::Exit(3)).await.unwrap();
        worker
    });
    let mut received = Vec::new();
    let code = loop {
        match client.reader.next().await.unwrap().0 {
            Frame::Output(data) => received.extend_from_slice(&data),
            Frame::Exit(code) => break code,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!((code, received == data), (3, true));
    drop(sending.await.unwrap());
    drop(client);
    let pod = &placed.record.id;
    fixture.store.close_channel(&id("c1"), pod, true, "ended: exit code 3").await.unwrap();
    fixture.store.close_channel(&id("c1"), pod, false, "not written").await.unwrap();
    assert_eq!(keys_of(&fixture, "c1").await, Vec::<String>::new());
    let events = fixture.store.last_events(2).await.unwrap();
    let said: Vec<_> = events.iter().map(|event| (event.reason.as_str(), event.message.as_str())).collect();
    assert_eq!(said, [("ExecStarted", "begun"), ("ExecEnded", "ended: exit code 3")]);
}

#[tokio::test]
async fn a_reader_that_stops_reading_makes_its_writer_wait_and_redis_grows_no_further() {
    let fixture = Fixture::new().await;
    let placed = fixture.pod_in(Phase::Running, "web", "w1").await;
    let (mut client, mut worker) = open(&fixture, &placed, "c1").await;
    let data = Bytes::from(vec![7; 8 * WINDOW as usize]);
    let sending = worker.writer.send_data(data, Frame::Output);
    assert!(tokio::time::timeout(Duration::from_secs(1), sending).await.is_err(), "nothing was read");
    let used: usize = fixture.redis.cli(&["MEMORY", "USAGE", "xo:c1", "SAMPLES", "0"]).await;
    assert!(used < 2 * WINDOW as usize, "{used} bytes are in Redis");
    client.writer.send(Frame::EndOfInput).await.unwrap();
    assert_eq!(worker.reader.next().await.unwrap().0, Frame::EndOfInput);
    let mut read = 0;
    while read < WINDOW {
        let (frame, _receipt) = client.reader.next().await.unwrap();
        read += frame.cost();
    }
    worker.writer.send(Frame::Started).await.unwrap();
}

#[tokio::test]
async fn every_key_of_a_channel_expires() {
    let fixture = Fixture::new().await;
    let placed = fixture.pod_in(Phase::Running, "web", "w1").await;
    assert_eq!(leave(&fixture, &placed, "c0", false).await, ChannelOutcome::Requested);
    let waiting: i64 = fixture.redis.cli(&["TTL", "xr:w1"]).await;
    assert!((1..=60).contains(&waiting));
    let _taken = fixture.store.take_requests(&node("w1")).await.unwrap();
    let (mut client, worker) = open(&fixture, &placed, "c1").await;
    client.writer.finish(Frame::EndOfInput).await.unwrap();
    client.reader.answered().await;
    let keys = keys_of(&fixture, "c1").await;
    assert_eq!(keys, ["xi:c1", "xo:c1", "xs:c1"]);
    for key in keys {
        let seconds: i64 = fixture.redis.cli(&["TTL", &key]).await;
        assert!((1..=60).contains(&seconds), "{key} expires in {seconds} s");
    }
    drop(worker);
}

#[tokio::test]
async fn a_request_whose_client_has_left_is_not_served() {
    let fixture = Fixture::new().await;
    let placed = fixture.pod_in(Phase::Running, "web", "w1").await;
    leave(&fixture, &placed, "c1", false).await;
    fixture.store.close_channel(&id("c1"), &placed.record.id, false, "no answer").await.unwrap();
    assert!(fixture.store.accept_channel(&request(&placed, "c1")).await.unwrap().is_none());
    let () = fixture.redis.cli(&["HSET", &format!("pod:{}", placed.record.id), "node", "w2"]).await;
    assert_eq!(leave(&fixture, &placed, "c1", false).await, ChannelOutcome::PodGone);
}

#[tokio::test]
async fn a_worker_that_takes_no_requests_gets_no_endless_list() {
    let fixture = Fixture::new().await;
    let placed = fixture.pod_in(Phase::Running, "web", "w1").await;
    let mut outcomes = Vec::new();
    for n in 0..102 {
        outcomes.push(leave(&fixture, &placed, &format!("c{n}"), true).await);
    }
    let requested = outcomes.iter().filter(|outcome| **outcome == ChannelOutcome::Requested).count();
    assert_eq!((requested, outcomes[101]), (100, ChannelOutcome::Busy));
    let events = fixture.store.last_events(10).await.unwrap();
    assert!(events.iter().all(|event| event.reason != "ExecStarted"), "quiet ones are no events: {events:?}");
}

#[tokio::test]
async fn frames_that_are_lost_end_the_channel() {
    let fixture = Fixture::new().await;
    let placed = fixture.pod_in(Phase::Running, "web", "w1").await;
    let (client, mut worker) = open(&fixture, &placed, "c1").await;
    eventually("the client has written", || async { fixture.redis.cli::<u64>(&["XLEN", "xi:c1"]).await > 0 })
        .await;
    drop(client);
    // As after a failover that has lost entries.
    let () = fixture.redis.cli(&["XADD", "xi:c1", "77-0", "f", "\u{5}"]).await;
    let error = loop {
        match worker.reader.next().await {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert_eq!(error, ChannelError::Lost);
    assert_eq!(worker.writer.send(Frame::Started).await, Err(ChannelError::Lost));
}

/// Takes 20 s of real time: the time after which a side counts as gone.
#[tokio::test]
async fn a_side_that_is_gone_is_noticed_by_the_other() {
    let fixture = Fixture::new().await;
    let placed = fixture.pod_in(Phase::Running, "web", "w1").await;
    let (client, mut worker) = open(&fixture, &placed, "c1").await;
    client.reader.answered().await;
    drop(client);
    let ended = tokio::time::timeout(Duration::from_secs(40), worker.reader.next()).await.unwrap();
    assert!(matches!(ended, Err(ChannelError::PeerGone)));
}
