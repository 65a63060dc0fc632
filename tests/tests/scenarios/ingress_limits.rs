//! Refusals of a real proxy's ingress, and their log lines.

use std::time::Duration;

use kubeleet_tests::exclusive::beside_others;
use kubeleet_tests::ports::free_port;
use kubeleet_tests::{Cluster, ClusterTiming};
use testkit::eventually::{check, eventually_within};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::SOON;

async fn is_closed(connection: &mut TcpStream) -> bool {
    timeout(Duration::from_millis(300), connection.read(&mut [0])).await.is_ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_has_as_many_connections_as_its_setting_says_and_the_log_names_it() {
    let _lock = beside_others().await;
    let cluster = Cluster::new(ClusterTiming::Short).await;
    let listen = format!("127.0.0.1:{}", free_port());
    let settings = [("KUBELEET_INGRESS_LISTEN", listen.as_str()), ("KUBELEET_CLIENT_CONNECTIONS", "2")];
    let proxy = cluster.proxy(&cluster.folder().join("host"), &settings);

    // The proxy may still count the connections of the last try.
    eventually_within(SOON, "the third connection is refused, and no other", || async {
        let mut closed = Vec::new();
        let mut held = Vec::new();
        for _ in 0..3 {
            let mut connection = TcpStream::connect(&listen).await.map_err(|e| e.to_string())?;
            closed.push(is_closed(&mut connection).await);
            held.push(connection);
        }
        check(closed == [false, false, true], || format!("closed: {closed:?}"))
    })
    .await;
    let log = proxy.log();
    for expected in ["2 connections of 127.0.0.1", "KUBELEET_TRUSTED_PROXIES", "KUBELEET_CLIENT_CONNECTIONS"]
    {
        assert!(log.contains(expected), "{expected}: {log}");
    }
}
