//! Pulls images, once for all pods that wait for the same one.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bollard::auth::DockerCredentials;
use bollard::models::ImageInspect;
use bollard::query_parameters::CreateImageOptionsBuilder;
use futures_util::future::{BoxFuture, FutureExt, Shared, WeakShared};
use futures_util::stream::StreamExt;
use model::ids::RegistryHost;
use model::pod::image::repository;
use model::spec::{HealthCheck, PullPolicy};
use parking_lot::Mutex;

use super::credentials::{RegistryConfig, RegistryCredentials, is_denied};
use super::image_check;
use crate::docker::client::EngineClient;
use crate::docker::deadlines::{PING, READ};
use crate::docker::errors::{EngineCall, EngineFailure};
use crate::{LocalImage, RegistryLogins, RuntimeError};

/// The next attempt continues with the layers that the engine keeps.
const PULL_TIMEOUT: Duration = Duration::from_secs(600);
/// A registry without progress until then is considered dead.
const STALL_TIMEOUT: Duration = Duration::from_secs(120);

/// Without the cache, a hundred pods of a service would ask a hundred times.
const PRESENCE_CACHE: Duration = Duration::from_secs(5);

type Pull = BoxFuture<'static, Result<(), RuntimeError>>;

#[derive(Default)]
pub(crate) struct Images {
    pub(crate) registries: RegistryConfig,
    /// A pull ends when no start waits for it.
    pulls: Mutex<HashMap<String, WeakShared<Pull>>>,
    seen: Mutex<HashMap<String, SeenImage>>,
}

struct SeenImage {
    at: Instant,
    check: Option<HealthCheck>,
}

impl SeenImage {
    fn is_fresh(&self) -> bool {
        self.at.elapsed() < PRESENCE_CACHE
    }
}

impl Images {
    pub(crate) fn mark_missing(&self, image: &str) {
        self.seen.lock().remove(image);
    }

    fn was_just_seen(&self, image: &str) -> bool {
        self.seen.lock().get(image).is_some_and(SeenImage::is_fresh)
    }

    fn recent_check(&self, image: &str) -> Option<Option<HealthCheck>> {
        self.seen.lock().get(image).filter(|seen| seen.is_fresh()).map(|seen| seen.check.clone())
    }

    fn mark_present(&self, image: &str, check: Option<HealthCheck>) {
        let mut seen = self.seen.lock();
        seen.retain(|_, seen| seen.is_fresh());
        seen.insert(image.to_owned(), SeenImage { at: Instant::now(), check });
    }

    fn join(
        &self,
        client: &Arc<EngineClient>,
        image: &str,
        logins: &Arc<dyn RegistryLogins>,
    ) -> Shared<Pull> {
        let mut pulls = self.pulls.lock();
        // Its image may be missing again, its failure outdated.
        pulls.retain(|_, pull| pull.upgrade().is_some_and(|pull| pull.peek().is_none()));
        if let Some(pull) = pulls.get(image).and_then(WeakShared::upgrade) {
            return pull;
        }
        let pull =
            pull(client.clone(), self.registries.clone(), logins.clone(), image.to_owned()).boxed().shared();
        if let Some(weak) = pull.downgrade() {
            pulls.insert(image.to_owned(), weak);
        }
        pull
    }

    #[cfg(test)]
    pub(crate) fn waiting(&self, image: &str) -> usize {
        let pulls = self.pulls.lock();
        let count = pulls.get(image).and_then(WeakShared::upgrade).and_then(|pull| pull.strong_count());
        count.map_or(0, |count| count - 1)
    }
}

pub(crate) async fn ensure(
    client: &Arc<EngineClient>,
    images: &Images,
    image: &str,
    policy: PullPolicy,
    logins: &Arc<dyn RegistryLogins>,
) -> Result<(), RuntimeError> {
    if policy == PullPolicy::Always {
        // The record may be of the former image of this name.
        images.mark_missing(image);
        return images.join(client, &with_tag(image), logins).await;
    }
    if images.was_just_seen(image) {
        return Ok(());
    }
    match inspect(client, image).await? {
        Some(seen) => images.mark_present(image, image_check::of_inspected(&seen)),
        None if policy == PullPolicy::Never => {
            let why = "it is not on this node, and `pull_policy: never` forbids to pull it: load it there, or \
                       write `missing`";
            return Err(RuntimeError::Image(why.to_owned()));
        }
        None => images.join(client, &with_tag(image), logins).await?,
    }
    Ok(())
}

pub(crate) async fn check_of(
    client: &EngineClient,
    images: &Images,
    image: &str,
) -> Result<Option<HealthCheck>, RuntimeError> {
    if let Some(check) = images.recent_check(image) {
        return Ok(check);
    }
    let Some(seen) = inspect(client, image).await? else { return Ok(None) };
    let check = image_check::of_inspected(&seen);
    images.mark_present(image, check.clone());
    Ok(check)
}

pub(crate) async fn inspect(
    client: &EngineClient,
    image: &str,
) -> Result<Option<ImageInspect>, RuntimeError> {
    check_path(image)?;
    let call = client.docker()?.inspect_image(image);
    match client.within(EngineCall::InspectImage, READ, call).await {
        Ok(answer) => Ok(Some(answer)),
        Err(failure) if failure.is_not_found() => Ok(None),
        Err(failure) => Err(failure.into()),
    }
}

pub(crate) async fn local(client: &EngineClient, image: &str) -> Result<Option<LocalImage>, RuntimeError> {
    let Some(seen) = inspect(client, image).await? else { return Ok(None) };
    let digests = digests_of(image, &seen.repo_digests.unwrap_or_default());
    Ok(seen.id.filter(|id| !id.is_empty()).map(|id| LocalImage { id, digests }))
}

fn digests_of(image: &str, repo_digests: &[String]) -> Vec<String> {
    let repository = familiar(repository(image));
    let of_it = |one: &String| {
        let (name, digest) = one.split_once('@')?;
        (familiar(name) == repository).then(|| digest.to_owned())
    };
    repo_digests.iter().filter_map(of_it).collect()
}

fn familiar(repository: &str) -> &str {
    let name = ["docker.io/", "index.docker.io/"].iter().find_map(|hub| repository.strip_prefix(hub));
    let name = name.unwrap_or(repository);
    name.strip_prefix("library/").unwrap_or(name)
}

pub(crate) async fn came_from_registry(client: &EngineClient, image: &str) -> Result<bool, RuntimeError> {
    let seen = inspect(client, image).await?;
    Ok(seen.is_none_or(|seen| seen.repo_digests.is_some_and(|digests| !digests.is_empty())))
}

/// The name becomes part of an API path: `..` could address anything there.
pub(crate) fn check_path(image: &str) -> Result<(), RuntimeError> {
    model::spec::check_image(image).map_err(|why| RuntimeError::Refused(format!("image {image:?}: {why}")))
}

/// Credentials may have changed: they are read again once after a refusal.
async fn pull(
    client: Arc<EngineClient>,
    registries: RegistryConfig,
    logins: Arc<dyn RegistryLogins>,
    image: String,
) -> Result<(), RuntimeError> {
    tracing::info!(image, "pulling an image");
    match tokio::time::timeout(PULL_TIMEOUT, pull_with_credentials(&client, &registries, &*logins, &image))
        .await
    {
        Ok(result) => result,
        Err(_) => {
            let detail = format!(
                "{image} is not complete after {} min; the next try continues the download",
                PULL_TIMEOUT.as_secs() / 60
            );
            Err(RuntimeError::Image(detail))
        }
    }
}

async fn pull_with_credentials(
    client: &EngineClient,
    registries: &RegistryConfig,
    logins: &dyn RegistryLogins,
    image: &str,
) -> Result<(), RuntimeError> {
    let Some(host) = RegistryHost::of_image(image) else { return follow_pull(client, image, None).await };
    let found = registries.find(&host, logins).await;
    let mut used = vec![found.first()];
    let denied = match try_credentials(client, image, &host, found.first()).await {
        Err(RuntimeError::Image(message)) if is_denied(&message) => message,
        result => return result,
    };
    let again = registries.find(&host, logins).await;
    let Some(other) = again.other_than(found.first()) else {
        return Err(RuntimeError::Image(format!("{denied}; {}", again.explain(&host, &used))));
    };
    used.push(Some(other));
    match try_credentials(client, image, &host, Some(other)).await {
        Err(RuntimeError::Image(message)) if is_denied(&message) => {
            Err(RuntimeError::Image(format!("{message}; {}", again.explain(&host, &used))))
        }
        result => result,
    }
}

async fn try_credentials(
    client: &EngineClient,
    image: &str,
    host: &RegistryHost,
    credentials: Option<&RegistryCredentials>,
) -> Result<(), RuntimeError> {
    follow_pull(client, image, credentials.map(|credentials| credentials.for_engine(host))).await
}

async fn follow_pull(
    client: &EngineClient,
    image: &str,
    credentials: Option<DockerCredentials>,
) -> Result<(), RuntimeError> {
    let options = CreateImageOptionsBuilder::default().from_image(image).build();
    let mut progress = client.docker()?.create_image(Some(options), None, credentials);
    loop {
        match tokio::time::timeout(STALL_TIMEOUT, progress.next()).await {
            Ok(Some(Ok(_))) => {}
            Ok(Some(Err(error))) => {
                return Err(EngineFailure::of(EngineCall::Pull, client.shown(), &error).into());
            }
            Ok(None) => return Ok(()),
            Err(_) => return Err(stall_error(client, image).await),
        }
    }
}

async fn stall_error(client: &EngineClient, image: &str) -> RuntimeError {
    let ping = match client.docker() {
        Ok(docker) => client.within(EngineCall::Ping, PING, docker.ping()).await.map_err(RuntimeError::from),
        Err(error) => Err(error),
    };
    match ping {
        Ok(_) => RuntimeError::Image(format!("{image}: no progress for {} s", STALL_TIMEOUT.as_secs())),
        Err(error) => error,
    }
}

/// Without a tag an engine would pull every tag.
fn with_tag(image: &str) -> String {
    let (name, tag) = split(image);
    if image.contains('@') { image.to_owned() } else { format!("{name}:{tag}") }
}

pub(crate) fn split(image: &str) -> (&str, &str) {
    match image.rsplit_once(':') {
        Some((name, tag)) if !tag.contains('/') => (name, tag),
        Some(_) | None => (image, "latest"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_one_tag_is_pulled() {
        for (image, pulled) in [
            ("nginx", "nginx:latest"),
            ("nginx:1.27", "nginx:1.27"),
            ("registry:5000/team/web", "registry:5000/team/web:latest"),
            ("registry:5000/team/web:2", "registry:5000/team/web:2"),
            ("nginx@sha256:0123", "nginx@sha256:0123"),
        ] {
            assert_eq!(with_tag(image), pulled);
        }
    }

    #[test]
    fn an_image_has_the_digests_of_its_repository() {
        for (image, expected) in [
            ("nginx:1", &["sha256:a", "sha256:b"][..]),
            ("docker.io/library/nginx", &["sha256:a", "sha256:b"]),
            ("nginx@sha256:a", &["sha256:a", "sha256:b"]),
            ("localhost:5000/nginx:1", &["sha256:c"]),
            ("retagged:1", &[]),
        ] {
            let digests = [
                "nginx@sha256:a",
                "docker.io/library/nginx@sha256:b",
                "localhost:5000/nginx@sha256:c",
                "<none>",
            ];
            assert_eq!(digests_of(image, &digests.map(str::to_owned)), expected, "{image}");
        }
    }

    #[test]
    fn an_image_name_cannot_escape_its_part_of_the_api_path() {
        for bad in ["a/../../containers/b", "..", "a//b", "a b", ""] {
            assert!(matches!(check_path(bad), Err(RuntimeError::Refused(_))), "{bad}");
        }
        assert!(check_path("registry:5000/team/web:2").is_ok());
    }
}
