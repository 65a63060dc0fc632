//! Reads the last changes in Redis, and has them checked.

use ::redis::Value;

use crate::checks::invariants;
use crate::checks::observed_state::SimulatedState;
use crate::workload::images::SERVICES;
use crate::world::state::World;

const MAX_PARTIAL_READS: u64 = 100;

impl World {
    pub(crate) fn observe(&mut self) {
        let double_runs = invariants::double_runs(self);
        self.checks.violations.extend(double_runs);
        let fenced_write = self.checks.fenced_write.take();
        let protected_pods = std::mem::take(&mut self.checks.protected_pods);
        let has_assigned = std::mem::take(&mut self.checks.has_assigned);
        let nodes_before = has_assigned.then(|| self.observed.nodes.clone());
        let has_stopped = std::mem::take(&mut self.checks.has_stopped);
        let pods_before = (has_stopped || has_assigned).then(|| self.observed.pods.clone());
        let mut has_changed = false;
        for rows in std::mem::take(&mut self.checks.unapplied_rows) {
            has_changed |= self.observed.apply(rows);
            self.checks.partial_reads += 1;
        }
        if self.checks.partial_reads > MAX_PARTIAL_READS {
            self.reread_all();
        }
        if !has_changed {
            return;
        }
        self.remember_pods();
        let mut violations: Vec<String> = fenced_write.into_iter().collect();
        for (uuid, before) in protected_pods {
            if self.observed.pods.get(&uuid) != before.as_ref() {
                violations.push(format!("invariant 3: pod {uuid} was changed by an outdated assignment"));
            }
        }
        if let Some(before) = nodes_before {
            violations.extend(invariants::overcommitted(
                &before,
                &self.observed.nodes,
                self.clock.redis_now(),
            ));
        }
        if let Some(before) = pods_before {
            violations.extend(invariants::below_promised(&before, &self.observed));
            violations.extend(invariants::stopped_for_no_higher(&before, &self.observed));
            if has_assigned {
                violations.extend(invariants::misplaced(&before, &self.observed));
                violations.extend(invariants::crowded(&mut self.checks.placed, &before, &self.observed));
            }
        }
        violations.extend(invariants::violations(self));
        self.checks.violations.extend(violations);
        self.follow_services();
    }

    /// A service without pods has an empty, complete set of endpoints.
    fn follow_services(&mut self) {
        for service in SERVICES {
            let has_pods = self.observed.pods.values().any(|pod| pod.service == service);
            if !has_pods && !self.observed.endpoints.contains_key(service) {
                let key = format!("ep:{service}");
                self.change(&["HSET", &key, "m", "0", "v", "1"], &[&key]);
            }
        }
        // At once: the next script has not changed it.
        for rows in std::mem::take(&mut self.checks.unapplied_rows) {
            self.observed.apply(rows);
        }
    }

    pub(crate) fn change(&mut self, command: &[impl AsRef<[u8]>], keys: &[impl AsRef<[u8]>]) -> Value {
        self.redis.add(command);
        self.add_read(keys);
        let [reply, rows] = self.redis.send(0);
        assert!(!matches!(reply, Value::ServerError(_)), "{reply:?}");
        self.checks.unapplied_rows.push(rows);
        reply
    }

    pub(crate) fn add_read(&mut self, keys: &[impl AsRef<[u8]>]) {
        let count = keys.len().to_string();
        let words = [b"EVALSHA", self.read_script.as_bytes(), count.as_bytes()];
        let words: Vec<&[u8]> = words.into_iter().chain(keys.iter().map(AsRef::as_ref)).collect();
        self.redis.add(&words);
    }

    pub(crate) fn reread_all(&mut self) {
        let differing = self.refresh();
        if !differing.is_empty() {
            let violation = format!("changed by a script that does not declare them: {differing:?}");
            self.checks.violations.push(violation);
        }
    }

    pub(crate) fn refresh(&mut self) -> Vec<String> {
        let mut all = SimulatedState::default();
        all.apply(self.redis.execute(&["EVALSHA", &self.read_script, "0"]));
        let differing = self.observed.differing_keys(&all);
        self.observed = all;
        self.checks.partial_reads = 0;
        self.remember_pods();
        differing
    }

    fn remember_pods(&mut self) {
        for uuid in self.observed.pods.keys() {
            if !self.checks.known_pods.contains(uuid) {
                self.checks.known_pods.insert(uuid.clone());
            }
        }
    }
}
