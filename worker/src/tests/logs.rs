//! Tests of logs on demand.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use engine::process::ProcessRuntime;
use engine::sim::SimOptions;
use model::pod::lifecycle::Phase;
use store::{LinesRequest, LogChunk, LogRequest, LoggedPod};

use super::rig::{Rig, eventually, id, payload, payload_with};
use crate::answer::log_throttle::MAX_READERS;

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
async fn a_reader_learns_that_the_engine_does_not_answer() {
    let options = SimOptions { deadline: Duration::from_millis(300), ..SimOptions::default() };
    let Some(rig) = Rig::with_engine("a_reader_learns_of_the_engine", options) else { return };
    let worker = rig.worker();
    rig.push(&payload("p", "alpine"));
    rig.until("p", Phase::Running).await;
    rig.engine.hang(true);
    let pod = LoggedPod { id: id("p"), name: "p-0".to_owned() };
    let wanted = LinesRequest { id: "r".to_owned(), pods: vec![pod], ..LinesRequest::default() };
    rig.store.request_lines(&rig.node(), &wanted).await.unwrap();
    eventually("the answer says why", || async {
        let (chunks, _) = rig.store.read_log("r", "0").await.unwrap();
        let text = |chunk: &LogChunk| match chunk {
            LogChunk::Output(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            LogChunk::End(_) => String::new(),
        };
        let said: String = chunks.iter().map(text).collect();
        said.contains("cannot be read: the engine does not answer")
    })
    .await;
    rig.engine.hang(false);
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

#[tokio::test]
async fn a_node_answers_few_readers_of_logs_at_a_time_and_tells_the_next_one() {
    let Some(rig) = Rig::new("too_many_readers") else { return };
    let folder = tempfile::tempdir().unwrap();
    let worker = rig.worker_on(Arc::new(ProcessRuntime::new(folder.path().to_owned())));
    rig.push(&payload_with("p", "none", r#""command":["/bin/sleep","60"]"#));
    rig.until("p", Phase::Running).await;
    let ask = async |request: &str| {
        let (id, pod) = (request.to_owned(), id("p"));
        let wanted = LogRequest { id, pod, container: None, tail: 10, follow: true };
        rig.store.request_logs(&rig.node(), &wanted).await.unwrap();
    };
    let end = async |request: &str| {
        let (chunks, _) = rig.store.read_log(request, "0").await.unwrap();
        chunks.into_iter().find_map(|chunk| if let LogChunk::End(why) = chunk { Some(why) } else { None })
    };
    // One request too many: it does not matter which one is refused.
    let requests: Vec<String> = (0..=MAX_READERS).map(|number| format!("r{number}")).collect();
    for request in &requests {
        ask(request).await;
    }
    let ended = async || {
        let mut ended = Vec::new();
        for request in &requests {
            ended.extend(end(request).await);
        }
        ended
    };
    eventually("one of them is refused", || async { !ended().await.is_empty() }).await;
    let refused = ended().await;
    let expected = format!("answers {MAX_READERS} log requests already; try again");
    assert!(matches!(refused.as_slice(), [why] if why.contains(&expected)), "{refused:?}");
    rig.stop("p").await;
    rig.until("p", Phase::Stopped).await;
    eventually("the others ended with the pod", || async { ended().await.len() == requests.len() }).await;
    worker.end().await.unwrap();
}
