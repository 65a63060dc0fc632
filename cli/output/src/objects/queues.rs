//! Queues and dead letters as table rows.

use api_types::{DeadLetterView, QueueItem, QueueView, QueuesView};
use jiff::Timestamp;
use serde::Serialize;

use crate::{TableRow, Titles, humanize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct QueueRow {
    /// Key in Redis.
    pub queue: String,
    length: u64,
    pub holds: &'static str,
}

/// Skips empty queues of nodes unless `all` is set.
pub fn rows(queues: &QueuesView, all: bool) -> Vec<QueueRow> {
    let row = |queue: &str, length, holds| QueueRow { queue: queue.to_owned(), length, holds };
    let mut rows = vec![
        row("sq", queues.waiting, "waiting for a scheduler"),
        row("fq", queues.in_flight, "in flight: taken by a scheduler"),
        row("uq", queues.unschedulable, "unschedulable: fit no node right now"),
        row("dq", queues.dead, "dead letters: requeue or drop them"),
    ];
    for lengths in &queues.nodes {
        let node = &lengths.node;
        let rows_of_node = [
            row(&format!("pq:{node}"), lengths.pending, "pending on the node"),
            row(&format!("rq:{node}"), lengths.starting, "starting on the node"),
            row(&format!("cs:{node}"), lengths.running, "running on the node"),
        ];
        rows.extend(rows_of_node.into_iter().filter(|row| all || row.length > 0));
    }
    rows
}

impl TableRow for QueueRow {
    const TITLES: Titles = &["QUEUE", "PODS", "MEANING"];

    fn cells(&self, _wide: bool, _now: Timestamp) -> Vec<String> {
        vec![self.queue.clone(), self.length.to_string(), self.holds.to_owned()]
    }

    fn name(&self) -> String {
        format!("queue/{}", self.queue)
    }
}

impl TableRow for DeadLetterView {
    const TITLES: Titles = &["ID", "QUEUE", "AGE", "REASON", "PAYLOAD"];

    fn cells(&self, wide: bool, now: Timestamp) -> Vec<String> {
        let (max_reason, max_payload) = if wide { (usize::MAX, usize::MAX) } else { (60, 40) };
        vec![
            self.id.clone(),
            self.queue.clone(),
            humanize::age(&self.at, now),
            humanize::shorten_message(&self.reason, max_reason),
            payload_text(&self.payload, self.encoding.as_deref(), max_payload),
        ]
    }

    fn name(&self) -> String {
        dead_letter_name(&self.id)
    }
}

/// The `-o name` output. Scripts rely on it.
pub fn dead_letter_name(id: &str) -> String {
    format!("letter/{id}")
}

/// One per line, next one first. A reason precedes its payload.
pub fn payloads(queue: &QueueView) -> String {
    let line = |item: &QueueItem| {
        let reason = item.reason.as_deref().map(|reason| humanize::shorten(reason, usize::MAX) + "  ");
        let payload = payload_text(&item.payload, item.encoding.as_deref(), usize::MAX);
        let cut = item.bytes.map(|bytes| format!("(the beginning of {bytes} bytes) "));
        format!("{}{}{payload}\n", reason.unwrap_or_default(), cut.unwrap_or_default())
    };
    queue.items.iter().map(line).collect()
}

fn payload_text(payload: &str, encoding: Option<&str>, max_length: usize) -> String {
    match encoding {
        Some(encoding) => format!("({encoding}) {}", humanize::shorten(payload, max_length)),
        None => humanize::shorten(payload, max_length),
    }
}
