//! Images: looked for first, pulled only when absent, and pulled once however many pods wait for one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bollard::query_parameters::CreateImageOptionsBuilder;
use futures_util::future::{BoxFuture, FutureExt, Shared, WeakShared};
use futures_util::stream::StreamExt;

use super::client::Client;
use super::errors::{Doing, Fault};
use super::{PING, QUICK};
use crate::runtime::RuntimeError;

/// A whole pull. What was loaded until then stays with the engine, and the next try goes on from there.
const PULL: Duration = Duration::from_secs(600);
/// Without any progress in it: the registry has died on us.
const STALL: Duration = Duration::from_secs(120);

/// An image that was there is not looked for again for so long: a hundred pods of one service would ask a hundred times.
/// Whoever finds it gone all the same says so ([`Images::is_gone`]).
const SEEN: Duration = Duration::from_secs(5);

type Pull = BoxFuture<'static, Result<(), RuntimeError>>;

/// What is known of images.
#[derive(Default)]
pub(super) struct Images {
    /// The pulls under way, by image. Weak: a pull nobody waits for any more is dropped, which ends it.
    pulls: Mutex<HashMap<String, WeakShared<Pull>>>,
    /// When each was last seen.
    seen: Mutex<HashMap<String, Instant>>,
}

impl Images {
    /// The engine has no such image, although it was seen.
    pub(super) fn is_gone(&self, image: &str) {
        self.seen().remove(image);
    }

    fn was_just_seen(&self, image: &str) -> bool {
        self.seen().get(image).is_some_and(|at| at.elapsed() < SEEN)
    }

    fn is_there(&self, image: &str) {
        let mut seen = self.seen();
        seen.retain(|_, at| at.elapsed() < SEEN);
        seen.insert(image.to_owned(), Instant::now());
    }

    fn seen(&self) -> MutexGuard<'_, HashMap<String, Instant>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The pull of this image that is under way, or a new one.
    fn join(&self, client: &Arc<Client>, image: &str) -> Shared<Pull> {
        let mut pulls = self.pulls.lock().unwrap_or_else(PoisonError::into_inner);
        // A finished one answers nobody anew: its image may be gone again, its failure outdated.
        pulls.retain(|_, pull| pull.upgrade().is_some_and(|pull| pull.peek().is_none()));
        if let Some(pull) = pulls.get(image).and_then(WeakShared::upgrade) {
            return pull;
        }
        let pull = pull(client.clone(), image.to_owned()).boxed().shared();
        if let Some(weak) = pull.downgrade() {
            pulls.insert(image.to_owned(), weak);
        }
        pull
    }

    /// How many wait for this image right now.
    #[cfg(test)]
    pub(super) fn waiting(&self, image: &str) -> usize {
        let pulls = self.pulls.lock().unwrap_or_else(PoisonError::into_inner);
        let count = pulls.get(image).and_then(WeakShared::upgrade).and_then(|pull| pull.strong_count());
        count.map_or(0, |count| count - 1)
    }
}

/// See [`crate::runtime::Runtime::ensure_image`].
pub(super) async fn ensure(client: &Arc<Client>, images: &Images, image: &str) -> Result<(), RuntimeError> {
    if images.was_just_seen(image) {
        return Ok(());
    }
    if !is_present(client, image).await? {
        images.join(client, &one_tag(image)).await?;
    }
    images.is_there(image);
    Ok(())
}

/// Whether the engine has the image already.
pub(super) async fn is_present(client: &Client, image: &str) -> Result<bool, RuntimeError> {
    check_path(image)?;
    let call = client.docker()?.inspect_image(image);
    match client.within(Doing::InspectImage, QUICK, call).await {
        Ok(_) => Ok(true),
        Err(fault) if fault.is_not_found() => Ok(false),
        Err(fault) => Err(fault.into()),
    }
}

/// The name becomes part of a path of the engine's API: `..` in it would name something else than an image.
pub(super) fn check_path(image: &str) -> Result<(), RuntimeError> {
    common::spec::check_image(image)
        .map_err(|why| RuntimeError::Refused(format!("image {image:?}: {why}")))?;
    if image.contains("..") || image.contains("//") {
        return Err(RuntimeError::Refused(format!("image {image:?} is not an image reference")));
    }
    Ok(())
}

async fn pull(client: Arc<Client>, image: String) -> Result<(), RuntimeError> {
    tracing::info!(image, "pulling an image");
    match tokio::time::timeout(PULL, follow_pull(&client, &image)).await {
        Ok(result) => result,
        Err(_) => {
            let detail = format!(
                "{image} is not complete after {} min; the next try goes on from here",
                PULL.as_secs() / 60
            );
            Err(RuntimeError::Image(detail))
        }
    }
}

async fn follow_pull(client: &Client, image: &str) -> Result<(), RuntimeError> {
    let options = CreateImageOptionsBuilder::default().from_image(image).build();
    let mut progress = client.docker()?.create_image(Some(options), None, None);
    loop {
        match tokio::time::timeout(STALL, progress.next()).await {
            Ok(Some(Ok(_))) => {}
            Ok(Some(Err(error))) => return Err(Fault::of(Doing::Pull, client.shown(), &error).into()),
            Ok(None) => return Ok(()),
            Err(_) => return Err(stalled(client, image).await),
        }
    }
}

/// An engine that still answers is not to blame for a registry that does not.
async fn stalled(client: &Client, image: &str) -> RuntimeError {
    let ping = match client.docker() {
        Ok(docker) => client.within(Doing::Ping, PING, docker.ping()).await.map_err(RuntimeError::from),
        Err(error) => Err(error),
    };
    match ping {
        Ok(_) => RuntimeError::Image(format!("{image}: no progress for {} s", STALL.as_secs())),
        Err(error) => error,
    }
}

/// With neither tag nor digest an engine pulls every tag there is.
fn one_tag(image: &str) -> String {
    let (name, tag) = split(image);
    if image.contains('@') { image.to_owned() } else { format!("{name}:{tag}") }
}

/// Name and tag; `latest` unless said. A port in the registry's address is not a tag.
pub(super) fn split(image: &str) -> (&str, &str) {
    match image.rsplit_once(':') {
        Some((name, tag)) if !tag.contains('/') => (name, tag),
        Some(_) | None => (image, "latest"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_tag_is_pulled_never_all() {
        for (image, pulled) in [
            ("nginx", "nginx:latest"),
            ("nginx:1.27", "nginx:1.27"),
            ("registry:5000/team/web", "registry:5000/team/web:latest"),
            ("registry:5000/team/web:2", "registry:5000/team/web:2"),
            ("nginx@sha256:0123", "nginx@sha256:0123"),
        ] {
            assert_eq!(one_tag(image), pulled);
        }
    }

    #[test]
    fn a_name_never_leaves_the_images_part_of_the_api() {
        for bad in ["a/../../containers/b", "..", "a//b", "a b", ""] {
            assert!(matches!(check_path(bad), Err(RuntimeError::Refused(_))), "{bad}");
        }
        assert!(check_path("registry:5000/team/web:2").is_ok());
    }
}
