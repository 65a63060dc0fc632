//! Which pod is meant: a uuid, the beginning of one, `web-0`, or a service that has a single pod.

use api::dto::PodView;
use common::ids::ServiceName;
use common::lifecycle::Phase;

use super::failure::Failure;
use crate::client::{Client, PodFilter};
use crate::output::pods;

/// How many candidates are looked at; more would not help who has to say which.
const ENOUGH: usize = 20;

/// Finds the pod a text means, with everything known about it.
pub(super) async fn pod(client: &Client, text: &str) -> Result<PodView, Failure> {
    match client.pod(text).await {
        Ok(pod) => return Ok(pod),
        Err(error) if error.status() == Some(404) => {}
        // Not a possible uuid: then it may still be the beginning of one, or a name.
        Err(error) if matches!(error.status(), Some(400 | 422)) => {}
        Err(error) => return Err(error.into()),
    }
    let prefix = PodFilter { prefix: Some(text.to_owned()), ..PodFilter::default() };
    let mut found = client.some_pods(&prefix, ENOUGH).await?;
    if found.0.is_empty() && ServiceName::new(text).is_ok() {
        let of_service = PodFilter { service: Some(text.to_owned()), ..PodFilter::default() };
        found = client.some_pods(&of_service, ENOUGH).await?;
    }
    let (candidates, more) = found;
    let id = choose(text, candidates, more)?.uuid;
    // The list does not carry refusals.
    Ok(client.pod(id.as_str()).await?)
}

/// The only candidate; or the only one that lives, where a place has a pod that goes and one that comes.
fn choose(text: &str, candidates: Vec<PodView>, more: bool) -> Result<PodView, Failure> {
    if candidates.is_empty() {
        let advice = "give a uuid, the beginning of one, or a name such as web-0; see `kubeleet pod ls`";
        return Err(Failure::NotFound(format!("there is no pod {text:?}: {advice}")));
    }
    let lives = |pod: &&PodView| !pod.phase.is_terminal() && pod.phase != Phase::Stopping;
    let living: Vec<&PodView> = candidates.iter().filter(lives).collect();
    let all: Vec<&PodView> = candidates.iter().collect();
    match [all, living].into_iter().find(|found| found.len() == 1).as_deref() {
        Some([only]) if !more => Ok((*only).clone()),
        _ => Err(ambiguous(text, &candidates, more)),
    }
}

fn ambiguous(text: &str, candidates: &[PodView], more: bool) -> Failure {
    let mut message = format!("{text:?} can mean several pods; say which:");
    for pod in candidates {
        message.push_str(&format!("\n  {}  {}", pod.uuid, pods::line(pod)));
    }
    if more {
        message.push_str("\n  …");
    }
    Failure::Usage(message)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use crate::client::samples;

    #[test]
    fn one_candidate_or_one_that_lives() {
        let (a, b) = (samples::pod("aaaa1111", Phase::Running), samples::pod("aaaa2222", Phase::Stopping));
        assert_eq!(choose("aaaa", vec![b.clone()], false).unwrap(), b);
        assert_eq!(choose("aaaa", vec![b.clone(), a.clone()], false).unwrap(), a);
        let none = choose("aaaa", vec![], false).unwrap_err();
        assert_eq!(none.exit(), crate::exit::Exit::NotFound);
        let many = choose("aaaa", vec![a.clone(), a.clone(), b], false).unwrap_err().to_string();
        assert!(many.contains("several pods") && many.contains("aaaa2222"), "{many}");
        assert!(choose("aaaa", vec![a], true).unwrap_err().to_string().contains('…'));
    }
}
