//! What happened to many pods in one step is one entry of the stream, and an event for each pod to whoever reads it.

use common::event::ObjectKind;
use kubeleet_tests::Bed;

#[tokio::test]
async fn an_entry_for_many_pods_is_an_event_for_each() {
    let bed = Bed::new().await;
    let session = bed.node("w1").await;
    bed.service("web", 300).await;
    bed.assign_all(&session).await;
    let entries: usize = bed.redis.cli(&["XLEN", "events"]).await;
    assert!(entries < 10, "{entries}");

    let all = bed.store.events_after("0", 1000).await.unwrap();
    let of = |reason: &str| all.iter().filter(|event| event.reason == reason).collect::<Vec<_>>();
    let (created, scheduled) = (of("PodCreated"), of("PodScheduled"));
    assert_eq!((created.len(), scheduled.len()), (300, 300));
    assert!(created.iter().all(|event| event.kind == ObjectKind::Pod && event.node.is_empty()));
    assert_eq!(created[0].message, "replica 0 waits for a node");
    let first = scheduled[0];
    let words = (first.name.as_str(), first.node.as_str(), first.phase.as_str(), first.message.as_str());
    assert_eq!(words, ("web", "w1", "assigned", "given to w1"));
    assert!(all.windows(2).all(|pair| pair[0].place() < pair[1].place()), "in their order");
    assert_eq!(bed.store.last_events(7).await.unwrap(), all[all.len() - 7..]);
}

#[tokio::test]
async fn reading_goes_on_within_an_entry() {
    let bed = Bed::new().await;
    bed.service("web", 40).await;
    let all = bed.store.events_after("0", 1000).await.unwrap();
    let mut read = Vec::new();
    let mut last = "0".to_owned();
    loop {
        let page = bed.store.events_after(&last, 7).await.unwrap();
        let Some(event) = page.last() else { break };
        last.clone_from(&event.id);
        read.extend(page);
    }
    assert_eq!(read, all);
    assert!(bed.store.events_after("no id", 1).await.is_err());
}

#[tokio::test]
async fn however_long_the_entries_what_is_kept_is_bounded() {
    let bed = Bed::new().await;
    let line = format!("{} web w1 given to w1\\n", uuid_like());
    // As if thousands of full batches had been told already.
    let fill = format!(
        "for i = 1, 4000 do redis.call('XADD', 'events', '*', 'kind', 'pods', 'reason', 'R', 'phase', '', 'pods', string.rep('{line}', 250)) end"
    );
    let () = bed.redis.cli(&["EVAL", &fill, "0"]).await;
    bed.service("web", 5000).await;
    let kept: usize = bed.redis.cli(&["XLEN", "events"]).await;
    assert!(kept < 1500, "{kept}");
}

fn uuid_like() -> String {
    "x".repeat(36)
}
