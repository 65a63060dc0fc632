//! `drain`: asks the cluster to move the pods of a node, and follows. Interrupted, the drain goes on.

use std::time::{Duration, Instant};

use api_types::{DrainView, LeavingPodView, NodeView};
use clap::Args;
use client::found;
use model::node::NodeState;
use model::spec::Seconds;
use output::humanize;
use output::stderr;

use crate::commands::context::Context;
use crate::commands::error::{CommandError, CommandResult};
use crate::commands::objects::object_name::ObjectType;
use crate::exit::Exit;

const MAX_NAMES: usize = 10;
const POLL: Duration = Duration::from_millis(500);

/// Arguments of `drain`.
#[derive(Debug, Args)]
#[command(
    after_help = "A node that is drained gets no new pods: `kubeleet uncordon NODE` changes that and ends the \
                        drain; `kubeleet cordon NODE` only ends it. The drain goes on without this command: Ctrl-C and --timeout end only the waiting; a \
                        pod that finds no place stays until one appears, or until --deadline.\n\nPods whose persistent \
                        volume is on the node stay and are named: no other node could start them. So do pods for \
                        which no other node has room: nothing is stopped that would be down then. A service keeps \
                        as many ready pods as during an update."
)]
pub(crate) struct DrainArgs {
    /// Name of the node.
    #[arg(value_name = "NODE", value_parser = ObjectType::Node.names())]
    node: String,
    /// Stops what is left after this time, such as 10m, but no pod whose data is on the node.
    #[arg(long, value_name = "DURATION")]
    deadline: Option<Seconds>,
    /// At the deadline, also stops pods whose data is on the node.
    #[arg(long, requires = "deadline")]
    stop_bound: bool,
    /// Only shows where the pods would go, and which would stay.
    #[arg(long, conflicts_with_all = ["deadline", "stop_bound"])]
    dry_run: bool,
}

pub(crate) async fn run(args: &DrainArgs, context: &mut Context<'_>) -> CommandResult {
    if args.dry_run {
        let view = context.client.drain_plan(&args.node).await?;
        context.output.print_list(&view.pods, "no pod is on the node")?;
        return Ok(if view.pods.iter().any(needs_person) { Exit::Unschedulable } else { Exit::Ok });
    }
    let deadline = args.deadline.map(|deadline| deadline.duration().as_secs());
    let view = context.client.drain(&args.node, deadline, args.stop_bound).await?;
    let node = read_node(&args.node, context).await?;
    context.output.print_result(&node, "cordoned")?;
    note_staying(&view);
    let left = follow(&args.node, context).await?;
    finish(&left, &node, context)
}

async fn read_node(name: &str, context: &Context<'_>) -> CommandResult<NodeView> {
    let node = found(context.client.get::<NodeView>("node", name).await)?;
    node.ok_or_else(|| CommandError::NotFound(format!("there is no node {name}")))
}

/// Until no pod moves any more, or --timeout is over. Returns the pods that are left.
pub(crate) async fn follow(node: &str, context: &mut Context<'_>) -> CommandResult<Vec<LeavingPodView>> {
    let until = Instant::now() + context.globals.timeout;
    let mut moving: Vec<LeavingPodView> = Vec::new();
    loop {
        let view = context.client.drain_plan(node).await?;
        for gone in moving.iter().filter(|pod| view.pods.iter().all(|other| other.uuid != pod.uuid)) {
            let to = gone.to.as_ref().map(|to| format!(", to {to}")).unwrap_or_default();
            stderr::note(&format!("{} left {node}{to}", indexed(gone)));
        }
        let is_over = !view.pods.iter().any(|pod| pod.to.is_some()) && !only_global_are_left(&view.pods);
        // Pods that are being stopped are in no plan.
        if (is_over && is_empty_or_waits(node, &view, context).await?) || Instant::now() >= until {
            return Ok(view.pods);
        }
        moving = view.pods;
        tokio::time::sleep(POLL).await;
    }
}

async fn is_empty_or_waits(node: &str, view: &DrainView, context: &Context<'_>) -> CommandResult<bool> {
    let used = read_node(node, context).await?.used.pods;
    Ok(used <= view.pods.len() as u64)
}

/// They are stopped by then, too.
fn only_global_are_left(pods: &[LeavingPodView]) -> bool {
    !pods.is_empty() && pods.iter().all(|pod| pod.is_global)
}

pub(crate) fn indexed(pod: &LeavingPodView) -> String {
    format!("{}-{}", pod.name, pod.replica)
}

/// A pod that could move if there were room.
fn needs_person(pod: &LeavingPodView) -> bool {
    pod.to.is_none() && pod.service.is_some() && !pod.is_bound && !pod.is_global
}

/// Before anything is stopped.
fn note_staying(view: &DrainView) {
    staying_lines(&view.pods, view.node.as_str()).iter().for_each(|line| stderr::note(line));
}

/// One for all pods with the same reason.
fn staying_lines(pods: &[LeavingPodView], node: &str) -> Vec<String> {
    let mut groups: Vec<(&LeavingPodView, Vec<String>)> = Vec::new();
    let alike = |a: &LeavingPodView, b: &LeavingPodView| {
        (&a.stays, a.is_bound, a.service.is_none()) == (&b.stays, b.is_bound, b.service.is_none())
    };
    // Those of global services are stopped last.
    for pod in pods.iter().filter(|pod| pod.to.is_none() && !pod.is_global) {
        match groups.iter_mut().find(|(first, _)| alike(first, pod)) {
            Some((_, names)) => names.push(indexed(pod)),
            None => groups.push((pod, vec![indexed(pod)])),
        }
    }
    groups.iter().map(|(first, names)| staying_line(first, names, node)).collect()
}

fn staying_line(first: &LeavingPodView, names: &[String], node: &str) -> String {
    let stay = if names.len() == 1 { "stays" } else { "stay" };
    let count = humanize::count(names.len() as u64, "pod");
    let shown = names[..names.len().min(MAX_NAMES)].join(", ");
    let more = names.len().saturating_sub(MAX_NAMES);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let (why, stop) = (&first.stays, "`kubeleet pod stop POD` stops a pod nevertheless");
    if first.service.is_none() {
        format!(
            "{count} of no service left on {node}, for nothing would start it elsewhere: {shown}{more}; {stop}"
        )
    } else if first.is_bound {
        format!(
            "{count} left on {node}: {shown}{more}. The data of persistent volumes is there, and no other node \
             has it: a pod that uses it is down while the machine is; {stop}"
        )
    } else {
        format!(
            "{count} {stay} on {node}: {shown}{more}: {why}. The drain goes on when there is a place; {stop}"
        )
    }
}

fn finish(left: &[LeavingPodView], node: &NodeView, context: &mut Context<'_>) -> CommandResult {
    if left.iter().any(|pod| pod.to.is_some()) {
        stderr::note(&format!(
            "{} still move: the drain of {} goes on; `kubeleet drain {}` waits for it again",
            humanize::count(left.iter().filter(|pod| pod.to.is_some()).count() as u64, "pod"),
            node.name,
            node.name
        ));
        return Ok(Exit::TimedOut);
    }
    if left.iter().any(needs_person) {
        return Ok(Exit::Unschedulable);
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
    use model::ids::{NodeName, PodId, PodName, ServiceName};
    use model::pod::lifecycle::Phase;

    use super::*;

    fn pod(replica: u32, to: Option<&str>, stays: &str, is_bound: bool) -> LeavingPodView {
        LeavingPodView {
            uuid: PodId::random(),
            name: PodName::new("web").unwrap(),
            service: Some(ServiceName::new("web").unwrap()),
            replica,
            phase: Phase::Running,
            to: to.map(|name| NodeName::new(name).unwrap()),
            stays: stays.to_owned(),
            is_bound,
            is_global: false,
        }
    }

    #[test]
    fn pods_that_stay_for_the_same_reason_share_a_line() {
        let full = "no other node takes it: InsufficientMemory (b)";
        let mut pods: Vec<LeavingPodView> = (0..12).map(|replica| pod(replica, None, full, false)).collect();
        pods.push(pod(20, None, "VolumeElsewhere (b)", true));
        pods.push(pod(21, Some("b"), "", false));
        let lines = staying_lines(&pods, "a");
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines[0].starts_with("12 pods stay on a: web-0, web-1, "), "{lines:?}");
        assert!(lines[0].contains(&format!("web-9 and 2 more: {full}. The drain goes on")), "{lines:?}");
        assert!(lines[1].starts_with("1 pod left on a: web-20. The data of persistent"), "{lines:?}");
    }

    #[test]
    fn only_a_pod_that_lacks_room_needs_a_person() {
        assert!(needs_person(&pod(0, None, "x", false)));
        assert!(!needs_person(&pod(0, Some("b"), "", false)));
        assert!(!needs_person(&pod(0, None, "x", true)));
        assert!(!needs_person(&LeavingPodView { service: None, ..pod(0, None, "x", false) }));
        let global = || LeavingPodView { is_global: true, ..pod(0, None, "x", false) };
        assert!(!needs_person(&global()) && staying_lines(&[global()], "a").is_empty());
        assert!(only_global_are_left(&[global()]));
        assert!(!only_global_are_left(&[global(), pod(1, None, "x", true)]) && !only_global_are_left(&[]));
    }
}
