//! Exit codes of the daemons.

use proxy::{LocalError, ProxyError};
use worker::WorkerError;
use worker::supervisor::SupervisorError;

use crate::exit::Exit;
use crate::settings::BadSettings;

/// The supervisor restarts a worker only after [`Exit::Error`].
pub(crate) fn exit_for(error: &anyhow::Error) -> Exit {
    if let Some(error) = error.downcast_ref::<WorkerError>() {
        return match error {
            WorkerError::NameTaken { .. } | WorkerError::Replaced { .. } => Exit::Conflict,
            WorkerError::StateDir { .. } | WorkerError::ProcessesNotAllowed | WorkerError::Runtime(_) => {
                Exit::Usage
            }
            WorkerError::Name(_) | WorkerError::Broken { .. } => Exit::Error,
        };
    }
    if let Some(error) = error.downcast_ref::<ProxyError>() {
        return match error {
            ProxyError::NoSocket | ProxyError::Local(LocalError::Socket { .. }) => Exit::Usage,
            ProxyError::Local(LocalError::InUse(_) | LocalError::TakeOver { .. }) => Exit::Conflict,
        };
    }
    match error.downcast_ref::<SupervisorError>() {
        Some(SupervisorError::Taken { .. }) => Exit::Conflict,
        Some(SupervisorError::StateDir { .. }) => Exit::Usage,
        Some(SupervisorError::System(_)) => Exit::Error,
        None if error.is::<BadSettings>() => Exit::Usage,
        None => Exit::Error,
    }
}
