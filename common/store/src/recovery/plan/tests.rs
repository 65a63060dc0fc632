use proptest::prelude::*;

use super::*;

fn name(text: &str) -> ServiceName {
    ServiceName::new(text).unwrap()
}

fn service(text: &str, generation: u64, revision: u64, replicas: u32) -> SavedService {
    let spec = format!("spec-{text}-{generation}");
    let fields = [
        ("name", text.to_owned()),
        ("state", "active".to_owned()),
        ("generation", generation.to_string()),
        ("revision", revision.to_string()),
        ("replicas", replicas.to_string()),
        ("spec", spec),
        ("spec_text", spec_text(text)),
    ];
    let fields = fields.into_iter().map(|(field, value)| (field.to_owned(), value)).collect();
    SavedService::new(name(text), fields)
}

fn id(text: &str) -> PodId {
    PodId::new(text).unwrap()
}

fn spec_text(service: &str) -> String {
    format!(r#"{{"service":"{service}","pod":{{"containers":[{{"image":"i","memory":100,"cpus":0.5}}]}}}}"#)
}

fn pod(service: Option<&str>, replica: u32, id: &str, node: &str) -> SavedPod {
    let spec = service.map(|service| format!(r#","spec":"spec-{service}-1""#)).unwrap_or_default();
    let pod_name = service.unwrap_or("pushed");
    SavedPod {
        payload: format!(r#"{{"name":"{pod_name}","uuid":"{id}","image":"i","replica":{replica}{spec}}}"#),
        service: service.map(name),
        phase: Phase::Running,
        node: NodeName::new(node).ok(),
        assignment: AssignmentId::new(format!("assignment-of-{id}")).ok(),
        generation: 0,
        restarts: 0,
        address: String::new(),
        published_ports: Vec::new(),
        resource_ids: Default::default(),
        created_at: 0,
        since: 0,
        runs: Vec::new(),
    }
}

fn saved() -> SavedState {
    let mut saved = SavedState::default();
    saved.add_service(service("web", 1, 1, 3));
    saved.add_service(service("db", 3, 7, 1));
    saved.pods = vec![
        pod(Some("web"), 0, "a", "w1"),
        pod(Some("web"), 1, "b", "w2"),
        pod(Some("db"), 0, "c", "w1"),
        pod(None, 5, "d", "w2"),
    ];
    saved
}

fn apply(plan: &RecoveryPlan, known: &mut KnownState) {
    for service in &plan.services {
        let entry = known.services.entry(service.name.clone()).or_default();
        for pod in &service.pods {
            assert!(known.records.insert(pod.payload.id.clone()), "{:?} is recorded twice", pod.payload.id);
            assert!(entry.slots.insert(pod.slot, pod.payload.id.clone()).is_none(), "a taken slot");
        }
        if let Some(saved) = &service.record {
            let (revision, generation) = (saved.revision(), saved.generation());
            entry.record = Some(KnownRecord { revision, generation, replicas: saved.replicas() });
        }
    }
    known.records.extend(plan.pushed.iter().map(|pod| pod.payload.id.clone()));
}

#[test]
fn an_empty_redis_gets_everything_back() {
    let plan = plan(&KnownState::default(), &saved());
    assert_eq!((plan.services.len(), plan.pushed.len(), plan.pod_count()), (2, 1, 4));
    let [db, web] = &plan.services[..] else { panic!("{plan:?}") };
    assert_eq!((web.replicas, web.missing, web.pods[0].generation), (3, 1, 1), "one ran nowhere");
    assert_eq!((db.replicas, db.missing, db.pods[0].generation), (1, 0, 2), "an older generation");
    let pod = &web.pods[1];
    assert_eq!(pod.placement.as_ref().map(|(node, _)| node.as_str()), Some("w2"));
    assert_eq!(pod.payload.raw, saved().pods[1].payload);
    assert_eq!(
        pod.request,
        Resources { cpu_millis: 500, memory_bytes: 100, pids: 0, disk_bytes: 0, pods: 1 }
    );
    assert_eq!(plan.problems, Vec::<String>::new());
}

#[test]
fn what_redis_has_wins() {
    let mut known = KnownState::default();
    let slots = [(Slot::first(1), PodId::new("newer").unwrap())].into();
    let record = Some(KnownRecord { revision: 1, generation: 1, replicas: 2 });
    known.services.insert(name("web"), KnownService { record, slots, deleted_at: None });
    known.records.insert(PodId::new("c").unwrap());
    let plan = plan(&known, &saved());
    let [db, web] = &plan.services[..] else { panic!("{plan:?}") };
    assert!(web.record.is_none() && web.missing == 0, "{web:?}");
    assert_eq!(web.pods.iter().map(|pod| pod.payload.id.as_str()).collect::<Vec<_>>(), ["a"]);
    assert!(db.record.is_some() && db.pods.is_empty());
    assert_eq!(plan.present, 1);
    assert!(plan.problems[0].contains("pod b on node w2") && plan.problems[0].contains("newer has its slot"));
}

#[test]
fn an_older_service_in_redis_is_replaced() {
    let mut known = KnownState::default();
    let record = Some(KnownRecord { revision: 6, generation: 3, replicas: 5 });
    known.services.insert(name("db"), KnownService { record, ..KnownService::default() });
    let plan = plan(&known, &saved());
    assert_eq!(plan.services[0].record.as_ref().map(SavedService::revision), Some(7));
    assert_eq!(plan.services[0].replicas, 1);
}

#[test]
fn each_conflict_is_a_problem_and_harms_nothing_else() {
    type Change = fn(&mut SavedState);
    let cases: [(&str, Change, &str, usize); 5] = [
        ("two nodes", |s| s.pods.push(pod(Some("web"), 0, "a", "w3")), "pod a is saved on node w1 and on", 4),
        ("two pods", |s| s.pods.push(pod(Some("web"), 0, "z", "w3")), "pod a has its slot web-0", 4),
        ("no service", |s| s.pods.push(pod(Some("gone"), 0, "z", "w3")), "service gone, which was not", 4),
        ("broken", |s| s.pods[0].payload = "secret".into(), "a saved pod on node w1 is broken", 3),
        ("the same twice", |s| s.pods.push(pod(None, 5, "d", "w2")), "", 4),
    ];
    for (case, change, problem, pods) in cases {
        let mut saved = saved();
        change(&mut saved);
        let plan = plan(&KnownState::default(), &saved);
        assert_eq!(plan.pod_count(), pods, "{case}: {plan:?}");
        assert_eq!(plan.problems.len(), usize::from(!problem.is_empty()), "{case}: {:?}", plan.problems);
        let text = plan.problems.concat();
        assert!(text.contains(problem) && !text.contains("secret"), "{case}: {text}");
    }
}

/// A disconnected node has an old entry, and its name may come first.
#[test]
fn of_several_copies_of_a_pod_the_youngest_assignment_is_recovered() {
    let copy = |node: &str, since, phase| {
        let assignment = AssignmentId::new(format!("on-{node}")).ok();
        SavedPod { since, phase, assignment, ..pod(Some("web"), 0, "a", node) }
    };
    let (running, assigned) = (Phase::Running, Phase::Assigned);
    for (copies, expected) in [
        (vec![copy("w1", 100, running), copy("w2", 200, running)], "w2"),
        (vec![copy("w1", 100, running), copy("w2", 200, assigned), copy("w3", 150, running)], "w2"),
        (vec![copy("w1", 0, running), copy("w2", 200, running)], "w2"),
        (vec![copy("w2", 0, running), copy("w1", 0, running)], "w1"),
    ] {
        let conflicts = copies.len() - 1;
        let saved = SavedState { pods: copies, ..saved() };
        let plan = plan(&KnownState::default(), &saved);
        let web = plan.services.iter().find(|service| service.name == name("web")).unwrap();
        let place = web.pods[0].placement.as_ref().map(|(node, _)| node.as_str());
        assert_eq!((web.pods.len(), place), (1, Some(expected)), "{plan:?}");
        let stays = format!("it stays on node {expected}");
        assert_eq!(plan.problems.iter().filter(|problem| problem.contains(&stays)).count(), conflicts);
    }
}

/// Fencing has stopped it on one node, and another pod was created in its slot since.
#[test]
fn a_pod_that_runs_goes_before_one_that_the_fence_has_stopped() {
    let fenced = SavedPod { phase: Phase::Assigned, since: 300, ..pod(Some("web"), 0, "a", "w1") };
    let runs = SavedPod { since: 200, ..pod(Some("web"), 0, "z", "w2") };
    let saved = SavedState { pods: vec![fenced, runs], ..saved() };
    let plan = plan(&KnownState::default(), &saved);
    let web = plan.services.iter().find(|service| service.name == name("web")).unwrap();
    assert_eq!(web.pods.iter().map(|pod| pod.payload.id.as_str()).collect::<Vec<_>>(), ["z"]);
    assert!(plan.problems[0].contains("pod a on node w1 is not recovered: pod z has its slot"), "{plan:?}");
}

#[test]
fn a_service_that_was_deleted_after_it_was_saved_is_recovered_only_if_it_is_wanted() {
    let mut saved = saved();
    let created_at = 1_700_000_000_000;
    let fields = &mut saved.services.get_mut(&name("web")).unwrap().fields;
    fields.insert("created_at".to_owned(), created_at.to_string());
    let recovered = |deleted_at, with_deleted, record| {
        let web = KnownService { deleted_at, record, ..KnownService::default() };
        let services = [(name("web"), web)].into();
        let plan = plan(&KnownState { services, with_deleted, ..KnownState::default() }, &saved);
        let names: Vec<String> = plan.services.iter().map(|service| service.name.to_string()).collect();
        (names.join(" "), plan.problems.join(" / "))
    };
    let (all, none) = ("db web".to_owned(), String::new());
    assert_eq!(recovered(None, false, None), (all.clone(), none.clone()));
    let (names, problems) = recovered(Some(created_at + 5000), false, None);
    assert_eq!(names, "db");
    let expected = "service web was deleted at 2023-11-14T22:13:25";
    assert!(problems.starts_with(expected) && !problems.contains('/'), "{problems}");
    assert_eq!(recovered(Some(created_at + 5000), true, None), (all.clone(), none.clone()));
    assert_eq!(recovered(Some(created_at - 1), false, None), (all, none), "one of the same name before it");
    let known = Some(KnownRecord { revision: 9, generation: 1, replicas: 3 });
    assert_eq!(recovered(Some(created_at + 5000), false, known).0, "db web", "it was created again");
}

#[test]
fn phases_are_recovered_as_far_as_the_node_is_known() {
    use Phase::{Assigned, Failed, Pending, Running, Stopped, Stopping, Succeeded};
    for (phase, on_known, on_unknown) in [
        (Pending, Some(Pending), Some(Pending)),
        (Assigned, Some(Running), Some(Pending)),
        (Running, Some(Running), Some(Pending)),
        (Stopping, Some(Stopping), Some(Pending)),
        (Stopped, None, None),
        (Succeeded, Some(Succeeded), Some(Succeeded)),
        (Failed, Some(Failed), Some(Failed)),
    ] {
        for (node, expected) in [("w1", on_known), ("w9", on_unknown)] {
            let nodes = Some([NodeName::new("w1").unwrap()].into());
            let known = KnownState { nodes, ..KnownState::default() };
            let saved = SavedState { pods: vec![SavedPod { phase, ..pod(None, 0, "a", node) }], ..saved() };
            let plan = plan(&known, &saved);
            assert_eq!(plan.pushed.first().map(|pod| pod.phase), expected, "{phase} on {node}");
            let is_placed = plan.pushed.first().is_some_and(|pod| pod.placement.is_some());
            assert_eq!(is_placed, node == "w1" && !matches!(phase, Stopped | Pending), "{phase} on {node}");
        }
    }
}

fn any_saved() -> impl Strategy<Value = SavedState> {
    let services = prop::collection::vec((0..3usize, 1..4u64, 0..6u32), 0..4);
    let pods = prop::collection::vec((0..4usize, 0..5u32, 0..12usize, 0..3usize, 0..7usize), 0..16);
    (services, pods).prop_map(|(services, pods)| {
        let names = ["a", "b", "c"];
        let mut saved = SavedState::default();
        for (index, revision, replicas) in services {
            saved.add_service(service(names[index], 1, revision, replicas));
        }
        for (index, replica, id, node, phase) in pods {
            let one = pod(names.get(index).copied(), replica, &format!("p{id}"), &format!("w{node}"));
            saved.pods.push(SavedPod { phase: Phase::ALL[phase], ..one });
        }
        saved
    })
}

proptest! {
    #[test]
    fn after_a_plan_was_carried_out_the_next_one_is_empty(first in any_saved(), second in any_saved()) {
        let mut known = KnownState::default();
        for saved in [&first, &second] {
            let planned = plan(&known, saved);
            apply(&planned, &mut known);
            let again = plan(&known, saved);
            prop_assert!(again.is_empty(), "{:?}", again);
        }
    }

    #[test]
    fn a_plan_that_was_cut_off_is_completed_by_the_next_run(saved in any_saved(), cut in any::<prop::sample::Index>()) {
        let complete = plan(&KnownState::default(), &saved);
        let mut whole = KnownState::default();
        apply(&complete, &mut whole);
        let mut partial = KnownState::default();
        let mut first = complete.clone();
        first.services.truncate(cut.index(complete.services.len() + 1));
        // The last service lacks its record, which is written after its pods.
        if let Some(last) = first.services.last_mut() {
            last.record = None;
        }
        first.pushed.clear();
        apply(&first, &mut partial);
        apply(&plan(&partial, &saved), &mut partial);
        prop_assert_eq!(partial, whole);
    }

    #[test]
    fn equal_states_in_any_order_give_equal_plans(mut saved in any_saved()) {
        let expected = plan(&KnownState::default(), &saved);
        saved.pods.reverse();
        let reversed = plan(&KnownState::default(), &saved);
        prop_assert_eq!(reversed.services.len(), expected.services.len());
        prop_assert_eq!(reversed.pod_count(), expected.pod_count());
    }
}

#[test]
fn a_pod_is_not_wanted_where_another_has_its_slot_or_fewer_are_desired_or_its_service_was_deleted() {
    let saved = saved();
    let web = |revision, replicas, slots: &[(u32, &str)]| KnownService {
        record: (replicas < 9).then_some(KnownRecord { revision, generation: 1, replicas }),
        slots: slots.iter().map(|(replica, pod)| (Slot::first(*replica), id(pod))).collect(),
        deleted_at: None,
    };
    let deleted = KnownService { deleted_at: Some(1), ..web(1, 9, &[]) };
    // Redis' state of `web`, the pods with records, and the unwanted ones of a and b.
    for (known, records, expected) in [
        (web(1, 3, &[(0, "a"), (1, "b")]), "", ""),
        (web(1, 3, &[]), "", ""),
        (web(1, 9, &[]), "", ""),
        (web(1, 1, &[]), "", "b"),
        (web(1, 1, &[(1, "b")]), "", ""),
        (web(0, 1, &[]), "", ""),
        (web(1, 3, &[(0, "x"), (1, "y")]), "x", "a"),
        (web(1, 3, &[(0, "x")]), "ax", ""),
        (deleted, "", "ab"),
    ] {
        let services = BTreeMap::from([(name("web"), known.clone())]);
        let records = records.chars().map(|one| id(&one.to_string())).collect();
        let known = KnownState { services, records, ..KnownState::default() };
        let expected: BTreeSet<PodId> = expected.chars().map(|one| id(&one.to_string())).collect();
        assert_eq!(unwanted(&known, &saved), expected, "{known:?}");
    }
}
