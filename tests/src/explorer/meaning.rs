//! What the explorer knows of the scripts: who may write what, and how it is told.

use ::redis::Value;

use super::view::short;
use super::who::Who;
use super::world::World;

impl World {
    /// Before a script runs: what it must not change. Invariant 3.
    pub(super) fn before(&mut self, who: Who, script: &str, arguments: &[Vec<u8>]) {
        if script == "register" {
            self.incarnations.insert(arguments[1].clone());
            return;
        }
        let Some(incarnation) = arguments.iter().find(|argument| self.incarnations.contains(*argument))
        else {
            return;
        };
        if who.host().is_none() {
            return;
        }
        let node = self.view.nodes.get(&who.to_string());
        if !node.is_some_and(|node| node.state == "alive" && node.incarnation.as_bytes() == incarnation) {
            self.fenced = Some(format!("invariant 3: {script} of a fenced life of {who} changed something"));
        }
        for (uuid, assignment) in named(script, arguments) {
            let record = self.view.pods.get(&uuid).cloned();
            if record.as_ref().is_none_or(|record| record.assignment != assignment) {
                self.untouchable.insert(uuid, record);
            }
        }
    }

    /// After it ran.
    pub(super) fn after(&mut self, who: Who, script: &str, reply: &Value) {
        if let Value::ServerError(error) = reply {
            self.wrong.push(format!("{script} of {who} failed: {error:?}"));
        }
        self.assigns |= script == "assign";
        let said = first_word(reply);
        if let Some(host) = who.host()
            && matches!(script, "register" | "heartbeat")
            && said == "OK"
        {
            self.beats[host] = self.now;
        }
        self.stats.deaths += u64::from(said == "DECLARED");
        self.stats.requeued += u64::from(said == "QUEUED");
    }

    /// The arguments of a script, for people.
    pub(super) fn arguments(&mut self, arguments: &[Vec<u8>]) -> String {
        let shown: Vec<String> = arguments.iter().take(10).map(|argument| self.word(argument)).collect();
        let more = if arguments.len() > 10 { " …" } else { "" };
        format!("{}{more}", shown.join(" "))
    }

    /// A reply, for people.
    pub(super) fn in_short(&mut self, reply: &Value) -> String {
        match reply {
            Value::Array(parts) => {
                let shown: Vec<String> = parts.iter().take(8).map(|part| self.in_short(part)).collect();
                format!("[{}{}]", shown.join(" "), if parts.len() > 8 { " …" } else { "" })
            }
            Value::BulkString(bytes) => self.word(bytes),
            Value::Int(number) => number.to_string(),
            Value::Nil => "nil".to_owned(),
            other => format!("{other:?}"),
        }
    }

    fn word(&mut self, word: &[u8]) -> String {
        if word.starts_with(b"{")
            && let Some(uuid) = self.heads.pod_of(word)
        {
            return format!("<{}>", short(uuid));
        }
        let text = String::from_utf8_lossy(word);
        // A uuid, or long words.
        let cut = if text.len() == 36 { 8 } else { 24 };
        text.chars().take(cut).collect()
    }
}

/// Pods that a call of a worker speaks of, and the assignment it knows.
fn named(script: &str, arguments: &[Vec<u8>]) -> Vec<(String, String)> {
    let text = |index: usize| arguments.get(index).map(|a| String::from_utf8_lossy(a).into_owned());
    let one = |uuid, assignment| text(uuid).zip(text(assignment)).into_iter().collect();
    match script {
        "ack" => (0..(arguments.len() - 2) / 5)
            .filter_map(|pod| text(2 + pod * 5 + 1).zip(text(2 + pod * 5 + 2)))
            .collect(),
        "finish" | "lost" | "report" => one(2, 3),
        _ => Vec::new(),
    }
}

fn first_word(reply: &Value) -> String {
    match reply {
        Value::Array(parts) => parts.first().map(first_word).unwrap_or_default(),
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::SimpleString(text) => text.clone(),
        Value::Okay => "OK".to_owned(),
        _ => String::new(),
    }
}
