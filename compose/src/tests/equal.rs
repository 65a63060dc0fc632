//! Files that kubeleet once read differently than Compose 2.40.

use super::*;

/// Each file after a line `== path`.
fn app_from(paths: &[&str], text: &str) -> App {
    let files = text.split("== ").skip(1).filter_map(|file| file.split_once('\n'));
    let files: BTreeMap<String, String> =
        files.map(|(path, text)| (path.to_owned(), text.to_owned())).collect();
    load(&project(paths), &files).unwrap_or_else(|found| panic!("{found:#?}"))
}

#[test]
fn an_override_of_a_short_form_replaces() {
    let app = app_from(
        &["a.yaml", "b.yaml"],
        "== a.yaml\nservices:\n  a: {image: x, environment: [A=1], labels: [a=1], env_file: a.env, depends_on: [b]}\n  \
         b: {image: x}\n  c: {image: x}\n== b.yaml\nservices:\n  a: {environment: !override ['C=3'], labels: !override [x=3], \
         env_file: !override b.env, depends_on: !override [c]}\n== a.env\nFROM_A=1\n== b.env\nFROM_B=1\n",
    );
    let a = service(&app, "app-a");
    assert_eq!(a["environment"], serde_json::json!({"FROM_B": "1", "C": "3"}));
    assert_eq!(a["labels"], serde_json::json!({"x": "3"}));
    assert_eq!(a["depends_on"], serde_json::json!({"app-c": "service_started"}));
}

#[test]
fn texts_of_commands_are_split_without_comments() {
    let app = app(
        "services:\n  a:\n    image: x\n    command: 'redis-server --requirepass #pass --port 1'\n    entrypoint: run & wait\n    \
         pre_stop: [{command: 'leave #1'}]\n",
    );
    let a = service(&app, "app-a");
    assert_eq!(a["command"], serde_json::json!(["redis-server", "--requirepass", "#pass", "--port", "1"]));
    assert_eq!(a["entrypoint"], serde_json::json!(["run"]));
    assert_eq!(a["pre_stop"][0]["command"], serde_json::json!(["leave", "#1"]));
    assert!(notes(&app)[0].contains("a: entrypoint ends at '&', as with Compose"), "{:?}", notes(&app));
    let found = mistakes("services:\n  a: {image: x, command: \"a 'b\"}\n");
    assert!(found[0].ends_with("a: command: a quotation mark is not closed"), "{found:?}");
}

#[test]
fn a_file_of_variables_uses_those_above_it_and_notes_what_is_not_set() {
    let app = app_from(
        &["compose.yaml"],
        "== compose.yaml\nservices:\n  a: {image: x, env_file: [a.env, b.env]}\n== a.env\nHOST=db\n\
         == b.env\nURL=pg://${HOST}:5432\nPASSWORD=\"pa$word\"\nBAR: baz\n== .env\nX=${NOPE}/y\n",
    );
    let expected = serde_json::json!({"HOST": "db", "URL": "pg://db:5432", "PASSWORD": "pa", "BAR": "baz"});
    assert_eq!(service(&app, "app-a")["environment"], expected);
    let is_not_set = "is not set; nothing stands in its place";
    let notes = notes(&app);
    for expected in
        [format!("b.env:2:1: variable word {is_not_set}"), format!(".env:1:1: variable NOPE {is_not_set}")]
    {
        assert!(notes.contains(&expected), "{notes:?}");
    }
}

#[test]
fn numbers_and_booleans_of_maps_are_those_of_compose() {
    let app = app(
        "services:\n  a: {image: x, environment: {A: TRUE, B: False, C: 0644, D: 1e3, E: '0644', F: \"1.10\"}, \
         labels: {x: 1.0, y: on}, init: yes, read_only: 'on'}\n",
    );
    let a = service(&app, "app-a");
    let expected =
        serde_json::json!({"A": "true", "B": "false", "C": "420", "D": "1000", "E": "0644", "F": "1.10"});
    assert_eq!((&a["environment"], &a["labels"]), (&expected, &serde_json::json!({"x": "1", "y": "on"})));
    assert_eq!((&a["init"], &a["read_only"]), (&true.into(), &true.into()));
    let notes = notes(&app);
    let expected = "environment.C: 0644 is a number, and becomes 420, as with Compose";
    assert!(notes.len() == 3 && notes.iter().any(|note| note.contains(expected)), "{notes:?}");
}

#[test]
fn what_is_included_twice_is_the_same_and_may_be_overridden_by_a_later_file() {
    let app = app_from(
        &["compose.yaml", "over.yaml"],
        "== compose.yaml\ninclude: [c1.yaml, c2.yaml, c1.yaml]\n== c1.yaml\ninclude: [s.yaml]\nservices: {c1: {image: x}}\n\
         == c2.yaml\ninclude: [s.yaml]\nservices: {c2: {image: x, networks: [n]}}\nnetworks: {n: {}}\n\
         == s.yaml\nservices: {dep: {image: x, environment: [A=1]}}\nvolumes: {v: {}}\n\
         == over.yaml\nservices: {dep: {user: y, environment: {B: 2}}}\n",
    );
    assert_eq!(app.all_names.len(), 3);
    let dep = service(&app, "app-dep");
    assert_eq!((&dep["user"], &dep["environment"]), (&"y".into(), &serde_json::json!({"A": "1", "B": "2"})));
}

#[test]
fn what_is_included_and_defined_otherwise_is_a_conflict() {
    for group in ["configs", "secrets"] {
        let field = if group == "configs" { "content: one" } else { "environment: ONE" };
        let other = field.replace("one", "two").replace("ONE", "TWO");
        let files = files(&[
            (
                "compose.yaml",
                &format!("include: [b.yaml]\nservices: {{a: {{image: x}}}}\n{group}:\n  cf: {{{field}}}\n"),
            ),
            ("b.yaml", &format!("services: {{b: {{image: x}}}}\n{group}: {{cf: {{{other}}}}}\n")),
        ]);
        let found = load(&project(&["compose.yaml"]), &files).unwrap_err();
        let expected =
            format!("compose.yaml:4:3: {group}.cf is defined here and in b.yaml, which is included");
        assert_eq!(found[0].to_string(), expected);
    }
}

#[test]
fn volumes_that_are_not_declared_are_mistakes() {
    for (volumes, expected) in [
        ("'db-dta:/v'", "volume \"db-dta\" is not declared; did you mean \"db-data\"?"),
        ("nginx.conf:/etc/nginx.conf", "write ./nginx.conf for what is beside the file"),
        ("{type: volume, source: other, target: /v}", "add `other:` to `volumes` at the top of the file"),
    ] {
        let found = mistakes(&format!(
            "services:\n  a: {{image: x, volumes: [{volumes}]}}\nvolumes: {{db-data: }}\n"
        ));
        assert!(found.len() == 1 && found[0].ends_with(expected), "{found:?}");
    }
}

#[test]
fn links_are_names_and_dependencies() {
    let app = app(
        "services:\n  a: {image: x, links: ['z:db', z]}\n  b: {image: x, volumes_from: ['z:ro', 'container:q']}\n  \
         c: {image: x, network_mode: 'service:z'}\n  z: {image: y}\n",
    );
    assert_eq!(app.services[0].name().as_str(), "app-z");
    for name in ["app-a", "app-b", "app-c"] {
        assert_eq!(
            service(&app, name)["depends_on"],
            serde_json::json!({"app-z": "service_started"}),
            "{name}"
        );
    }
    assert_eq!(service(&app, "app-z")["aliases"], serde_json::json!(["db"]));
    assert!(!notes(&app).iter().any(|note| note.contains("links")), "{:?}", notes(&app));
}

#[test]
fn ports_have_one_meaning_whatever_their_form() {
    let app = app_from(
        &["a.yaml", "b.yaml"],
        "== a.yaml\nservices:\n  a: {image: x, ports: ['${BIND:-}:443:443', '8080:80', '1000-1001:1000-1001']}\n\
         == b.yaml\nservices:\n  a: {ports: ['0.0.0.0:8080:80', '1001:1001', {target: 443, published: 443}]}\n",
    );
    let a = service(&app, "app-a");
    let hosts: Vec<_> =
        a["ports"].as_array().unwrap().iter().map(|port| port["host"].as_u64().unwrap()).collect();
    assert_eq!(hosts, [443, 8080, 1000, 1001], "{}", a["ports"]);
}

#[test]
fn health_checks_are_read_as_compose_reads_them() {
    for (check, expected) in [
        (
            "{test: [], retries: 0, interval: 0s, timeout: 2s}",
            serde_json::json!({"timeout": "2s", "start_period": "86400s"}),
        ),
        (
            "{test: [CMD-SHELL, a, b], x-note: 1, start_period: 10s}",
            serde_json::json!({"test": ["CMD", "/bin/sh", "-c", "a", "b"], "start_period": "86400s"}),
        ),
        ("{test: [NONE]}", serde_json::json!({"test": ["NONE"]})),
        ("{disable: 'yes'}", serde_json::json!({"disable": true})),
    ] {
        let app = app(&format!(
            "services:\n  a: {{image: x, healthcheck: {check}, ulimits: {{nofile: {{soft: 1, hard: 2, x-u: 1}}}}}}\n"
        ));
        assert_eq!(service(&app, "app-a")["healthcheck"], expected, "{check}");
    }
}

#[test]
fn a_path_of_the_nodes_is_noted() {
    for volume in
        ["'/etc/localtime:/etc/localtime:ro'", "{type: bind, source: /etc/localtime, target: /etc/localtime}"]
    {
        let app = app(&format!("services:\n  a: {{image: x, volumes: [{volume}]}}\n"));
        let expected = "a: /etc/localtime is a path of the node: only nodes run the service whose KUBELEET_BIND_PREFIXES";
        assert!(notes(&app).len() == 1 && notes(&app)[0].contains(expected), "{:?}", notes(&app));
    }
}

#[test]
fn the_default_driver_of_a_volume_is_not_noted() {
    let text = "services:\n  a: {image: x, volumes: ['data:/d']}\nvolumes: {data: {driver: local}}\n";
    assert_eq!(notes(&app(text)), [""; 0]);
}
