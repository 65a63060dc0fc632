//! Write permissions of processes, and scripts' calls as traces show them.

use ::redis::Value;
use store::{NamedArguments, Script};

use crate::checks::invariants;
use crate::checks::observed_state::short;
use crate::machine::process_id::ProcessId;
use crate::world::state::World;

impl World {
    /// Invariant 3.
    pub(crate) fn before(&mut self, who: ProcessId, script: &Script, argv: &[Vec<u8>]) {
        let arguments = script.arguments(argv);
        let Some(incarnation) = arguments.head.get("incarnation") else { return };
        if script.name == "register" {
            self.checks.incarnations.insert(incarnation.to_vec());
            self.checks.replacement = self.replacement(who, &String::from_utf8_lossy(incarnation));
            return;
        }
        if who.host().is_none() || !self.checks.incarnations.contains(incarnation) {
            return;
        }
        let node = self.observed.nodes.get(&who.name());
        if !node.is_some_and(|node| node.state == "alive" && node.incarnation.as_bytes() == incarnation) {
            let name = script.name;
            self.checks.fenced_write =
                Some(format!("invariant 3: {name} of a fenced incarnation of {who} changed something"));
        }
        for group in std::iter::once(&arguments.head).chain(&arguments.items) {
            let Some((uuid, assignment)) = assignment_in(group) else { continue };
            let record = self.observed.pods.get(&uuid).cloned();
            if record.as_ref().is_none_or(|record| record.assignment != assignment) {
                self.checks.protected_pods.insert(uuid, record);
            }
        }
    }

    fn replacement(&self, who: ProcessId, incarnation: &str) -> Option<String> {
        let node = self.observed.nodes.get(&who.name()).filter(|node| node.state == "alive")?;
        let holder_of = |incarnation: &str| incarnation.split_once('.').map(|(holder, _)| holder.to_owned());
        let silence = self.silence(who.node()?);
        let is_another = holder_of(&node.incarnation) != holder_of(incarnation);
        (is_another && silence < self.timing.fence)
            .then(|| format!("{who} takes the name of a worker {silence} ms after its heartbeat"))
    }

    pub(crate) fn after(&mut self, who: ProcessId, script: &Script, reply: &Value) {
        let name = script.name;
        if let Value::ServerError(error) = reply {
            self.checks.violations.push(format!("{name} of {who} failed: {error:?}"));
        }
        self.checks.has_assigned |= name == "assign";
        self.checks.has_stopped |= matches!(name, "pods_replace" | "pods_stop" | "preempt");
        let verdict = first_word(reply);
        let replacement = self.checks.replacement.take();
        if let Some(node) = who.node()
            && matches!(name, "register" | "heartbeat")
            && verdict == "OK"
        {
            self.checks.violations.extend(replacement);
            self.cluster.last_heartbeats[node] = self.clock.now;
        }
        if name == "heartbeat" && verdict == "OK" {
            self.note_ordered_stops(reply);
        }
        self.stats.refused_names += u64::from(verdict == "TAKEN");
        if verdict == "DECLARED" {
            self.stats.deaths += 1;
            self.checks.violations.extend(invariants::unproven_death(self, who));
        }
        self.stats.preemptions += u64::from(name == "preempt" && verdict == "OK");
        self.stats.requeued += u64::from(verdict == "QUEUED");
    }

    pub(crate) fn arguments(arguments: &[Vec<u8>]) -> String {
        let shown: Vec<String> = arguments.iter().take(10).map(|argument| Self::word(argument)).collect();
        let more = if arguments.len() > 10 { " …" } else { "" };
        format!("{}{more}", shown.join(" "))
    }

    pub(crate) fn in_short(reply: &Value) -> String {
        match reply {
            Value::Array(parts) => {
                let shown: Vec<String> = parts.iter().take(8).map(Self::in_short).collect();
                format!("[{}{}]", shown.join(" "), if parts.len() > 8 { " …" } else { "" })
            }
            Value::BulkString(bytes) => Self::word(bytes),
            Value::Int(number) => number.to_string(),
            Value::Nil => "nil".to_owned(),
            other => format!("{other:?}"),
        }
    }

    /// Production code would change the order of later hash maps, so traced and untraced runs would differ.
    fn word(word: &[u8]) -> String {
        let text = String::from_utf8_lossy(word);
        let uuid = text.split_once("\"uuid\":\"").and_then(|(_, rest)| rest.split_once('"'));
        if let Some((uuid, _)) = uuid.filter(|_| text.starts_with('{')) {
            return format!("<{}>", short(uuid));
        }
        let length = if text.len() == 36 { 8 } else { 24 };
        text.chars().take(length).collect()
    }
}

fn assignment_in(group: &NamedArguments<'_>) -> Option<(String, String)> {
    let text = |name| Some(String::from_utf8_lossy(group.get(name)?).into_owned());
    Some((text("uuid")?, text("assignment")?))
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
