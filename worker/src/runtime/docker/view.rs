//! What an engine says about its containers, in our words.

use std::collections::HashMap;

use bollard::models::{
    ContainerInspectResponse, ContainerState as EngineState, ContainerStateStatusEnum, ContainerSummary,
    ContainerSummaryStateEnum, EndpointSettings,
};

use crate::runtime::{Container, ContainerState};

/// A listed container, as far as the list tells.
pub(super) enum Listed {
    /// All that there is to know.
    Known(Container),
    /// It has ended; how, only an inspection of this id tells.
    Ended(String),
    /// On its way out, or not readable as one of ours.
    Skip,
}

/// One row of the list.
pub(super) fn listed(row: ContainerSummary) -> Listed {
    use ContainerSummaryStateEnum as S;
    let Some(handle) = row.id else { return Listed::Skip };
    let state = match row.state.unwrap_or(S::EMPTY) {
        S::CREATED => ContainerState::Created,
        // Paused and restarting ones have a process that can go on at any instant; a stopping one still has it.
        S::RUNNING | S::PAUSED | S::RESTARTING | S::STOPPING => ContainerState::Running,
        S::EXITED | S::DEAD | S::EMPTY => return Listed::Ended(handle),
        S::REMOVING => return Listed::Skip,
    };
    let address = row.network_settings.and_then(|settings| settings.networks).map(first_address);
    let labels = row.labels.unwrap_or_default();
    let container = Container::from_labels(handle, |key| labels.get(key).map(String::as_str), state);
    match container {
        Some(container) => Listed::Known(Container { address: address.unwrap_or_default(), ..container }),
        None => Listed::Skip,
    }
}

/// An inspected container with its labels: adopting needs to know whose it is.
pub(super) struct Inspected {
    /// Its labels, ours or not.
    pub(super) labels: HashMap<String, String>,
    /// None while it is being removed, or when its labels are not readable as ours.
    pub(super) container: Option<Container>,
}

/// One inspection.
pub(super) fn inspected(answer: ContainerInspectResponse) -> Inspected {
    let labels = answer.config.and_then(|config| config.labels).unwrap_or_default();
    let state = state_of(&answer.state.unwrap_or_default());
    let address = answer.network_settings.and_then(|settings| settings.networks).map(first_address);
    let container = state.zip(answer.id).and_then(|(state, handle)| {
        Container::from_labels(handle, |key| labels.get(key).map(String::as_str), state)
    });
    let container =
        container.map(|container| Container { address: address.unwrap_or_default(), ..container });
    Inspected { labels, container }
}

/// None while it is being removed.
fn state_of(state: &EngineState) -> Option<ContainerState> {
    use ContainerStateStatusEnum as S;
    match state.status.unwrap_or(S::EMPTY) {
        S::CREATED => Some(ContainerState::Created),
        S::RUNNING | S::PAUSED | S::RESTARTING | S::STOPPING => Some(ContainerState::Running),
        S::EXITED | S::DEAD | S::EMPTY => Some(ContainerState::Exited {
            code: state.exit_code.unwrap_or(255),
            out_of_memory: state.oom_killed.unwrap_or(false),
        }),
        S::REMOVING => None,
    }
}

/// The address in the first network by name, so that two looks give the same one.
fn first_address(networks: HashMap<String, EndpointSettings>) -> String {
    let mut named: Vec<_> =
        networks.into_iter().filter_map(|(name, net)| Some((name, net.ip_address?))).collect();
    named.sort();
    named.into_iter().map(|(_, address)| address).find(|address| !address.is_empty()).unwrap_or_default()
}
