//! Ensures that the images of a pod are here, with the content of the first pod of its specification. A tag
//! may have moved since, and pods of one generation must be the same everywhere.

use std::sync::Arc;

use engine::{LocalImage, RuntimeError};
use model::ids::{AssignmentId, ServiceName, SpecId};
use model::pod::image::{self, ImageContent};
use model::spec::{ContainerSpec, PodSpec, PullPolicy};
use store::PodRef;

use crate::node::garbage;
use crate::session::context::SessionContext;
use crate::session::reply_class::ReplyClass;
use crate::start::admission::StartJob;
use crate::worker::Worker;

/// Another pod may pin images meanwhile. After this many rounds Redis is asked again about the pod.
const MAX_ROUNDS: usize = 3;

pub(crate) enum ImagesUnavailable {
    Failed {
        error: RuntimeError,
        image: String,
    },
    /// Redis must be asked again about the pod.
    Ask,
    Fenced,
}

struct ChosenImage {
    /// The specification's name, or a name of exactly the pinned content.
    reference: String,
    content: Option<ImageContent>,
    /// The difference to the pinned content; empty if there is none.
    differs: String,
}

pub(crate) async fn ensure(
    context: &SessionContext,
    job: &StartJob,
    assignment: &AssignmentId,
    spec: &Arc<PodSpec>,
) -> Result<Arc<PodSpec>, ImagesUnavailable> {
    let worker = &context.worker;
    let owner = (job.service.as_ref(), job.payload.spec.as_ref());
    let mut pinned = read_pinned(context, owner).await?;
    for _ in 0..MAX_ROUNDS {
        let chosen = choose_all(worker, spec, &pinned).await?;
        if !worker.runtime.has_images() {
            return Ok(spec.clone());
        }
        let images = contents(&chosen);
        let differs: Vec<&str> =
            chosen.iter().map(|one| one.differs.as_str()).filter(|text| !text.is_empty()).collect();
        let differs = differs.join("; ");
        let pod = PodRef { id: &job.payload.id, assignment };
        let noted = context.session.note_images(pod, owner, &images, &differs).await;
        let now = match context.classify("noting the images of a pod", noted) {
            ReplyClass::Reply(Some(now)) => now,
            ReplyClass::Reply(None) | ReplyClass::Transient(_) | ReplyClass::Permanent(_) => {
                return Err(ImagesUnavailable::Ask);
            }
            ReplyClass::Fenced => return Err(ImagesUnavailable::Fenced),
        };
        // This node may lack what was pinned before the choice: the difference is noted and accepted.
        if now == pinned || image::differing(&images, &now).is_none() {
            return Ok(with_references(spec, chosen));
        }
        pinned = now;
    }
    Err(ImagesUnavailable::Ask)
}

/// Pulls the images ahead of a rollout; pins and notes nothing in Redis.
pub(crate) async fn prepare(
    worker: &Worker,
    spec: &PodSpec,
    pinned: &[ImageContent],
) -> Result<(), (RuntimeError, String)> {
    match choose_all(worker, spec, pinned).await {
        Err(ImagesUnavailable::Failed { error, image }) => Err((error, image)),
        Ok(_) | Err(ImagesUnavailable::Ask | ImagesUnavailable::Fenced) => Ok(()),
    }
}

async fn read_pinned(
    context: &SessionContext,
    owner: (Option<&ServiceName>, Option<&SpecId>),
) -> Result<Vec<ImageContent>, ImagesUnavailable> {
    let (Some(service), Some(spec)) = owner else { return Ok(Vec::new()) };
    if !context.worker.runtime.has_images() {
        return Ok(Vec::new());
    }
    let pinned = context.session.store().pinned_images(service, spec).await.map(Ok);
    let pinned = context.classify("reading the images of a specification", pinned).reply();
    pinned.ok_or(ImagesUnavailable::Ask)
}

async fn choose_all(
    worker: &Worker,
    spec: &PodSpec,
    pinned: &[ImageContent],
) -> Result<Vec<ChosenImage>, ImagesUnavailable> {
    let mut chosen = Vec::with_capacity(spec.containers.len());
    for container in &spec.containers {
        let pin = pinned.iter().find(|pinned| pinned.image == container.image);
        let one = choose(worker, container, pin)
            .await
            .map_err(|error| ImagesUnavailable::Failed { error, image: container.image.clone() })?;
        if garbage::is_pullable(container.pull_policy) {
            worker.image_uses.note(&container.image);
            worker.image_uses.note(&one.reference);
        }
        chosen.push(one);
    }
    Ok(chosen)
}

async fn choose(
    worker: &Worker,
    container: &ContainerSpec,
    pin: Option<&ImageContent>,
) -> Result<ChosenImage, RuntimeError> {
    let name = &container.image;
    let Some(pin) = pin else { return by_name(worker, container, None).await };
    let here = worker.runtime.local_image(name).await?;
    if here.as_ref().is_some_and(|here| is_pinned(here, pin)) {
        return Ok(exactly(name.clone(), pin, here.unwrap_or_default()));
    }
    let Some(reference) = pin.reference() else {
        // The tag may have moved on this node, and the old content still be here.
        return match worker.runtime.local_image(&pin.id).await? {
            Some(found) => Ok(exactly(pin.id.clone(), pin, found)),
            None => by_name(worker, container, Some(pin)).await,
        };
    };
    let policy = match container.pull_policy {
        PullPolicy::Never => PullPolicy::Never,
        PullPolicy::Missing | PullPolicy::Always => PullPolicy::Missing,
    };
    match worker.runtime.ensure_image(&reference, policy, &worker.logins).await {
        Ok(()) => {
            let found = worker.runtime.local_image(&reference).await?.unwrap_or_default();
            Ok(exactly(reference, pin, found))
        }
        // The tag may be an image that was built or loaded here.
        Err(RuntimeError::Image(reason))
            if here.is_some()
                && container.pull_policy != PullPolicy::Always
                && says_there_is_none(&reason) =>
        {
            by_name(worker, container, Some(pin)).await
        }
        Err(RuntimeError::Image(reason)) => Err(RuntimeError::Image(format!(
            "the pods of this generation have {reference}, and this node cannot have it: {reason}; `kubeleet restart` \
             begins a generation with what {name} is now"
        ))),
        Err(error) => Err(error),
    }
}

async fn by_name(
    worker: &Worker,
    container: &ContainerSpec,
    pin: Option<&ImageContent>,
) -> Result<ChosenImage, RuntimeError> {
    let name = &container.image;
    worker.runtime.ensure_image(name, container.pull_policy, &worker.logins).await?;
    let content = worker.runtime.local_image(name).await?.map(|LocalImage { id, digests }| ImageContent {
        image: name.clone(),
        digest: digests.into_iter().next(),
        id,
    });
    let differs = match (&content, pin) {
        (Some(content), Some(pin)) if !content.is_same(pin) => format!(
            "{name} is {} on {}, and {} for the first pod of this generation, which this node cannot have: the pod runs \
             another image than others",
            content.identity(),
            worker.node,
            pin.identity()
        ),
        _ => String::new(),
    };
    Ok(ChosenImage { reference: name.clone(), content, differs })
}

fn exactly(reference: String, pin: &ImageContent, found: LocalImage) -> ChosenImage {
    let id = if found.id.is_empty() { pin.id.clone() } else { found.id };
    ChosenImage { reference, content: Some(ImageContent { id, ..pin.clone() }), differs: String::new() }
}

fn is_pinned(here: &LocalImage, pin: &ImageContent) -> bool {
    here.id == pin.id || pin.digest.as_ref().is_some_and(|digest| here.digests.contains(digest))
}

/// False if the registry did not answer.
fn says_there_is_none(reason: &str) -> bool {
    let reason = reason.to_ascii_lowercase();
    ["denied", "unauthorized", "authentication required", "not found", "unknown", "does not exist", "forbids"]
        .iter()
        .any(|sign| reason.contains(sign))
}

fn contents(chosen: &[ChosenImage]) -> Vec<ImageContent> {
    let mut contents: Vec<ImageContent> = Vec::new();
    for content in chosen.iter().filter_map(|one| one.content.as_ref()) {
        if !contents.iter().any(|known| known.image == content.image) {
            contents.push(content.clone());
        }
    }
    contents
}

fn with_references(spec: &Arc<PodSpec>, chosen: Vec<ChosenImage>) -> Arc<PodSpec> {
    if spec.containers.iter().zip(&chosen).all(|(container, one)| container.image == one.reference) {
        return spec.clone();
    }
    let mut spec = PodSpec::clone(spec);
    for (container, one) in spec.containers.iter_mut().zip(chosen) {
        container.image = one.reference;
    }
    Arc::new(spec)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_registry_that_does_not_have_it_is_told_from_one_that_does_not_answer() {
        for (reason, expected) in [
            ("manifest for web@sha256:a not found: manifest unknown: manifest unknown", true),
            ("pull access denied for web, repository does not exist or may require 'docker login'", true),
            ("it is not on this node, and `pull_policy: never` forbids to pull it", true),
            ("Get \"https://registry/v2/\": dial tcp: lookup registry: no such host", false),
            (
                "Get \"http://127.0.0.1:5000/v2/\": dial tcp 127.0.0.1:5000: connect: connection refused",
                false,
            ),
            ("web@sha256:a: no progress for 120 s", false),
        ] {
            assert_eq!(says_there_is_none(reason), expected, "{reason}");
        }
    }
}
