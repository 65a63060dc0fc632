//! The logs of one answer: of existing, new and removed containers.
//!
//! A source is the log of one container. Managed containers are those of pods in the worker's table; of a pod
//! that has left it, the engine may still list containers.

use std::collections::{HashMap, HashSet};
use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::{Duration, Instant as StdInstant};

use daemon::clock::BootInstant;
use engine::kept_logs::{self, KeptOwner};
use engine::lines::wall_clock;
use engine::{Container, ContainerState, EngineLine, LineQuery, LineStream, RuntimeError};
use futures_util::StreamExt;
use model::ids::{ContainerName, PodId};
use model::stream::log_line::LogLine;
use model::stream::log_merge::LogMerge;
use store::LinesRequest;

use crate::session::context::SessionContext;

/// While logs are followed, a line waits this long for older ones of other containers.
const WAIT_FOR_OLDER: Duration = Duration::from_millis(300);
const MAX_WAITING: usize = 512;
/// A log that is read this much later than written is continued from its end.
const MAX_LAG: Duration = Duration::from_secs(10);

pub(super) enum SourceEvent {
    Lines,
    Mark(String),
}

#[derive(Debug, Clone)]
struct LineOrigin {
    pod: PodId,
    name: String,
    container: Option<ContainerName>,
}

struct OpenSource {
    key: String,
    origin: LineOrigin,
    stream: LineStream,
    last_time: u64,
    /// Later lines were written while the log was followed.
    live_from: u64,
}

struct KnownSource {
    last_time: u64,
    running_since: Option<BootInstant>,
}

/// `None` if the log was read to its end since the container's last start.
fn query_of(
    request: &LinesRequest,
    known: Option<&KnownSource>,
    running_since: Option<BootInstant>,
    was_there: bool,
) -> Option<LineQuery> {
    let (tail, after) = match known {
        Some(known) if known.running_since == running_since => return None,
        Some(known) => (None, known.last_time),
        None if was_there => (request.tail, request.after.unwrap_or(0)),
        None => (None, request.after.unwrap_or(0)),
    };
    Some(LineQuery { tail, follow: request.follow, after })
}

type Polled = Option<Result<Vec<EngineLine>, RuntimeError>>;

pub(super) struct LineSources<'a> {
    context: &'a SessionContext,
    request: &'a LinesRequest,
    pub(super) merge: LogMerge<String, LogLine>,
    open: Vec<OpenSource>,
    known: HashMap<String, KnownSource>,
    /// The source to poll first, which rotates.
    first: usize,
    begun_at: BootInstant,
    /// Each is reported once.
    unopened: HashSet<String>,
    marks: Vec<String>,
    is_first_look: bool,
}

impl<'a> LineSources<'a> {
    pub(super) async fn open(context: &'a SessionContext, request: &'a LinesRequest) -> Self {
        let mut sources = Self {
            context,
            request,
            merge: LogMerge::new(request.follow.then_some(WAIT_FOR_OLDER)),
            open: Vec::new(),
            known: HashMap::new(),
            first: 0,
            begun_at: context.worker.clock.now(),
            is_first_look: true,
            unopened: HashSet::new(),
            marks: Vec::new(),
        };
        if request.previous {
            sources.open_kept().await;
            sources.open_ended_runs().await;
            return sources;
        }
        sources.refresh().await;
        sources.open_unmanaged().await;
        sources.is_first_look = false;
        sources
    }

    pub(super) fn is_done(&self) -> bool {
        let is_awaited = |pod: &PodId| self.context.table.get(pod).is_some();
        let goes_on = self.request.follow
            && !self.request.previous
            && (!self.request.services.is_empty() || self.request.pods.iter().any(|pod| is_awaited(&pod.id)));
        self.open.is_empty() && self.merge.is_done() && !goes_on
    }

    pub(super) async fn refresh(&mut self) {
        if self.request.previous {
            return;
        }
        for (handle, origin, running_since) in self.managed() {
            self.open_container(handle, origin, running_since).await;
        }
    }

    fn managed(&self) -> Vec<(String, LineOrigin, Option<BootInstant>)> {
        let request = self.request;
        let managed: Vec<Vec<(String, LineOrigin, Option<BootInstant>)>> =
            self.context.table.map_managed(|managed| {
                let id = &managed.payload.id;
                let is_of_service =
                    managed.service.as_ref().is_some_and(|service| request.services.contains(service));
                if !is_of_service && !request.pods.iter().any(|pod| pod.id == *id) {
                    return None;
                }
                let name = managed.payload.display_name();
                let has_several = managed.has_several();
                let containers = managed.containers().filter_map(|(spec, container)| {
                    let wanted = request.container.as_ref();
                    if wanted.is_some_and(|wanted| spec.name.as_ref() != Some(wanted)) {
                        return None;
                    }
                    let own = spec.name.clone().filter(|_| has_several);
                    let origin = LineOrigin { pod: id.clone(), name: name.clone(), container: own };
                    Some((container.handle.clone()?, origin, container.running_since))
                });
                Some(containers.collect())
            });
        managed.into_iter().flatten().collect()
    }

    async fn open_ended_runs(&mut self) {
        let Some(containers) = self.list_containers().await else { return };
        let runtime = self.context.worker.runtime.clone();
        for (handle, origin, running_since) in self.managed() {
            let Some(container) = containers.iter().find(|one| one.handle == handle) else { continue };
            let running_since = match container.state {
                ContainerState::Exited { .. } => None,
                _ => match runtime.run_began_at(&handle).await {
                    Ok(Some(since)) => Some(since),
                    Ok(None) | Err(_) => Some(self.wall_clock_of(running_since)),
                },
            };
            match kept_logs::ended_runs(&*runtime, &handle, self.request.tail, running_since).await {
                Ok(stream) => {
                    let (last_time, live_from) = (0, u64::MAX);
                    self.begin(OpenSource { key: handle, origin, stream, last_time, live_from });
                }
                Err(error) => {
                    let name = origin.name;
                    self.marks.push(format!("… the log of {name} cannot be read: {error}"));
                }
            }
        }
    }

    fn wall_clock_of(&self, time: Option<BootInstant>) -> u64 {
        let Some(time) = time else { return 0 };
        let age = self.context.worker.clock.now().since(time);
        wall_clock().saturating_sub(age.as_nanos().try_into().unwrap_or(u64::MAX))
    }

    async fn open_container(
        &mut self,
        handle: String,
        origin: LineOrigin,
        running_since: Option<BootInstant>,
    ) {
        if self.open.iter().any(|open| open.key == handle) {
            return;
        }
        let was_there = self.is_first_look || running_since.is_none_or(|since| since <= self.begun_at);
        let known = self.known.get(&handle);
        let Some(query) = query_of(self.request, known, running_since, was_there) else { return };
        let name = origin.name.clone();
        let opened = self.context.worker.runtime.lines(&handle, query).await;
        let last_time = query.after;
        match opened {
            Ok(stream) => {
                self.known.insert(handle.clone(), KnownSource { last_time, running_since });
                let live_from = wall_clock();
                self.begin(OpenSource { key: handle, origin, stream, last_time, live_from });
            }
            Err(error) => {
                tracing::debug!(container = handle, %error, "a log could not be opened");
                if matches!(error, RuntimeError::Engine(_)) && self.unopened.insert(handle) {
                    self.marks.push(format!("… the log of {name} cannot be read: {error}"));
                }
            }
        }
    }

    async fn list_containers(&mut self) -> Option<Vec<Container>> {
        let listed = self.context.worker.list().await;
        listed
            .inspect_err(|error| {
                self.marks.push(format!("… logs may be missing: the containers cannot be listed: {error}"));
            })
            .ok()
    }

    pub(super) fn take_marks(&mut self) -> Vec<String> {
        std::mem::take(&mut self.marks)
    }

    async fn open_unmanaged(&mut self) {
        let is_known = |pod: &PodId| self.context.table.get(pod).is_some();
        if self.request.pods.iter().all(|pod| is_known(&pod.id)) {
            return;
        }
        let Some(containers) = self.list_containers().await else { return };
        for container in containers {
            let Some(pod) = self.request.pods.iter().find(|pod| pod.id == container.pod) else { continue };
            let wanted = self.request.container.as_ref();
            if is_known(&pod.id) || wanted.is_some_and(|wanted| container.name.as_ref() != Some(wanted)) {
                continue;
            }
            let Container { handle, name, pod: id, .. } = container;
            let origin = LineOrigin { pod: id, name: pod.name.clone(), container: name };
            self.open_container(handle, origin, None).await;
        }
    }

    async fn open_kept(&mut self) {
        let request = self.request;
        for kept in self.context.worker.kept_logs.list().await {
            let is_of_service =
                kept.owner.service.as_ref().is_some_and(|service| request.services.contains(service));
            // A pod's name is that of its predecessors, whose runs are asked for here.
            let is_named =
                request.pods.iter().any(|pod| pod.id == kept.owner.pod || pod.name == kept.owner.name);
            let wanted = request.container.as_ref();
            if !(is_of_service || is_named)
                || wanted.is_some_and(|name| kept.owner.container.as_ref() != Some(name))
            {
                continue;
            }
            let KeptOwner { pod, name, container, .. } = kept.owner.clone();
            let origin = LineOrigin { pod, name, container };
            let stream = self.context.worker.kept_logs.read(&kept, request.tail);
            let (last_time, live_from) = (0, u64::MAX);
            self.begin(OpenSource { key: kept.file, origin, stream, last_time, live_from });
        }
    }

    fn begin(&mut self, source: OpenSource) {
        self.merge.begin(source.key.clone());
        self.open.push(source);
    }

    /// # Cancel safety
    /// Cancel safe: lines that were taken are in `merge` before it waits for the engine.
    pub(super) async fn next(&mut self) -> SourceEvent {
        let (index, item) = poll_fn(|context| self.poll_next(context)).await;
        match item {
            Some(Ok(lines)) => self.add(index, lines).await,
            Some(Err(error)) => {
                let name = self.open[index].origin.name.clone();
                self.close(index);
                SourceEvent::Mark(format!("… the log of {name} cannot be read on: {error}"))
            }
            None => {
                self.close(index);
                SourceEvent::Lines
            }
        }
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<(usize, Polled)> {
        let count = self.open.len();
        self.first = self.first.wrapping_add(1);
        for index in (0..count).map(|n| (self.first + n) % count) {
            let source = &mut self.open[index];
            if self.merge.waiting(&source.key) >= MAX_WAITING {
                continue;
            }
            if let Poll::Ready(item) = source.stream.poll_next_unpin(context) {
                return Poll::Ready((index, item));
            }
        }
        Poll::Pending
    }

    async fn add(&mut self, index: usize, lines: Vec<EngineLine>) -> SourceEvent {
        let now = StdInstant::now();
        let source = &mut self.open[index];
        for EngineLine { time, text } in lines {
            source.last_time = time.max(source.last_time);
            let LineOrigin { pod, name, container } = source.origin.clone();
            self.merge.push(&source.key, time, LogLine { time, pod, name, container, text }, now);
        }
        let lag = Duration::from_nanos(wall_clock().saturating_sub(source.last_time));
        if self.request.follow && source.last_time > source.live_from && lag > MAX_LAG {
            return self.skip(index, lag).await;
        }
        SourceEvent::Lines
    }

    async fn skip(&mut self, index: usize, lag: Duration) -> SourceEvent {
        let source = &mut self.open[index];
        let after = wall_clock();
        let query = LineQuery { tail: Some(0), follow: true, after: 0 };
        match self.context.worker.runtime.lines(&source.key, query).await {
            Ok(stream) => {
                source.stream = stream;
                source.live_from = after;
            }
            // It is read on where it was.
            Err(error) => {
                tracing::debug!(container = source.key, %error, "a log could not be opened again");
                return SourceEvent::Lines;
            }
        }
        SourceEvent::Mark(format!(
            "… {} s of the output of {} skipped: it is written faster than it is read",
            lag.as_secs(),
            source.origin.name
        ))
    }

    fn close(&mut self, index: usize) {
        let source = self.open.swap_remove(index);
        self.merge.end(&source.key);
        if let Some(known) = self.known.get_mut(&source.key) {
            known.last_time = source.last_time;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_container_that_was_there_is_read_from_its_tail_and_a_new_one_from_its_beginning() {
        let request = LinesRequest { tail: Some(5), follow: true, after: Some(7), ..LinesRequest::default() };
        let at = |millis| Some(BootInstant { millis });
        let known = KnownSource { last_time: 30, running_since: at(100) };
        let query = |tail, after| Some(LineQuery { tail, follow: true, after });
        for (known, running_since, was_there, expected) in [
            (None, at(100), true, query(Some(5), 7)),
            (None, at(100), false, query(None, 7)),
            (Some(&known), at(100), true, None),
            (Some(&known), at(200), true, query(None, 30)),
        ] {
            assert_eq!(query_of(&request, known, running_since, was_there), expected);
        }
    }
}
