//! The end of a pod whose containers ended by themselves, and the records of their runs.

use engine::{Container, ContainerState};
use model::pod::EndedRun;
use model::pod::lifecycle::Phase;
use store::{FinishReport, PodOutcome, WriteOutcome};

use super::pod_action::PodAction;
use crate::running::ended_runs;
use crate::running::step::ContainerExit;
use crate::running::table::{EndedPod, ManagedPod};

impl PodAction {
    pub(super) async fn note_run(&self, index: usize, exit: ContainerExit) {
        let Some(managed) = self.managed.containers.get(index) else { return };
        let container = self.managed.spec.containers[index].name.clone();
        let handle = managed.handle.clone().unwrap_or_default();
        let last_output = ended_runs::last_output(&*self.context.worker.runtime, &handle).await;
        let run = EndedRun {
            id: ended_runs::id(&self.managed.assignment, container.as_ref(), managed.restarts),
            container: container.filter(|_| self.managed.has_several()),
            node: self.context.worker.node.clone(),
            ended_at: 0,
            ran_for_ms: managed
                .running_since
                .map(|since| self.context.worker.now().since(since).as_millis() as u64),
            exit_code: exit.code,
            out_of_memory: exit.was_killed_for_memory(),
            last_output,
        };
        self.update(|managed| {
            managed.runs.push(run);
            managed.is_reported = false;
        });
    }

    fn unnoted_exits(&self) -> Vec<(usize, ContainerExit)> {
        let found: Vec<&Container> = self.containers.iter().collect();
        let observed = self.managed.observe(&found).containers.into_iter().enumerate();
        let exits = observed.filter_map(|(index, container)| match container?.state {
            ContainerState::Exited { code, out_of_memory } => {
                Some((index, ContainerExit { code, out_of_memory }))
            }
            ContainerState::Created | ContainerState::Running | ContainerState::Unknown => None,
        });
        exits.filter(|(index, _)| self.managed.containers[*index].restart_at.is_none()).collect()
    }

    pub(super) async fn finish_exited(&self, exit: ContainerExit) {
        let message = exit.describe();
        let (outcome, reason) = match exit {
            exit if exit.was_killed_for_memory() => (PodOutcome::Failed, "OOMKilled"),
            ContainerExit { code: 0, .. } => (PodOutcome::Succeeded, "Completed"),
            ContainerExit { .. } => (PodOutcome::Failed, "Error"),
        };
        for (index, exit) in self.unnoted_exits() {
            self.note_run(index, exit).await;
        }
        let managed = self.context.table.get(&self.managed.payload.id);
        let (status, runs) = managed.map(|managed| (managed.status(), managed.runs)).unwrap_or_default();
        let report = FinishReport {
            outcome,
            reason,
            message: &message,
            exit_code: Some(exit.code),
            containers: &status.containers,
            runs: &runs,
            drained: "",
        };
        match self.finish(&report).await {
            Some(WriteOutcome::Done) => {
                let ManagedPod { payload, assignment, .. } = &self.managed;
                let ended_at = self.context.worker.now();
                let phase = match outcome {
                    PodOutcome::Succeeded => Phase::Succeeded,
                    PodOutcome::Failed | PodOutcome::Stopped => Phase::Failed,
                };
                let (pod, assignment) = (payload.id.clone(), assignment.clone());
                let ended = EndedPod { pod, assignment, phase, ended_at };
                self.context.table.keep_ended(ended);
                self.forget();
            }
            Some(WriteOutcome::Stale | WriteOutcome::Wanted) => {
                self.forget();
                // Its container still exists, and may have to be removed.
                self.context.wakeups.request_reconcile();
            }
            None => self.retry_later(),
        }
    }
}
