//! Applies the Compose files of `examples/` unchanged.

use super::cluster::Cluster;
use super::{BINARY, kubeleet, kubeleet_with, parts};

const EXAMPLES: [(&str, &str, usize); 5] = [
    ("shop/docker-compose.yml", "shop", 5),
    ("wordpress/docker-compose.yml", "wordpress", 2),
    ("queue-workers/docker-compose.yml", "reports", 4),
    ("reverse-proxy/docker-compose.yml", "reverse-proxy", 4),
    ("profiles/compose.yaml", "notes", 4),
];

#[test]
fn the_examples_are_applied_as_they_are_and_again_without_a_change() {
    let Some(cluster) = Cluster::start() else { return };
    let run = |line: &str| parts(&kubeleet(&cluster.api, line));
    for (file, app, services) in EXAMPLES {
        let file = format!("../examples/{file}");
        let (exit, out, err) = run(&format!("apply --dry-run --allow-partial -f {file}"));
        assert_eq!((exit, out.matches(" created (dry run)\n").count()), (0, services), "{out} {err}");
        assert_eq!(run(&format!("diff -f {file}")).0, 1);
        let (exit, out, err) = run(&format!("apply --allow-partial -f {file}"));
        assert_eq!((exit, out.matches(" created\n").count()), (0, services), "{out} {err}");
        let of_app =
            |line: &str| line.split_once('/').is_some_and(|(_, name)| name.starts_with(&format!("{app}-")));
        assert!(out.lines().all(of_app), "{out}");
        assert!(err.contains("note: ../examples/"), "{err}");
        let (exit, out, err) = run(&format!("apply --allow-partial -f {file}"));
        assert_eq!((exit, out.matches(" unchanged\n").count()), (0, services), "{out} {err}");
        assert_eq!(run(&format!("diff -f {file}")).0, 0);
        if err.contains("is not honoured") {
            let (exit, out, err) = run(&format!("apply --strict -f {file}"));
            assert!(exit == 2 && out.is_empty() && err.contains("is not honoured"), "{err}");
        }
    }
    let (_, out, _) = run("app ls -q");
    assert_eq!(out, "notes\nreports\nreverse-proxy\nshop\nwordpress\n");
    let (exit, out, err) = run("apply -f ../examples/wordpress/docker-compose.yml --wait --timeout 60s");
    assert_eq!(exit, 0, "{out} {err}");
    let (exit, out, err) = run("app describe wordpress");
    assert!(exit == 0 && out.contains("2 of 2 services"), "{out} {err}");
    let (exit, out, err) = run("delete -f ../examples/queue-workers/docker-compose.yml");
    assert!(exit == 0 && out.matches("is being deleted").count() == 4, "{out} {err}");
}

#[test]
fn what_an_app_does_not_have_any_more_is_named_and_pruned_on_demand() {
    let Some(cluster) = Cluster::start() else { return };
    let run = |line: &str| parts(&kubeleet(&cluster.api, line));
    let with = |line: &str, file: &str| parts(&kubeleet_with(&cluster.api, line, file));
    assert_eq!(run("run hello --name shop-alone").0, 0);
    let before = "services:\n  web: {image: a}\n  old: {image: b}\n  tools: {image: c, profiles: [debug]}\n";
    let (exit, out, err) = with("apply -f - -p shop --profile debug", before);
    assert_eq!((exit, out.matches("created").count()), (0, 3), "{err}");

    let after = "services:\n  web: {image: a}\n  tools: {image: c, profiles: [debug]}\n";
    let (exit, out, err) = with("apply -f - -p shop", after);
    assert_eq!((exit, out.as_str()), (0, "service/shop-web unchanged\n"), "{err}");
    assert!(err.contains("app shop also has shop-old, not in these files; --prune deletes them"), "{err}");
    let (exit, out, err) = with("apply -f - -p shop --prune", after);
    let expected =
        "service/shop-web unchanged\nservice/shop-old is being deleted: the files do not have it\n";
    assert_eq!((exit, out.as_str()), (0, expected), "{err}");
    let (exit, out, err) = run("app rm shop --wait --timeout 60s");
    assert!(exit == 0 && out.contains("shop-tools") && !out.contains("shop-alone"), "{out} {err}");
    assert_eq!(run("app describe shop").0, 3);
    assert_eq!(run("svc describe shop-alone").0, 0, "it only has a name that looks like it");
}

#[test]
fn the_compose_file_of_the_folder_is_taken_with_its_override() {
    let Some(cluster) = Cluster::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    let apply = || {
        let mut command = std::process::Command::new(BINARY);
        command.args(["apply", "-p", "here"]).env_clear().env("KUBELEET_API", &cluster.api);
        parts(&command.current_dir(folder.path()).output().unwrap())
    };
    let (exit, _, err) = apply();
    assert!(exit == 2 && err.contains("neither this folder nor one around it has compose.yaml"), "{err}");
    write("docker-compose.yml", "services:\n  web: {image: a}\n");
    let (exit, out, err) = apply();
    assert_eq!((exit, out.as_str()), (0, "service/here-web created\n"), "{err}");
    write("docker-compose.override.yml", "services:\n  web: {image: b}\n");
    let (exit, out, err) = apply();
    assert_eq!((exit, out.as_str()), (0, "service/here-web configured\n"), "{err}");
    assert!(err.contains("reading docker-compose.yml and docker-compose.override.yml"), "{err}");
}

#[test]
fn secrets_and_configs_come_and_go_with_their_app_and_are_never_shown() {
    let Some(cluster) = Cluster::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let file = path("compose.yaml");
    let run = |line: &str| parts(&kubeleet(&cluster.api, &line.replace("FILE", &file)));
    let hidden = |(exit, out, err): (i32, String, String)| {
        assert!(!format!("{out}{err}").contains("hunter"), "{out} {err}");
        (exit, out, err)
    };
    std::fs::write(path("db.txt"), "hunter2\n").unwrap();
    let text = "services:\n  web: {image: a, secrets: [db], configs: [site]}\n\
                secrets: {db: {file: db.txt}}\nconfigs: {site: {content: hunter}}\n";
    std::fs::write(&file, text).unwrap();
    let (exit, out, _) = hidden(run("apply -p shop --dry-run -f FILE"));
    let dry = "secret/shop-db created (dry run)\nconfig/shop-site created (dry run)\nservice/shop-web created (dry run)\n";
    assert_eq!((exit, out.as_str()), (0, dry));
    let (exit, out, err) = hidden(run("apply -p shop -f FILE"));
    let created = "secret/shop-db created\nconfig/shop-site created\nservice/shop-web created\n";
    assert_eq!((exit, out.as_str()), (0, created), "{err}");
    let (exit, out, err) = hidden(run("apply -p shop -f FILE"));
    assert_eq!((exit, out), (0, created.replace("created", "unchanged")), "{err}");
    assert_eq!(hidden(run("diff -p shop -f FILE")).0, 0);

    std::fs::write(path("db.txt"), "hunter3\n").unwrap();
    let (exit, out, _) = hidden(run("diff -p shop -f FILE"));
    assert!(exit == 1 && out.contains("+++ secret/shop-db (file)") && out.contains("configured"), "{out}");
    let (_, out, err) = hidden(run("apply -p shop -f FILE"));
    assert!(out.starts_with("secret/shop-db configured\nconfig/shop-site unchanged\n"), "{out}");
    assert!(err.contains("the changed values are used by shop-web: "), "{err}");

    assert_eq!(run("config create other-site --from-literal x").0, 0);
    let (exit, out, err) = hidden(run("apply -p other -f FILE"));
    assert!(exit == 1 && err.contains("config other-site exists and belongs to no app"), "{err}");
    assert!(!out.contains("service/"), "nothing else is applied: {out}");

    std::fs::write(&file, "services:\n  web: {image: a, secrets: [db]}\nsecrets: {db: {file: db.txt}}\n")
        .unwrap();
    let (_, _, err) = run("apply -p shop -f FILE");
    assert!(err.contains("app shop also has config/shop-site, not in these files"), "{err}");
    let (exit, out, err) = run("apply -p shop -f FILE --prune");
    assert!(exit == 0 && out.ends_with("config/shop-site removed\n"), "{out} {err}");
    let (exit, out, err) = run("app rm shop");
    assert!(exit == 0 && out.ends_with("secret/shop-db removed\n"), "{out} {err}");
    assert_eq!(run("secret ls -q").1, "other-db\n");
    assert_eq!(run("config ls -q").1, "other-site\n", "it came with no app");
    let (exit, out, _) = run("app rm other");
    assert_eq!(
        (exit, out.as_str()),
        (0, "secret/other-db removed\n"),
        "what is left of an app that has no service"
    );
}
