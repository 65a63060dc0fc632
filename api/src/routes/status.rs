//! `/status`: state of the cluster, and problems for operators.

use std::time::Duration;

use api_types::{NodeCounts, PauseView, RedisMemoryView, RedisView, RedundancyView, StatusView};
use axum::Json;
use axum::extract::State;
use daemon::config::Config;
use model::RedisMillis;
use model::node::mass_loss::{CircuitBreaker, SilentNodes};
use model::node::{Node, NodeState};
use model::queue_lengths::QueueLengths;
use model::time::rfc3339;
use store::{ForeignKey, HeldNode, HoldReason, Severity};

use crate::admission::growth;
use crate::admission::secret_keys::WorkerKeys;
use crate::cluster::differing_times;
use crate::cluster::overview::{self, Overview};
use crate::cluster::redis_watch::RedisCondition;
use crate::http::problem::ApiProblem;
use crate::routes::volumes::condition_of;
use crate::state::AppState;
use crate::status::pod_counts::{PodExample, UNSCHEDULABLE};
use crate::status::views;

/// A longer list would hide its first entries.
const MAX_PROBLEMS: usize = 20;

/// Shows the state of the cluster and its problems, also while Redis is unavailable.
#[utoipa::path(get, path = "/status", tag = "cluster", responses(
    (status = 200, description = "The state of the cluster", body = StatusView),
))]
pub(crate) async fn get_status(State(app): State<AppState>) -> Result<Json<StatusView>, ApiProblem> {
    let (overview, condition) = tokio::join!(Overview::read(&app), app.redis_watch.condition());
    let overview = match overview {
        Ok(overview) => overview,
        Err(error) if error.is_transient() => return Ok(Json(without_redis(&app, error.to_string()))),
        Err(error) => return Err(error.into()),
    };
    let durability = match app.durability_now().await {
        // The broken key is among those of the overview.
        Err(error) if error.is_broken_key() => app.durability(),
        durability => durability?,
    };
    let fresh = app.config.timing.fence_after;
    let memory = memory(&overview, &app.config);
    let mut problems = all_problems(&overview, &condition, &app.config);
    let volumes = app.store.volumes_with_problems().await.unwrap_or_default();
    problems.extend(volumes.iter().filter_map(|volume| condition_of(volume).1));
    problems.extend(app.store.held_violations().await.unwrap_or_default());
    problems.extend(server_problems(&app).await?);
    Ok(Json(StatusView {
        redis: RedisView {
            connected: true,
            writable: condition.outage.is_none(),
            server: condition.product.clone(),
            master: overview::redis_master(&app).unwrap_or_default(),
            detail: String::new(),
            memory: Some(memory),
        },
        durability,
        unconfirmed_writes: overview.unconfirmed_writes,
        nodes: overview.node_counts(fresh),
        services: overview.services,
        problems,
        broken: overview.broken.named,
        redundancy: redundancy(&condition),
        pause: pause(overview.master_changed_at, overview.now, &app.config),
        pods: overview.pods,
        pods_not_ready: overview.pods_not_ready,
        queues: overview.queues,
        schedulers: overview.schedulers,
    }))
}

fn redundancy(condition: &RedisCondition) -> Option<RedundancyView> {
    let redundancy = &condition.redundancy;
    (!condition.product.is_empty()).then_some(RedundancyView {
        replicas: redundancy.expected.len(),
        replicas_attached: redundancy.attached.len(),
        sentinels: redundancy.sentinels,
        sentinels_answering: redundancy.sentinels_answering,
        can_fail_over: redundancy.can_fail_over,
    })
}

async fn server_problems(app: &AppState) -> Result<Vec<String>, ApiProblem> {
    match app.store.server_concerns().await {
        Ok(concerns) => {
            let serious = concerns.into_iter().filter(|concern| concern.severity >= Severity::Problem);
            Ok(serious.map(|concern| concern.text).collect())
        }
        Err(error) if error.is_transient() => Err(error.into()),
        Err(_) => Ok(Vec::new()),
    }
}

fn without_redis(app: &AppState, error: String) -> StatusView {
    let why = overview::redis_master(app).err().filter(|why| !why.is_empty());
    StatusView {
        redis: RedisView {
            connected: false,
            writable: false,
            server: String::new(),
            master: String::new(),
            detail: why.unwrap_or_else(|| error.clone()),
            memory: None,
        },
        durability: app.durability(),
        unconfirmed_writes: 0,
        nodes: NodeCounts::default(),
        services: 0,
        pods: Default::default(),
        pods_not_ready: 0,
        queues: QueueLengths::default(),
        schedulers: 0,
        pause: None,
        redundancy: None,
        broken: Vec::new(),
        problems: vec![format!("{error}; everything else is unknown until Redis is available again")],
    }
}

/// Schedulers and workers decide with the same settings.
pub(crate) fn pause(changed_at: Option<RedisMillis>, now: RedisMillis, config: &Config) -> Option<PauseView> {
    // A time in the future counts as now.
    let changed_at = changed_at?.min(now);
    let since = Duration::from_millis(now - changed_at);
    let left = |pause: Duration| pause.saturating_sub(since).as_millis().div_ceil(1000) as u64;
    let no_deaths_for_seconds = left(config.timing.master_change_pause(config.redis.has_sentinels()));
    let no_starts_for_seconds = left(config.timing.fence_after);
    (no_deaths_for_seconds.max(no_starts_for_seconds) > 0).then(|| PauseView {
        master_changed_at: rfc3339(changed_at),
        no_deaths_for_seconds,
        no_starts_for_seconds,
    })
}

fn held(held: &HeldNode) -> String {
    let HeldNode { node, cluster, containers, reason } = held;
    if *reason == HoldReason::Records {
        return format!(
            "node {node} holds {containers} containers whose pods have no records in this Redis: was an \
             older state restored? They go on, and nothing looks after them; `kubeleet cluster recover` shows \
             what it can record again"
        );
    }
    format!(
        "node {node} holds {containers} containers of cluster {cluster}, which this Redis does not know: \
         check KUBELEET_REDIS_URL and its database number; if the data are lost, `kubeleet cluster recover` \
         shows what it can write again from what the workers have saved"
    )
}

fn memory(overview: &Overview, config: &Config) -> RedisMemoryView {
    RedisMemoryView {
        used_bytes: overview.memory.used,
        limit_bytes: overview.memory.limit,
        headroom_bytes: growth::headroom(overview.memory, &config.growth),
    }
}

/// Write outages come first, then the rest of Redis, then the cluster.
pub(crate) fn all_problems(overview: &Overview, condition: &RedisCondition, config: &Config) -> Vec<String> {
    let fresh = config.timing.fence_after;
    let of_redis = condition.problems(fresh);
    let of_cluster = problems(overview, condition, memory(overview, config), config);
    of_redis.into_iter().chain(of_cluster).collect()
}

fn problems(
    overview: &Overview,
    condition: &RedisCondition,
    memory: RedisMemoryView,
    config: &Config,
) -> Vec<String> {
    let fresh = config.timing.fence_after;
    // During a write outage all nodes are silent: the cause is already reported.
    let is_writable = condition.outage.is_none();
    let mut problems: Vec<String> = overview.held.iter().map(held).collect();
    if let (Some(limit), Some(0)) = (memory.limit_bytes, memory.headroom_bytes) {
        let percent = u128::from(memory.used_bytes) * 100 / u128::from(limit);
        problems.push(format!(
            "Redis uses {percent} % of its maxmemory, so nothing can be added: delete or scale down \
            services, or raise maxmemory"
        ));
    }
    problems.extend(overview.foreign_keys.iter().map(|key| match key {
        ForeignKey::InPlace(key) => format!(
            "another program wrote the key `{key}`, and its type is wrong; kubeleet moves it out of the way \
             when it next writes there"
        ),
        ForeignKey::SetAside(own) => format!(
            "another program wrote the key `{own}`; kubeleet goes on with a new one, and the written value is \
             in `{}`: look at it, then DEL it",
            key.name()
        ),
    }));
    problems.extend(differing_times::sentences(&overview.nodes, &overview.scheduler_times));
    let own_key = config.secret_key.as_ref();
    let keys = WorkerKeys::of(&overview.nodes, own_key);
    problems.extend(keys.problems(own_key));
    problems.extend(keys.problems_of_proxies(&overview.proxies.secret_keys));
    problems.extend(overview.without_record.iter().map(|(name, pods)| {
        let pods = counted(*pods as u64, "pod");
        format!(
            "the service {name} has no record (service:{name} in Redis), and its {pods} run on: `kubeleet cluster \
             recover` shows what it can record again"
        )
    }));
    if overview.schedulers == 0 && is_writable {
        problems.push("no scheduler is alive, so no pod is placed: start `kubeleet scheduler`".to_owned());
    }
    problems.extend(overview.silent_schedulers.iter().filter(|_| is_writable).map(|(id, silence)| {
        format!(
            "scheduler {id} has been silent for {} s: others queue its pods in flight again; if it was not stopped for \
             good, start it",
            silence.as_secs()
        )
    }));
    let mut alive = overview.nodes.iter().filter(|node| node.state == NodeState::Alive).peekable();
    if alive.peek().is_some() && alive.all(|node| node.cordoned) {
        problems.push("all nodes are cordoned, so no pod is placed: `kubeleet uncordon NODE`".to_owned());
    }
    if overview.nodes.is_empty() && is_writable {
        problems.push(
            "there are no nodes: start `kubeleet worker` on the machines that run containers".to_owned(),
        );
    }
    let silent = silent_nodes(&overview.nodes, overview.now, fresh);
    problems.extend(mass_loss(&silent).filter(|_| is_writable));
    problems.extend(overview.proxies.away.iter().filter(|_| is_writable).map(|node| {
        format!(
            "the proxy of node {node} is gone: requests from outside and by name to that host fail; start `kubeleet \
             proxy` there, or `HDEL proxies {node}` if it has none any more"
        )
    }));
    let queues = &overview.queues;
    if queues.unschedulable > 0 {
        let count = counted(queues.unschedulable, "unschedulable pod");
        let example = overview.reasons.get(UNSCHEDULABLE).map(|(_, pod)| pod);
        problems.push(match example {
            Some(PodExample { name, message }) if !message.is_empty() => {
                format!("{count}: {name} waits ({message}); `kubeleet queue peek uq` lists all")
            }
            _ => format!("{count}: `kubeleet queue peek uq` says why"),
        });
    }
    let others = overview.reasons.iter().filter(|(reason, _)| *reason != UNSCHEDULABLE);
    problems.extend(others.map(|(reason, (count, pod))| {
        let subject = if *count == 1 { "1 pod is".to_owned() } else { format!("{count} pods are") };
        let PodExample { name, message } = pod;
        let message = if message.is_empty() { String::new() } else { format!(" ({message})") };
        format!("{subject} not well: {reason}{message}; `kubeleet pod describe {name}` says more about one")
    }));
    if overview.lasting_unconfirmed_writes > 0 && is_writable {
        let subject = match overview.lasting_unconfirmed_writes {
            1 => "the latest write of 1 service is".to_owned(),
            count => format!("the latest writes of {count} services are"),
        };
        problems.push(format!(
            "{subject} not confirmed by all replicas of Redis, and a failover may lose them; an event WriteConfirmed \
             reports each confirmation"
        ));
    }
    if overview.broken.total > 0 {
        let sentence = overview.broken.sentence();
        problems.push(format!("{sentence}; fix it with redis-cli, everything else goes on"));
    }
    if queues.dead > 0 {
        let count = counted(queues.dead, "dead letter");
        problems.push(format!("{count}: `kubeleet queue peek dq` says why"));
    }
    problems.extend(overview.nodes.iter().filter_map(|node| {
        let (name, silence) = (&node.name, views::silence(node, overview.now));
        match (node.state, &node.engine_problem) {
            (NodeState::Dead, _) => {
                Some(format!("node {name} is dead; its last heartbeat was {} s ago", silence.as_secs()))
            }
            (NodeState::Alive, _) if views::is_silent(node, overview.now, fresh) => {
                is_writable.then(|| format!("node {name} has been silent for {} s", silence.as_secs()))
            }
            (NodeState::Alive, Some(problem)) => {
                Some(format!("the container engine of node {name} fails: {problem}"))
            }
            (NodeState::Alive, None) => None,
        }
    }));
    let living = overview.nodes.iter().filter(|node| node.state == NodeState::Alive);
    problems.extend(
        living.flat_map(|node| node.problems.iter().map(|problem| format!("node {}: {problem}", node.name))),
    );
    if problems.len() > MAX_PROBLEMS {
        let more = problems.len() - MAX_PROBLEMS;
        problems.truncate(MAX_PROBLEMS);
        problems.push(format!("and {more} more nodes: GET /node"));
    }
    problems
}

/// As schedulers count them: a silent cordoned node was given up.
fn silent_nodes(nodes: &[Node], now: RedisMillis, fresh: Duration) -> SilentNodes {
    let alive = nodes.iter().filter(|node| node.state == NodeState::Alive);
    let (silent, others): (Vec<&Node>, Vec<&Node>) =
        alive.partition(|node| views::is_silent(node, now, fresh));
    let last_beats: Vec<RedisMillis> =
        silent.iter().filter(|node| !node.cordoned).map(|node| node.beat).collect();
    SilentNodes { nodes: others.len() + last_beats.len(), last_beats }
}

fn mass_loss(silent: &SilentNodes) -> Option<String> {
    let CircuitBreaker::Open { silent, nodes } = CircuitBreaker::evaluate(silent) else { return None };
    Some(format!(
        "{silent} of {nodes} nodes are silent together, so none is declared dead: repair the network, or `kubeleet \
         cordon` those that are really gone"
    ))
}

fn counted(count: u64, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

#[cfg(test)]
mod tests {
    use testkit::fixtures;

    use super::*;

    #[test]
    fn nodes_that_are_silent_together_are_said_to_be_a_mass_loss() {
        let silent = |count: usize| SilentNodes { nodes: 5, last_beats: vec![1_700_000_000_000; count] };
        assert_eq!(mass_loss(&silent(1)), None);
        assert!(
            mass_loss(&silent(3)).is_some_and(|text| text.starts_with("3 of 5 nodes are silent together"))
        );
    }

    #[test]
    fn the_pause_after_a_change_of_the_master_is_shown_until_it_is_over() {
        let now = 1_700_000_000_000;
        let left = |redis: &str, ago: Option<i64>| {
            let config = fixtures::config(&[("KUBELEET_REDIS_URL", redis)]);
            let changed_at = ago.map(|ago| (now as i64 - ago) as u64);
            pause(changed_at, now, &config)
                .map(|pause| (pause.no_deaths_for_seconds, pause.no_starts_for_seconds))
        };
        let (single, sentinels) = ("redis://a", "redis+sentinel://a:1,b:1,c:1/mymaster");
        let table = [
            ("it never changed", single, None, None),
            ("just now", single, Some(0), Some((20, 15))),
            ("with Sentinels", sentinels, Some(0), Some((30, 15))),
            ("pods start again", single, Some(15_500), Some((5, 0))),
            ("over", single, Some(20_000), None),
            ("of a master whose clock was ahead", single, Some(-3_600_000), Some((20, 15))),
        ];
        for (name, redis, ago, expected) in table {
            assert_eq!(left(redis, ago), expected, "{name}");
        }
    }
}
