//! Containers that exist in memory only: for tests, for benchmarks, and for a cluster of thousands of nodes in one
//! process. Delays and failures can be set; no container costs a task.
//!
//! One engine serves any number of nodes. Its clones are the same engine, so a test can drop a worker and start
//! another while the containers live on.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use common::ids::{NodeName, PodId};
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream, StreamExt};
use tokio::sync::{broadcast, watch};

use super::{Container, ContainerRequest, ContainerState, EngineInfo, Hint, Runtime, RuntimeError};

/// How the simulated engine behaves.
///
/// Images decide about their own failures: `missing…` can not be had, `broken…` is refused, `crash…` ends with 1 right
/// after its start, each time.
#[derive(Debug, Clone)]
pub struct SimOptions {
    /// What each start takes, restarts too.
    pub start_delay: Duration,
    /// What each stop takes.
    pub stop_delay: Duration,
    /// What it takes to look for an image.
    pub image_delay: Duration,
    /// How long a call waits for an engine that hangs.
    pub deadline: Duration,
}

impl Default for SimOptions {
    fn default() -> Self {
        Self {
            start_delay: Duration::ZERO,
            stop_delay: Duration::ZERO,
            image_delay: Duration::ZERO,
            deadline: Duration::from_secs(3),
        }
    }
}

/// A simulated engine. Clones share all state.
#[derive(Clone)]
pub struct SimRuntime {
    options: SimOptions,
    nodes: Arc<Mutex<HashMap<String, Node>>>,
    moods: Arc<watch::Sender<Mood>>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Mood {
    hangs: bool,
    loses_replies: bool,
}

struct Node {
    /// By container name.
    containers: BTreeMap<String, Simulated>,
    hints: broadcast::Sender<Hint>,
}

impl Default for Node {
    fn default() -> Self {
        Self { containers: BTreeMap::new(), hints: broadcast::Sender::new(64) }
    }
}

#[derive(Clone)]
struct Simulated {
    container: Container,
    crashes: bool,
    starts: u32,
}

impl SimRuntime {
    /// An engine without containers.
    pub fn new(options: SimOptions) -> Self {
        Self { options, nodes: Arc::default(), moods: Arc::new(watch::Sender::default()) }
    }

    /// Lets the pod's container end by itself. Gives whether there was one running.
    pub fn exit(&self, pod: &PodId, code: i64) -> bool {
        self.each(pod, |node, name| {
            let Some(simulated) = node.containers.get_mut(name) else { return false };
            let running = simulated.container.state == ContainerState::Running;
            if running {
                simulated.container.state = ContainerState::Exited { code, out_of_memory: false };
            }
            running
        })
    }

    /// Lets the pod's container vanish, as when somebody removed it by hand. Gives whether there was one.
    pub fn lose(&self, pod: &PodId) -> bool {
        self.each(pod, |node, name| node.containers.remove(name).is_some())
    }

    /// While it hangs no call is answered: each waits until its deadline, or until it hangs no more.
    pub fn hang(&self, hangs: bool) {
        self.moods.send_modify(|mood| mood.hangs = hangs);
    }

    /// While it loses replies, starts and stops are carried out, and answered as if the engine had not.
    pub fn lose_replies(&self, loses: bool) {
        self.moods.send_modify(|mood| mood.loses_replies = loses);
    }

    /// How many containers run on all nodes together: what an outside observer would count.
    pub fn running(&self) -> usize {
        let running = |simulated: &&Simulated| simulated.container.state == ContainerState::Running;
        self.nodes().values().map(|node| node.containers.values().filter(running).count()).sum()
    }

    /// The nodes on which containers of this pod run; more than one is what must never be under valid leases.
    pub fn running_on(&self, pod: &PodId) -> Vec<NodeName> {
        let runs = |simulated: &Simulated| {
            simulated.container.pod == *pod && simulated.container.state == ContainerState::Running
        };
        let nodes = self.nodes();
        let on = nodes.iter().filter(|(_, node)| node.containers.values().any(runs));
        on.filter_map(|(name, _)| NodeName::new(name.as_str()).ok()).collect()
    }

    fn nodes(&self) -> MutexGuard<'_, HashMap<String, Node>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something to each container of a pod, and hints where something was done.
    fn each(&self, pod: &PodId, act: impl Fn(&mut Node, &str) -> bool) -> bool {
        let mut any = false;
        for node in self.nodes().values_mut() {
            let of_pod = node.containers.iter().filter(|(_, simulated)| simulated.container.pod == *pod);
            let names: Vec<String> = of_pod.map(|(name, _)| name.clone()).collect();
            for name in names {
                if act(node, &name) {
                    any = true;
                    node.hint(pod, false);
                }
            }
        }
        any
    }

    /// The engine's time to answer at all.
    async fn answer(&self, delay: Duration) -> Result<(), RuntimeError> {
        let mut moods = self.moods.subscribe();
        let awake = moods.wait_for(|mood| !mood.hangs);
        if tokio::time::timeout(self.options.deadline, awake).await.is_err() {
            let millis = self.options.deadline.as_millis();
            return Err(RuntimeError::Engine(format!(
                "the simulated engine hangs: no answer in {millis} ms"
            )));
        }
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        Ok(())
    }

    /// What the caller hears of something that was done.
    fn reply<T>(&self, value: T) -> Result<T, RuntimeError> {
        if self.moods.borrow().loses_replies {
            return Err(RuntimeError::Engine("the simulated engine's reply was lost".to_owned()));
        }
        Ok(value)
    }

    fn start(&self, request: &ContainerRequest) -> Result<Container, RuntimeError> {
        let (image, identity) = (&request.container.image, &request.identity);
        check_image(image)?;
        if image.starts_with("broken") {
            return Err(RuntimeError::Refused(format!("simulated: {image} can not run here")));
        }
        let name = identity.container_name();
        let mut nodes = self.nodes();
        let node = nodes.entry(identity.node.to_string()).or_default();
        if let Some(found) = node.containers.get(&name) {
            return Ok(found.container.clone());
        }
        let container = Container {
            handle: format!("{}/{name}", identity.node),
            pod: identity.pod.clone(),
            assignment: identity.assignment.clone(),
            on_disconnect: identity.on_disconnect,
            grace: identity.grace,
            state: ContainerState::Running,
            address: String::new(),
        };
        let crashes = image.starts_with("crash");
        let mut simulated = Simulated { container: container.clone(), crashes, starts: 0 };
        simulated.start();
        node.containers.insert(name, simulated);
        node.hint(&identity.pod, !crashes);
        Ok(container)
    }

    fn with<T>(
        &self,
        handle: &str,
        act: impl FnOnce(&mut Node, &str) -> Option<T>,
    ) -> Result<T, RuntimeError> {
        let missing = || RuntimeError::NotFound(format!("simulated container {handle}"));
        let (node, name) = handle.split_once('/').ok_or_else(missing)?;
        let mut nodes = self.nodes();
        nodes.get_mut(node).and_then(|node| act(node, name)).ok_or_else(missing)
    }
}

impl Node {
    fn hint(&self, pod: &PodId, began: bool) {
        // Nobody listens: fine, they list.
        let _ = self.hints.send(Hint { pod: Some(pod.clone()), began });
    }
}

impl Simulated {
    fn start(&mut self) {
        self.starts += 1;
        let crashed = ContainerState::Exited { code: 1, out_of_memory: false };
        self.container.state = if self.crashes { crashed } else { ContainerState::Running };
    }
}

fn check_image(image: &str) -> Result<(), RuntimeError> {
    if image.starts_with("missing") {
        return Err(RuntimeError::Image(format!("simulated: {image} is in no registry")));
    }
    Ok(())
}

impl Runtime for SimRuntime {
    fn ping(&self) -> BoxFuture<'_, Result<EngineInfo, RuntimeError>> {
        Box::pin(async {
            self.answer(Duration::ZERO).await?;
            Ok(EngineInfo { runtime: "sim", version: "simulated".to_owned() })
        })
    }

    fn list<'a>(&'a self, node: &'a NodeName) -> BoxFuture<'a, Result<Vec<Container>, RuntimeError>> {
        Box::pin(async move {
            self.answer(Duration::ZERO).await?;
            let nodes = self.nodes();
            let containers = nodes.get(node.as_str()).map(|node| node.containers.values());
            Ok(containers.into_iter().flatten().map(|simulated| simulated.container.clone()).collect())
        })
    }

    fn ensure_image<'a>(&'a self, image: &'a str) -> BoxFuture<'a, Result<(), RuntimeError>> {
        Box::pin(async move {
            self.answer(self.options.image_delay).await?;
            check_image(image)
        })
    }

    fn run<'a>(&'a self, request: &'a ContainerRequest) -> BoxFuture<'a, Result<Container, RuntimeError>> {
        Box::pin(async move {
            self.answer(self.options.start_delay).await?;
            self.reply(self.start(request)?)
        })
    }

    fn restart<'a>(&'a self, handle: &'a str) -> BoxFuture<'a, Result<(), RuntimeError>> {
        Box::pin(async move {
            self.answer(self.options.start_delay).await?;
            let done = self.with(handle, |node, name| {
                let simulated = node.containers.get_mut(name)?;
                if simulated.container.state != ContainerState::Running {
                    simulated.start();
                    let pod = simulated.container.pod.clone();
                    node.hint(&pod, false);
                }
                Some(())
            });
            self.reply(done?)
        })
    }

    fn stop<'a>(&'a self, handle: &'a str, _grace: Duration) -> BoxFuture<'a, Result<(), RuntimeError>> {
        Box::pin(async move {
            self.answer(self.options.stop_delay).await?;
            // Gone already is success.
            let _ = self.with(handle, |node, name| {
                let simulated = node.containers.remove(name)?;
                node.hint(&simulated.container.pod, false);
                Some(())
            });
            self.reply(())
        })
    }

    fn logs<'a>(
        &'a self,
        handle: &'a str,
        tail: usize,
        _follow: bool,
    ) -> BoxFuture<'a, Result<BoxStream<'static, Result<Bytes, RuntimeError>>, RuntimeError>> {
        Box::pin(async move {
            self.answer(Duration::ZERO).await?;
            let starts = self.with(handle, |node, name| node.containers.get(name).map(|s| s.starts))?;
            let skipped = usize::try_from(starts).unwrap_or(usize::MAX).saturating_sub(tail);
            let lines = (1..=starts).skip(skipped).map(|n| Ok(Bytes::from(format!("simulated start {n}\n"))));
            Ok(stream::iter(lines).boxed())
        })
    }

    fn hints<'a>(
        &'a self,
        node: &'a NodeName,
    ) -> BoxFuture<'a, Result<BoxStream<'static, Hint>, RuntimeError>> {
        Box::pin(async move {
            self.answer(Duration::ZERO).await?;
            let receiver = self.nodes().entry(node.to_string()).or_default().hints.subscribe();
            let hints = stream::unfold(receiver, |mut receiver| async move {
                match receiver.recv().await {
                    Ok(hint) => Some((hint, receiver)),
                    // Missed some: anything may have changed.
                    Err(broadcast::error::RecvError::Lagged(_)) => Some((Hint::default(), receiver)),
                    Err(broadcast::error::RecvError::Closed) => None,
                }
            });
            Ok(hints.boxed())
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use crate::runtime::testing::identity;
    use common::spec::ContainerSpec;

    fn request(node: &str, pod: &str, image: &str) -> ContainerRequest {
        ContainerRequest { identity: identity(node, pod, "a"), container: ContainerSpec::of_image(image) }
    }

    fn node(name: &str) -> NodeName {
        NodeName::new(name).unwrap()
    }

    #[tokio::test]
    async fn containers_outlive_the_worker_and_belong_to_one_node() {
        let sim = SimRuntime::new(SimOptions::default());
        let request = request("one", "pod", "nginx");
        let container = sim.run(&request).await.unwrap();
        let after_restart = sim.clone();
        drop(sim);
        assert_eq!(after_restart.run(&request).await.unwrap(), container);
        assert_eq!(after_restart.list(&node("one")).await.unwrap(), std::slice::from_ref(&container));
        assert_eq!(after_restart.list(&node("two")).await.unwrap(), []);
        assert_eq!(
            (after_restart.running(), after_restart.running_on(&container.pod)),
            (1, vec![node("one")])
        );
        after_restart.stop(&container.handle, Duration::ZERO).await.unwrap();
        after_restart.stop(&container.handle, Duration::ZERO).await.unwrap();
        assert_eq!(after_restart.running(), 0);
    }

    #[tokio::test]
    async fn images_decide_about_their_failures() {
        let sim = SimRuntime::new(SimOptions::default());
        assert!(matches!(sim.ensure_image("missing/x:1").await, Err(RuntimeError::Image(_))));
        let refused = sim.run(&request("n", "p", "broken")).await;
        assert!(matches!(refused, Err(RuntimeError::Refused(_))));
        let crash = sim.run(&request("n", "p", "crash:1")).await.unwrap();
        let exited = ContainerState::Exited { code: 1, out_of_memory: false };
        for _ in 0..2 {
            assert_eq!(sim.list(&node("n")).await.unwrap()[0].state, exited);
            sim.restart(&crash.handle).await.unwrap();
        }
        let lines: Vec<_> = sim.logs(&crash.handle, 2, false).await.unwrap().collect().await;
        assert_eq!(lines, [Ok("simulated start 2\n".into()), Ok("simulated start 3\n".into())]);
    }

    #[tokio::test]
    async fn what_a_test_does_to_it_is_seen_and_hinted() {
        let sim = SimRuntime::new(SimOptions::default());
        let container = sim.run(&request("n", "p", "nginx")).await.unwrap();
        let mut hints = sim.hints(&node("n")).await.unwrap();
        assert!(sim.exit(&container.pod, 7) && !sim.exit(&container.pod, 7));
        assert_eq!(hints.next().await.unwrap().pod.as_ref(), Some(&container.pod));
        let exited = ContainerState::Exited { code: 7, out_of_memory: false };
        assert_eq!(sim.list(&node("n")).await.unwrap()[0].state, exited);
        assert!(sim.lose(&container.pod) && !sim.lose(&container.pod));
        assert!(matches!(sim.restart(&container.handle).await, Err(RuntimeError::NotFound(_))));
    }

    #[tokio::test]
    async fn an_engine_that_hangs_answers_at_the_deadline_or_when_released() {
        let sim = SimRuntime::new(SimOptions { deadline: Duration::from_millis(50), ..Default::default() });
        sim.hang(true);
        assert!(matches!(sim.ping().await, Err(RuntimeError::Engine(_))));
        let sim = SimRuntime { options: SimOptions::default(), ..sim };
        let release = async { sim.hang(false) };
        let (ping, ()) = tokio::join!(sim.ping(), release);
        assert_eq!(ping.unwrap().runtime, "sim");
    }

    #[tokio::test]
    async fn a_lost_reply_has_been_carried_out() {
        let sim = SimRuntime::new(SimOptions::default());
        sim.lose_replies(true);
        let request = request("n", "p", "nginx");
        assert!(matches!(sim.run(&request).await, Err(RuntimeError::Engine(_))));
        assert_eq!(sim.running(), 1);
        sim.lose_replies(false);
        sim.run(&request).await.unwrap();
        assert_eq!(sim.running(), 1);
    }
}
