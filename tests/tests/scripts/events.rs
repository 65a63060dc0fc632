//! The same event of many pods is one entry of the stream; readers see one event for each pod.

use kubeleet_tests::Fixture;
use model::event::ObjectKind;

#[tokio::test]
async fn a_batch_event_is_read_as_one_event_for_each_pod() {
    let fixture = Fixture::new().await;
    let session = fixture.node("w1").await;
    fixture.service("web", 300).await;
    fixture.assign_all(&session).await;
    let entries: usize = fixture.redis.cli(&["XLEN", "events"]).await;
    assert!(entries < 10, "{entries}");

    let all = fixture.store.events_after("0", 1000).await.unwrap();
    let of = |reason: &str| all.iter().filter(|event| event.reason == reason).collect::<Vec<_>>();
    let (created, scheduled) = (of("PodCreated"), of("PodScheduled"));
    assert_eq!((created.len(), scheduled.len()), (300, 300));
    assert!(created.iter().all(|event| event.kind == ObjectKind::Pod && event.node.is_empty()));
    assert_eq!(created[0].message, "replica 0 waits for a node");
    let first = scheduled[0];
    let words = (first.name.as_str(), first.node.as_str(), first.phase.as_str(), first.message.as_str());
    assert_eq!(words, ("web", "w1", "assigned", "assigned to w1"));
    assert!(all.windows(2).all(|pair| pair[0].position() < pair[1].position()), "in the order of the stream");
    assert_eq!(fixture.store.last_events(7).await.unwrap(), all[all.len() - 7..]);
}

#[tokio::test]
async fn reading_continues_within_a_batch_event() {
    let fixture = Fixture::new().await;
    fixture.service("web", 40).await;
    let all = fixture.store.events_after("0", 1000).await.unwrap();
    let mut read = Vec::new();
    let mut last = "0".to_owned();
    loop {
        let page = fixture.store.events_after(&last, 7).await.unwrap();
        let Some(event) = page.last() else { break };
        last.clone_from(&event.id);
        read.extend(page);
    }
    assert_eq!(read, all);
    assert!(fixture.store.events_after("no id", 1).await.is_err());
}

#[tokio::test]
async fn the_stream_is_bounded_however_long_its_entries() {
    let fixture = Fixture::new().await;
    let line = format!("{} web w1 assigned to w1\\n", uuid_like());
    // As if thousands of full batches had been written already.
    let fill = format!(
        "local lines = string.rep('{line}', 250)
         for i = 1, 4000 do
           redis.call('XADD', 'events', '*', 'kind', 'pods', 'reason', 'R', 'phase', '', 'pods', lines)
         end"
    );
    let () = fixture.redis.cli(&["EVAL", &fill, "0"]).await;
    fixture.service("web", 5000).await;
    let kept: usize = fixture.redis.cli(&["XLEN", "events"]).await;
    assert!(kept < 1500, "{kept}");
}

fn uuid_like() -> String {
    "x".repeat(36)
}
