//! Translates single fields of a Compose service.

use document::{DocumentNode, Field};
use model::value::ValueKind;

use super::draft::ServiceDraft;
use super::{environment, networks};
use crate::compose_document::text_of;
use crate::names::{label, text_at};
use crate::project::{Allowance, EXTENSION};
use crate::report::NoteKind;
use crate::values::references;
use crate::words;

/// Failed health checks do not count in the start period.
const NO_END: &str = "24h";
const MAX_LABEL_KEY: usize = 128;
const MAX_LABEL_VALUE: usize = 256;

pub(crate) fn copied(field: Field<'_>, draft: &mut ServiceDraft<'_, '_>) {
    draft.set(field.name, field, field.value.clone());
}

pub(crate) fn arguments(field: Field<'_>, draft: &mut ServiceDraft<'_, '_>) {
    let name = field.name;
    let empty = |draft: &mut ServiceDraft<'_, '_>| {
        let detail = format!("an empty {name} is not honoured: the image's own is used");
        draft.note(NoteKind::NotHonoured, field.place, detail);
    };
    if field.value.items().is_some_and(<[DocumentNode]>::is_empty) {
        return empty(draft);
    }
    match words(name, field.value, draft) {
        Some(words) if words.is_blank() => empty(draft),
        Some(words) => draft.set(name, field, words),
        None => {}
    }
}

fn words(name: &str, value: &DocumentNode, draft: &mut ServiceDraft<'_, '_>) -> Option<DocumentNode> {
    let Some(text) = value.scalar() else { return Some(value.clone()) };
    let split = match words::split(&text) {
        Ok(split) => split,
        Err(why) => {
            draft.mistake(value.place(), &format!("{name}: {why}"));
            return None;
        }
    };
    if let Some(end) = split.ends_at {
        let detail = format!(
            "{name} ends at {end:?}, as with Compose, for no shell reads it: write [\"sh\", \"-c\", \"…\"] if one is to"
        );
        draft.note(NoteKind::Hint, value.place(), detail);
    }
    let words = split.words.into_iter().map(|word| value.with_text(word));
    Some(DocumentNode::list(words.collect(), value.place()))
}

pub(crate) fn unquoted(field: Field<'_>, draft: &mut ServiceDraft<'_, '_>) {
    draft.set(field.name, field, field.value.unquoted());
}

pub(crate) fn secrets(field: Field<'_>, draft: &mut ServiceDraft<'_, '_>) {
    values(ValueKind::Secret, field, draft);
}

pub(crate) fn configs(field: Field<'_>, draft: &mut ServiceDraft<'_, '_>) {
    values(ValueKind::Config, field, draft);
}

fn values(kind: ValueKind, field: Field<'_>, draft: &mut ServiceDraft<'_, '_>) {
    let values = references(kind, field, draft.service, draft.declared, draft.report);
    match values.items() {
        Some(references) => draft.add_values(kind, field.place, references.to_vec()),
        None => draft.set(field.name, field, values),
    }
}

/// Other fields of hooks are noted where fields are checked.
pub(crate) fn pre_stop(field: Field<'_>, draft: &mut ServiceDraft<'_, '_>) {
    let mut kept_command = |hook: &DocumentNode| {
        let mut kept = DocumentNode::empty_map(hook.place());
        for command in hook.fields().filter(|part| part.name == "command") {
            if let Some(words) = words("pre_stop.command", command.value, draft) {
                kept.set(command.name, command.place, words);
            }
        }
        if hook.is_map() { kept } else { hook.clone() }
    };
    let hooks = field.value.items().unwrap_or_default().iter().map(&mut kept_command).collect();
    let hooks = DocumentNode::list(hooks, field.place);
    draft.set("pre_stop", field, if field.value.items().is_some() { hooks } else { field.value.clone() });
}

/// Compose never stops an unhealthy container. kubeleet does, but only after a first success.
pub(crate) fn healthcheck(field: Field<'_>, draft: &mut ServiceDraft<'_, '_>) {
    if field.value.is_blank() {
        return;
    }
    if !field.value.is_map() {
        return draft.set("healthcheck", field, field.value.clone());
    }
    let mut check = DocumentNode::empty_map(field.place);
    for part in field.value.fields().filter(|part| !part.name.starts_with(EXTENSION)) {
        let text = part.value.scalar().unwrap_or_default();
        match part.name {
            "test" if part.value.is_blank() => {}
            "test" => check.set(part.name, part.place, health_test(part.value)),
            // 0 is the default.
            "retries" | "interval" | "timeout" | "start_period" | "start_interval" if is_zero(&text) => {}
            "retries" | "disable" => check.set(part.name, part.place, part.value.unquoted()),
            _ => check.set(part.name, part.place, part.value.clone()),
        }
    }
    if check.is_blank() {
        return;
    }
    let is_off = check.get("disable").is_some_and(|disable| !disable.is_blank())
        || check.get("test").and_then(DocumentNode::items).is_some_and(is_none);
    if !is_off {
        check.set("start_period", field.place, text_at(NO_END, field.place));
    }
    draft.set("healthcheck", field, check);
}

fn is_none(test: &[DocumentNode]) -> bool {
    test.first().and_then(DocumentNode::scalar).is_some_and(|kind| kind == "NONE")
}

fn is_zero(text: &str) -> bool {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    !digits.is_empty() && digits.chars().all(|c| c == '0')
}

/// Compose passes further items as arguments of the shell.
fn health_test(test: &DocumentNode) -> DocumentNode {
    match test.items() {
        Some([kind, script, arguments @ ..])
            if !arguments.is_empty() && kind.scalar().is_some_and(|kind| kind == "CMD-SHELL") =>
        {
            let shell = ["CMD", "/bin/sh", "-c"].map(|word| kind.with_text(word));
            let words = shell.into_iter().chain([script.clone()]).chain(arguments.iter().cloned());
            DocumentNode::list(words.collect(), test.place())
        }
        _ => test.clone(),
    }
}

pub(crate) fn replicas(field: Field<'_>, draft: &mut ServiceDraft<'_, '_>) {
    draft.set_once("replicas", field, field.value.unquoted());
}

/// 0 is no limit.
pub(crate) fn cpus(field: Field<'_>, draft: &mut ServiceDraft<'_, '_>) {
    let is_zero = field.value.scalar().and_then(|text| text.parse::<f64>().ok()) == Some(0.0);
    if !is_zero {
        draft.set_once("cpus", field, field.value.clone());
    }
}

/// 0 is no limit.
pub(crate) fn memory(field: Field<'_>, draft: &mut ServiceDraft<'_, '_>) {
    if field.value.scalar().as_deref() != Some("0") {
        draft.set_once("memory", field, binary_amount(field.value));
    }
}

/// 0 is no reservation.
pub(crate) fn memory_reservation(field: Field<'_>, draft: &mut ServiceDraft<'_, '_>) {
    if field.value.scalar().as_deref() != Some("0") {
        draft.set_once("memory_reservation", field, binary_amount(field.value));
    }
}

pub(crate) fn pull_policy(field: Field<'_>, draft: &mut ServiceDraft<'_, '_>) {
    let text = field.value.scalar().unwrap_or_default().into_owned();
    let detail = match text.as_str() {
        "build" => {
            "pull_policy: build is not honoured: build the image, push it to a registry, and name it in `image`"
                .to_owned()
        }
        every if matches!(every, "daily" | "weekly") || every.starts_with("every_") => {
            format!("pull_policy: {every} is not honoured: it is pulled where it is missing")
        }
        _ => return draft.set("pull_policy", field, field.value.clone()),
    };
    draft.note(NoteKind::NotHonoured, field.place, detail);
}

/// Engines accept any name, but host names cannot contain `_`.
pub(crate) fn hostname(field: Field<'_>, draft: &mut ServiceDraft<'_, '_>) {
    match field.value.scalar() {
        Some(name) if name.contains('_') => {
            let written = name.replace('_', "-");
            draft.note(NoteKind::Different, field.place, format!("the name of the host becomes {written}"));
            draft.set("hostname", field, field.value.with_text(written));
        }
        _ => draft.set("hostname", field, field.value.clone()),
    }
}

/// Each container has its own namespace.
pub(crate) fn only_private(field: Field<'_>, draft: &mut ServiceDraft<'_, '_>) {
    let mode = field.value.scalar().unwrap_or_default();
    if !matches!(&*mode, "" | "private") {
        let detail = format!(
            "{}: {mode} is not allowed: containers share no namespace with the machine or with each other; remove it",
            field.name
        );
        draft.mistake(field.value.place(), &detail);
    }
}

/// A positive score only takes priority away, so it is not refused.
pub(crate) fn oom_score_adj(field: Field<'_>, draft: &mut ServiceDraft<'_, '_>) {
    match field.value.scalar().as_deref() {
        None | Some("0") => {}
        Some(text) if text.starts_with('-') => {
            let detail =
                "a negative oom_score_adj is not allowed: containers get no privileges beyond the default";
            draft.mistake(field.value.place(), detail);
        }
        Some(_) => {
            let detail = "oom_score_adj is not honoured: kubeleet leaves it to the engine's default";
            draft.note(NoteKind::NotHonoured, field.place, detail);
        }
    }
}

/// Only an outside program could read the logs of other drivers.
pub(crate) fn logging(field: Field<'_>, draft: &mut ServiceDraft<'_, '_>) {
    let driver = text_of(field.value, "driver").unwrap_or_default();
    if !matches!(driver.as_str(), "" | "json-file" | "local") {
        let detail = format!(
            "logging.driver: {driver} is not honoured: the engine keeps the log, and `kubeleet logs` reads it"
        );
        return draft.note(NoteKind::NotHonoured, field.place, detail);
    }
    let mut logging = DocumentNode::empty_map(field.place);
    if let Some(driver) = field.value.field("driver").filter(|driver| !driver.value.is_null()) {
        logging.set("driver", driver.place, driver.value.clone());
    }
    let mut options = DocumentNode::empty_map(field.place);
    for option in field.value.get("options").into_iter().flat_map(DocumentNode::fields) {
        match option.name {
            "max-size" => options.set(option.name, option.place, binary_amount(option.value)),
            "max-file" => options.set(option.name, option.place, option.value.unquoted()),
            name => {
                let detail = format!(
                    "logging.options.{name} is not honoured: logs have the limits max-size and max-file"
                );
                draft.note(NoteKind::NotHonoured, option.place, detail);
            }
        }
    }
    logging.set("options", field.place, options);
    draft.set("logging", field, if field.value.is_map() { logging } else { field.value.clone() });
}

/// Docker's units are binary, including those that end in `b`.
pub(super) fn binary_amount(value: &DocumentNode) -> DocumentNode {
    let Some(text) = value.scalar() else { return value.clone() };
    let text = text.trim().to_ascii_lowercase();
    let short = text.strip_suffix('b').filter(|rest| rest.ends_with(['k', 'm', 'g', 't']));
    value.with_text(short.or(text.strip_suffix('b').filter(|n| is_number(n))).unwrap_or(&text))
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_digit())
}

pub(crate) fn pids_limit(field: Field<'_>, draft: &mut ServiceDraft<'_, '_>) {
    match field.value.scalar().as_deref() {
        Some("-1" | "0") => {
            let detail = "no limit of processes is not honoured: the node's own limit holds";
            draft.note(NoteKind::NotHonoured, field.place, detail);
        }
        _ => draft.set_once("pids_limit", field, field.value.unquoted()),
    }
}

pub(crate) fn ulimits(field: Field<'_>, draft: &mut ServiceDraft<'_, '_>) {
    let mut limits = DocumentNode::empty_map(field.value.place());
    for limit in field.value.fields().filter(|limit| !limit.name.starts_with(EXTENSION)) {
        let mut value = limit.value.unquoted();
        let parts: Vec<_> =
            limit.value.fields().map(|part| (part.name, part.place, part.value.unquoted())).collect();
        for (name, place, part) in parts {
            match name.starts_with(EXTENSION) {
                true => value.remove_field(name),
                false => value.set(name, place, part),
            }
        }
        limits.set(limit.name, limit.place, value);
    }
    draft.set("ulimits", field, if field.value.is_map() { limits } else { field.value.clone() });
}

pub(crate) fn restart(field: Field<'_>, draft: &mut ServiceDraft<'_, '_>) {
    let text = field.value.scalar().map(|text| text.into_owned());
    let policy = match text.as_deref() {
        // YAML 1.1 reads a bare `no` as false.
        Some("false") => field.value.with_text("no"),
        Some(text) if text.starts_with("on-failure:") => {
            let detail =
                format!("the number of tries in restart: {text} is not honoured: restarts have no end");
            draft.note(NoteKind::NotHonoured, field.place, detail);
            field.value.with_text("on-failure")
        }
        _ => field.value.clone(),
    };
    draft.set("restart", field, policy);
}

pub(crate) fn restart_condition(field: Field<'_>, draft: &mut ServiceDraft<'_, '_>) {
    let policy = match field.value.scalar().as_deref() {
        Some("none") => field.value.with_text("no"),
        Some("any") => field.value.with_text("always"),
        _ => field.value.clone(),
    };
    draft.set("restart", field, policy);
}

pub(crate) fn update_config(field: Field<'_>, draft: &mut ServiceDraft<'_, '_>) {
    if !field.value.is_map() {
        draft.set("update", field, field.value.clone());
        return;
    }
    let mut update = update_of(draft, field);
    for part in field.value.fields().filter(|part| !part.value.is_null()) {
        match part.name {
            "max_failure_ratio" => update.set(part.name, part.place, part.value.unquoted()),
            "failure_action" => update.set("on_failure", part.place, part.value.clone()),
            _ => set_pace(&mut update, part),
        }
    }
    draft.set("update", field, update);
}

/// A rollback is not monitored.
pub(crate) fn rollback_config(field: Field<'_>, draft: &mut ServiceDraft<'_, '_>) {
    if !field.value.is_map() {
        draft.set("update", field, field.value.clone());
        return;
    }
    let mut rollback = DocumentNode::empty_map(field.place);
    for part in field.value.fields().filter(|part| !part.value.is_null()) {
        let text = part.value.scalar();
        match (part.name, text.as_deref()) {
            ("failure_action", Some("continue")) | ("max_failure_ratio", Some("0")) => {}
            ("failure_action" | "max_failure_ratio", _) => {
                let detail = format!(
                    "deploy.rollback_config.{} is not honoured: a rollback is not judged, and goes on",
                    part.name
                );
                draft.note(NoteKind::NotHonoured, part.place, detail);
            }
            _ => set_pace(&mut rollback, part),
        }
    }
    let mut update = update_of(draft, field);
    update.set("rollback", field.place, rollback);
    draft.set("update", field, update);
}

/// All nodes of kubeleet are workers in Swarm's sense, and the pods run on any.
pub(crate) fn constraints(field: Field<'_>, draft: &mut ServiceDraft<'_, '_>) {
    let Some(items) = field.value.items() else {
        set_rule("constraints", field, field.value.clone(), draft);
        return;
    };
    let mut kept = Vec::with_capacity(items.len());
    for item in items {
        let text: String = item.scalar().unwrap_or_default().split_whitespace().collect();
        match text.split(['=', '!']).next() {
            _ if matches!(text.as_str(), "node.role==worker" | "node.role!=manager") => {}
            Some("node.role" | "node.id") | None => note_constraint(item, draft),
            Some(key) if key.starts_with("engine.") || key.starts_with("node.platform.") => {
                note_constraint(item, draft);
            }
            Some(_) => kept.push(item.clone()),
        }
    }
    if !kept.is_empty() {
        set_rule("constraints", field, DocumentNode::list(kept, field.place), draft);
    }
}

/// Zero is no limit.
pub(crate) fn max_replicas_per_node(field: Field<'_>, draft: &mut ServiceDraft<'_, '_>) {
    if field.value.scalar().as_deref() != Some("0") {
        set_rule("max_per_node", field, field.value.unquoted(), draft);
    }
}

/// Of Swarm's list, which is in the order of their weight.
const PREFERENCE_WEIGHTS: [&str; 3] = ["50", "25", "12"];

pub(crate) fn placement_preferences(field: Field<'_>, draft: &mut ServiceDraft<'_, '_>) {
    let mut spread = Vec::new();
    for item in field.value.items().into_iter().flatten() {
        let Some(by) = item.get("spread").filter(|_| spread.len() < PREFERENCE_WEIGHTS.len()) else {
            let detail = "deploy.placement.preferences: only the first three of `spread` are honoured";
            draft.note(NoteKind::NotHonoured, item.place(), detail);
            continue;
        };
        let mut rule = DocumentNode::empty_map(item.place());
        rule.set("by", by.place(), by.clone());
        rule.set("weight", item.place(), by.with_text(PREFERENCE_WEIGHTS[spread.len()]).unquoted());
        spread.push(rule);
    }
    if !spread.is_empty() {
        set_rule("spread", field, DocumentNode::list(spread, field.place), draft);
    }
}

/// To other services.
pub(crate) fn relations(field: Field<'_>, draft: &mut ServiceDraft<'_, '_>) {
    set_rule(field.name, field, field.value.clone(), draft);
}

fn set_rule(name: &str, field: Field<'_>, rule: DocumentNode, draft: &mut ServiceDraft<'_, '_>) {
    let known = draft.document.get("placement").cloned();
    let mut placement = known.unwrap_or_else(|| DocumentNode::empty_map(field.place));
    placement.set(name, field.place, rule);
    draft.set("placement", field, placement);
}

fn note_constraint(item: &DocumentNode, draft: &mut ServiceDraft<'_, '_>) {
    let text = item.scalar().unwrap_or_default();
    let detail = format!(
        "deploy.placement: the constraint {text:?} is not honoured: constraints know node.hostname and labels of nodes, \
         which `kubeleet node label` sets"
    );
    draft.note(NoteKind::NotHonoured, item.place(), detail);
}

fn update_of(draft: &ServiceDraft<'_, '_>, field: Field<'_>) -> DocumentNode {
    draft.document.get("update").cloned().unwrap_or_else(|| DocumentNode::empty_map(field.place))
}

fn set_pace(policy: &mut DocumentNode, part: Field<'_>) {
    match part.name {
        "parallelism" => policy.set(part.name, part.place, part.value.unquoted()),
        name if name.starts_with("x-") => {}
        name => policy.set(name, part.place, part.value.clone()),
    }
}

pub(crate) fn deploy_mode(field: Field<'_>, draft: &mut ServiceDraft<'_, '_>) {
    let Some(mode) = field.value.scalar().filter(|mode| mode != "replicated" && !mode.is_empty()) else {
        return;
    };
    if mode == "global" {
        return draft.set("mode", field, field.value.clone());
    }
    let detail =
        format!("deploy.mode: {mode} is not honoured: the service has the number of pods in `replicas`");
    let allowance = Allowance::OneForAll;
    if draft.declared.allowed.contains(&allowance) {
        return draft.note(NoteKind::NotHonoured, field.place, detail);
    }
    draft.mistake(field.place, &format!("{detail}; add `--allow {}` if that is meant", allowance.word()));
}

pub(crate) fn labels(field: Field<'_>, draft: &mut ServiceDraft<'_, '_>) {
    let mut labels =
        draft.document.get("labels").cloned().unwrap_or_else(|| DocumentNode::empty_map(field.place));
    for label in field.value.fields() {
        let length = label.value.scalar().map_or(0, |text| text.len());
        if label.name.len() > MAX_LABEL_KEY || length > MAX_LABEL_VALUE {
            let detail = format!(
                "label {:?} is left out: the key of a label has at most {MAX_LABEL_KEY} bytes, its value \
                 {MAX_LABEL_VALUE}",
                label.name
            );
            draft.note(NoteKind::NotHonoured, label.place, detail);
            continue;
        }
        let value = match label.value.is_null() {
            true => label.value.with_text(""),
            false => environment::as_text(label, "labels", draft),
        };
        labels.set(label.name, label.place, value);
    }
    draft.set("labels", field, if field.value.is_map() { labels } else { field.value.clone() });
}

/// Interpolated variables are texts.
pub(crate) fn ingress(field: Field<'_>, draft: &mut ServiceDraft<'_, '_>) {
    let rule = |rule: &DocumentNode| {
        let mut copy = rule.clone();
        for part in rule.fields().filter(|part| matches!(part.name, "port" | "tcp")) {
            copy.set(part.name, part.place, part.value.unquoted());
        }
        copy
    };
    let rules =
        field.value.items().map(|rules| DocumentNode::list(rules.iter().map(rule).collect(), field.place));
    draft.set("ingress", field, rules.unwrap_or_else(|| field.value.clone()));
}

/// Interpolated variables are texts.
pub(crate) fn stateful(field: Field<'_>, draft: &mut ServiceDraft<'_, '_>) {
    let mut value = field.value.unquoted();
    for part in field.value.fields().filter(|part| part.name == "zones") {
        value.set(part.name, part.place, part.value.unquoted());
    }
    draft.set("stateful", field, value);
}

/// Skips inactive services. Sorting has already reported required ones.
pub(crate) fn depends_on(field: Field<'_>, draft: &mut ServiceDraft<'_, '_>) {
    let mut needs = DocumentNode::empty_map(field.place);
    for needed in field.value.fields().filter(|needed| draft.active.contains(needed.name)) {
        let condition = needed.value.get("condition").filter(|condition| !condition.is_null()).cloned();
        let condition = condition.unwrap_or_else(|| text_at("service_started", needed.place));
        let name = format!("{}-{}", draft.declared.app, label(needed.name));
        let written = format!("depends_on.{}.condition", needed.name);
        draft.renamed.push((format!("depends_on.{name}"), written));
        needs.set(&name, needed.place, condition);
    }
    draft.set("depends_on", field, needs);
}

pub(crate) fn security_opt(field: Field<'_>, draft: &mut ServiceDraft<'_, '_>) {
    const ALWAYS_ON: [&str; 3] = ["no-new-privileges", "no-new-privileges:true", "no-new-privileges=true"];
    for option in field.value.items().unwrap_or_default() {
        let text = option.scalar().unwrap_or_default();
        // SELinux labels only confine a container further.
        if text.starts_with("label:") || text.starts_with("label=") {
            let detail =
                format!("security_opt {text:?} is not honoured: kubeleet leaves labels to the engine");
            draft.note(NoteKind::NotHonoured, option.place(), detail);
        } else if !ALWAYS_ON.contains(&text.as_ref()) {
            let detail = format!(
                "security_opt {text:?} is not allowed: no-new-privileges is always on; remove others"
            );
            draft.mistake(option.place(), &detail);
        }
    }
}

pub(crate) fn network_mode(field: Field<'_>, draft: &mut ServiceDraft<'_, '_>) {
    match field.value.scalar().as_deref() {
        Some(mode) if mode == "host" || mode.starts_with("container:") => {
            let detail = format!(
                "network_mode: {mode} is not allowed: containers share no namespace with the machine; publish ports"
            );
            draft.mistake(field.value.place(), &detail);
        }
        Some("none") if !draft.declared.allowed.contains(&Allowance::NoIsolation) => {
            let detail = networks::not_isolated(draft.service, "network_mode is none");
            draft.report.mistake(field.value.place(), detail);
        }
        Some("bridge" | "default") | None => {}
        Some(mode) => {
            let detail =
                format!("network_mode: {mode} is not honoured: containers have the engine's own network");
            draft.note(NoteKind::NotHonoured, field.place, detail);
        }
    }
}
