//! Usage: nodes measure while a client asks, and one report serves all clients.

use kubeleet_tests::Fixture;
use model::ids::NodeName;
use model::node::usage::{MachineUsage, UsageReport};
use store::channel;

fn node(name: &str) -> NodeName {
    NodeName::new(name).unwrap()
}

fn report(cores: u64) -> UsageReport {
    let machine = MachineUsage { cpu_total_millis: cores * 1000, ..MachineUsage::default() };
    UsageReport { machine, ..UsageReport::default() }
}

#[tokio::test]
async fn a_look_wakes_workers_once_and_expires() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let (one, other) = (node("w1"), node("w2"));
    let mut wakeups = store.subscribe(channel::USAGE);
    // A worker reads the state once the subscription has taken effect.
    assert!(wakeups.next().await.is_empty());
    assert!(!store.is_usage_wanted(&one).await.unwrap());
    assert!(store.look_at_usage(Some(&one)).await.unwrap());
    assert!(!store.look_at_usage(Some(&one)).await.unwrap(), "not new");
    assert!(store.is_usage_wanted(&one).await.unwrap());
    assert!(!store.is_usage_wanted(&other).await.unwrap());
    assert!(store.look_at_usage(None).await.unwrap());
    assert!(store.is_usage_wanted(&other).await.unwrap());
    let mut messages = Vec::new();
    while messages.len() < 2 {
        let message = wakeups.next().await;
        // A new connection reports once more that something may have been missed.
        messages.extend((!message.is_empty()).then_some(message));
    }
    assert_eq!(messages, ["w1", "*"]);
    for key in ["usage_wanted", "usage_wanted:w1"] {
        let left: i64 = fixture.redis.cli(&["TTL", key]).await;
        assert!((1..=15).contains(&left), "{key} expires in {left} s");
    }
}

#[tokio::test]
async fn reports_are_read_together_and_an_unreadable_one_harms_no_other() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let nodes = ["w1", "w2", "w3", "w4"].map(node);
    assert!(!store.write_usage(&nodes[0], &report(4)).await.unwrap(), "no client asks");
    store.look_at_usage(Some(&nodes[2])).await.unwrap();
    assert!(store.write_usage(&nodes[2], &report(8)).await.unwrap());
    let _: String = fixture.redis.cli(&["SET", "usage:w2", "no json"]).await;
    let _: i64 = fixture.redis.cli(&["LPUSH", "usage:w4", "of another type"]).await;
    let read = store.usage_of(&nodes).await.unwrap();
    assert_eq!(read, [Some(report(4)), None, Some(report(8)), None]);
    let left: i64 = fixture.redis.cli(&["TTL", "usage:w1"]).await;
    assert!((1..=15).contains(&left), "{left}");
    store.write_usage(&nodes[3], &report(1)).await.unwrap();
    assert_eq!(store.usage_of(&nodes[3..]).await.unwrap(), [Some(report(1))], "written in its place");
}
