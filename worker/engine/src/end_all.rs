//! Stops any number of containers before a common deadline.

use std::collections::BTreeMap;

use futures_util::future::join_all;
use tokio::time::{Instant, timeout_at};

use crate::{Container, RuntimeError};

/// `stopped` asks one to stop and waits for its end; `kill` follows, at `kill_by` at the latest.
pub(crate) async fn end_all<S, K>(
    containers: Vec<Container>,
    kill_by: Instant,
    stopped: impl Fn(Container) -> S,
    kill: impl Fn(Vec<Container>) -> K,
) -> Result<(), RuntimeError>
where
    S: Future<Output = ()>,
    K: Future<Output = Result<(), RuntimeError>>,
{
    let mut groups = Vec::new();
    for (moment, group) in by_moment(containers, Instant::now(), kill_by) {
        let asked: Vec<_> = group.iter().cloned().map(|one| timeout_at(moment, stopped(one))).collect();
        let kill = &kill;
        groups.push(async move {
            let ended = join_all(asked).await;
            let left = group.into_iter().zip(ended).filter(|(_, ended)| ended.is_err());
            let left: Vec<Container> = left.map(|(container, _)| container).collect();
            if left.is_empty() { Ok(()) } else { kill(left).await }
        });
    }
    join_all(groups).await.into_iter().collect()
}

fn by_moment(
    containers: Vec<Container>,
    now: Instant,
    kill_by: Instant,
) -> BTreeMap<Instant, Vec<Container>> {
    let most = kill_by.saturating_duration_since(now);
    let mut groups: BTreeMap<Instant, Vec<Container>> = BTreeMap::new();
    for container in containers {
        groups.entry(now + container.grace.min(most)).or_default().push(container);
    }
    groups
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use parking_lot::Mutex;

    use super::*;
    use crate::{ContainerState, testing};

    fn container(handle: &str, grace: u64) -> Container {
        let identity = testing::identity("n", handle, "a");
        let grace = Duration::from_secs(grace);
        Container { grace, ..Container::new(handle.to_owned(), &identity, ContainerState::Running) }
    }

    #[tokio::test(start_paused = true)]
    async fn all_are_asked_at_once_and_killed_when_their_grace_is_over_or_at_the_moment_for_all() {
        let begun = Instant::now();
        let mut containers: Vec<Container> = (0..1000).map(|n| container(&format!("p{n}"), 10)).collect();
        containers.extend([container("short", 1), container("none", 0), container("obeys", 10)]);
        let asked = Mutex::new(Vec::new());
        let killed: Mutex<BTreeMap<u64, Vec<String>>> = Mutex::default();
        let stopped = |container: Container| {
            asked.lock().push(begun.elapsed());
            let obeys = container.handle == "obeys";
            async move {
                if !obeys {
                    std::future::pending::<()>().await;
                }
            }
        };
        let kill = |left: Vec<Container>| {
            let handles = left.iter().map(|container| container.handle.clone());
            let second = begun.elapsed().as_secs();
            killed.lock().entry(second).or_default().extend(handles);
            async { Ok(()) }
        };
        let ended = end_all(containers, begun + Duration::from_secs(3), stopped, kill).await;
        assert_eq!(ended, Ok(()));
        assert_eq!(begun.elapsed().as_secs(), 3);
        let asked = asked.into_inner();
        assert!(asked.len() == 1003 && asked.iter().all(Duration::is_zero), "{asked:?}");
        let killed = killed.into_inner();
        assert_eq!(
            (killed[&0].as_slice(), killed[&1].as_slice()),
            (&["none".into()][..], &["short".into()][..])
        );
        assert_eq!(killed[&3].len(), 1000);
    }
}
