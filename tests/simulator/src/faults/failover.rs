//! A replica that has fallen behind becomes the master, and later writes are lost.

use std::collections::{BTreeMap, BTreeSet};

use ::redis::{FromRedisValue, Value, from_redis_value};
use engine::{Container, ContainerState};
use model::ids::{ServiceName, VolumeName};
use store::RedisCommand;

use crate::checks::observed_state::SimulatedPod;
use crate::faults::replica_snapshot::ReplicaSnapshot;
use crate::machine::bus::{EngineRequest, HostCall};
use crate::machine::host::{SimulatedHost, must_not_run_twice};
use crate::machine::process_id::ProcessId;
use crate::machine::scripts::KEY;
use crate::world::state::World;

/// The API's call when a write is as durable as it can become.
const CONFIRMING_SCRIPT: &str = "writes_confirmed";

/// In milliseconds.
const LARGEST_CLOCK_OFFSET: u64 = 3_600_000;

impl World {
    pub(crate) fn stop_replication(&mut self) {
        self.faults.replica = Some(self.take_snapshot());
        self.note_jobs_of_replica();
        self.log("redis", "the replica gets no writes from now on");
    }

    pub(crate) fn take_snapshot(&mut self) -> ReplicaSnapshot {
        let keys: Vec<Vec<u8>> = convert(self.redis.execute(&["KEYS", "*"]));
        let is_replicated = |key: &Vec<u8>| key != b"events" && !key.starts_with(KEY.as_bytes());
        let content = keys.into_iter().filter(is_replicated).map(|key| {
            let dump = convert(self.redis.execute(&[b"DUMP", &key[..]]));
            (key, dump)
        });
        let content = content.collect();
        let service_in_doubt = self.clients.lock().service_in_doubt();
        ReplicaSnapshot {
            content,
            observed: self.observed.clone(),
            last_heartbeats: self.cluster.last_heartbeats,
            taken_at: self.clock.now,
            service_in_doubt,
        }
    }

    pub(crate) fn would_failover_lose_a_start(&self) -> bool {
        let Some(replica) = &self.faults.replica else { return false };
        let known = &replica.observed.pods;
        let mut running = self.observed.pods.iter().filter(|(_, pod)| pod.phase == "running");
        running.any(|(uuid, pod)| known.get(uuid).is_none_or(|old| old.assignment != pod.assignment))
    }

    pub(crate) fn fail_over(&mut self) {
        let Some(replica) = self.faults.replica.take() else { return };
        let cluster: Option<Vec<u8>> = convert(self.redis.execute(&["HGET", "meta", "cluster"]));
        self.redis.execute(&["FLUSHDB"]);
        for (key, dump) in &replica.content {
            self.redis.execute(&[b"RESTORE", &key[..], b"0", dump]);
        }
        self.redis.execute(&["HSET", "meta", "run_id", "0123abc"]);
        if let Some(cluster) = cluster {
            // The id is written once in a cluster's life; no failover is assumed to lose it.
            self.redis.execute(&[&b"HSETNX"[..], b"meta", b"cluster", &cluster]);
        }
        self.clock.redis_offset = self.draw_clock_offset();
        self.cluster.last_heartbeats = replica.last_heartbeats;
        self.faults.failed_over_at = Some(self.clock.now);
        // The pause after a change of the master covers earlier losses, and heartbeats may count as now.
        self.checks.mass_loss_at = 0;
        self.checks.placed.clear();
        self.stats.failovers += 1;
        self.log("redis", "FAILOVER: the replica takes over");
        let is_confirming = self.is_api_confirming_a_write();
        self.break_all_connections();
        if is_confirming || self.cluster.slot(ProcessId::Api).is_paused(self.clock.now) {
            // The API may have counted confirmations of the old master's replicas: its acknowledgement would
            // promise a lost write.
            self.kill(ProcessId::Api, self.clock.now);
        }
        self.refresh();
        self.forget_lost_jobs();
        let known_pods: Vec<String> = self.checks.known_pods.iter().cloned().collect();
        let mut clients = self.clients.lock();
        for in_doubt in [replica.service_in_doubt, clients.service_in_doubt()] {
            let (now, since, known_pods) = (self.clock.now, replica.taken_at, known_pods.clone());
            let (observed, pod_ids) = (&self.observed, &mut self.pod_ids);
            clients.expected.roll_back(now, since, in_doubt, observed, pod_ids, known_pods);
        }
    }

    /// As if all were connected to another database, for a while without API.
    pub(crate) fn empty_redis(&mut self) {
        match self.faults.backup.take() {
            Some(backup) if self.random.per_mille(500) => {
                self.faults.replica = Some(backup);
                self.stats.older_states += 1;
            }
            _ => self.stop_replication(),
        }
        let until = self.clock.now + self.random.between(1000, 3 * self.timing.dead);
        self.faults.emptied_at = self.clock.now;
        self.faults.emptied_until = Some(until);
        self.faults.protected_containers = self.wanted_containers();
        self.kill(ProcessId::Api, until);
        self.redis.execute(&["FLUSHDB"]);
        self.checks.placed.clear();
        self.stats.emptied += 1;
        self.log("redis", format_args!("EMPTIED until {}", self.clock.since_start(until)));
        self.refresh();
        self.clients.lock().expected.forget_junk();
    }

    pub(crate) fn restore_redis(&mut self) {
        if self.faults.emptied_until.take().is_some() {
            if let Some(replica) = &self.faults.replica {
                self.proxies.told.forget_since(replica.taken_at);
            }
            self.fail_over();
            self.faults.protected_containers.clear();
        }
    }

    /// As an operator: most of the node's containers have no record.
    pub(crate) fn remove_held_containers(&mut self) {
        for host in &self.cluster.hosts {
            let unrecorded = self.unrecorded_containers(host);
            let running = unrecorded.iter().filter(|container| container.state == ContainerState::Running);
            if running.count() >= 3 {
                unrecorded.iter().for_each(|container| host.end_container(&container.handle, None));
            }
        }
    }

    /// As an operator, later: a worker keeps the last few when the other records are back.
    pub(crate) fn remove_containers_that_stay_held(&mut self) {
        let held: BTreeMap<String, String> = convert(self.redis.execute(&["HGETALL", "held"]));
        let is_held =
            |host: &SimulatedHost| held.get(&host.name()).is_some_and(|hold| hold.ends_with(" records"));
        for host in self.cluster.hosts.iter().filter(|host| is_held(host)) {
            let unrecorded = self.unrecorded_containers(host);
            unrecorded.iter().for_each(|container| host.end_container(&container.handle, None));
        }
    }

    /// As an operator: the emptied Redis was another cluster until its data came back.
    pub(crate) fn remove_containers_of_another_cluster(&mut self) {
        let cluster: Option<String> = convert(self.redis.execute(&["HGET", "meta", "cluster"]));
        let is_another = |host: &SimulatedHost| {
            host.cluster().zip(cluster.as_deref()).is_some_and(|(known, cluster)| known.as_str() != cluster)
        };
        for host in self.cluster.hosts.iter().filter(|host| is_another(host)) {
            host.containers().iter().for_each(|container| host.end_container(&container.handle, None));
        }
    }

    /// As an operator. Some are known only when a successor of the same name registers.
    pub(crate) fn give_up_lost_volumes(&mut self) {
        let engines: Vec<String> = self.cluster.hosts.iter().map(SimulatedHost::engine_id).collect();
        let names: Vec<String> = convert(self.redis.execute(&["SMEMBERS", "volumes"]));
        for name in names {
            let key = format!("volume:{name}");
            let engine: Option<String> = convert(self.redis.execute(&["HGET", &key, "engine_id"]));
            if engine.is_some_and(|engine| !engine.is_empty() && !engines.contains(&engine)) {
                self.redis.execute(&["DEL", &key]);
                self.redis.execute(&["SREM", "volumes", &name]);
                let now: Vec<String> = convert(self.redis.execute(&["TIME"]));
                let now = format!("{}999", now[0]);
                self.redis.execute(&["ZADD", "volumes:given_up", &now, &name]);
                self.log("", format_args!("volume {name} is given up"));
            }
        }
        let reports: Vec<String> = convert(self.redis.execute(&["HKEYS", "volumes:reports"]));
        for report in reports {
            let is_lost =
                report.split_once(' ').is_some_and(|(_, engine)| !engines.iter().any(|e| e == engine));
            if is_lost {
                self.redis.execute(&["HDEL", "volumes:reports", &report]);
            }
        }
    }

    pub(crate) fn give_up_volume(&mut self, name: &VolumeName, machine: ProcessId) {
        let key = format!("volume:{name}");
        let epoch: Option<String> = convert(self.redis.execute(&["HGET", &key, "epoch"]));
        let epoch = epoch.unwrap_or_else(|| "0".to_owned());
        self.redis.execute(&["ZADD", "volumes:given_up", &epoch, name.as_str()]);
        self.redis.execute(&["DEL", &key]);
        self.redis.execute(&["SREM", "volumes", name.as_str()]);
        self.redis.execute(&["HDEL", "volumes:reports", &machine.to_string()]);
        self.checks.data_hosts.remove(name);
        self.log("", format_args!("the data of volume {name} on {machine} is given up"));
    }

    pub(crate) fn forget_volumes(&mut self) {
        let names: Vec<String> = convert(self.redis.execute(&["SMEMBERS", "volumes"]));
        let records = names.iter().map(|name| format!("volume:{name}"));
        let lists = ["volumes", "volumes:copies", "volumes:given_up", "volumes:problems"].map(str::to_owned);
        for key in records.chain(lists) {
            self.redis.execute(&["DEL", &key]);
        }
        let nodes: Vec<String> = convert(self.redis.execute(&["HKEYS", "volumes:reports"]));
        for node in nodes {
            self.redis.execute(&["HSET", "volumes:reports", &node, ""]);
        }
        self.log("redis", "has LOST what it knew of volumes");
    }

    /// As an operator: in the end every service has nodes that satisfy its rules.
    pub(crate) fn label_all_nodes(&mut self) {
        if !self.clients.lock().have_labels() {
            return;
        }
        let unlabelled = self.observed.nodes.iter().filter(|(_, node)| !node.has_label_disk);
        let unlabelled: Vec<String> = unlabelled.map(|(name, _)| format!("node:{name}")).collect();
        for key in unlabelled {
            self.change(&["HINCRBY", &key, "labels_revision", "1"], &[&key]);
            self.change(&["HSET", &key, "own_labels", r#"{"disk":"ssd"}"#], &[&key]);
        }
        self.observe();
    }

    /// As an operator: in the end every node takes pods.
    pub(crate) fn uncordon_all_nodes(&mut self) {
        if !self.clients.lock().has_drains() {
            return;
        }
        let cordoned = self.observed.nodes.iter().filter(|(_, node)| node.is_cordoned);
        let cordoned: Vec<String> = cordoned.map(|(name, _)| format!("node:{name}")).collect();
        for key in cordoned {
            self.change(&["HSET", &key, "cordoned", "0"], &[&key]);
            self.change(&["HDEL", &key, "drain"], &[&key]);
        }
        self.observe();
    }

    /// As an operator: the full node has data that another pod needs, or is the zone of an ordinal.
    pub(crate) fn make_room_for_volumes(&mut self) {
        let waits = |pod: &&SimulatedPod| {
            let has = |reason: &str| pod.message.contains(reason);
            pod.phase == "pending" && has("TooManyPods") && (has("VolumeElsewhere") || has("OtherZone"))
        };
        let Some(waiting) = self.observed.pods.values().find(waits) else { return };
        let service = ServiceName::new(waiting.service.as_str()).unwrap();
        let name = VolumeName::of_replica(&service, "data", waiting.replica).unwrap();
        let node: Option<String> = match waiting.message.split_once("goes to node.hostname=") {
            Some((_, rest)) => rest.split(')').next().map(str::to_owned),
            None => convert(self.redis.execute(&["HGET", &format!("volume:{name}"), "node"])),
        };
        let is_there = |uuid: &&String| self.observed.pods.get(*uuid).map(|pod| &pod.node) == node.as_ref();
        if let Some(uuid) = self.observed.pushed.iter().find(is_there).cloned()
            && self.clients.lock().delete_by_hand(&uuid)
        {
            self.log("", format_args!("pod {uuid} makes room for {name}"));
        }
    }

    /// One of several containers may have ended.
    fn unrecorded_containers(&self, host: &SimulatedHost) -> Vec<Container> {
        let mut containers = host.containers();
        containers.retain(|container| !self.observed.pods.contains_key(container.pod.as_str()));
        containers
    }

    /// They run where Redis has assigned them, without a begun stop. Pods that must not run twice are stopped
    /// without a lease.
    fn wanted_containers(&self) -> BTreeSet<(String, String)> {
        let running = self.observed.pods.iter().filter(|(_, pod)| pod.phase == "running");
        let is_keep = |uuid: &str| {
            let mut containers = self.cluster.hosts.iter().flat_map(SimulatedHost::running);
            containers.any(|container| container.pod.as_str() == uuid && !must_not_run_twice(&container))
        };
        let is_alive = |node: &str| self.observed.nodes.get(node).is_some_and(|node| node.state == "alive");
        let kept = running.filter(|(uuid, pod)| is_alive(&pod.node) && is_keep(uuid));
        let kept = kept.map(|(uuid, pod)| (uuid.clone(), pod.assignment.clone()));
        kept.filter(|identity| !self.faults.begun_stops.contains(identity)).collect()
    }

    /// `reply` is a heartbeat's; the third part lists the pods to stop.
    pub(crate) fn note_ordered_stops(&mut self, reply: &Value) {
        let Value::Array(parts) = reply else { return };
        let pods: Vec<String> = convert(parts[2].clone());
        for pod in pods {
            if let Some(known) = self.observed.pods.get(&pod) {
                self.faults.begun_stops.insert((pod, known.assignment.clone()));
            }
        }
    }

    pub(crate) fn watch_engine(&mut self, host: usize, request: &EngineRequest) {
        self.check_gate(host, request);
        match &request.call {
            HostCall::Run(run) => {
                let identity = (run.identity.pod.to_string(), run.identity.assignment.to_string());
                self.faults.begun_stops.remove(&identity);
            }
            HostCall::Stop(handle, _) => {
                let running = self.cluster.hosts[host].running();
                if let Some(container) = running.into_iter().find(|container| container.handle == *handle) {
                    let identity = (container.pod.to_string(), container.assignment.to_string());
                    self.check_stop(&container, &identity, request);
                    self.faults.begun_stops.insert(identity);
                }
            }
            _ => {}
        }
    }

    /// Earlier calls may take a container's whole grace period.
    fn check_stop(&mut self, container: &Container, identity: &(String, String), request: &EngineRequest) {
        if request.sent_at < self.faults.emptied_at {
            return;
        }
        let since = self.cluster.slot(request.process).elsewhere.map(|(since, _)| since);
        if since.is_some_and(|since| request.sent_at > since) && self.wanted_containers().contains(identity) {
            let pod = container.pod.short();
            self.checks.violations.push(format!("invariant 11: pod {pod} is stopped by another database"));
        }
        if self.faults.emptied_until.is_some() && self.faults.protected_containers.contains(identity) {
            let pod = container.pod.short();
            self.checks.violations.push(format!("invariant 11: pod {pod} is stopped by an emptied Redis"));
        }
    }

    fn draw_clock_offset(&mut self) -> i64 {
        let largest = if self.random.per_mille(500) { 4_000 } else { LARGEST_CLOCK_OFFSET };
        let offset = self.random.between(0, largest) as i64;
        if self.random.per_mille(500) { offset } else { -offset }
    }

    fn is_api_confirming_a_write(&self) -> bool {
        let is_confirming = |command: &RedisCommand| {
            let script = command.get(1).and_then(|hash| self.scripts.get(hash));
            script.is_some_and(|(script, _)| script.name == CONFIRMING_SCRIPT)
        };
        let bus = self.bus.lock();
        // After a while it answers its client even if the call is never answered.
        let mut requests = bus.redis_requests.iter().chain(&self.network.unanswered);
        requests
            .any(|request| request.process == ProcessId::Api && request.commands.iter().any(is_confirming))
    }
}

fn convert<T: FromRedisValue>(value: Value) -> T {
    from_redis_value(value).unwrap()
}
