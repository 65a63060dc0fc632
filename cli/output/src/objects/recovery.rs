//! Findings and results of a recovery, for people.

use std::fmt::Write;

use api_types::RecoveryView;

use crate::{humanize, table};

pub fn has_work(view: &RecoveryView) -> bool {
    !view.services.is_empty() || view.pushed_pods > 0 || view.volumes > 0 || view.values > 0
}

pub fn describe(view: &RecoveryView) -> String {
    let mut text = String::new();
    if !view.services.is_empty() {
        let rows = view.services.iter().map(|service| {
            let record = if service.record { "missing" } else { "present" };
            let numbers =
                [service.replicas.to_string(), service.recovered.to_string(), service.new.to_string()];
            let [replicas, recovered, new] = numbers;
            vec![service.name.clone(), record.to_owned(), replicas, recovered, new]
        });
        text += &table::render(&["SERVICE", "RECORD", "DESIRED", "RECOVERED", "NEW"], rows.collect());
        text.push('\n');
    }
    let (services, pods) =
        (view.services.len() as u64, view.services.iter().map(|s| s.recovered).sum::<u64>());
    let pods = pods + view.pushed_pods;
    let new: u64 = view.services.iter().map(|service| u64::from(service.new)).sum();
    let state = if view.applied { "recovered" } else { "to be recovered" };
    let _ = match has_work(view) {
        true => {
            let (services, pods) = (humanize::count(services, "service"), humanize::count(pods, "pod"));
            writeln!(text, "cluster {}: {services} and {pods} {state}", view.cluster)
        }
        false if view.problems.is_empty() => {
            writeln!(text, "cluster {}: Redis has everything that was saved", view.cluster)
        }
        false => writeln!(text, "cluster {}: Redis has everything else that was saved", view.cluster),
    };
    if view.volumes > 0 {
        let _ = writeln!(
            text,
            "{} {state}: pods wait until their nodes have reported",
            humanize::count(view.volumes, "volume")
        );
    }
    if view.values > 0 {
        let _ = writeln!(text, "{} {state}", values_of(view.values));
    }
    if new > 0 {
        let _ =
            writeln!(text, "{} to be created anew: nowhere to be found", humanize::count(new, "desired pod"));
    }
    if view.present_pods > 0 {
        let pods = humanize::count(view.present_pods, "saved pod");
        let _ = writeln!(text, "{pods}: recorded already, and left as recorded");
    }
    if view.present_values > 0 {
        let _ = writeln!(text, "{}: there already", values_of(view.present_values));
    }
    let answered = view.nodes.iter().filter(|node| node.answered).count();
    if !view.nodes.is_empty() {
        let _ = writeln!(text, "{answered} of {} nodes have answered", view.nodes.len());
    }
    for problem in &view.problems {
        let _ = writeln!(text, "! {problem}");
    }
    text
}

fn values_of(count: u64) -> String {
    let what = if count == 1 { "secret, config or login" } else { "secrets, configs and logins" };
    format!("{count} {what} for registries")
}

#[cfg(test)]
mod tests {
    use api_types::{NodeAnswerView, ServiceRecoveryView};

    use super::*;

    #[test]
    fn a_plan_says_what_is_recovered_what_is_new_and_what_is_not() {
        let service =
            ServiceRecoveryView { name: "web".into(), record: true, replicas: 3, recovered: 2, new: 1 };
        let view = RecoveryView {
            cluster: "c".into(),
            services: vec![service],
            pushed_pods: 1,
            present_pods: 4,
            volumes: 2,
            values: 2,
            present_values: 5,
            nodes: vec![NodeAnswerView { node: "w1".into(), answered: true, pods: 3 }],
            problems: vec!["node w2 has not answered".into()],
            ..RecoveryView::default()
        };
        let text = describe(&view);
        for part in [
            "SERVICE",
            "web",
            "cluster c: 1 service and 3 pods to be recovered\n",
            "2 volumes to be recovered: pods wait",
            "1 desired pod to be created anew: nowhere to be found\n",
            "4 saved pods: recorded already, and left as recorded\n",
            "2 secrets, configs and logins for registries to be recovered\n",
            "5 secrets, configs and logins for registries: there already\n",
            "1 of 1 nodes have answered\n",
            "! node w2 has not answered\n",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(describe(&RecoveryView { applied: true, ..view }).contains("3 pods recovered\n"));
        let mut view = RecoveryView::default();
        assert!(describe(&view).contains("has everything that was saved"));
        view.problems.push("service web was deleted after the backup: it is not recovered".into());
        assert!(describe(&view).contains("has everything else that was saved"));
    }
}
