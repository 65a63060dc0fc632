//! Readiness of the services that the first start of a pod waits for.

use redis::Value;

use crate::loaded::field;
use crate::reply::read;
use crate::service::service_fields;
use crate::{Store, StoreError, keys};
use model::RedisMillis;
use model::ids::{PodId, ServiceName};
use model::node::{Node, NodeState};
use model::pod::PodRecord;
use model::service::{Service, ServiceState};
use model::spec::{Dependency, DependsOn, ServiceProgress};

const MAX_PODS: u32 = 256;

impl Store {
    /// Needs a constant number of round trips. A node that was silent for `silent_after` milliseconds counts
    /// as gone, with its pods.
    ///
    /// # Errors
    /// Broken keys cause none: a service with an unreadable record has no dependencies, and counts as a
    /// missing one.
    pub async fn dependencies(
        &self,
        services: &[ServiceName],
        silent_after: RedisMillis,
    ) -> Result<Vec<Vec<Dependency>>, StoreError> {
        let wanted = self.depends_on(services).await?;
        let mut names: Vec<ServiceName> = wanted.iter().flat_map(DependsOn::services).collect();
        names.sort();
        names.dedup();
        let progress = self.progress(&names, silent_after).await?;
        let of_one = |needs: DependsOn| {
            let known = |name: &str| names.iter().position(|known| known.as_str() == name);
            let one = |(name, condition): (&str, _)| Dependency {
                service: name.to_owned(),
                condition,
                progress: known(name).and_then(|at| progress.get(at).cloned().flatten()),
            };
            needs.iter().map(one).collect()
        };
        Ok(wanted.into_iter().map(of_one).collect())
    }

    pub async fn depends_on(&self, services: &[ServiceName]) -> Result<Vec<DependsOn>, StoreError> {
        let get = |service: &ServiceName| field(keys::service(service), "fields");
        let parse = |_: &ServiceName, reply| {
            let text: Option<Vec<u8>> = read("the dependencies of a service", reply)?;
            let document = text.and_then(|text| serde_json::from_slice(&text).ok());
            Ok(document.and_then(|document| service_fields::member(&document, "depends_on")))
        };
        Ok(self.load(services, get, parse).await?.options().map(Option::unwrap_or_default).collect())
    }

    async fn progress(
        &self,
        names: &[ServiceName],
        silent_after: RedisMillis,
    ) -> Result<Vec<Option<ServiceProgress>>, StoreError> {
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let found = self.services(names).await?.found();
        let of_name = |name: &ServiceName| found.iter().find(|service| service.name == *name).cloned();
        let services: Vec<Option<Service>> = names.iter().map(of_name).collect();
        let slots = self.first_slots(&services).await?;
        let ids: Vec<PodId> = slots.iter().flatten().cloned().collect();
        let records = self.pods(&ids).await?.found();
        let mut nodes: Vec<_> = records.iter().filter_map(|record| record.node.clone()).collect();
        nodes.sort();
        nodes.dedup();
        let nodes = self.nodes(&nodes).await?.found();
        let now = self.redis_now().await?;
        let clock = RecordClock { now, silent_after };
        let of_one = |(service, slots): (Option<Service>, Vec<PodId>)| {
            let service = service.filter(|service| service.state == ServiceState::Active)?;
            let of_service = records.iter().filter(|record| {
                slots.contains(&record.id) && record.service.as_ref() == Some(&service.name)
            });
            Some(clock.progress(&service, of_service, &nodes))
        };
        Ok(services.into_iter().zip(slots).map(of_one).collect())
    }

    async fn first_slots(&self, services: &[Option<Service>]) -> Result<Vec<Vec<PodId>>, StoreError> {
        let counted =
            services.iter().map(|service| service.as_ref().filter(|service| service.wanted_pods() > 0));
        let counted: Vec<Option<&Service>> = counted.collect();
        let mut pipe = redis::pipe();
        for service in counted.iter().flatten() {
            pipe.cmd("HMGET").arg(keys::slots(&service.name));
            pipe.arg(wanted_slots(service));
        }
        let is_empty = counted.iter().flatten().next().is_none();
        let replies = if is_empty { Vec::new() } else { self.link.pipeline_each(pipe).await? };
        let mut replies = replies.into_iter();
        let parse =
            |reply: Value| -> Option<Vec<Option<String>>> { read("the slots of a service", reply).ok() };
        let of_one = |service: Option<&Service>| {
            let reply = service.and_then(|_| replies.next())?.ok();
            let ids = reply.and_then(parse)?.into_iter().flatten();
            Some(ids.filter_map(|id| PodId::new(id).ok()).collect())
        };
        Ok(counted.into_iter().map(of_one).map(Option::unwrap_or_default).collect())
    }
}

fn wanted_slots(service: &Service) -> Vec<u32> {
    if service.is_global() {
        return service.members.wanted().map(|(number, _)| number).take(MAX_PODS as usize).collect();
    }
    (0..service.replicas.min(MAX_PODS)).collect()
}

/// A newly registered worker inspects its machine for this time. Until then older records do not count: the
/// machine may have been down.
const SETTLE_MS: RedisMillis = 10_000;

struct RecordClock {
    now: RedisMillis,
    silent_after: RedisMillis,
}

impl RecordClock {
    fn progress<'a>(
        &self,
        service: &Service,
        records: impl Iterator<Item = &'a PodRecord>,
        nodes: &[Node],
    ) -> ServiceProgress {
        // Until a scheduler has looked at the nodes, a global service has not started.
        let is_unknown = service.is_global() && !service.members.are_known();
        let wanted = service.wanted_pods().min(MAX_PODS).max(u32::from(is_unknown));
        let mut progress = ServiceProgress { wanted, ..ServiceProgress::default() };
        for record in records {
            progress.add(record, service.generation, self.is_current(record, nodes));
        }
        progress
    }

    fn is_current(&self, record: &PodRecord, nodes: &[Node]) -> bool {
        let node = nodes.iter().find(|node| Some(&node.name) == record.node.as_ref());
        let Some(node) = node.filter(|node| node.state == NodeState::Alive) else { return false };
        let written = record.since.max(record.ready_since.unwrap_or_default());
        self.is_true_still(written, node.registered_at, node.beat)
    }

    /// A future `registered_at` comes from a former master: it counts as long ago.
    fn is_true_still(&self, written: RedisMillis, registered_at: RedisMillis, beat: RedisMillis) -> bool {
        let is_heard = self.now.saturating_sub(beat) < self.silent_after;
        let has_settled = self.now < registered_at || self.now - registered_at > SETTLE_MS;
        is_heard && (has_settled || written >= registered_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_before_a_machine_was_down_counts_once_its_worker_has_looked() {
        let clock = RecordClock { now: 100_000, silent_after: 20_000 };
        for (written, registered_at, beat, expected) in [
            (50_000, 10_000, 99_000, true),
            (50_000, 10_000, 80_000, false),
            (50_000, 95_000, 99_000, false),
            (96_000, 95_000, 99_000, true),
            (50_000, 89_000, 99_000, true),
            // The clock of a former master was ahead.
            (50_000, 200_000, 200_000, true),
        ] {
            let found = clock.is_true_still(written, registered_at, beat);
            assert_eq!(found, expected, "{written} {registered_at} {beat}");
        }
    }
}
