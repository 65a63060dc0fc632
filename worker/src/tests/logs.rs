//! Tests of logs on demand.

use std::cell::RefCell;

use common::lifecycle::Phase;
use common::store::{LogChunk, LogRequest};

use super::rig::{Rig, eventually, id, payload};

async fn read(rig: &Rig, pod: &str, request: &str) -> Vec<LogChunk> {
    let wanted =
        LogRequest { id: request.to_owned(), pod: id(pod), container: None, tail: 10, follow: false };
    rig.store.request_logs(&rig.node(), &wanted).await.unwrap();
    let read = RefCell::new((Vec::new(), "0".to_owned()));
    eventually("the answer ends", || async {
        let last = read.borrow().1.clone();
        let (chunks, last) = rig.store.read_log(request, &last).await.unwrap();
        let mut read = read.borrow_mut();
        read.0.extend(chunks);
        read.1 = last;
        matches!(read.0.last(), Some(LogChunk::End(_)))
    })
    .await;
    read.into_inner().0
}

#[tokio::test]
async fn output_is_written_while_it_is_read() {
    let Some(rig) = Rig::new("output_is_written_while_it_is_read") else { return };
    let worker = rig.worker();
    rig.push(&payload("p", "alpine"));
    rig.until("p", Phase::Running).await;
    let chunks = read(&rig, "p", "r1").await;
    assert!(matches!(chunks.first(), Some(LogChunk::Output(_))), "{chunks:?}");
    assert_eq!(chunks.last(), Some(&LogChunk::End(String::new())));

    let chunks = read(&rig, "unknown-pod", "r2").await;
    assert!(matches!(chunks.as_slice(), [LogChunk::End(why)] if why.contains("unknown-pod")), "{chunks:?}");
    worker.end().await.unwrap();
}

#[tokio::test]
async fn a_slow_reader_learns_what_was_skipped_and_leaves_nothing_that_it_has_read() {
    let Some(rig) = Rig::new("a_slow_reader") else { return };
    let store = &rig.store;
    let wanted = LogRequest { id: "r".to_owned(), pod: id("p"), container: None, tail: 10, follow: true };
    store.request_logs(&rig.node(), &wanted).await.unwrap();
    let chunk = vec![b'y'; 1000];
    let write = async |chunks: std::ops::RangeInclusive<u64>| {
        for n in chunks {
            assert!(store.write_log_output("r", &chunk, n * 1000).await.unwrap());
        }
    };
    write(1..=10).await;
    let (chunks, last) = store.read_log("r", "0").await.unwrap();
    assert_eq!(chunks.len(), 10, "nothing was skipped");
    let (chunks, last) = store.read_log("r", &last).await.unwrap();
    assert_eq!(chunks, []);
    assert!(store.unread_log_chunks("r").await.unwrap().unwrap() <= 1, "what was read is gone");
    write(11..=1500).await;
    assert!(store.unread_log_chunks("r").await.unwrap().unwrap() < 700, "the answer is bounded");
    let (chunks, _) = store.read_log("r", &last).await.unwrap();
    let LogChunk::Output(mark) = &chunks[0] else { panic!("{chunks:?}") };
    let mark = String::from_utf8_lossy(mark);
    assert!(mark.contains("bytes skipped"), "{mark}");
}
