//! Former generations of a service, and the choice of one for undo.

use model::ids::ServiceName;
use model::service::{Service, ServiceState};
use store::{FormerGeneration, GenerationOutcome, RedisKey};

use super::stored::being_deleted;
use crate::http::problem::{ApiProblem, ProblemKind};
use crate::state::AppState;

pub(super) async fn undone(
    app: &AppState,
    service: &Service,
    to: Option<u64>,
) -> Result<FormerGeneration, ApiProblem> {
    if service.state == ServiceState::Deleting {
        return Err(being_deleted(&service.name));
    }
    let former = former_generations(app, &service.name).await?;
    Ok(chosen(service, &former, to)?.clone())
}

pub(super) async fn former_generations(
    app: &AppState,
    name: &ServiceName,
) -> Result<Vec<FormerGeneration>, ApiProblem> {
    let former = app.store.former_generations(name).await;
    former.map_err(|error| ApiProblem::of_key(error, RedisKey::History(name)))
}

pub(super) fn chosen<'a>(
    service: &Service,
    former: &'a [FormerGeneration],
    to: Option<u64>,
) -> Result<&'a FormerGeneration, ApiProblem> {
    let found = match to {
        Some(to) => former.iter().find(|one| one.generation == to),
        None => last_good(service, former),
    };
    found.ok_or_else(|| ApiProblem::new(ProblemKind::NothingToUndo, nothing_to_undo(service, former, to)))
}

/// After an undo, the generation that was undone. Otherwise the latest good one, or, if none is known to be
/// good, the latest that has not failed. Never one that has failed, and none after a rollback.
fn last_good<'a>(service: &Service, former: &'a [FormerGeneration]) -> Option<&'a FormerGeneration> {
    let marks = &service.rollout;
    let mut former = former.iter().filter(|one| one.differs_from(service) && one.outcome.failure().is_none());
    if marks.rolled_back.is_some() {
        return None;
    }
    if let Some(undone) = marks.undone {
        return former.find(|one| one.generation == undone);
    }
    let mut good = former.clone().filter(|one| one.outcome == GenerationOutcome::Good);
    good.next().or_else(|| former.next())
}

fn nothing_to_undo(service: &Service, former: &[FormerGeneration], to: Option<u64>) -> String {
    let (name, generation) = (&service.name, service.generation);
    let kept: Vec<String> = former.iter().map(|one| one.generation.to_string()).collect();
    let failed = former.iter().find_map(|one| Some((one.generation, one.outcome.failure()?)));
    match to {
        Some(to) if to == generation => {
            format!("generation {to} of service {name} is the current one; nothing was changed")
        }
        _ if kept.is_empty() => format!(
            "service {name} has no former generation: its pods never had another specification; nothing was changed"
        ),
        Some(to) => format!(
            "service {name} has no former generation {to}; it has {}; nothing was changed",
            kept.join(", ")
        ),
        None => match (&service.rollout.rolled_back, failed) {
            (Some((bad, why)), _) => format!(
                "generation {bad} of service {name} was taken back already ({why}): generation {generation} is as the \
                 last good one; nothing was changed; `--to N` names another one"
            ),
            (None, Some((bad, why))) => format!(
                "no former generation of service {name} is known to be good, and {bad} has failed ({why}); nothing was \
                 changed; `--to N` names one nevertheless"
            ),
            (None, None) => format!("no former generation of service {name} differs from the current one"),
        },
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use GenerationOutcome::{Failed, Good, RolledBack, Unknown};
    use model::service::RolloutMarks;
    use model::spec::PodSpec;
    use testkit::fixtures;

    use super::*;

    fn pod(image: &str) -> PodSpec {
        let mut pod = fixtures::service().pod;
        pod.containers[0].image = image.to_owned();
        pod
    }

    fn former(generations: &[(u64, &str, GenerationOutcome)]) -> Vec<FormerGeneration> {
        let one = |(generation, image, outcome): &(u64, &str, GenerationOutcome)| FormerGeneration {
            generation: *generation,
            until: 1,
            fingerprint: String::new(),
            outcome: outcome.clone(),
            pod: pod(image),
            spec: None,
            images: Vec::new(),
        };
        generations.iter().map(one).collect()
    }

    fn chosen_image(
        marks: RolloutMarks,
        generations: &[(u64, &str, GenerationOutcome)],
        to: Option<u64>,
    ) -> Result<String, String> {
        let service = Service { generation: 5, pod: pod("now"), rollout: marks, ..fixtures::service() };
        let former = former(generations);
        let chosen = chosen(&service, &former, to);
        chosen.map(|one| one.pod.image().to_owned()).map_err(|problem| problem.detail)
    }

    #[test]
    fn the_latest_that_differs_comes_back_or_the_one_that_is_named() {
        let former = [(4, "now", Unknown), (3, "b", Unknown), (1, "a", Unknown)];
        let chosen_image = |former: &[_], to| chosen_image(RolloutMarks::default(), former, to);
        assert_eq!(chosen_image(&former, None).unwrap(), "b");
        assert_eq!(chosen_image(&former, Some(1)).unwrap(), "a");
        for (former, to, said) in [
            (&former[..], Some(2), "has no former generation 2; it has 4, 3, 1"),
            (&former, Some(5), "is the current one"),
            (&[], None, "never had another specification"),
            (&[], Some(2), "never had another specification"),
            (&[(4, "now", Unknown)], None, "no former generation of service web differs"),
        ] {
            let detail = chosen_image(former, to).unwrap_err();
            assert!(detail.contains(said), "{detail}");
        }
    }

    #[test]
    fn an_undo_goes_to_the_last_good_generation_and_never_to_a_bad_one() {
        let failed = || Failed("ImagePullBackOff".to_owned());
        let back = || RolledBack("exit code 3".to_owned());
        let rolled_back =
            || RolloutMarks { rolled_back: Some((4, "exit code 3".to_owned())), ..RolloutMarks::default() };
        let undone = |from| RolloutMarks { undone: Some(from), ..RolloutMarks::default() };
        let none = RolloutMarks::default;
        for (marks, generations, expected, case) in [
            (
                none(),
                &[(4, "d", failed()), (3, "c", failed()), (2, "b", Good), (1, "a", Good)][..],
                Ok("b"),
                "two bad ones",
            ),
            (
                none(),
                &[(4, "d", Unknown), (2, "b", Good)],
                Ok("b"),
                "one that was changed before it was good",
            ),
            (none(), &[(4, "d", failed()), (2, "b", Unknown)], Ok("b"), "of which nothing is known"),
            (
                rolled_back(),
                &[(4, "d", back()), (2, "b", Good)],
                Err("taken back already (exit code 3)"),
                "after a rollback",
            ),
            (undone(4), &[(4, "d", Unknown), (2, "b", Good)], Ok("d"), "undone twice the change is back"),
            (
                undone(4),
                &[(4, "d", failed()), (2, "b", Good)],
                Err("4 has failed (ImagePullBackOff)"),
                "unless it was bad",
            ),
            (none(), &[(4, "d", back())], Err("4 has failed (exit code 3)"), "nothing is good"),
        ] {
            let found = chosen_image(marks, generations, None);
            match expected {
                Ok(image) => assert_eq!(found.as_deref(), Ok(image), "{case}"),
                Err(said) => assert!(found.clone().unwrap_err().contains(said), "{case}: {found:?}"),
            }
        }
        assert_eq!(chosen_image(none(), &[(4, "d", back())], Some(4)).unwrap(), "d", "a person may name it");
    }
}
