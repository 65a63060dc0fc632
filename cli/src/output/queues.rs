//! Queues and dead letters in words.

use api::dto::{LetterView, QueueItem, QueueView, QueuesView};
use jiff::Timestamp;
use serde::Serialize;

use super::{Listed, words};

/// One queue with its length.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct QueueLine {
    queue: String,
    length: u64,
    holds: &'static str,
}

/// A line for each queue; those of nodes only when something stands in them, or when all are asked for.
pub(crate) fn lines(queues: &QueuesView, all: bool) -> Vec<QueueLine> {
    let line = |queue: &str, length, holds| QueueLine { queue: queue.to_owned(), length, holds };
    let mut lines = vec![
        line("sq", queues.waiting, "wait for a scheduler"),
        line("fq", queues.in_flight, "in the hands of schedulers"),
        line("uq", queues.unschedulable, "fit no node right now"),
        line("dq", queues.dead, "dead letters, for a person to decide"),
    ];
    for of in &queues.nodes {
        let node = &of.node;
        let three = [
            line(&format!("pq:{node}"), of.pending, "pending on the node"),
            line(&format!("rq:{node}"), of.starting, "being started there"),
            line(&format!("cs:{node}"), of.running, "run there"),
        ];
        lines.extend(three.into_iter().filter(|line| all || line.length > 0));
    }
    lines
}

impl Listed for QueueLine {
    fn titles(_wide: bool) -> Vec<&'static str> {
        vec!["QUEUE", "PODS", "WHICH"]
    }

    fn cells(&self, _wide: bool, _now: Timestamp) -> Vec<String> {
        vec![self.queue.clone(), self.length.to_string(), self.holds.to_owned()]
    }

    fn name(&self) -> String {
        format!("queue/{}", self.queue)
    }
}

impl Listed for LetterView {
    fn titles(_wide: bool) -> Vec<&'static str> {
        vec!["ID", "QUEUE", "AGE", "REASON", "PAYLOAD"]
    }

    fn cells(&self, wide: bool, now: Timestamp) -> Vec<String> {
        let (reason, payload) = if wide { (usize::MAX, usize::MAX) } else { (60, 40) };
        vec![
            self.id.clone(),
            self.queue.clone(),
            words::age(&self.at, now),
            words::shorten(&self.reason, reason),
            shown(&self.payload, self.encoding.as_deref(), payload),
        ]
    }

    fn name(&self) -> String {
        format!("letter/{}", self.id)
    }
}

/// The payloads of a queue, a line each, the next to be taken first.
pub(crate) fn payloads(queue: &QueueView) -> String {
    let line = |item: &QueueItem| shown(&item.payload, item.encoding.as_deref(), usize::MAX) + "\n";
    queue.items.iter().map(line).collect()
}

fn shown(payload: &str, encoding: Option<&str>, most: usize) -> String {
    match encoding {
        Some(encoding) => format!("({encoding}) {}", words::shorten(payload, most)),
        None => words::shorten(payload, most),
    }
}
