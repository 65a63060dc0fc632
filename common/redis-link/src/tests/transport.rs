//! Commands over a transport in place of a network.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use redis::Value;

use super::super::{Durability, Link, MessageHandler, RedisCommand, Transport, TransportConnection};
use super::{options, set};
use crate::call::ScriptCall as Call;

#[derive(Default)]
struct FakeMaster {
    connections: Mutex<Vec<Arc<FakeConnection>>>,
}

#[derive(Default)]
struct FakeConnection {
    received: Mutex<Vec<String>>,
}

impl FakeMaster {
    fn received(&self) -> Vec<Vec<String>> {
        let connections = self.connections.lock();
        connections.iter().map(|connection| connection.received.lock().clone()).collect()
    }
}

impl Transport for FakeMaster {
    fn open(&self) -> Arc<dyn TransportConnection> {
        let connection = Arc::new(FakeConnection::default());
        self.connections.lock().push(connection.clone());
        connection
    }

    fn listen(&self, _handler: MessageHandler) {}
}

impl TransportConnection for FakeConnection {
    fn send(&self, commands: Vec<RedisCommand>) -> BoxFuture<'static, io::Result<Vec<Value>>> {
        let mut received = self.received.lock();
        let reply = |command: RedisCommand| {
            let name = String::from_utf8(command[0].clone()).unwrap();
            let reply = match name.as_str() {
                "ROLE" => Value::Array(vec![Value::BulkString(b"master".to_vec())]),
                "INFO" => Value::BulkString(b"role:master\r\n".to_vec()),
                "EVALSHA" => Value::Int(1),
                _ => Value::Okay,
            };
            received.push(name);
            reply
        };
        let replies = commands.into_iter().map(reply).collect();
        async { Ok(replies) }.boxed()
    }
}

#[tokio::test]
async fn durable_writes_over_a_transport_have_connections_of_their_own() {
    let master = Arc::new(FakeMaster::default());
    let url = "redis://transport.invalid".parse().unwrap();
    let link = Link::with_transport(master.clone(), url, options());
    set(&link, "a", "1").await.unwrap();
    let script = redis::Script::new("return 1");
    for _ in 0..2 {
        let call = Call::unnamed(script.prepare_invoke());
        let written = link.durable_script(&call, Duration::from_secs(1)).await.unwrap();
        assert_eq!(written, (Value::Int(1), Durability::SingleMachine));
    }
    let received = master.received();
    assert_eq!(received.len(), 3);
    assert_eq!(received[0][..3], ["PING", "ROLE", "SET"]);
    for write in &received[1..] {
        assert_eq!(*write, ["PING", "ROLE", "EVALSHA", "INFO"]);
    }
}
