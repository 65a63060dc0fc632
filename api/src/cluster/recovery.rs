//! `cluster recover` and `restore`: write to Redis what it lacks of workers' saved state or a backup.
//!
//! After a crash at any point the next request completes the work. The cluster's id is written last, so that
//! workers resume only when everything is there.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use api_types::{NodeAnswerView, RecoveryView, ServiceRecoveryView};
use model::ids::{ClusterId, NodeName, RecoveryId, VolumeName};
use model::node::{NodeKind, NodeState};
use serde::Deserialize;
use store::recovery::{self, KnownState, RecoveryPlan};
use store::saved_state::{SavedFile, SavedState, SavedValues, SavedVolume};
use store::{Store, StoreError};
use tokio::time::Instant;
use utoipa::ToSchema;

use crate::admission::secret_keys::WorkerKeys;
use crate::http::problem::{ApiProblem, ProblemKind};
use crate::state::AppState;

const POLL: Duration = Duration::from_millis(200);
/// A worker that finds an emptied Redis says within this time after its heartbeat that it holds its
/// containers.
const HOLD_DELAY: Duration = Duration::from_secs(2);

/// The part of a restore that a request carries out: a backup can be larger than one request. All pods are
/// recorded before the first service is, so that none is created for a slot whose pod is still to come.
/// Workers take up work again after the last part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RestorePart {
    /// Secrets, configs and logins for registries: pods that start need them.
    Values,
    /// The pods and specifications.
    Pods,
    /// The records of the services.
    Services,
    /// The id of the cluster.
    Cluster,
}

pub(crate) async fn restore(
    store: &Store,
    file: SavedFile,
    part: RestorePart,
    with_deleted: bool,
    apply: bool,
) -> Result<RecoveryView, ApiProblem> {
    let cluster = file.header.cluster;
    let seen = store.cluster_id().await?;
    ensure_not_of_another(store, &cluster, seen.as_ref(), "the backup is").await?;
    let mut known = store.known_state(&file.state).await?;
    known.nodes = Some(expected_nodes(store, Some(&cluster)).await?);
    known.with_deleted = with_deleted;
    let plan = recovery::plan(&known, &file.state);
    let is_wanted = |volume: &&SavedVolume| known.deletion_of(&volume.service, &file.state).is_none();
    let volumes: Vec<SavedVolume> = file.state.volumes.iter().filter(is_wanted).cloned().collect();
    let volumes = &volumes[..];
    if apply && part != RestorePart::Cluster {
        let of_volumes = volumes.iter().map(|volume| volume.node.clone());
        require_volume_reports(
            store,
            &cluster,
            seen.as_ref(),
            file.header.nodes.into_iter().chain(of_volumes),
        )
        .await?;
    }
    // Restored ones, or those that would be.
    let missing = if apply && part == RestorePart::Pods {
        store.restore_volumes(volumes).await?
    } else {
        missing_volumes(store, volumes).await?
    };
    match part {
        _ if !apply => {}
        RestorePart::Pods => carry_out(store, &plan, false).await?,
        // Pods that are there already are skipped.
        RestorePart::Services => carry_out(store, &plan, true).await?,
        RestorePart::Cluster => finish(store, &cluster, seen.as_ref()).await?,
        // `restore_values` does it: that part has another form.
        RestorePart::Values => {}
    }
    let volumes = missing as u64;
    Ok(RecoveryView { cluster: cluster.to_string(), applied: apply, volumes, ..view(&plan) })
}

/// Until these nodes have reported their volumes, no pod gets a new volume in the place of lost data. Not in
/// a Redis that knows the cluster: an operator may have removed a node since, whose report would never come.
async fn require_volume_reports(
    store: &Store,
    cluster: &ClusterId,
    seen: Option<&ClusterId>,
    nodes: impl IntoIterator<Item = NodeName>,
) -> Result<(), StoreError> {
    if seen == Some(cluster) {
        return Ok(());
    }
    store.expect_volume_reports(nodes.into_iter().collect::<BTreeSet<NodeName>>()).await
}

async fn missing_volumes(store: &Store, saved: &[SavedVolume]) -> Result<usize, StoreError> {
    let names = saved
        .iter()
        .filter_map(|volume| VolumeName::of_replica(&volume.service, &volume.source, volume.replica).ok());
    let names: Vec<VolumeName> = names.collect();
    Ok(store.volumes(&names).await?.missing(&names).len())
}

/// Restores secrets, configs and logins. Those encrypted with another key than the workers' are restored too,
/// and listed as problems.
pub(crate) async fn restore_values(
    store: &Store,
    keys: &WorkerKeys,
    saved: SavedValues,
    apply: bool,
) -> Result<RecoveryView, ApiProblem> {
    let mut view = RecoveryView { applied: apply, ..RecoveryView::default() };
    if let Some(cluster) = &saved.cluster {
        let seen = store.cluster_id().await?;
        ensure_not_of_another(store, cluster, seen.as_ref(), "the backup is").await?;
        view.cluster = cluster.to_string();
    }
    for value in &saved.values {
        let is_missing = match apply {
            true => store.restore_value(value).await,
            false => store.value_info(value.kind, &value.name).await.map(|found| found.is_none()),
        };
        count_value(&mut view, &format!("the {} {}", value.kind, value.name), is_missing)?;
    }
    for login in &saved.logins {
        let is_missing = match apply {
            true => store.restore_login(login).await,
            false => store.login(&login.host).await.map(|found| found.is_none()),
        };
        count_value(&mut view, &format!("the login for {}", login.host), is_missing)?;
    }
    view.problems.extend(keys.unreadable(&saved.secret_keys()));
    Ok(view)
}

fn count_value(
    view: &mut RecoveryView,
    what: &str,
    is_missing: Result<bool, StoreError>,
) -> Result<(), StoreError> {
    match is_missing {
        Ok(true) => view.values += 1,
        Ok(false) => view.present_values += 1,
        Err(error) if error.is_broken_key() => {
            view.problems.push(format!("{what} cannot be restored: {error}"));
        }
        Err(error) => return Err(error),
    }
    Ok(())
}

pub(crate) struct Collected {
    cluster: ClusterId,
    /// The id in Redis when the request began. Only this one is replaced.
    seen: Option<ClusterId>,
    state: SavedState,
    /// Nodes that answered or are silent, and nodes that they know of.
    volume_nodes: BTreeSet<NodeName>,
    nodes: Vec<NodeAnswerView>,
    problems: Vec<String>,
}

pub(crate) async fn collect(
    app: &AppState,
    wait: Duration,
    cluster: Option<ClusterId>,
) -> Result<Collected, ApiProblem> {
    let store = &app.store;
    let seen = store.cluster_id().await?;
    let id = RecoveryId::random();
    let begun = Instant::now();
    // Workers learn with their next heartbeat that Redis was emptied.
    let at_least = if seen.is_none() { app.config.timing.heartbeat + HOLD_DELAY } else { Duration::ZERO };
    let mut answers = BTreeMap::new();
    let mut silent;
    loop {
        silent = expected_nodes(store, None).await?;
        silent.retain(|node| !answers.contains_key(node));
        let asked: Vec<NodeName> = silent.iter().cloned().collect();
        store.request_recovery(&id, &asked).await?;
        for node in asked {
            if let Some(answer) = store.recovery_answer(&id, &node).await? {
                silent.remove(&node);
                answers.insert(node, answer.saved);
            }
        }
        let is_complete = silent.is_empty() && !answers.is_empty() && begun.elapsed() >= at_least;
        if is_complete || begun.elapsed() >= wait {
            break;
        }
        tokio::time::sleep(POLL).await;
    }
    let names: Vec<NodeName> = answers.keys().chain(&silent).cloned().collect();
    store.end_recovery(&names).await?;
    let (mut nodes, mut problems, mut files) = (Vec::new(), Vec::new(), Vec::new());
    let volume_nodes = silent.clone();
    for node in silent {
        problems.push(format!(
            "node {node} has not answered: pods that only it runs are not recovered now. Start its worker and try \
             again, or wait longer with --wait"
        ));
        nodes.push(NodeAnswerView { node: node.to_string(), answered: false, pods: 0 });
    }
    for (node, saved) in answers {
        match saved {
            Ok(file) => files.push((node, file)),
            Err(why) => problems.push(format!("the saved state of node {node} cannot be used: {why}")),
        }
    }
    let cluster = choose_cluster(&files, cluster, seen.as_ref())?;
    ensure_not_of_another(store, &cluster, seen.as_ref(), "the workers are").await?;
    let state = SavedState::default();
    let mut collected = Collected { cluster, seen, state, volume_nodes, nodes, problems };
    files.into_iter().for_each(|(node, file)| collected.add(node, file));
    Ok(collected)
}

/// Live nodes, and those that hold containers of `cluster`, or of any.
async fn expected_nodes(
    store: &Store,
    cluster: Option<&ClusterId>,
) -> Result<BTreeSet<NodeName>, StoreError> {
    let held = store.held_nodes().await?.into_iter();
    let held = held.filter(|held| cluster.is_none_or(|cluster| held.cluster == *cluster));
    let held = held.map(|held| held.node);
    let nodes = store.nodes(&store.node_names().await?).await?.found();
    let is_live =
        |node: &model::node::Node| node.state == NodeState::Alive && node.kind == NodeKind::Kubeleet;
    let live = nodes.into_iter().filter(is_live).map(|node| node.name);
    Ok(held.chain(live).collect())
}

fn choose_cluster(
    files: &[(NodeName, SavedFile)],
    wanted: Option<ClusterId>,
    seen: Option<&ClusterId>,
) -> Result<ClusterId, ApiProblem> {
    let found: BTreeSet<&ClusterId> = files.iter().map(|(_, file)| &file.header.cluster).collect();
    let Some(first) = found.first() else {
        return Err(ApiProblem::new(
            ProblemKind::NodeNotResponding,
            "no worker has answered, so nothing can be recovered; start the workers with this Redis, and look \
             at `kubeleet status`: a worker that holds answers within seconds",
        ));
    };
    match wanted.as_ref().or(seen.filter(|seen| found.contains(seen))) {
        Some(wanted) if found.contains(wanted) => Ok(wanted.clone()),
        Some(wanted) => Err(ApiProblem::new(
            ProblemKind::OtherCluster,
            format!("no worker that has answered is of cluster {wanted}"),
        )),
        None if found.len() == 1 => Ok((*first).clone()),
        None => {
            let names: Vec<&str> = found.iter().map(|cluster| cluster.as_str()).collect();
            let detail = format!(
                "the workers are of several clusters: {}; name the one to recover with --cluster, or ?cluster=",
                names.join(", ")
            );
            Err(ApiProblem::new(ProblemKind::OtherCluster, detail))
        }
    }
}

/// Without services there is nothing to lose: a new Redis got its id from the first worker that came.
async fn ensure_not_of_another(
    store: &Store,
    cluster: &ClusterId,
    seen: Option<&ClusterId>,
    whose: &str,
) -> Result<(), ApiProblem> {
    let Some(other) = seen.filter(|seen| *seen != cluster) else { return Ok(()) };
    let services = store.service_names().await?.len();
    if services == 0 {
        return Ok(());
    }
    let detail = format!(
        "this Redis is of cluster {other} and has {services} services, and {whose} of cluster {cluster}: \
         check KUBELEET_REDIS_URL and its database number; nothing was changed"
    );
    Err(ApiProblem::new(ProblemKind::OtherCluster, detail))
}

impl Collected {
    fn add(&mut self, node: NodeName, file: SavedFile) {
        if file.header.cluster != self.cluster {
            let other = &file.header.cluster;
            self.problems.push(format!("node {node} is of cluster {other}, and is left alone"));
            return;
        }
        if file.end.unsaved > 0 {
            self.problems.push(format!(
                "node {node} runs {} containers of which it has saved nothing; they are not recovered",
                file.end.unsaved
            ));
        }
        let pods = file.state.pods.len() as u64;
        self.nodes.push(NodeAnswerView { node: node.to_string(), answered: true, pods });
        self.volume_nodes.insert(node);
        self.volume_nodes.extend(file.header.nodes);
        self.state.add(file.state);
    }

    /// Earlier writes stay after an error, and the next request completes them.
    pub(crate) async fn recover(
        self,
        store: &Store,
        with_deleted: bool,
        apply: bool,
    ) -> Result<RecoveryView, ApiProblem> {
        let known = KnownState { with_deleted, ..store.known_state(&self.state).await? };
        let plan = recovery::plan(&known, &self.state);
        if apply {
            require_volume_reports(store, &self.cluster, self.seen.as_ref(), self.volume_nodes).await?;
            carry_out(store, &plan, true).await?;
            finish(store, &self.cluster, self.seen.as_ref()).await?;
            tracing::info!(cluster = %self.cluster, pods = plan.pod_count(), "recovered from saved state");
        }
        let mut view = view(&plan);
        view.problems.splice(0..0, self.problems);
        Ok(RecoveryView { cluster: self.cluster.to_string(), applied: apply, nodes: self.nodes, ..view })
    }
}

async fn finish(store: &Store, cluster: &ClusterId, seen: Option<&ClusterId>) -> Result<(), ApiProblem> {
    if store.recover_cluster(cluster, seen).await? {
        return Ok(());
    }
    let detail = "this Redis has become part of another cluster meanwhile: look at `kubeleet status`";
    Err(ApiProblem::new(ProblemKind::OtherCluster, detail))
}

async fn carry_out(store: &Store, plan: &RecoveryPlan, with_records: bool) -> Result<(), StoreError> {
    for service in &plan.services {
        store.recover_service(service, with_records).await?;
    }
    store.recover_pods(None, &plan.pushed).await?;
    Ok(())
}

fn view(plan: &RecoveryPlan) -> RecoveryView {
    let services = plan.services.iter().map(|service| ServiceRecoveryView {
        name: service.name.to_string(),
        record: service.record.is_some(),
        replicas: service.replicas,
        recovered: service.pods.len() as u64,
        new: service.missing,
    });
    RecoveryView {
        services: services.collect(),
        pushed_pods: plan.pushed.len() as u64,
        present_pods: plan.present as u64,
        problems: plan.problems.clone(),
        ..RecoveryView::default()
    }
}
