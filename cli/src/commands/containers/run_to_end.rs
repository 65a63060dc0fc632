//! `run --wait` of a service whose pods end by themselves.

use api_types::{PodView, ServiceView};
use client::PodFilter;
use model::pod::lifecycle::Phase;
use output::stderr;

use crate::commands::context::Context;
use crate::commands::error::CommandResult;
use crate::commands::wait::Goal;
use crate::exit::Exit;

/// Returns the exit code of the first container that failed.
pub(crate) async fn wait(service: &ServiceView, context: &mut Context<'_>) -> CommandResult {
    let name = service.name.to_string();
    let waited = context.waiter().wait_for(Goal::Ended { service: name.clone() }).await;
    if waited != Exit::Ok {
        return Ok(waited);
    }
    let filter = PodFilter { service: Some(name.clone()), ..PodFilter::default() };
    let pods = context.client.pods(&filter).await?;
    Ok(exit_of(&pods))
}

pub(crate) fn exit_of(pods: &[PodView]) -> Exit {
    let Some(failed) = pods.iter().find(|pod| pod.phase == Phase::Failed) else { return Exit::Ok };
    match failed.exit_code.map(u8::try_from) {
        Some(Ok(code)) if code > 0 => Exit::Container(code),
        _ => {
            stderr::note(&format!("the container did not end by itself: {}", failed.message));
            Exit::Error
        }
    }
}

#[cfg(test)]
mod tests {
    use testkit::api_fixtures as fixtures;

    use super::*;

    #[test]
    fn the_exit_code_is_that_of_the_first_container_that_failed() {
        let pod = |phase, exit_code| PodView { exit_code, ..fixtures::pod("p", phase) };
        let succeeded = || pod(Phase::Succeeded, Some(0));
        for (pods, expected) in [
            (vec![succeeded(), succeeded()], Exit::Ok),
            (vec![succeeded(), pod(Phase::Failed, Some(3)), pod(Phase::Failed, Some(4))], Exit::Container(3)),
            (vec![pod(Phase::Failed, Some(137))], Exit::Container(137)),
            (vec![pod(Phase::Failed, None)], Exit::Error),
            (vec![pod(Phase::Failed, Some(-1))], Exit::Error),
            (vec![], Exit::Ok),
        ] {
            assert_eq!(exit_of(&pods), expected, "{pods:?}");
        }
    }
}
