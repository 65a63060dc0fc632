//! Every script is run against a pod in every phase. Each change must be a transition of
//! `model::pod::lifecycle` that the table of scripts declares for it.

use std::collections::{BTreeMap, BTreeSet};

use kubeleet_tests::{Checkpoint, Fixture};
use model::pod::lifecycle::{Phase, PodEvent, transition};
use store::{SCRIPTS, Script};

use crate::operations::{NODE, cases, prepare};

#[tokio::test]
async fn a_script_changes_phases_only_as_the_table_of_scripts_declares() {
    let mut failures = Vec::new();
    let mut seen = BTreeSet::new();
    for phase in Phase::ALL {
        let fixture = Fixture::new().await;
        let placed = fixture.pod_in(phase, "web", NODE).await;
        let start = Checkpoint::take(&fixture.redis).await;
        for case in cases() {
            start.restore(&fixture.redis).await;
            let operation = prepare(&fixture, case, &placed).await;
            let before = phases(&fixture).await;
            let result = (operation.call)().await;
            if let Err(error) = result {
                failures.push(format!("{}, a {phase} pod: {error}", case.name));
            }
            let after = phases(&fixture).await;
            let script = SCRIPTS.iter().find(|script| script.name == case.script).unwrap();
            let pods: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
            for pod in pods {
                let (from, to) = (before.get(pod).copied(), after.get(pod).copied());
                if from == to {
                    continue;
                }
                let declared = declarations(script, from, to);
                if declared.is_empty() {
                    failures
                        .push(format!("{}, a {phase} pod: {from:?} -> {to:?} is not declared", case.name));
                }
                seen.extend(declared.into_iter().map(|change| (script.name, change)));
            }
        }
    }
    for script in SCRIPTS {
        let moves = script.moves.iter().map(|event| format!("{event:?}"));
        for change in moves.chain(script.creates.iter().map(|phase| format!("creates {phase}"))) {
            if !seen.contains(&(script.name, change.clone())) {
                failures.push(format!("{} is declared for {change} and never did it", script.name));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

fn declarations(script: &Script, from: Option<Phase>, to: Option<Phase>) -> Vec<String> {
    let does = |event: &&PodEvent| from.is_some_and(|from| transition(from, **event).ok() == to);
    match (from, to) {
        (None, Some(to)) if script.creates.contains(&to) => vec![format!("creates {to}")],
        (Some(_), Some(_)) => script.moves.iter().filter(does).map(|event| format!("{event:?}")).collect(),
        _ => Vec::new(),
    }
}

async fn phases(fixture: &Fixture) -> BTreeMap<String, Phase> {
    let keyspace = fixture.keyspace().await;
    let ids: Vec<String> = keyspace.below("pod:").map(|(id, _)| id.to_owned()).collect();
    let phase = |id: &String| Phase::parse(&keyspace.field(&format!("pod:{id}"), "phase")).unwrap();
    ids.iter().map(|id| (id.clone(), phase(id))).collect()
}
