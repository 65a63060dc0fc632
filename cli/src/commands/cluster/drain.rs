//! `drain`: moves a node's pods, one of each service at a time.

use std::collections::BTreeSet;

use api_types::{NodeView, PodView, VolumeView};
use clap::Args;
use client::{PodFilter, found};
use model::ids::ServiceName;
use model::node::{NodeState, Resource};
use model::pod::lifecycle::Phase;
use model::spec::Kind;
use output::humanize;
use output::objects::pods;
use output::stderr;

use crate::commands::context::Context;
use crate::commands::error::CommandResult;
use crate::commands::objects::object_name::ObjectType;
use crate::commands::wait::Goal;
use crate::exit::Exit;

const MAX_REASONS: usize = 5;
const MAX_NAMES: usize = 10;

/// Arguments of `drain`.
#[derive(Debug, Args)]
#[command(
    after_help = "A node that was drained gets no new pods: `kubeleet uncordon NODE` changes that. If a \
                        replacement is not ready within --timeout, the rest stays where it is; begin again \
                        any time.\n\nPods whose persistent volume is on the node stay and are named: no other \
                        node could start them. So do pods for which no other node has room: nothing is stopped \
                        that would be down then."
)]
pub(crate) struct DrainArgs {
    /// Name of the node.
    #[arg(value_name = "NODE", value_parser = ObjectType::Node.names())]
    node: String,
}

/// The next pod of a service stops when the service is ready again.
pub(crate) async fn run(args: &DrainArgs, context: &mut Context<'_>) -> CommandResult {
    let node = context.client.cordon(&args.node, true).await?;
    context.output.print_result(&node, "cordoned")?;
    let bound = bound_to(&args.node, context).await?;
    loop {
        let pods = pods_on(&args.node, context).await?;
        let (staying, moving): (Vec<_>, Vec<_>) = pods.into_iter().partition(|pod| is_bound(pod, &bound));
        let needs_place = moving.iter().any(|pod| is_here(pod) && pod.service.is_some());
        let nodes = if needs_place { context.client.list::<NodeView>("node").await? } else { Vec::new() };
        let (moving, stuck): (Vec<_>, Vec<_>) = moving
            .into_iter()
            .partition(|pod| !is_here(pod) || pod.service.is_none() || has_place(pod, &nodes));
        let round = next_round(&moving, &BTreeSet::new());
        if round.is_empty() {
            note_bound(&staying, &args.node);
            stuck_lines(&stuck, &args.node, &nodes).iter().for_each(|line| stderr::note(line));
            if !stuck.is_empty() {
                return Ok(Exit::Unschedulable);
            }
            return finish(&moving, &node, context);
        }
        let replaced = replace(&round, context).await?;
        if let Some(failure) = replaced.into_iter().map(|(_, exit)| exit).find(|exit| *exit != Exit::Ok) {
            return Ok(failure);
        }
    }
}

/// A service without a timely replacement does not block others. Returns such services.
pub(crate) async fn replace_all(
    node: &str,
    context: &mut Context<'_>,
) -> CommandResult<BTreeSet<ServiceName>> {
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

type Replica = (ServiceName, u32);

/// Their data is in persistent volumes of the node.
async fn bound_to(node: &str, context: &Context<'_>) -> CommandResult<BTreeSet<Replica>> {
    let volumes: Vec<VolumeView> = context.client.list("volume").await?;
    let here =
        volumes.into_iter().filter(|volume| volume.node.as_ref().is_some_and(|on| on.as_str() == node));
    Ok(here.filter_map(|volume| Some((volume.service, volume.replica?))).collect())
}

fn is_bound(pod: &PodView, bound: &BTreeSet<Replica>) -> bool {
    pod.service.as_ref().is_some_and(|service| bound.contains(&(service.clone(), pod.replica)))
}

fn note_bound(pods: &[PodView], node: &str) {
    let names: Vec<String> = pods.iter().filter(|pod| is_here(pod)).map(pods::indexed_name).collect();
    if !names.is_empty() {
        stderr::note(&format!(
            "{} left on {node}: {}. The data of persistent volumes is there, and no other node has it. A pod that uses it \
             is down while the machine is; `kubeleet pod stop POD` ends a pod in order before",
            humanize::count(names.len() as u64, "pod"),
            names.join(", ")
        ));
    }
}

/// Without room elsewhere the pod would be down after its stop.
fn has_place(pod: &PodView, nodes: &[NodeView]) -> bool {
    nodes.iter().any(|node| why_not(pod, node).is_none())
}

fn why_not(pod: &PodView, node: &NodeView) -> Option<&'static str> {
    let lacks = |resource: Resource| {
        let needed = match resource {
            Resource::Cpu => pod.cpu_millis,
            Resource::Memory => pod.memory_bytes,
            Resource::Pids => pod.pids,
            Resource::Disk => pod.disk_bytes,
        };
        needed > 0 && needed > node.capacity.left(resource, &node.used)
    };
    if node.cordoned {
        Some("cordoned")
    } else if node.state == NodeState::Dead || !node.ready {
        Some("not ready")
    } else if node.disk_problem.is_some() {
        Some("disk full")
    } else if node.used.pods >= node.capacity.pods || Resource::ALL.into_iter().any(lacks) {
        Some("no room")
    } else if pod.host_ports.iter().any(|port| node.host_ports.contains_key(port)) {
        Some("port taken")
    } else {
        None
    }
}

/// One for all pods with the same reasons.
fn stuck_lines(stuck: &[PodView], node: &str, nodes: &[NodeView]) -> Vec<String> {
    let mut groups: Vec<(String, Vec<String>)> = Vec::new();
    for pod in stuck {
        let reasons = reasons_of(pod, node, nodes);
        match groups.iter_mut().find(|(known, _)| *known == reasons) {
            Some((_, names)) => names.push(pods::indexed_name(pod)),
            None => groups.push((reasons, vec![pods::indexed_name(pod)])),
        }
    }
    let line = |(reasons, names): &(String, Vec<String>)| {
        let (stay, them) = if names.len() == 1 { ("stays", "it") } else { ("stay", "them") };
        let count = humanize::count(names.len() as u64, "pod");
        let shown = names[..names.len().min(MAX_NAMES)].join(", ");
        let more = names.len().saturating_sub(MAX_NAMES);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        format!(
            "{count} {stay} on {node}, for no other node takes {them} ({reasons}): {shown}{more}. Uncordon or add a node, \
             then drain again; `kubeleet pod stop POD` stops a pod nevertheless"
        )
    };
    groups.iter().map(line).collect()
}

fn reasons_of(pod: &PodView, node: &str, nodes: &[NodeView]) -> String {
    let others = nodes.iter().filter(|other| other.name.as_str() != node);
    let reasons = others.filter_map(|other| Some(format!("{} {}", other.name, why_not(pod, other)?)));
    let reasons = reasons.take(MAX_REASONS).collect::<Vec<_>>().join(", ");
    if reasons.is_empty() { "there is no other node".to_owned() } else { reasons }
}

async fn pods_on(node: &str, context: &Context<'_>) -> CommandResult<Vec<PodView>> {
    let filter = PodFilter { node: Some(node.to_owned()), ..PodFilter::default() };
    Ok(context.client.pods(&filter).await?)
}

/// One pod of each service.
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

/// Waits until each pod is gone and its service is ready again.
async fn replace(round: &[&PodView], context: &mut Context<'_>) -> CommandResult<Vec<(ServiceName, Exit)>> {
    let mut goals = Vec::new();
    for pod in round {
        // Without one the pod has ended or was deleted meanwhile.
        let stopping = found(context.client.stop_pod(pod.uuid.as_str()).await)?;
        let Some(stopping) = stopping else { continue };
        context.output.print_result(&stopping, "stopping")?;
        let Some(service) = &pod.service else { continue };
        let goal = Goal::PodGone { id: pod.uuid.clone(), name: pods::indexed_name(pod) };
        goals.push((service.clone(), goal));
        // The indices of a job continue elsewhere: waiting for its end would mean waiting for its work.
        let view = found(context.client.service(service.as_str()).await)?;
        if let Some(view) = view.filter(|view| view.pod.kind != Kind::Job) {
            goals.push((service.clone(), Goal::ready(&view)));
        }
    }
    let (services, goals): (Vec<_>, Vec<_>) = goals.into_iter().unzip();
    Ok(services.into_iter().zip(context.waiter().wait_for_each(goals).await).collect())
}

/// Nothing would start the remaining pods elsewhere.
fn finish(pods: &[PodView], node: &api_types::NodeView, context: &mut Context<'_>) -> CommandResult {
    let pushed = pods.iter().filter(|pod| is_here(pod)).count() as u64;
    if pushed > 0 {
        let count = humanize::count(pushed, "pod");
        stderr::note(&format!(
            "{count} of no service left on {node}, for nothing would start it elsewhere: `kubeleet pod ls --node \
             {node}` lists what is there, and `kubeleet pod stop` ends it",
            node = node.name
        ));
    }
    if node.state == NodeState::Dead {
        stderr::note(&format!(
            "{node} is dead: its pods were moved when that was found. It stays cordoned until `kubeleet uncordon {node}`",
            node = node.name
        ));
    }
    context.output.print_result(node, "drained")?;
    Ok(Exit::Ok)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use testkit::api_fixtures as fixtures;

    use super::*;

    #[test]
    fn a_pod_is_bound_to_the_node_that_has_the_volume_of_its_replica() {
        let pod = |service: Option<&str>, replica| PodView {
            service: service.map(|name| ServiceName::new(name).unwrap()),
            replica,
            ..fixtures::pod("a", Phase::Running)
        };
        let bound = BTreeSet::from([(ServiceName::new("db").unwrap(), 1)]);
        assert!(is_bound(&pod(Some("db"), 1), &bound));
        for other in [pod(Some("db"), 0), pod(Some("web"), 1), pod(None, 1)] {
            assert!(!is_bound(&other, &bound));
        }
    }

    #[test]
    fn a_pod_is_stopped_only_if_another_node_has_room_for_it() {
        let node = |change: fn(&mut NodeView)| {
            let mut node = fixtures::node("b");
            (node.ready, node.cordoned) = (true, false);
            (node.capacity.pods, node.capacity.memory_bytes) = (10, 100);
            (node.used.pods, node.used.memory_bytes) = (9, 36);
            change(&mut node);
            node
        };
        let pod = |memory_bytes| PodView {
            host_ports: vec!["8080/tcp".to_owned()],
            memory_bytes,
            cpu_millis: 0,
            pids: 0,
            disk_bytes: 0,
            ..fixtures::pod("a", Phase::Running)
        };
        for (node, memory, expected) in [
            (node(|_| {}), 64, None),
            (node(|_| {}), 65, Some("no room")),
            (node(|node| node.used.pods = 10), 0, Some("no room")),
            (node(|node| node.cordoned = true), 0, Some("cordoned")),
            (node(|node| node.ready = false), 0, Some("not ready")),
            (node(|node| node.disk_problem = Some("x".to_owned())), 0, Some("disk full")),
            (
                node(|node| drop(node.host_ports.insert("8080/tcp".to_owned(), "a".to_owned()))),
                0,
                Some("port taken"),
            ),
            (node(|node| drop(node.host_ports.insert("8080/udp".to_owned(), "a".to_owned()))), 0, None),
        ] {
            let pod = pod(memory);
            assert_eq!(why_not(&pod, &node), expected);
            assert_eq!(has_place(&pod, std::slice::from_ref(&node)), expected.is_none());
        }
        assert!(!has_place(&pod(0), &[]));
    }

    #[test]
    fn pods_that_stay_for_the_same_reason_share_a_line() {
        let pod = |replica, port: &str| PodView {
            replica,
            host_ports: vec![port.to_owned()],
            memory_bytes: 0,
            cpu_millis: 0,
            pids: 0,
            disk_bytes: 0,
            ..fixtures::pod("a", Phase::Running)
        };
        let mut other = fixtures::node("b");
        (other.ready, other.cordoned) = (true, false);
        other.capacity.pods = 100;
        drop(other.host_ports.insert("80/tcp".to_owned(), "x".to_owned()));
        let mut pods: Vec<PodView> = (0..12).map(|replica| pod(replica, "80/tcp")).collect();
        pods.push(pod(20, "81/tcp"));
        let lines = stuck_lines(&pods, "a", &[fixtures::node("a"), other]);
        assert_eq!(lines.len(), 2, "{lines:?}");
        let first = "12 pods stay on a, for no other node takes them (b port taken): web-0, web-1, ";
        assert!(lines[0].starts_with(first) && lines[0].contains("web-9 and 2 more. Uncordon"), "{lines:?}");
        assert!(lines[1].starts_with("1 pod stays on a, for no other node takes it ("), "{lines:?}");
        assert!(stuck_lines(&pods[..1], "a", &[])[0].contains("(there is no other node): web-0. "));
    }

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
