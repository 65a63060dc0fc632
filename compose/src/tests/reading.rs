//! Each feature of the format once.

use std::collections::BTreeMap;

use super::*;

#[test]
fn a_file_becomes_an_app_of_services() {
    let app = app(
        "name: shop\nservices:\n  web:\n    image: nginx\n    command: nginx -g 'daemon off;'\n    \
         environment: {A: '1.10', B: true}\n    ports: ['8080:80']\n    deploy: {replicas: 3}\n  db: {image: postgres}\n",
    );
    assert_eq!(app.name.as_str(), "shop");
    let names: Vec<_> = app.services.iter().map(|service| service.name().as_str()).collect();
    assert_eq!(names, ["shop-web", "shop-db"]);
    assert_eq!(
        service(&app, "shop-web"),
        serde_json::json!({
            "name": "shop-web", "app": "shop", "replicas": 3, "image": "nginx",
            "command": ["nginx", "-g", "daemon off;"], "environment": {"A": "1.10", "B": "true"},
            "ports": [{"container": 80, "host": 8080, "protocol": "tcp"}],
            "restart": "on-failure", "on_disconnect": "keep", "stop_grace_period": 10,
        })
    );
    let expected = "compose.yaml:7:13: web: ports without an address are reachable on the node's loopback only; write \
                    0.0.0.0:8080:80 to open one";
    assert_eq!(notes(&app), [expected]);
}

#[test]
fn each_field_becomes_the_one_of_a_service() {
    let volumes = serde_json::json!([{"kind": "persistent", "source": "data", "target": "/d"},
        {"kind": "local", "target": "/cache"}]);
    for (lines, field, value) in [
        ("restart: 'no'", "restart", serde_json::json!("never")),
        ("restart: no", "restart", serde_json::json!("never")),
        ("restart: unless-stopped", "restart", serde_json::json!("always")),
        ("restart: on-failure:3", "restart", serde_json::json!("on-failure")),
        (
            "restart: always\n    deploy: {restart_policy: {condition: none}}",
            "restart",
            serde_json::json!("never"),
        ),
        ("deploy: {restart_policy: {condition: any}}", "restart", serde_json::json!("always")),
        (
            "deploy: {update_config: {parallelism: '2', failure_action: rollback, monitor: 20s, order: start-first}}",
            "update",
            serde_json::json!({
                "order": "start-first", "parallelism": 2, "on_failure": "rollback", "monitor": 20,
            }),
        ),
        (
            "deploy: {rollback_config: {parallelism: '0', order: stop-first, failure_action: continue}, update_config: {delay: 5s}}",
            "update",
            serde_json::json!({
                "delay": 5, "on_failure": "pause", "rollback": {"order": "stop-first", "parallelism": 0},
            }),
        ),
        ("mem_limit: 64m", "memory", serde_json::json!(64 << 20)),
        ("mem_limit: 64MB", "memory", serde_json::json!(64 << 20)),
        ("mem_limit: 67108864b", "memory", serde_json::json!(64 << 20)),
        (
            "deploy: {placement: {constraints: [node.labels.zone==east, 'node.role == worker', node.hostname!=w3]}}",
            "placement",
            serde_json::json!({"constraints": ["node.labels.zone==east", "node.hostname!=w3"]}),
        ),
        (
            "deploy: {placement: {max_replicas_per_node: '2', constraints: [a==b], preferences: [{spread: node.labels.rack}, {spread: disk}]}}",
            "placement",
            serde_json::json!({
                "max_per_node": 2, "constraints": ["a==b"],
                "spread": [
                    {"by": "node.labels.rack", "max_skew": 1, "weight": 50},
                    {"by": "disk", "max_skew": 1, "weight": 25},
                ],
            }),
        ),
        ("deploy: {placement: {max_replicas_per_node: 0}}", "placement", serde_json::Value::Null),
        ("deploy: {resources: {limits: {memory: 1gb}}}", "memory", serde_json::json!(1 << 30)),
        ("mem_limit: 0", "memory", serde_json::Value::Null),
        ("cpus: 0.5", "cpus", serde_json::json!(0.5)),
        ("deploy: {resources: {limits: {cpus: '0.50', pids: 10}}}", "cpus", serde_json::json!(0.5)),
        ("pids_limit: '20'", "pids_limit", serde_json::json!(20)),
        ("pids_limit: -1", "pids_limit", serde_json::Value::Null),
        (
            "ulimits: {nofile: 10, nproc: {soft: '1', hard: 2}}",
            "ulimits",
            serde_json::json!({"nofile": 10,
            "nproc": {"soft": 1, "hard": 2}}),
        ),
        ("user: 1000", "user", serde_json::json!("1000")),
        ("working_dir: /srv", "working_dir", serde_json::json!("/srv")),
        ("tmpfs: /run", "tmpfs", serde_json::json!(["/run"])),
        ("volumes: ['data:/d:rw', '/cache']", "volumes", volumes.clone()),
        (
            "volumes: [{type: volume, source: data, target: /d, read_only: 'false'}, {type: volume, target: /cache}]",
            "volumes",
            volumes,
        ),
        (
            "volumes: [{type: tmpfs, target: /t, tmpfs: {size: 1mb}}]",
            "volumes",
            serde_json::json!([{"kind": "tmpfs", "target": "/t", "space": 1 << 20}]),
        ),
        ("volumes: ['data:/d']", "on_disconnect", serde_json::json!("stop")),
        ("cap_drop: [ALL]", "cap_drop", serde_json::json!(["ALL"])),
        ("tty: true", "tty", serde_json::json!(true)),
        ("stdin_open: 'true'", "stdin_open", serde_json::json!(true)),
        ("init: true\n    read_only: 'true'", "read_only", serde_json::json!(true)),
        ("stop_signal: SIGINT", "stop_signal", serde_json::json!("SIGINT")),
        (
            "pre_stop: [{command: leave --now, user: root}, {command: [a, 'b c']}]",
            "pre_stop",
            serde_json::json!([{"command": ["leave", "--now"]}, {"command": ["a", "b c"]}]),
        ),
        ("stop_grace_period: 1m30s", "stop_grace_period", serde_json::json!(90)),
        (
            "healthcheck: {interval: 5s, retries: '2'}",
            "healthcheck",
            serde_json::json!({"interval": "5s", "retries": 2, "start_period": "86400s"}),
        ),
        ("hostname: mail", "hostname", serde_json::json!("mail")),
        ("mem_reservation: 32m", "memory_reservation", serde_json::json!(32 << 20)),
        (
            "deploy: {resources: {reservations: {memory: 32m}}}",
            "memory_reservation",
            serde_json::json!(32 << 20),
        ),
        (
            "logging: {driver: local, options: {max-size: 5mb, max-file: '2', tag: x}}",
            "logging",
            serde_json::json!({"driver": "local", "options": {"max-size": 5 << 20, "max-file": 2}}),
        ),
        ("logging: {driver: syslog}", "logging", serde_json::Value::Null),
        ("healthcheck: {}", "healthcheck", serde_json::Value::Null),
        ("entrypoint: [a, b]", "entrypoint", serde_json::json!(["a", "b"])),
        ("scale: 4", "replicas", serde_json::json!(4)),
        ("deploy: {mode: global}", "mode", serde_json::json!("global")),
        ("labels: [a=b, c]\n    deploy: {labels: {a: d}}", "labels", serde_json::json!({"a": "d", "c": ""})),
        ("command:", "command", serde_json::Value::Null),
        ("x-kubeleet: {scheduler: pack}", "scheduler", serde_json::json!("pack")),
        ("x-kubeleet: {priority: '${PRIORITY:-10}'}", "priority", serde_json::json!(10)),
        ("x-kubeleet: {priority: 1, preemption: never}", "preemption", serde_json::json!("never")),
        ("x-kubeleet: {min_available: 75%}", "min_available", serde_json::json!("75%")),
        (
            "x-kubeleet: {ingress: [{host: web.example, port: '${PORT:-80}', tls: auto}]}",
            "ingress",
            serde_json::json!([{"host": "web.example", "path": "/", "port": 80, "protocol": "http", "tls": "auto"}]),
        ),
        ("x-kubeleet: {resources: {gpu: '${GPUS:-2}'}}", "resources", serde_json::json!({"gpu": 2})),
        (
            "deploy: {resources: {reservations: {generic_resources: [{discrete_resource_spec: {kind: NVIDIA-GPU, value: 2}}, \
             {discrete_resource_spec: {kind: slots, value: 1}}]}}}",
            "resources",
            serde_json::json!({"nvidia-gpu": 2, "slots": 1}),
        ),
        (
            "deploy: {resources: {reservations: {devices: [{driver: nvidia, count: 1, capabilities: [gpu, utility]}]}}}",
            "resources",
            serde_json::json!({"gpu": 1}),
        ),
        (
            "deploy: {resources: {reservations: {devices: [{device_ids: ['0', '3'], capabilities: [gpu]}]}}}",
            "resources",
            serde_json::json!({"gpu": 2}),
        ),
        (
            "deploy: {placement: {constraints: [disk==ssd]}}\n    \
             x-kubeleet: {placement: {affinity: [{service: cache}], anti_affinity: [{service: batch.kubeleet, by: zone}]}}",
            "placement",
            serde_json::json!({
                "constraints": ["disk==ssd"],
                "affinity": [{"service": "cache", "by": "node", "weight": 50}],
                "anti_affinity": [{"service": "batch.kubeleet", "by": "zone", "hard": true, "weight": 50}],
            }),
        ),
        ("x-kubeleet: {stateful: '${STATEFUL:-true}'}", "stateful", serde_json::json!(true)),
        (
            "x-kubeleet: {stateful: {by: rack, zones: '3', start: parallel}}",
            "stateful",
            serde_json::json!({"by": "rack", "zones": 3, "start": "parallel"}),
        ),
    ] {
        let app = app(&format!("services:\n  web:\n    image: a\n    {lines}\nvolumes: {{data: {{}}}}\n"));
        assert_eq!(service(&app, "app-web")[field], value, "{lines}");
    }
}

#[test]
fn secrets_and_configs_become_those_of_the_app_or_of_the_cluster() {
    let text = "services:\n  web:\n    image: a\n    secrets: [db, {source: tls, target: /etc/tls, mode: 0400, uid: '7'}]\n    \
                configs: [site, {source: motd, target: /etc/motd}]\n\
                secrets:\n  db: {file: ./db.txt}\n  tls: {external: true, name: tls_key}\n  unused: {file: none}\n\
                configs:\n  site: {content: 'port $PORT', name: site.conf}\n  motd: {environment: MOTD, labels: [a]}\n";
    let mut project = project(&["d/compose.yaml"]);
    project.environment.insert("PORT".to_owned(), "80".to_owned());
    project.environment.insert("MOTD".to_owned(), "hello".to_owned());
    let app = load(&project, &files(&[("d/compose.yaml", text), ("d/db.txt", "hunter2\n")])).unwrap();
    let web = service(&app, "app-web");
    assert_eq!(
        (&web["secrets"], &web["configs"]),
        (
            &serde_json::json!([{"source": "app-db", "target": "db"},
                {"source": "tls_key", "target": "/etc/tls", "uid": 7, "mode": "0400"}]),
            &serde_json::json!([{"source": "site.conf", "target": "site"},
                {"source": "app-motd", "target": "/etc/motd"}])
        )
    );
    let values = app.values.iter().map(|value| {
        let content = String::from_utf8_lossy(value.content.expose()).into_owned();
        (value.kind.as_str(), value.name.as_str(), content)
    });
    let values: Vec<_> = values.collect();
    let of = |kind, name, content: &str| (kind, name, content.to_owned());
    let expected = [
        of("secret", "app-db", "hunter2\n"),
        of("config", "site.conf", "port 80"),
        of("config", "app-motd", "hello"),
    ];
    assert_eq!(values, expected);
    let all: Vec<_> = app.all_values.iter().map(|(kind, name)| format!("{kind} {name}")).collect();
    assert_eq!(all, ["secret app-db", "secret app-unused", "config app-motd", "config site.conf"]);
    let notes = notes(&app);
    assert!(notes.iter().any(|note| note.contains("configs.motd.labels is not honoured")), "{notes:?}");
    assert!(
        notes.iter().any(|note| note.contains("secrets.uid needs workers that run as root")),
        "{notes:?}"
    );
    assert!(!format!("{app:?}").contains("hunter2"));
}

#[test]
fn files_beside_the_compose_file_go_with_the_app_as_configs() {
    let web = "services:\n  web:\n    image: a\n    configs: [motd]\n    volumes: ['./site.conf:/etc/site.conf:ro', \
               {type: bind, source: ../index.html, target: /www/index.html}, './site.conf:/other/site.conf', 'data:/d']\n  \
               tools: {image: a, profiles: [x], volumes: ['./none:/etc/tools.conf']}\nconfigs:\n  motd: {content: hello}\nvolumes: {data: }\n";
    let main = "include: [web/compose.yaml]\nservices: {}\n";
    for folder in ["", "/srv/app/"] {
        let path = |file: &str| format!("{folder}{file}");
        let texts = [
            (path("compose.yaml"), main.to_owned()),
            (path("web/compose.yaml"), web.to_owned()),
            (path("web/site.conf"), "port 80\n".to_owned()),
            (path("index.html"), "hello\n".to_owned()),
        ];
        let app = load(&project(&[&path("compose.yaml")]), &BTreeMap::from(texts)).unwrap();
        let document = service(&app, "app-web");
        let mut configs: Vec<(&str, &str)> = document["configs"]
            .as_array()
            .unwrap()
            .iter()
            .map(|config| (config["source"].as_str().unwrap(), config["target"].as_str().unwrap()))
            .collect();
        configs.sort_unstable();
        let expected = [
            ("app-motd", "motd"),
            ("app-web-index.html", "/www/index.html"),
            ("app-web-other-site.conf", "/other/site.conf"),
            ("app-web-site.conf", "/etc/site.conf"),
        ];
        assert_eq!(configs, expected, "{folder}");
        assert_eq!(document["volumes"].as_array().unwrap().len(), 1);
        let made = |name: &str| {
            let value = app.values.iter().find(|value| value.name.as_str() == name).unwrap();
            String::from_utf8_lossy(value.content.expose()).into_owned()
        };
        assert_eq!(
            (made("app-web-site.conf"), made("app-web-index.html")),
            ("port 80\n".into(), "hello\n".into())
        );
        let names: Vec<&str> = app.all_values.iter().map(|(_, name)| name.as_str()).collect();
        assert!(
            names.contains(&"app-tools-tools.conf"),
            "what another profile makes is not pruned: {names:?}"
        );
        let notes = notes(&app).join("\n");
        assert!(notes.contains("goes with the app as config app-web-site.conf"), "{notes}");
    }
}

#[test]
fn services_wait_for_those_they_depend_on_as_far_as_they_are_active() {
    let text = "services:\n  web:\n    image: a\n    depends_on:\n      my_db: {condition: service_healthy}\n      \
                job: {condition: service_completed_successfully}\n      tools: {required: false}\n  \
                job: {image: a, depends_on: [my_db]}\n  my_db: {image: b}\n  tools: {image: c, profiles: [x]}\n";
    let app = app(text);
    let web = service(&app, "app-web");
    let expected =
        serde_json::json!({"app-job": "service_completed_successfully", "app-my-db": "service_healthy"});
    assert_eq!(web["depends_on"], expected);
    assert_eq!(service(&app, "app-job")["depends_on"], serde_json::json!({"app-my-db": "service_started"}));
    assert!(service(&app, "app-my-db").get("depends_on").is_none());
}

#[test]
fn variables_come_from_the_environment_and_the_env_file_beside_the_first_file() {
    let texts = [
        (
            "x/compose.yaml",
            "services:\n  web:\n    image: nginx:${TAG}\n    user: ${WHO:-app}\n    scale: ${N}\n",
        ),
        ("x/.env", "TAG=1\nN=2\n"),
        ("other.env", "TAG=3\nN=4\n"),
    ];
    let mut project = project(&["x/compose.yaml"]);
    project.environment.insert("WHO".to_owned(), "me".to_owned());
    let app = load(&project, &files(&texts)).unwrap();
    let web = service(&app, "app-web");
    assert_eq!((&web["image"], &web["user"], &web["replicas"]), (&"nginx:1".into(), &"me".into(), &2.into()));
    project.env_files.push("other.env".to_owned());
    project.environment.insert("N".to_owned(), "5".to_owned());
    let app = load(&project, &files(&texts)).unwrap();
    let web = service(&app, "app-web");
    assert_eq!((&web["image"], &web["replicas"]), (&"nginx:3".into(), &5.into()));
}

#[test]
fn an_unset_variable_is_noted_once_at_its_place() {
    let app = app("services:\n  web: {image: 'a$NO', user: 'x${NO}'}\n");
    assert_eq!(notes(&app), ["compose.yaml:2:16: variable NO is not set; nothing stands in its place"]);
}

#[test]
fn environment_files_come_before_the_environment_of_the_service() {
    let text = "services:\n  web:\n    image: a\n    env_file:\n    - web.env\n    - {path: none.env, required: false}\n    \
                - {path: raw.env, format: raw}\n    environment: [B=own, SHELL_ONLY, NOWHERE]\n";
    let texts = [("d/compose.yaml", text), ("d/web.env", "A=\"1\"\nB=2\n"), ("d/raw.env", "C='3'\n")];
    let mut project = project(&["d/compose.yaml"]);
    project.environment.insert("SHELL_ONLY".to_owned(), "s".to_owned());
    let app = load(&project, &files(&texts)).unwrap();
    let expected = serde_json::json!({"A": "1", "B": "own", "C": "'3'", "SHELL_ONLY": "s"});
    assert_eq!(service(&app, "app-web")["environment"], expected);
}

#[test]
fn anchors_merges_and_extensions_are_read() {
    let app = app(
        "x-base: &base\n  image: a\n  environment: &env {A: 1}\nservices:\n  web:\n    <<: *base\n    user: x\n    \
         environment: {<<: *env, B: 2}\n    x-note: anything\n",
    );
    let web = service(&app, "app-web");
    assert_eq!(web["image"], "a");
    assert_eq!(web["environment"], serde_json::json!({"A": "1", "B": "2"}));
}

#[test]
fn several_files_are_merged_in_their_order() {
    let base = "services:\n  web: {image: a, ports: ['80'], environment: [A=1]}\n  old: {image: b}\n";
    let over = "services:\n  web: {image: c, ports: ['81'], environment: {A: 2}}\n  old: !reset null\n  new: {image: d}\n";
    let app = app_of(&["a.yaml", "b.yaml"], &[("a.yaml", base), ("b.yaml", over)]);
    let web = service(&app, "app-web");
    assert_eq!((&web["image"], &web["environment"]["A"]), (&"c".into(), &"2".into()));
    assert_eq!(web["ports"].as_array().unwrap().len(), 2);
    assert_eq!(app.all_names.iter().map(String::as_str).collect::<Vec<_>>(), ["app-new", "app-web"]);
}

#[test]
fn a_service_extends_one_of_its_own_file_or_of_another() {
    let text = "services:\n  base: {image: a, user: x, env_file: base.env}\n  web: {extends: base, user: y}\n  \
                far: {extends: {file: ../common/common.yaml, service: job}, command: go}\n";
    let common = "services:\n  root: {image: deep, env_file: job.env}\n  job: {extends: {service: root}, init: true}\n";
    let app = app_of(
        &["d/compose.yaml"],
        &[
            ("d/compose.yaml", text),
            ("common/common.yaml", common),
            ("d/base.env", "A=1\n"),
            ("common/job.env", "B=2\n"),
        ],
    );
    let web = service(&app, "app-web");
    assert_eq!(
        (&web["image"], &web["user"], &web["environment"]["A"]),
        (&"a".into(), &"y".into(), &"1".into())
    );
    let far = service(&app, "app-far");
    assert_eq!(
        (&far["image"], &far["init"], &far["environment"]["B"]),
        (&"deep".into(), &true.into(), &"2".into())
    );
}

#[test]
fn an_included_application_has_its_own_folder_and_variables() {
    let text = "include:\n- parts/db.yaml\n- {path: [more/a.yaml, more/b.yaml], env_file: vars.env}\n\
                services:\n  web: {image: web, depends_on: [db, cache]}\n";
    let app = app_of(
        &["compose.yaml"],
        &[
            ("compose.yaml", text),
            ("parts/db.yaml", "services:\n  db: {image: 'db:$TAG', env_file: db.env}\n"),
            ("parts/.env", "TAG=7\n"),
            ("parts/db.env", "A=1\n"),
            ("more/a.yaml", "services:\n  cache: {image: 'cache:$TAG'}\n"),
            ("more/b.yaml", "services:\n  cache: {user: x}\n"),
            ("vars.env", "TAG=8\n"),
        ],
    );
    let names: Vec<_> = app.services.iter().map(|service| service.name().as_str()).collect();
    assert_eq!(names, ["app-db", "app-cache", "app-web"]);
    assert_eq!(service(&app, "app-db")["image"], "db:7");
    assert_eq!(service(&app, "app-db")["environment"]["A"], "1");
    assert_eq!(service(&app, "app-cache")["image"], "cache:8");
    assert_eq!(service(&app, "app-cache")["user"], "x");
}

#[test]
fn profiles_come_from_the_command_line_and_the_environment() {
    let text =
        "services:\n  a: {image: x}\n  b: {image: x, profiles: [debug]}\n  c: {image: x, profiles: [test]}\n";
    let names = |profiles: &[&str], variable: &str| {
        let mut project = project(&["compose.yaml"]);
        project.profiles = profiles.iter().map(|profile| (*profile).to_owned()).collect();
        project.environment.insert("COMPOSE_PROFILES".to_owned(), variable.to_owned());
        let app = load(&project, &files(&[("compose.yaml", text)])).unwrap();
        assert_eq!(app.all_names.len(), 3);
        app.services.iter().map(|service| service.name().to_string()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(names(&[], ""), "app-a");
    assert_eq!(names(&["debug"], ""), "app-a app-b");
    assert_eq!(names(&["debug"], "x, test"), "app-a app-b app-c");
    assert_eq!(names(&["*"], ""), "app-a app-b app-c");
}

#[test]
fn what_is_not_honoured_is_noted_once_for_all_services() {
    let text = "services:\n  a: {image: x, ports: ['127.0.0.1:80:80'], networks: [n]}\n  \
                b: {image: x, networks: {n: {}}, depends_on: {a: {condition: service_healthy, restart: true}}}\nnetworks: {n: {driver: bridge}}\n";
    let notes = notes(&app(text));
    assert_eq!(notes.len(), 2, "{notes:?}");
    assert!(notes[1].contains("a, b: networks.n.driver is not honoured: "), "{notes:?}");
    assert!(notes[0].contains("b: depends_on.a.restart is not honoured"), "{notes:?}");
}

#[test]
fn what_is_otherwise_about_volumes_is_noted() {
    let notes = |text: &str| notes(&app(text));
    for (volume, expected) in [
        ("./src:/app:ro", "src is not on the nodes: nothing is in it"),
        (
            "{type: bind, source: ./a.conf, target: /a.conf, read_only: yes}",
            "a.conf is not on the nodes: no such file",
        ),
        (
            "{type: bind, source: /etc, target: /etc, bind: {propagation: shared, create_host_path: true}}",
            "bind has no effect",
        ),
        ("'data:/d:ro,z'", "the option z has no effect"),
        ("{type: volume, source: data, target: /d, volume: {nocopy: true}}", "volume has no effect"),
        ("{type: tmpfs, target: /d, tmpfs: {mode: 511}}", "tmpfs.mode has no effect"),
        ("{type: cluster, source: data, target: /d}", "the type cluster is not supported"),
    ] {
        let notes =
            notes(&format!("services:\n  web: {{image: x, volumes: [{volume}]}}\nvolumes: {{data: }}\n"));
        let start = format!("web: volumes is not honoured in part: {expected}");
        let notes: Vec<_> =
            notes.into_iter().filter(|note| !note.contains("KUBELEET_BIND_PREFIXES")).collect();
        assert!(notes.len() == 1 && notes[0].contains(&start), "{volume}: {notes:?}");
    }
    let shared = notes(
        "services:\n  a: {image: x, volumes: ['data:/d', 'own:/o']}\n  b: {image: x, volumes: ['data:/d']}\n  \
         c: {image: x, scale: 2, volumes: ['log:/l']}\nvolumes:\n  own: {external: true}\n  data:\n  log: {}\n",
    );
    assert_eq!(
        shared,
        [
            "compose.yaml:2:27: a, b: volume data is not shared: each replica of a service has its own",
            "compose.yaml:4:37: c: volume log is not shared: each replica of a service has its own",
            "compose.yaml:6:9: a: volumes.own.external is not honoured: it is a plain volume of the replica's node",
        ]
    );
}

#[test]
fn a_named_volume_of_several_services_is_shared_where_the_cluster_has_a_directory_for_it() {
    let text = "services:\n  a: {image: x, volumes: ['data:/d:ro', 'own:/o']}\n  b:\n    image: x\n    volumes:\n      \
                - {type: volume, source: data, target: /e}\nvolumes: {data: {driver: nfs}, own: {driver: local}}\n";
    let project = Project { shares_volumes: true, ..project(&["compose.yaml"]) };
    let app = load(&project, &files(&[("compose.yaml", text)])).unwrap();
    assert!(app.has_common_volumes);
    let mounts = |name: &str| service(&app, name)["volumes"].clone();
    let of_a = serde_json::json!([
        {"kind": "shared", "source": "data", "target": "/d", "read_only": true},
        {"kind": "persistent", "source": "own", "target": "/o"},
    ]);
    assert_eq!(mounts("app-a"), of_a);
    assert_eq!(mounts("app-b"), serde_json::json!([{"kind": "shared", "source": "data", "target": "/e"}]));
    let expected = "volumes.data.driver is not honoured: it is in the directory that nodes share";
    assert!(notes(&app).iter().all(|note| note.contains(expected)), "{:?}", notes(&app));
    let alone = "services:\n  a: {image: x, scale: 2, volumes: ['data:/d']}\nvolumes: {data: }\n";
    assert!(!self::app(alone).has_common_volumes);

    for (shares_volumes, kept, expected) in [(true, false, "persistent"), (false, true, "shared")] {
        let kept_volumes = [("data".to_owned(), kept)].into();
        let project = Project { shares_volumes, kept_volumes, ..project.clone() };
        let app = load(&project, &files(&[("compose.yaml", text)])).unwrap();
        for name in ["app-a", "app-b"] {
            assert_eq!(service(&app, name)["volumes"][0]["kind"], expected);
        }
    }
}

#[test]
fn pull_policies_are_honoured_but_for_builds_and_times() {
    let of = |policy: &str| app(&format!("services:\n  web: {{image: x, pull_policy: {policy}}}\n"));
    for (policy, expected) in
        [("always", Some("always")), ("never", Some("never")), ("missing", None), ("if_not_present", None)]
    {
        let app = of(policy);
        assert_eq!(service(&app, "app-web")["pull_policy"].as_str(), expected, "{policy}");
        assert_eq!(notes(&app), [""; 0], "{policy}");
    }
    for policy in ["build", "daily", "weekly", "every_12h"] {
        let app = of(policy);
        assert_eq!(service(&app, "app-web")["pull_policy"].as_str(), None, "{policy}");
        let expected = format!("pull_policy: {policy} is not honoured");
        assert!(notes(&app).iter().any(|note| note.contains(&expected)), "{:?}", notes(&app));
    }
    let mistakes = mistakes("services:\n  web: {image: x, pull_policy: sometimes}\n");
    assert!(mistakes.len() == 1 && mistakes[0].contains("pull_policy"), "{mistakes:?}");
}

#[test]
fn names_become_labels_and_that_is_noted() {
    let app = app("services:\n  My_DB: {image: x}\n");
    assert_eq!(app.services[0].name().as_str(), "app-my-db");
    assert!(notes(&app)[0].contains("My_DB: the service is called my-db"), "{:?}", notes(&app));
}

#[test]
fn services_reach_each_other_by_name_if_they_have_a_network_in_common() {
    let text = "services:\n  web: {image: x, networks: [front, back]}\n  my_db: {image: x, networks: {back: {}}}\n  \
                log: {image: x}\n  gate: {image: x, networks: [outside, front]}\n\
                networks: {front: {}, back: {name: b}, outside: {external: true}}\n";
    let app = app(text);
    let allowed = |name: &str| service(&app, name)["allow_from"].clone();
    assert_eq!(allowed("app-web"), serde_json::json!(["app-gate", "app-my-db"]));
    assert_eq!(allowed("app-my-db"), serde_json::json!(["app-web"]));
    assert_eq!(allowed("app-log"), serde_json::json!([]));
    assert_eq!(allowed("app-gate"), serde_json::Value::Null);
    let notes = notes(&app);
    assert!(notes.iter().any(|note| note.contains("gate: network outside is external")), "{notes:?}");
}

#[test]
fn services_are_reached_by_the_aliases_of_their_networks_and_by_the_names_of_their_containers() {
    let text = "services:\n  db: {image: x, container_name: Shop_DB, networks: {back: {aliases: [database, db.internal]}}}\n  \
                web: {image: x, container_name: web, networks: {back: {aliases: [web, app_web]}}}\n  \
                old: {image: x, container_name: database}\n  \
                front: {image: x, container_name: api}\n  real: {image: x, networks: {back: {aliases: [api]}}}\n\
                networks: {back: {}}\n";
    let app = app(text);
    let aliases = |name: &str| service(&app, name)["aliases"].clone();
    assert_eq!(aliases("app-db"), serde_json::json!(["database", "db.internal", "Shop_DB"]));
    assert_eq!(aliases("app-real"), serde_json::json!(["api"]));
    for none in ["app-web", "app-old", "app-front"] {
        assert_eq!(aliases(none), serde_json::Value::Null, "{none}");
    }
    let notes = notes(&app);
    for said in ["old: the name database leads to service db", "front: the name api leads to service real"] {
        assert!(notes.iter().any(|note| note.contains(said)), "{said}: {notes:?}");
    }
}

#[test]
fn an_alias_that_two_services_have_is_a_mistake() {
    let text = "services:\n  a: {image: x, networks: {n: {aliases: [api]}}}\n  b: {image: x, networks: {n: {aliases: [api, a]}}}\n\
                networks: {n: {}}\n";
    let expected = ["api", "a"]
        .map(|name| format!("b: the name {name} is that of a: here a name leads to the pods of one service"));
    let found = mistakes(text);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found.iter().zip(&expected).all(|(found, expected)| found.ends_with(expected)), "{found:?}");
}

#[test]
fn a_file_without_networks_keeps_nobody_out_and_one_that_is_not_declared_is_a_mistake() {
    let open = app("services: {a: {image: x}, b: {image: x}}\nnetworks: {n: {}}\n");
    assert_eq!(service(&open, "app-a")["allow_from"], serde_json::Value::Null);
    let default = app("services: {a: {image: x, networks: [default]}, b: {image: x}}\n");
    assert_eq!(service(&default, "app-a")["allow_from"], serde_json::json!(["app-b"]));
    let found = mistakes("services: {a: {image: x, networks: [nett]}}\nnetworks: {net: {}}\n");
    assert_eq!(found, ["compose.yaml:1:37: a: the file declares no network nett"]);
}
