//! Commands to a working server.

use std::time::{Duration, Instant};

use redis::Value;
use testkit::{Redis, need_redis};

use super::{get, link, set};
use crate::call::ScriptCall as Call;
use crate::error::StoreError;

#[tokio::test]
async fn commands_and_pipelines_carry_any_bytes() {
    need_redis!();
    let server = Redis::start().await;
    let link = link(&format!("{}/3", server.url()));
    set(&link, "key", "value").await.unwrap();
    assert_eq!(get(&link, "key").await, Some(b"value".to_vec()));

    let bytes = b"\xff\x00not text\r\n".to_vec();
    let mut pipe = redis::pipe();
    pipe.cmd("SET").arg("bytes").arg(&bytes).ignore().cmd("GET").arg("bytes").cmd("DBSIZE");
    let (back, size): (Vec<u8>, u64) = link.pipeline(&pipe).await.unwrap();
    assert_eq!((back, size), (bytes, 2));

    let in_database: u64 = server.cli(&["DBSIZE"]).await;
    assert_eq!(in_database, 0, "the database of the URL is 3");
}

#[tokio::test]
async fn a_script_that_redis_does_not_know_is_loaded_again() {
    need_redis!();
    let server = Redis::start().await;
    let link = link(&server.url());
    let script = redis::Script::new("return redis.call('INCR', KEYS[1])");
    let mut invocation = Call::unnamed(script.prepare_invoke());
    invocation.key("counter");
    for expected in 1..4 {
        assert_eq!(link.script(&invocation).await.unwrap(), Value::Int(expected));
        let _: Value = server.cli(&["SCRIPT", "FLUSH"]).await;
    }
}

#[tokio::test]
async fn errors_of_the_server_keep_the_connection() {
    need_redis!();
    let server = Redis::start().await;
    let link = link(&server.url());
    set(&link, "text", "abc").await.unwrap();
    let generation = super::generation(&link);

    let popped = link.query::<Value>(redis::cmd("LPOP").arg("text")).await;
    assert!(matches!(popped, Err(StoreError::WrongType { .. })), "{popped:?}");
    let script = redis::Script::new("return redis.call('LPOP', KEYS[1])");
    let popped = link.script(&Call::unnamed(script.key("text"))).await;
    assert!(matches!(popped, Err(StoreError::WrongType { .. })), "{popped:?}");
    let number = link.query::<u64>(redis::cmd("GET").arg("text")).await;
    assert!(matches!(number, Err(StoreError::Corrupt { .. })), "{number:?}");
    let unknown = link.query::<Value>(&redis::cmd("NOSUCHCOMMAND")).await.unwrap_err();
    assert!(
        matches!(&unknown, StoreError::Refused(text) if text.starts_with("ERR unknown command")),
        "{unknown:?}"
    );
    let mut pipe = redis::pipe();
    pipe.cmd("GET").arg("text").cmd("LPOP").arg("text");
    let piped = link.pipeline::<Value>(&pipe).await;
    assert!(matches!(piped, Err(StoreError::WrongType { .. })), "{piped:?}");

    assert_eq!(get(&link, "text").await, Some(b"abc".to_vec()));
    assert_eq!(super::generation(&link), generation);
}

#[tokio::test]
async fn a_wrong_password_fails_at_once_and_is_not_shown() {
    need_redis!();
    let server = Redis::start_with(&["--requirepass", "right"]).await;
    for (login, code) in [(":wrong@", "WRONGPASS"), ("", "NOAUTH")] {
        let link = link(&format!("redis://{login}127.0.0.1:{}", server.port()));
        let error = set(&link, "a", "b").await.unwrap_err();
        assert!(matches!(&error, StoreError::Refused(text) if text.starts_with(code)), "{error:?}");
        assert!(error.needs_operator());
        assert!(!format!("{error:?} {error} {link:?}").contains("wrong@"));
    }
    set(&link(&format!("redis://:right@127.0.0.1:{}", server.port())), "a", "b").await.unwrap();
    let _: Value = link(&format!("redis://:right@127.0.0.1:{}", server.port()))
        .query(redis::cmd("ACL").arg(&["SETUSER", "kube", "on", ">p@ss", "+@all", "~*", "&*"]))
        .await
        .unwrap();
    set(&link(&format!("redis://kube:p%40ss@127.0.0.1:{}", server.port())), "a", "b").await.unwrap();
}

#[tokio::test]
async fn a_dedicated_connection_can_block_beyond_the_response_timeout() {
    need_redis!();
    let server = Redis::start().await;
    let link = link(&server.url());
    let mut own = link.dedicated(Duration::from_secs(7)).await.unwrap();
    let mut pop = redis::cmd("BRPOPLPUSH");
    pop.arg("from").arg("to").arg(2);
    let start = Instant::now();
    let nothing: Option<Vec<u8>> = own.query(&pop).await.unwrap();
    assert_eq!(nothing, None);
    assert!(start.elapsed() >= Duration::from_secs(2) - Duration::from_millis(100));

    let (popped, _) = tokio::join!(own.query::<Option<Vec<u8>>>(&pop), async {
        link.query::<u64>(redis::cmd("LPUSH").arg("from").arg("pod")).await.unwrap()
    });
    assert_eq!(popped.unwrap(), Some(b"pod".to_vec()));
}

#[tokio::test]
async fn a_dropped_future_closes_the_dedicated_connection() {
    need_redis!();
    let server = Redis::start().await;
    let link = link(&server.url());
    let mut own = link.dedicated(Duration::from_secs(7)).await.unwrap();
    let mut pop = redis::cmd("BRPOPLPUSH");
    pop.arg("from").arg("to").arg(2);
    let dropped = tokio::time::timeout(Duration::from_millis(100), own.query::<Value>(&pop)).await;
    assert!(dropped.is_err());

    let again = own.query::<Value>(&redis::cmd("PING")).await;
    assert!(matches!(again, Err(StoreError::Unreachable { .. })), "{again:?}");
    super::eventually("the server closes the connection of the dropped pop", async || {
        let clients: String = server.cli(&["CLIENT", "LIST"]).await;
        (!clients.contains("cmd=brpoplpush")).then_some(())
    })
    .await;
    let _: u64 = link.query(redis::cmd("LPUSH").arg("from").arg("pod")).await.unwrap();
    let left: u64 = link.query(redis::cmd("LLEN").arg("from")).await.unwrap();
    assert_eq!(left, 1, "a dropped pop must not take an element");
}

#[tokio::test]
async fn an_error_closes_the_dedicated_connection() {
    need_redis!();
    let server = Redis::start().await;
    let link = link(&server.url());
    set(&link, "text", "abc").await.unwrap();
    let mut own = link.dedicated(Duration::from_secs(7)).await.unwrap();
    let wrong = own.query::<Value>(redis::cmd("LPOP").arg("text")).await;
    assert!(matches!(wrong, Err(StoreError::WrongType { .. })));
    assert!(own.query::<Value>(&redis::cmd("PING")).await.is_err());
    assert!(link.dedicated(Duration::from_secs(7)).await.is_ok());
}
