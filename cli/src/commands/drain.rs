//! `drain`: replaces the pods of a node by pods on other nodes, one of each service at a time.

use std::collections::BTreeSet;

use clap::Args;
use common::api::PodView;
use common::ids::ServiceName;
use common::lifecycle::Phase;

use super::context::Context;
use super::error::CommandError;
use super::object;
use super::wait::Goal;
use crate::client::PodFilter;
use crate::exit::Exit;
use crate::output::humanize;
use crate::stderr;

/// Arguments of `drain`.
#[derive(Debug, Args)]
#[command(
    after_help = "A node that was drained gets no new pods: `kubeleet uncordon NODE` changes that. If a \
                        replacement is not ready within --timeout, the rest stays where it is; begin again \
                        any time."
)]
pub(crate) struct DrainArgs {
    /// Name of the node.
    #[arg(value_name = "NODE", value_parser = object::node)]
    node: String,
}

/// Cordons the node, and stops its pods step by step: the next pod of a service when the service is ready
/// again.
pub(super) async fn run(args: &DrainArgs, context: &mut Context<'_>) -> Result<Exit, CommandError> {
    let node = context.client.cordon(&args.node, true).await?;
    context.output.print_result(&node, "cordoned")?;
    loop {
        let pods = pods_on(&args.node, context).await?;
        let round = next_round(&pods, &BTreeSet::new());
        if round.is_empty() {
            return finish(&pods, &node, context);
        }
        let replaced = replace(&round, context).await?;
        if let Some(failure) = replaced.into_iter().map(|(_, exit)| exit).find(|exit| *exit != Exit::Ok) {
            return Ok(failure);
        }
    }
}

/// Replaces the pods of the node as [`run`] does, except that a service without a replacement in time holds
/// up no other one. Returns these services.
pub(super) async fn replace_all(
    node: &str,
    context: &mut Context<'_>,
) -> Result<BTreeSet<ServiceName>, CommandError> {
    let mut stuck = BTreeSet::new();
    loop {
        let pods = pods_on(node, context).await?;
        let round = next_round(&pods, &stuck);
        if round.is_empty() {
            return Ok(stuck);
        }
        let replaced = replace(&round, context).await?;
        stuck.extend(replaced.into_iter().filter(|(_, exit)| *exit != Exit::Ok).map(|(service, _)| service));
    }
}

async fn pods_on(node: &str, context: &Context<'_>) -> Result<Vec<PodView>, CommandError> {
    let filter = PodFilter { node: Some(node.to_owned()), ..PodFilter::default() };
    Ok(context.client.pods(&filter).await?)
}

/// Returns one pod of each service that is to leave the node, but for some services.
fn next_round<'a>(pods: &'a [PodView], except: &BTreeSet<ServiceName>) -> Vec<&'a PodView> {
    let mut services = except.iter().collect::<BTreeSet<_>>();
    pods.iter()
        .filter(|pod| is_here(pod))
        .filter(|pod| pod.service.as_ref().is_some_and(|s| services.insert(s)))
        .collect()
}

fn is_here(pod: &PodView) -> bool {
    matches!(pod.phase, Phase::Assigned | Phase::Running)
}

/// Stops pods of different services, and waits until each is gone and its service is ready again. Returns for
/// each service whether it came to that.
async fn replace(
    round: &[&PodView],
    context: &mut Context<'_>,
) -> Result<Vec<(ServiceName, Exit)>, CommandError> {
    let mut goals = Vec::new();
    for pod in round {
        match context.client.stop_pod(pod.uuid.as_str()).await {
            Ok(stopping) => context.output.print_result(&stopping, "stopping")?,
            // It has ended, or has been deleted, in the meantime.
            Err(error) if error.status() == Some(404) => continue,
            Err(error) => return Err(error.into()),
        }
        let Some(service) = &pod.service else { continue };
        goals.push((service.clone(), Goal::PodGone { id: pod.uuid.clone() }));
        match context.client.service(service.as_str()).await {
            Ok(view) => {
                let goal = Goal::Ready { service: service.to_string(), generation: view.generation };
                goals.push((service.clone(), goal));
            }
            Err(error) if error.status() == Some(404) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let (services, goals): (Vec<_>, Vec<_>) = goals.into_iter().unzip();
    Ok(services.into_iter().zip(context.waiter().wait_for_each(goals).await).collect())
}

/// Says what stays: pods without a service, of which there is no other description than the pod itself.
fn finish(
    pods: &[PodView],
    node: &common::api::NodeView,
    context: &mut Context<'_>,
) -> Result<Exit, CommandError> {
    let pushed = pods.iter().filter(|pod| is_here(pod)).count() as u64;
    if pushed > 0 {
        let count = humanize::count(pushed, "pod");
        stderr::note(&format!(
            "{count} of no service left on {node}, for nothing would start it elsewhere: `kubeleet pod ls --node \
             {node}` lists what is there, and `kubeleet pod stop` ends it",
            node = node.name
        ));
    }
    context.output.print_result(node, "drained")?;
    Ok(Exit::Ok)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use crate::client::fixtures;

    #[test]
    fn one_pod_of_each_service_leaves_at_a_time() {
        let pod = |id: &str, service: Option<&str>, phase| PodView {
            service: service.map(|name| ServiceName::new(name).unwrap()),
            ..fixtures::pod(id, phase)
        };
        let pods = [
            pod("a", Some("web"), Phase::Stopping),
            pod("b", Some("web"), Phase::Running),
            pod("c", Some("web"), Phase::Running),
            pod("d", Some("db"), Phase::Assigned),
            pod("e", None, Phase::Running),
            pod("f", Some("job"), Phase::Succeeded),
        ];
        let round = |pods, except: &[&str]| -> Vec<String> {
            let except = except.iter().map(|name| ServiceName::new(*name).unwrap()).collect();
            next_round(pods, &except).iter().map(|pod| pod.uuid.to_string()).collect()
        };
        assert_eq!(round(&pods, &[]), ["b", "d"]);
        assert_eq!(round(&pods, &["web"]), ["d"]);
        assert!(round(&pods[4..], &[]).is_empty());
    }
}
