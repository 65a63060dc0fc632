//! Finds the pod that a user means: a uuid, the beginning of one, `web-0`, or a service that has a single
//! pod.

use common::api::PodView;
use common::ids::ServiceName;
use common::lifecycle::Phase;

use super::error::CommandError;
use crate::client::{Client, PodFilter};
use crate::output::pods;

/// Candidates that are read and, if the name is ambiguous, shown.
const MAX_CANDIDATES: usize = 20;

/// Returns the pod that `text` names, with its details.
///
/// # Errors
/// `NotFound` if no pod matches, `Usage` if several do.
pub(super) async fn pod(client: &Client, text: &str) -> Result<PodView, CommandError> {
    match client.pod(text).await {
        Ok(pod) => return Ok(pod),
        Err(error) if error.status() == Some(404) => {}
        // Not a valid uuid, but perhaps the beginning of one, or a name.
        Err(error) if matches!(error.status(), Some(400 | 422)) => {}
        Err(error) => return Err(error.into()),
    }
    let by_prefix = PodFilter { prefix: Some(text.to_owned()), ..PodFilter::default() };
    let mut found = client.some_pods(&by_prefix, MAX_CANDIDATES).await?;
    if found.0.is_empty() && ServiceName::new(text).is_ok() {
        let by_service = PodFilter { service: Some(text.to_owned()), ..PodFilter::default() };
        found = client.some_pods(&by_service, MAX_CANDIDATES).await?;
    }
    let (candidates, has_more) = found;
    let id = choose(text, candidates, has_more)?.uuid;
    // Entries of a list do not have the refusals.
    Ok(client.pod(id.as_str()).await?)
}

/// Returns the only candidate, or the only active one: while a pod is replaced, the old and the new one share
/// a name.
fn choose(text: &str, candidates: Vec<PodView>, has_more: bool) -> Result<PodView, CommandError> {
    if candidates.is_empty() {
        return Err(CommandError::NotFound(format!(
            "there is no pod {text:?}: give a uuid, the beginning of one, or a name such as web-0; \
             `kubeleet pod ls` lists them"
        )));
    }
    let is_active = |pod: &&PodView| !pod.phase.is_terminal() && pod.phase != Phase::Stopping;
    let active: Vec<&PodView> = candidates.iter().filter(is_active).collect();
    let all: Vec<&PodView> = candidates.iter().collect();
    match [all, active].into_iter().find(|pods| pods.len() == 1).as_deref() {
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
    use super::*;
    use crate::client::fixtures;
    use crate::exit::Exit;

    #[test]
    fn chooses_the_only_candidate_or_the_only_active_one() {
        let (a, b) = (fixtures::pod("aaaa1111", Phase::Running), fixtures::pod("aaaa2222", Phase::Stopping));
        assert_eq!(choose("aaaa", vec![b.clone()], false).unwrap(), b);
        assert_eq!(choose("aaaa", vec![b.clone(), a.clone()], false).unwrap(), a);
        let none = choose("aaaa", vec![], false).unwrap_err();
        assert_eq!(none.exit(), Exit::NotFound);
        let many = choose("aaaa", vec![a.clone(), a.clone(), b], false).unwrap_err().to_string();
        assert!(many.contains("several pods") && many.contains("aaaa2222"), "{many}");
        assert!(choose("aaaa", vec![a], true).unwrap_err().to_string().contains('…'));
    }
}
