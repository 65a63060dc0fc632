//! Finds a pod by uuid, uuid prefix, name (`web-0`) or service.

use api_types::PodView;
use client::{Client, PodFilter};
use model::ids::ServiceName;
use model::pod::lifecycle::Phase;
use output::objects::pods;
use output::stderr;

use super::object_name::{self, ObjectName, ObjectType};
use crate::commands::context::Context;
use crate::commands::error::{CommandError, CommandResult};

/// More are neither read nor, if the name is ambiguous, shown.
const MAX_CANDIDATES: usize = 20;

/// `NotFound` if no pod matches, `Usage` if several do.
pub(crate) async fn pod(client: &Client, text: &str) -> CommandResult<PodView> {
    match client.pod(text).await {
        Ok(pod) => return Ok(pod),
        // No uuid of a pod, but perhaps a prefix or a name.
        Err(error) if error.is_no_such_object() => {}
        Err(error) => return Err(error.into()),
    }
    let by_prefix = PodFilter { prefix: Some(text.to_owned()), ..PodFilter::default() };
    let mut found = client.some_pods(&by_prefix, MAX_CANDIDATES).await?;
    let is_named = found.0.iter().any(|pod| pods::indexed_name(pod) == text);
    if !is_named && ServiceName::new(text).is_ok() {
        let of_service = pods_of(client, text).await?;
        // The uuids of other pods may begin with the name of a service, such as `db`.
        if !of_service.0.is_empty() {
            found = of_service;
        } else if client.service(text).await.is_ok() {
            return Err(none_runs(text));
        }
    }
    if found.0.is_empty() {
        return Err(no_pod(client, text).await);
    }
    only(client, text, found).await
}

/// For `pod stop`, also by the name of a service that has one pod.
pub(crate) async fn pod_to_stop(context: &Context<'_>, text: &str) -> CommandResult<PodView> {
    let client = &context.client;
    let ObjectName { object_type, name } = object_name::split(text);
    let service = match object_type {
        Some(of) if of.is_service() => Some(context.service_name(&name).await?),
        Some(_) => None,
        None => context.folder.service(client, &name).await?,
    };
    let Some(service) = service else { return pod(client, &name).await };
    client.service(&service).await?;
    let found = pods_of(client, &service).await?;
    if found.0.is_empty() {
        return Err(none_runs(&service));
    }
    only(client, &service, found).await
}

async fn only(client: &Client, text: &str, found: (Vec<PodView>, bool)) -> CommandResult<PodView> {
    let (candidates, has_more) = found;
    let id = choose(text, candidates, has_more)?.uuid;
    // Entries of a list lack the refusals.
    Ok(client.pod(id.as_str()).await?)
}

fn none_runs(service: &str) -> CommandError {
    CommandError::NotFound(format!(
        "no pod of {service} runs: `kubeleet describe service {service}` says why"
    ))
}

/// For `exec`, `cp` and the like. Prefers a ready pod of a service, and names the choice on standard error.
pub(crate) async fn running_pod(context: &Context<'_>, text: &str) -> CommandResult<PodView> {
    let client = &context.client;
    let ObjectName { object_type, name } = object_name::split(text);
    let service = match object_type {
        Some(of) if of.is_service() => name.clone(),
        Some(ObjectType::Pod) => return pod(client, &name).await,
        Some(other) => {
            let of = other.as_str();
            return Err(CommandError::Usage(format!(
                "this is a {of}, but the command needs a pod or a service"
            )));
        }
        None => match context.folder.service(client, &name).await? {
            Some(service) => service,
            // A service may have the name of another service's pod, `web-0`: the pod takes precedence.
            None => match pod(client, &name).await {
                Err(CommandError::Usage(_)) if client.service(&name).await.is_ok() => name.clone(),
                other => return other,
            },
        },
    };
    if object_type.is_some() {
        client.service(&service).await?;
    }
    let (pods, _) = pods_of(client, &service).await?;
    let (chosen, count) = any_of(&pods).ok_or_else(|| none_runs(&service))?;
    if count > 1 {
        let pod = pods::indexed_name(chosen);
        stderr::note(&format!("{service} has {count} pods: this is {pod}"));
    }
    Ok(client.pod(chosen.uuid.as_str()).await?)
}

async fn pods_of(client: &Client, service: &str) -> CommandResult<(Vec<PodView>, bool)> {
    let filter = PodFilter { service: Some(service.to_owned()), ..PodFilter::default() };
    Ok(client.some_pods(&filter, MAX_CANDIDATES).await?)
}

/// A ready pod, else a running, else an active one; and the number of active pods.
fn any_of(pods: &[PodView]) -> Option<(&PodView, usize)> {
    let rank = |pod: &&PodView| (pod.ready_since.is_none(), pod.phase != Phase::Running, pod.replica);
    let count = pods.iter().filter(is_active).count();
    pods.iter().filter(is_active).min_by_key(rank).map(|pod| (pod, count))
}

fn is_active(pod: &&PodView) -> bool {
    !pod.phase.is_terminal() && pod.phase != Phase::Stopping
}

async fn no_pod(client: &Client, text: &str) -> CommandError {
    let services = client.services(None).await.unwrap_or_default();
    let is_short = |name: &ServiceName, app: &model::ids::AppName| app.short_name(name) == Some(text);
    let similar: Vec<String> = services
        .iter()
        .filter(|service| service.fields.app.as_ref().is_some_and(|app| is_short(&service.name, app)))
        .map(|service| service.name.to_string())
        .collect();
    CommandError::NotFound(match similar.is_empty() {
        true => format!(
            "there is no pod {text:?}: give a uuid, the beginning of one, or a name such as web-0; \
             `kubeleet pod ls` lists them"
        ),
        false => format!("there is no pod {text:?}; did you mean {}?", similar.join(" or ")),
    })
}

/// During a replacement the old and the new pod share a name: the active one is meant, or the only one that
/// has not ended.
fn choose(text: &str, candidates: Vec<PodView>, has_more: bool) -> CommandResult<PodView> {
    let all: Vec<&PodView> = candidates.iter().collect();
    let not_ended: Vec<&PodView> = candidates.iter().filter(|pod| !pod.phase.is_terminal()).collect();
    let active: Vec<&PodView> = candidates.iter().filter(is_active).collect();
    match [all, not_ended, active].into_iter().find(|pods| pods.len() == 1).as_deref() {
        Some([only]) if !has_more => Ok((*only).clone()),
        _ => Err(ambiguous(text, &candidates, has_more)),
    }
}

fn ambiguous(text: &str, candidates: &[PodView], has_more: bool) -> CommandError {
    let mut message = format!("{text:?} matches several pods; choose one:");
    for pod in candidates {
        message.push_str(&format!("\n  {}  {}", pod.uuid, pods::line(pod)));
    }
    if has_more {
        message.push_str("\n  …");
    }
    CommandError::Usage(message)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use testkit::api_fixtures as fixtures;

    use super::*;

    #[test]
    fn chooses_the_only_candidate_or_the_only_active_one() {
        let (a, b) = (fixtures::pod("aaaa1111", Phase::Running), fixtures::pod("aaaa2222", Phase::Stopping));
        assert_eq!(choose("aaaa", vec![b.clone()], false).unwrap(), b);
        assert_eq!(choose("aaaa", vec![b.clone(), a.clone()], false).unwrap(), a);
        let ended = fixtures::pod("aaaa3333", Phase::Failed);
        assert_eq!(choose("aaaa", vec![ended, b.clone()], false).unwrap(), b);
        let many = choose("aaaa", vec![a.clone(), a.clone(), b], false).unwrap_err().to_string();
        assert!(many.contains("several pods") && many.contains("aaaa2222"), "{many}");
        assert!(choose("aaaa", vec![a], true).unwrap_err().to_string().contains('…'));
    }

    #[test]
    fn of_a_service_a_ready_pod_is_taken_and_none_that_has_ended() {
        let pod = |id: &str, phase, replica, is_ready: bool| PodView {
            replica,
            ready_since: is_ready.then(|| "2026-01-31T00:00:00Z".to_owned()),
            ..fixtures::pod(id, phase)
        };
        let pods = [
            pod("gone", Phase::Failed, 0, true),
            pod("going", Phase::Stopping, 0, true),
            pod("starting", Phase::Running, 1, false),
            pod("second", Phase::Running, 3, true),
            pod("first", Phase::Running, 2, true),
        ];
        let chosen = |pods: &[PodView]| any_of(pods).map(|(pod, count)| (pod.uuid.to_string(), count));
        assert_eq!(chosen(&pods), Some(("first".to_owned(), 3)));
        assert_eq!(chosen(&pods[..3]), Some(("starting".to_owned(), 1)));
        assert_eq!(chosen(&pods[..2]), None);
    }
}
