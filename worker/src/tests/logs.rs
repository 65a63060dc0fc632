//! Logs on demand.

use std::cell::RefCell;

use common::lifecycle::Phase;
use common::store::{LogChunk, LogRequest};

use super::rig::{Rig, eventually, id, payload};

async fn read(rig: &Rig, pod: &str, request: &str) -> Vec<LogChunk> {
    let wanted = LogRequest { id: request.to_owned(), pod: id(pod), tail: 10, follow: false };
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
async fn output_is_written_while_somebody_reads() {
    let Some(rig) = Rig::new("output_is_written_while_somebody_reads") else { return };
    let worker = rig.worker();
    rig.push(&payload("p", "alpine"));
    rig.until("p", Phase::Running).await;
    let chunks = read(&rig, "p", "r1").await;
    assert!(matches!(chunks.first(), Some(LogChunk::Output(_))), "{chunks:?}");
    assert_eq!(chunks.last(), Some(&LogChunk::End(String::new())));

    let chunks = read(&rig, "nobody", "r2").await;
    assert!(matches!(chunks.as_slice(), [LogChunk::End(why)] if why.contains("nobody")), "{chunks:?}");
    worker.end().await.unwrap();
}
