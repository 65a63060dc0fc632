//! All mistakes are found at once, each with its place.

use std::collections::BTreeMap;

use super::*;
use crate::{Allowance, NoteKind};

#[test]
fn every_mistake_is_found_at_its_line() {
    let found = mistakes(
        "services:\n  web:\n    imgae: nginx\n    mem_limit: much\n    restart: sometimes\n  api:\n    image: x\n    \
         deploy: {replicas: two}\n    ports: ['http', {published: 80}]\n  job: {build: .}\n",
    );
    let expected = [
        "2:3: web: image: an image is required, as for `docker run`",
        "3:5: unknown field \"imgae\"; did you mean \"image\"?",
        "4:16: web: mem_limit: \"much\" is not an amount of memory: write 64MiB, 64m or bytes",
        "5:14: web: restart must be one of always, on-failure, never, not \"sometimes\"",
        "8:24: api: replicas must be a whole number from 0 to 2000000, not \"two\"",
        "9:13: api: ports[0]: \"http/tcp\" is not a port: write 80, 8080:80 or 0.0.0.0:8080:80/udp",
        "9:21: api: ports: target is missing",
        "10:9: job: build is not honoured: kubeleet runs images that exist: build and push it, and name it in `image`",
    ];
    assert_eq!(found, expected.map(|text| format!("compose.yaml:{text}")));
}

#[test]
fn each_mistake_says_what_to_do() {
    for (text, expected) in [
        ("services: {}", "1:11: there are no services in these files"),
        (
            "servces: {web: {image: x}}\nservices: {a: {image: x}}",
            "1:1: unknown field \"servces\"; did you mean",
        ),
        ("services:\n  web:", "2:3: web: a service is a map of fields, not null"),
        ("services:\n\tweb: {}", "2:1: a tab indents this line; write spaces"),
        ("services:\n  web: {image: '${TAG:?set it}'}", "2:16: variable TAG is not set: set it"),
        ("services:\n  web: {image: '${TAG'}", "2:16: \"${TAG\" has a variable that is not closed"),
        ("services:\n  web: {image: x, depends_on: [bd]}\n  db: {image: x}", "2:32: web depends on \"bd\""),
        ("services:\n  web: {image: x, extends: base}", "2:28: extends: there is no service \"base\""),
        (
            "services:\n  a: {image: x, extends: b}\n  b: {image: x, extends: a}",
            "2:26: extends goes in a circle: b -> a -> b",
        ),
        ("services:\n  web: {image: x, env_file: no.env}", "2:29: web: env_file no.env: no such file"),
        ("include: [no.yaml]\nservices:\n  web: {image: x}", "1:11: no.yaml: no such file"),
        ("services:\n  web: {image: x, privileged: true}", "2:19: web: privileged is not allowed"),
        ("services:\n  web: {image: x, network_mode: host}", "2:33: web: network_mode: host is not allowed"),
        ("services:\n  web: {image: x, security_opt: [seccomp:unconfined]}", "2:34: web: security_opt"),
        (
            "services:\n  web: {image: x, cpus: 1, deploy: {resources: {limits: {cpus: 2}}}}",
            "2:64: web: cpus and",
        ),
        ("services:\n  a_b: {image: x}\n  a.b: {image: x}", "3:3: a.b and a_b would both be called app-a-b"),
        ("services:\n  web: {image: x, ports: ['1-2:80']}", "2:27: web: ports: \"1-2:80\" leaves the choice"),
        ("name: Bad\nservices:\n  web: {image: x}", "1:7: \"Bad\" cannot name an app"),
        (
            "services:\n  web: {image: x, deploy: 3}",
            "2:27: services.web.deploy must be a map of fields, not a number",
        ),
        (
            "services:\n  web: {image: x, profiles: a}",
            "2:29: services.web.profiles must be a list, not a text",
        ),
        ("services:\n  web: {image: x, depends_on: db}", "2:31: services.web.depends_on must be a map"),
        (
            "services:\n  web: {image: x, secrets: [db_pasword]}\nsecrets: {db_password: {environment: A}}",
            "2:29: secret \"db_pasword\" is not declared; did you mean \"db_password\"?",
        ),
        (
            "services:\n  web: {image: x, configs: [a]}",
            "2:29: config \"a\" is not declared: add it to `configs` at the top of the file",
        ),
        (
            "services:\n  web: {image: x, secrets: [db]}\nsecrets: {db: {environment: A}}",
            "3:16: secret db: variable A is not set",
        ),
        (
            "services:\n  web: {image: x, secrets: [db]}\nsecrets: {db: {file: no}}",
            "3:16: secret db: file no: no such file",
        ),
        (
            "services:\n  web: {image: x, secrets: [db]}\nsecrets:\n  db: {}",
            "4:3: secret db: write one of file, environment, content or external: true",
        ),
        (
            "services:\n  web: {image: x, configs: [a]}\nconfigs:\n  a: {external: true, content: b}",
            "4:23: config a: an external one has no content",
        ),
        (
            "services:\n  web: {image: x, configs: [a]}\nconfigs:\n  a: {content: ''}",
            "4:7: config a: the content is empty",
        ),
        (
            "services:\n  web: {image: x, depends_on: {db: {condition: great}}}\n  db: {image: x}",
            "2:48: web: depends_on",
        ),
        ("services: [web]", "1:11: services must be a map of fields, not a list"),
        ("services:", "1:9: there are no services in these files"),
    ] {
        let found = mistakes(text);
        let first = found.first().cloned().unwrap_or_default();
        assert!(first.starts_with(&format!("compose.yaml:{expected}")), "{text}: {found:?}");
    }
}

#[test]
fn what_would_silently_be_less_is_refused_unless_allowed() {
    for (text, expected, allowance) in [
        (
            "services:\n  web: {image: x, network_mode: none}",
            "web: network_mode is none, and kubeleet cannot keep containers from what is outside",
            Allowance::NoIsolation,
        ),
        (
            "services:\n  web: {image: x, networks: [n]}\nnetworks: {n: {internal: yes}}",
            "web: network n is internal, and kubeleet cannot keep",
            Allowance::NoIsolation,
        ),
        (
            "services:\n  web: {image: x}\nnetworks: {default: {internal: true}}",
            "web: network default is internal, and kubeleet cannot keep",
            Allowance::NoIsolation,
        ),
        (
            "services:\n  web: {image: x, deploy: {mode: global-job}}",
            "web: deploy.mode: global-job is not honoured",
            Allowance::OneForAll,
        ),
    ] {
        let found = mistakes(text);
        assert!(found.len() == 1 && found[0].contains(expected), "{text}: {found:?}");
        assert!(found[0].contains(&format!("--allow {}", allowance.word())), "{found:?}");
        let project = Project { allowed: [allowance].into(), ..project(&["compose.yaml"]) };
        let app = load(&project, &files(&[("compose.yaml", text)])).unwrap();
        let kinds: Vec<_> = app.notes.iter().map(|note| note.kind).collect();
        assert_eq!(kinds, [NoteKind::NotHonoured], "{text}");
    }
}

#[test]
fn constraints_on_facts_that_nodes_do_not_have_are_noted() {
    let with = |constraints: &str| {
        let deploy = format!("deploy: {{placement: {{constraints: [{constraints}]}}}}");
        super::notes(&app(&format!("services:\n  web: {{image: x, {deploy}}}\n")))
    };
    let found =
        with("node.role==manager, node.id==a, engine.labels.b==c, node.platform.os==linux, disk==ssd");
    assert_eq!(found.len(), 4, "{found:?}");
    assert!(found[0].contains("\"node.role==manager\" is not honoured"), "{found:?}");
    assert_eq!(with("node.role==worker, node.role != manager, node.labels.a==b").len(), 0);
}

#[test]
fn values_that_take_privileges_away_are_no_mistakes() {
    let notes = notes(&app(
        "services:\n  web: {image: x, ipc: private, cgroup: private, security_opt: ['label=disable'], oom_score_adj: 500, \
         hostname: my_host}\n",
    ));
    assert_eq!(notes.len(), 3, "{notes:?}");
    for refused in ["ipc: host", "cgroup: host", "oom_score_adj: -1", "security_opt: [apparmor=unconfined]"] {
        let found = mistakes(&format!("services:\n  web: {{image: x, {refused}}}\n"));
        assert!(found.len() == 1 && found[0].contains("not allowed"), "{refused}: {found:?}");
    }
}

#[test]
fn a_variable_that_is_not_set_is_named_beside_the_mistake_that_it_makes() {
    let found = mistakes("services:\n  web: {image: 'x:${TAG}'}\n");
    let expected = "compose.yaml:2:16: variable TAG is not set; nothing stands in its place";
    assert!(found.len() == 2 && found.iter().any(|found| found == expected), "{found:?}");
}

#[test]
fn messages_name_what_is_in_the_file() {
    let text = "services:\n  a: {image: x, scale: 2, deploy: {replicas: 3}}\n  b: {image: x, depends_on: {a: {condition: c}}}\n";
    let found = mistakes(text);
    assert!(found[0].contains("a: scale and the field below `deploy`"), "{found:?}");
    assert!(found[1].contains("b: depends_on.a.condition must be"), "{found:?}");
    let found = mistakes(&format!("services:\n  {}: {{image: x}}\n", "a".repeat(60)));
    assert!(found[0].contains("--project-name"), "{found:?}");
    let found = mistakes("services:\n  a: {image: x, ports: ['80:80/sctp']}\n");
    assert!(found[0].contains("the protocol is tcp or udp, not sctp"), "{found:?}");
}

#[test]
fn hostile_files_have_budgets() {
    let mut texts = Vec::new();
    for level in 0..22 {
        let next = format!("{}.yaml", level + 1);
        texts.push((format!("{level}.yaml"), format!("include: [{next}, ./{next}]\n")));
    }
    texts.push(("22.yaml".to_owned(), "services: {a: {image: x}}\n".to_owned()));
    let found = load(&project(&["0.yaml"]), &BTreeMap::from_iter(texts)).unwrap_err();
    assert!(
        found.iter().any(|found| found.detail.starts_with("more than 500 files are included")),
        "{found:?}"
    );

    let chain = |field: &str| {
        let needed = |n: u32| match field {
            "extends" => format!("s{n}"),
            _ => format!("[s{n}]"),
        };
        let service = |n: u32| format!("  s{n}: {{image: x, {field}: {}}}\n", needed(n + 1));
        let services: String = (0..1500).map(service).collect();
        mistakes(&format!("services:\n{services}  s1500: {{image: x}}\n"))
    };
    for (field, expected) in [
        ("extends", "more than 64 services extend each other in a row"),
        ("depends_on", "more than 500 services depend on each other in a row"),
    ] {
        assert!(chain(field).iter().any(|found| found.ends_with(expected)), "{field}");
    }

    let doubling: String = (0..40).map(|n| format!("V{}=$V{n}$V{n}\n", n + 1)).collect();
    let texts = [
        (".env".to_owned(), format!("V0=xx\n{doubling}")),
        ("compose.yaml".to_owned(), "services: {a: {image: x}}\n".to_owned()),
    ];
    let found = load(&project(&["compose.yaml"]), &BTreeMap::from(texts)).unwrap_err();
    assert!(found[0].detail.contains("longer than 1 MiB"), "{found:?}");
}

#[test]
fn a_mistake_is_in_the_file_where_it_stands() {
    let project = project(&["a.yaml", "b.yaml", "none.yaml"]);
    let texts = [
        ("a.yaml", "services:\n  web: {image: x, user: a b}\n"),
        ("b.yaml", "services:\n  web: {cpus: many, env_file: bad.env}\n"),
        ("bad.env", "A=1\nB C\n"),
    ];
    let found: Vec<_> = load(&project, &files(&texts)).unwrap_err().iter().map(ToString::to_string).collect();
    let starts =
        ["none.yaml: no such file", "a.yaml:2:25: web: user", "b.yaml:2:15: web: cpus", "bad.env:2:1: "];
    assert_eq!(found.len(), starts.len(), "{found:?}");
    assert!(found.iter().zip(starts).all(|(found, start)| found.starts_with(start)), "{found:?}");
}

#[test]
fn files_that_include_each_other_are_refused_with_their_path() {
    let texts = [
        ("a.yaml", "include: [b.yaml]\nservices:\n  a: {image: x}\n"),
        ("b.yaml", "include: [a.yaml]\nservices:\n  b: {image: x}\n"),
    ];
    let found = load(&project(&["a.yaml"]), &files(&texts)).unwrap_err();
    assert_eq!(found[0].to_string(), "b.yaml:1:11: include goes in a circle: a.yaml -> b.yaml -> a.yaml");
    let texts = [
        ("a.yaml", "include: [b.yaml]\nservices:\n  a: {image: x}\n"),
        ("b.yaml", "services:\n  a: {image: y}\n"),
    ];
    let found = load(&project(&["a.yaml"]), &files(&texts)).unwrap_err();
    assert_eq!(found[0].to_string(), "a.yaml:3:3: a is defined here and in b.yaml, which is included");
}
