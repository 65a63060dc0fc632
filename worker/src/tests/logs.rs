//! Tests of logs on demand.

use std::sync::Arc;
use std::time::Duration;

use engine::process::ProcessRuntime;
use engine::sim::SimOptions;
use futures_util::future::join_all;
use model::pod::lifecycle::Phase;
use model::stream::channel::Frame;
use store::{LinesRequest, LogRequest, LoggedPod, NodeAnswer, NodeQuestion};

use super::rig::{Rig, eventually, id, payload, payload_with};
use crate::answer::log_writer::MAX_READERS;

async fn ask(rig: &Rig, pod: &str, follow: bool) -> NodeAnswer {
    let wanted = LogRequest { pod: id(pod), container: None, tail: 10, follow };
    rig.store.ask(&rig.node(), NodeQuestion::Output(wanted)).await.unwrap()
}

async fn read(mut answer: NodeAnswer) -> Vec<Frame> {
    let mut frames = Vec::new();
    while !frames.last().is_some_and(Frame::is_last) {
        let frame = tokio::time::timeout(Duration::from_secs(20), answer.next()).await;
        frames.push(frame.expect("the answer ends").unwrap());
    }
    frames
}

#[tokio::test]
async fn output_is_written_while_it_is_read() {
    let Some(rig) = Rig::new("output_is_written_while_it_is_read") else { return };
    let worker = rig.worker();
    rig.push(&payload("p", "alpine"));
    rig.until("p", Phase::Running).await;
    let frames = read(ask(&rig, "p", false).await).await;
    assert!(matches!(frames.first(), Some(Frame::Output(_))), "{frames:?}");
    assert_eq!(frames.last(), Some(&Frame::Exit(0)));

    let frames = read(ask(&rig, "unknown-pod", false).await).await;
    assert!(matches!(frames.as_slice(), [Frame::Failed(why)] if why.contains("unknown-pod")), "{frames:?}");
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
    let wanted = LinesRequest { pods: vec![pod], ..LinesRequest::default() };
    let answer = rig.store.ask(&rig.node(), NodeQuestion::Lines(wanted)).await.unwrap();
    let frames = read(answer).await;
    let text = |frame: &Frame| match frame {
        Frame::Output(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        _ => String::new(),
    };
    let said: String = frames.iter().map(text).collect();
    assert!(said.contains("cannot be read: the engine does not answer"), "{said}");
    rig.engine.hang(false);
    worker.end().await.unwrap();
}

#[tokio::test]
async fn a_slow_reader_misses_nothing_and_leaves_nothing_that_it_has_read() {
    let Some(rig) = Rig::new("a_slow_reader") else { return };
    let folder = tempfile::tempdir().unwrap();
    let worker = rig.worker_on(Arc::new(ProcessRuntime::new(folder.path().to_owned())));
    let script = r#""command":["/bin/sh","-c","seq 400000; sleep 60"]"#;
    rig.push(&payload_with("p", "none", script));
    rig.until("p", Phase::Running).await;
    let wanted = LogRequest { pod: id("p"), container: None, tail: 1_000_000, follow: true };
    let mut answer = rig.store.ask(&rig.node(), NodeQuestion::Output(wanted)).await.unwrap();
    // The worker waits for its reader long before 2.7 MB.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let used = || -> usize {
        let keys: Vec<String> = rig.redis.blocking_cli(&["KEYS", "xo:*"]);
        keys.iter()
            .map(|key| rig.redis.blocking_cli::<usize>(&["MEMORY", "USAGE", key, "SAMPLES", "0"]))
            .sum()
    };
    let unread = used();
    assert!((1..3 << 20).contains(&unread), "the answer is bounded: {unread} bytes");
    let mut output = Vec::new();
    while !output.ends_with(b"\n400000\n") {
        let frame = tokio::time::timeout(Duration::from_secs(20), answer.next()).await;
        match frame.expect("the worker goes on").unwrap() {
            Frame::Output(bytes) => output.extend_from_slice(&bytes),
            other => assert_eq!(other, Frame::Started),
        }
    }
    let expected: String = (1..=400_000).map(|n| format!("{n}\n")).collect();
    assert!(output == expected.as_bytes(), "nothing was skipped");
    eventually("what was read is gone", || async { used() < unread / 2 }).await;
    worker.end().await.unwrap();
}

#[tokio::test]
async fn a_node_answers_few_readers_of_logs_at_a_time_and_tells_the_next_one() {
    let Some(rig) = Rig::new("too_many_readers") else { return };
    let folder = tempfile::tempdir().unwrap();
    let worker = rig.worker_on(Arc::new(ProcessRuntime::new(folder.path().to_owned())));
    rig.push(&payload_with("p", "none", r#""command":["/bin/sleep","60"]"#));
    rig.until("p", Phase::Running).await;
    let mut answers = Vec::new();
    for _ in 0..=MAX_READERS {
        answers.push(ask(&rig, "p", true).await);
    }
    let refused = futures_util::future::select_all(answers.into_iter().map(|answer| Box::pin(read(answer))));
    let (refused, _, others) = refused.await;
    let expected = format!("answers {MAX_READERS} log requests already; try again");
    assert!(matches!(refused.as_slice(), [Frame::Failed(why)] if why.contains(&expected)), "{refused:?}");
    rig.stop("p").await;
    rig.until("p", Phase::Stopped).await;
    let others = join_all(others).await;
    assert!(
        others.iter().all(|frames| frames == &[Frame::Exit(0)]),
        "the others ended with the pod: {others:?}"
    );
    worker.end().await.unwrap();
}
