//! Translates the engine's descriptions of containers.

use std::collections::HashMap;

use bollard::models::{
    ContainerInspectResponse, ContainerState as EngineState, ContainerStateStatusEnum, ContainerSummary,
    ContainerSummaryStateEnum, EndpointSettings,
};

use crate::runtime::{Container, ContainerState};

/// One row of the container list, as far as it tells.
pub(super) enum Listed {
    /// A complete description.
    Known(Container),
    /// A container that has ended, in the state `Unknown`; only an inspection tells how it ended.
    Ended(Container),
    /// A container that is being removed, or whose labels are unreadable.
    Skip,
}

/// Translates one row of the container list.
pub(super) fn listed(row: ContainerSummary) -> Listed {
    use ContainerSummaryStateEnum as S;
    let Some(handle) = row.id else { return Listed::Skip };
    let state = match row.state.unwrap_or(S::EMPTY) {
        S::CREATED => ContainerState::Created,
        // Paused and restarting containers may run again at any instant, and a stopping one still runs.
        S::RUNNING | S::PAUSED | S::RESTARTING | S::STOPPING => ContainerState::Running,
        S::EXITED | S::DEAD | S::EMPTY => ContainerState::Unknown,
        S::REMOVING => return Listed::Skip,
    };
    let address = row.network_settings.and_then(|settings| settings.networks).map(first_address);
    let labels = row.labels.unwrap_or_default();
    let container = Container::from_labels(handle, |key| labels.get(key).map(String::as_str), state);
    match container {
        Some(container) if state == ContainerState::Unknown => Listed::Ended(container),
        Some(container) => Listed::Known(Container { address: address.unwrap_or_default(), ..container }),
        None => Listed::Skip,
    }
}

/// An inspected container and its labels, which tell whose it is.
pub(super) struct Inspected {
    /// All its labels.
    pub(super) labels: HashMap<String, String>,
    /// `None` while it is being removed, or if its labels are unreadable.
    pub(super) container: Option<Container>,
}

/// Translates the answer to an inspection.
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

/// Returns `None` while the container is being removed.
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

/// Returns the address in the first network by name, so that it does not change between two calls; empty if
/// there is none.
fn first_address(networks: HashMap<String, EndpointSettings>) -> String {
    let mut named: Vec<_> =
        networks.into_iter().filter_map(|(name, net)| Some((name, net.ip_address?))).collect();
    named.sort();
    named.into_iter().map(|(_, address)| address).find(|address| !address.is_empty()).unwrap_or_default()
}
