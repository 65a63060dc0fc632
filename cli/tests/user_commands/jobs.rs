//! Runs the commands of `docs/how-to/jobs.md` unchanged, with its example files.

use super::{Cluster, kubeleet, parts};

const PAGE: &str = include_str!("../../../docs/how-to/jobs.md");

/// The simulated containers of the image succeed.
fn examples() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for file in ["sums.yaml", "nightly.yaml"] {
        let text = std::fs::read_to_string(format!("../examples/jobs/{file}")).unwrap();
        std::fs::write(folder.path().join(file), text.replace("alpine:3", "done:1")).unwrap();
    }
    folder
}

#[test]
fn every_command_of_the_page_works() {
    let Some(cluster) = Cluster::start() else { return };
    let examples = examples();
    let run = |line: &str| {
        let line = line.replace("examples/jobs", examples.path().to_str().unwrap());
        parts(&kubeleet(&cluster.api, &format!("{line} --timeout 60s")))
    };
    let commands: Vec<&str> = PAGE.lines().filter_map(|line| line.strip_prefix("    kubeleet ")).collect();
    assert!(commands.len() >= 10, "{commands:?}");
    let mut outputs = std::collections::BTreeMap::new();
    for command in commands {
        let (exit, out, err) = run(command);
        assert_eq!(exit, 0, "{command}: {out} {err}");
        outputs.insert(command, out + &err);
    }
    let said = |command: &str, words: &[&str]| {
        let output = &outputs[command];
        words.iter().for_each(|word| assert!(output.contains(word), "{command}: no {word:?} in {output}"));
    };
    said("apply --wait -f examples/jobs/sums.yaml", &["sums created", "10/10 complete"]);
    said("job ls", &["sums", "10/10", "complete"]);
    said("job results sums -o wide", &["INDEX", "succeeded", "worker1"]);
    said("cron ls", &["nightly", "30 2 * * *", "Europe/Berlin", "scheduled"]);
    said("cron run nightly --wait", &["created by cron nightly", "1/1 complete"]);
    said("job ls --cron nightly", &["nightly-", "1/1"]);
    said("cron suspend nightly", &["suspended"]);
    said("cron resume nightly", &["resumed"]);
}

#[test]
fn what_cannot_be_is_refused_with_what_to_do() {
    let Some(cluster) = Cluster::start() else { return };
    let examples = examples();
    let run = |line: &str| parts(&kubeleet(&cluster.api, line));
    let file = |name: &str| examples.path().join(name).display().to_string();
    assert_eq!(run(&format!("apply -f {} --wait --timeout 60s", file("sums.yaml"))).0, 0);
    let (exit, _, err) = run("scale sums 3");
    assert!(exit == 4 && err.contains("sums is a job: it has no replicas"), "{exit} {err}");
    let (exit, _, err) = run("restart sums");
    assert!(exit == 4 && err.contains("delete it and create it again"), "{exit} {err}");
    let (exit, _, err) = run("set image sums other:1");
    assert!(exit == 4 && err.contains("its containers and completions cannot change"), "{exit} {err}");
    let (exit, _, err) = run("cron suspend sums");
    assert!(exit != 0 && err.contains("only a cron can be suspended"), "{exit} {err}");
    let (exit, _, err) = run("cron run sums");
    assert!(exit == 4 && err.contains("only a cron can be run"), "{exit} {err}");
    let failing = examples.path().join("failing.yaml");
    let text = "kind: job\nname: fails\nimage: crash:1\njob: {backoff_limit: 1, backoff: 10ms}\n";
    std::fs::write(&failing, text).unwrap();
    let (exit, _, err) = run(&format!("apply --wait --timeout 60s -f {}", failing.display()));
    assert!(exit == 1 && err.contains("BackoffLimitExceeded"), "{exit} {err}");
    let (exit, _, err) = run("job wait fails --timeout 60s");
    assert!(exit == 1 && err.contains("backoff_limit is 1"), "{exit} {err}");
    let two = examples.path().join("two.yaml");
    let apply = |image: &str| {
        let text = format!(
            "name: web\nimage: {image}\ndepends_on: {{migrate: service_completed_successfully}}\n---\n\
             kind: job\nname: migrate\nimage: {image}\n"
        );
        std::fs::write(&two, text).unwrap();
        run(&format!("apply -f {}", two.display()))
    };
    let (exit, out, err) = apply("done:1");
    assert_eq!((exit, out.as_str()), (0, "service/migrate created\nservice/web created\n"), "{err}");
    let (exit, out, err) = apply("done:2");
    assert_eq!((exit, out.as_str()), (4, ""), "{err}");
    assert!(err.contains("migrate is a job") && err.contains("none of these services was applied"), "{err}");
    let broken = examples.path().join("broken.yaml");
    for (text, said) in [
        ("kind: cron\nname: c\nimage: done\n", "`schedule`"),
        ("kind: cron\nname: c\nimage: done\ncron: {schedule: \"61 * * * *\"}\n", "is not from 0 to 59"),
        (
            "kind: cron\nname: c\nimage: done\ncron: {schedule: \"@daily\", time_zone: Mars}\n",
            "is no time zone",
        ),
        ("kind: job\nname: c\nimage: done\nreplicas: 3\n", "job.completions"),
        ("kind: job\nname: c\nimage: done\nrestart: always\n", "must be `never`"),
        ("name: c\nimage: done\njob: {completions: 3}\n", "needs `kind: job`"),
        ("kind: jobb\nname: c\nimage: done\n", "kind"),
    ] {
        std::fs::write(&broken, text).unwrap();
        let (exit, _, err) = run(&format!("apply -f {}", broken.display()));
        assert!(exit != 0 && err.contains(said), "{text}: {exit} {err}");
    }
}
