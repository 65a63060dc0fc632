//! Parses answers that bollard refuses because of one unknown word, such as a container's state.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::Value;

use super::errors::NotUnderstood;
use super::view::{Inspected, Listed};
use crate::{Container, ContainerState};

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ContainerRow {
    id: String,
    labels: Option<HashMap<String, String>>,
    #[serde(default)]
    state: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Inspection {
    id: String,
    config: ContainerConfig,
    state: InspectedState,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ContainerConfig {
    labels: Option<HashMap<String, String>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct InspectedState {
    #[serde(default)]
    status: String,
    exit_code: Option<i64>,
    #[serde(default, rename = "OOMKilled")]
    oom_killed: bool,
}

pub(super) fn rows(answer: &NotUnderstood) -> Option<Vec<Listed>> {
    let rows: Vec<Value> = serde_json::from_str(&answer.0).ok()?;
    let rows = rows.into_iter().map(|row| match serde_json::from_value::<ContainerRow>(row) {
        Ok(row) => listed(row),
        Err(_) => {
            tracing::warn!("the engine lists a container that cannot be read; it is ignored");
            Listed::Skip
        }
    });
    Some(rows.collect())
}

enum NamedState {
    Created,
    Running,
    Ended,
    Removing,
    Unknown,
}

impl NamedState {
    fn of(word: &str) -> Self {
        match word {
            // Podman, between creating and starting it.
            "created" | "configured" | "initialized" => Self::Created,
            "running" | "paused" | "restarting" | "stopping" => Self::Running,
            // Podman, before its cleanup.
            "exited" | "dead" | "stopped" | "" => Self::Ended,
            "removing" => Self::Removing,
            _ => Self::Unknown,
        }
    }
}

fn listed(row: ContainerRow) -> Listed {
    let named = NamedState::of(&row.state);
    let state = match named {
        NamedState::Created => ContainerState::Created,
        NamedState::Running => ContainerState::Running,
        NamedState::Removing => return Listed::Skip,
        NamedState::Ended => ContainerState::Unknown,
        NamedState::Unknown => {
            let (container, state) = (&row.id, &row.state);
            tracing::warn!(container, state, "the engine names an unknown state; it may run");
            ContainerState::Unknown
        }
    };
    match container(row.id, row.labels.unwrap_or_default(), state) {
        Some(container) if matches!(named, NamedState::Ended) => Listed::Ended(container),
        Some(container) => Listed::Known(container),
        None => Listed::Skip,
    }
}

pub(super) fn inspection(answer: &NotUnderstood) -> Option<Inspected> {
    let Inspection { id, config, state } = serde_json::from_str(&answer.0).ok()?;
    let labels = config.labels.unwrap_or_default();
    let state = match NamedState::of(&state.status) {
        NamedState::Created => Some(ContainerState::Created),
        NamedState::Running => Some(ContainerState::Running),
        NamedState::Ended => Some(ContainerState::Exited {
            code: state.exit_code.unwrap_or(255),
            out_of_memory: state.oom_killed,
        }),
        NamedState::Removing => None,
        NamedState::Unknown => Some(ContainerState::Unknown),
    };
    let container = state.and_then(|state| container(id, labels.clone(), state));
    Some(Inspected { labels, container, ..Inspected::default() })
}

fn container(handle: String, labels: HashMap<String, String>, state: ContainerState) -> Option<Container> {
    Container::from_labels(handle, |key| labels.get(key).map(String::as_str), state)
}
