//! Generates projects that are valid for Compose and contain nothing that kubeleet refuses.

use std::fmt::Write as _;

use crate::run::Case;

struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut number = self.0;
        number = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        number = (number ^ (number >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        number ^ (number >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end as u64).unwrap()
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    fn of<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices[self.below(choices.len())]
    }
}

const FIELDS: [(&str, &[&str]); 39] = [
    ("user", &["'1000'", "app", "\"${WHO:-app}\"", "a:b"]),
    ("working_dir", &["/srv", "\"${DIR-/opt}\""]),
    (
        "command",
        &[
            "run --flag 'a b'",
            "[run, '#x', \"$$HOME\"]",
            "\"sh -c \\\"a; b\\\"\"",
            "'go #1 \"x y\" z'",
            "a\\ b c",
            "[]",
        ],
    ),
    ("entrypoint", &["/run.sh", "[/run.sh, --now]", "\"tini -- sh\""]),
    (
        "environment",
        &[
            "{A: 1, B: two, C: true, D: 1.50, E: 0755, F: }",
            "[A=1, B=x=y, 'C=\"q\"', SHELL, NOWHERE]",
            "{A: '${V}', B: \"${NO:-d}\", C: '$${x}'}",
            "{G: TRUE, H: 1e3, I: 0x1F, J: 1_000, K: null, L: ~, M: yes}",
        ],
    ),
    (
        "env_file",
        &[
            "one.env",
            "[one.env, two.env]",
            "[{path: one.env}, {path: none.env, required: false}]",
            "[two.env, {path: raw.env, format: raw}]",
        ],
    ),
    ("labels", &["{a: b, n: 1.0}", "[a=b, c]", "{t: True, e: ''}"]),
    (
        "ports",
        &[
            "['8080:80']",
            "[80, '127.0.0.1:81:81/udp']",
            "['9000-9002:9000-9002']",
            "[{target: 80, published: '8082', protocol: udp, mode: host}, ':443:443']",
            "['0.0.0.0:82:82', '[::1]:83:83']",
        ],
    ),
    (
        "volumes",
        &[
            "['data:/data']",
            "[/anon, 'more:/more:ro']",
            "[{type: volume, source: data, target: /data, read_only: yes}]",
            "[{type: tmpfs, target: /t}]",
            "['/srv/x:/x:ro', './empty:/pg/data']",
            "['./site.conf:/etc/site.conf:ro', './secret.txt:/run/s.txt']",
        ],
    ),
    ("tmpfs", &["/run", "[/run, '/tmp:size=1m']"]),
    ("restart", &["always", "unless-stopped", "on-failure", "on-failure:3", "'no'"]),
    ("stop_signal", &["SIGINT"]),
    ("stop_grace_period", &["1m30s", "20s", "2m"]),
    ("init", &["true", "yes", "'false'"]),
    ("stdin_open", &["true", "'false'"]),
    ("read_only", &["true", "on", "no"]),
    ("cap_drop", &["[NET_RAW]", "[ALL]"]),
    ("cpus", &["0.5", "'1.5'", "2"]),
    ("mem_limit", &["64m", "128MB", "1g", "67108864"]),
    ("mem_reservation", &["16m", "20971520"]),
    ("pids_limit", &["100", "'50'"]),
    ("ulimits", &["{nofile: 1024}", "{nproc: {soft: 10, hard: 20}, nofile: 5}"]),
    (
        "logging",
        &[
            "{driver: json-file, options: {max-size: 10m, max-file: '3'}}",
            "{driver: local, options: {max-size: 5m}}",
            "{options: {max-file: '2'}}",
        ],
    ),
    (
        "healthcheck",
        &[
            "{test: curl -f x || exit 1, interval: 10s}",
            "{test: [CMD, 'true'], retries: 3, timeout: 500ms, start_period: 1m}",
            "{test: [NONE]}",
            "{disable: true}",
            "{test: [CMD-SHELL, 'a b'], start_interval: 2s, interval: 1m0s, x-note: 1}",
        ],
    ),
    ("pull_policy", &["always", "never", "missing", "if_not_present"]),
    ("hostname", &["box", "my_host"]),
    (
        "deploy",
        &[
            "{replicas: 2}",
            "{labels: [d=1]}",
            "{endpoint_mode: dnsrr, replicas: 3}",
            "{restart_policy: {condition: any}}",
            "{update_config: {parallelism: 2, delay: 5s}, mode: replicated}",
            "{placement: {constraints: [node.role==worker]}}",
        ],
    ),
    ("secrets", &["[pass]", "[{source: pass, target: other, mode: 0400}]"]),
    ("configs", &["[conf]", "[{source: conf, target: /etc/conf.d/x}, inline]"]),
    ("networks", &["[front]", "{back: }", "{back: , front: }"]),
    ("expose", &["['80']"]),
    ("tty", &["true"]),
    ("dns", &["1.1.1.1", "[1.1.1.1, 8.8.8.8]"]),
    ("extra_hosts", &["['a:1.1.1.1']", "{a: 1.1.1.1}"]),
    ("annotations", &["{a: b}", "[a=b]"]),
    ("shm_size", &["64m"]),
    ("domainname", &["example.org"]),
    ("platform", &["linux/amd64"]),
    ("x-note", &["{any: [thing, 1]}"]),
];

const TAGGED: [(&str, &str); 10] = [
    ("environment", "[Z=9]"),
    ("labels", "[z=9]"),
    ("ports", "['7000:70']"),
    ("env_file", "two.env"),
    ("tmpfs", "/over"),
    ("command", "over '#it'"),
    ("cap_drop", "[CHOWN]"),
    ("healthcheck", "{test: over}"),
    ("configs", "[inline]"),
    ("ulimits", "{nofile: 7}"),
];

const OTHER_FILES: [(&str, &str); 8] = [
    (
        "one.env",
        "ONE=1\nQUOTED=\"a $V\\t\\\"b\\\"\"\nSINGLE='a\\'b $V'\nBARE=x y # comment\nexport EXPORTED=e\nCOLON: c\n",
    ),
    ("two.env", "TWO=${ONE:-none}\nA=from-two\n# comment\n\nLAST=$NOPE-\n"),
    ("raw.env", "RAW='as is' # all\n"),
    (".env", "V=v\nWHO=me\nTAG=1.2\n"),
    ("site.conf", "listen 80\n"),
    ("secret.txt", "hush\n"),
    ("pass.txt", "hunter2\n"),
    ("conf.txt", "k=v\n"),
];

const RESOURCES: &str = "volumes:\n  data:\n  more: {driver: local}\nnetworks:\n  front: {}\n  back:\n\
    secrets:\n  pass: {file: ./pass.txt}\nconfigs:\n  conf: {file: conf.txt}\n  inline: {content: \"inline ${V}\"}\n";

pub(crate) fn project(seed: u64) -> Case {
    let mut draw = Draw(seed);
    let names = ["db", "web", "job", "my_app"];
    let count = 1 + draw.below(names.len());
    let mut main = String::from(
        "x-env: &env {SHARED: s}\nx-base: &base\n  image: base:1\n  environment: {<<: *env, BASE: b}\nservices:\n",
    );
    for (index, name) in names.iter().take(count).enumerate() {
        write_service(name, &names[..index], &mut draw, &mut main);
    }
    let includes = draw.one_in(3);
    if includes {
        main.insert_str(0, "include:\n- part/inner.yaml\n");
    }
    main.push_str(RESOURCES);
    let mut case = Case {
        title: format!("seed {seed}"),
        compose_files: vec!["compose.yaml".to_owned()],
        ..Case::default()
    };
    case.files.push(("compose.yaml".to_owned(), main));
    if draw.one_in(2) {
        case.compose_files.push("over.yaml".to_owned());
        case.files.push(("over.yaml".to_owned(), overriding(&names[..count], includes, &mut draw)));
    }
    if includes {
        let inner = "services:\n  inner:\n    image: inner:${TAG:-none}\n    env_file: inner.env\n    volumes: ['./f.conf:/etc/f.conf']\n";
        case.files.push(("part/inner.yaml".to_owned(), inner.to_owned()));
        case.files.push(("part/inner.env".to_owned(), "INNER=${TAG}\n".to_owned()));
        case.files.push(("part/f.conf".to_owned(), "f\n".to_owned()));
        case.files.push(("part/.env".to_owned(), "TAG=inner\n".to_owned()));
    }
    case.files.extend(OTHER_FILES.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())));
    case.environment.insert("SHELL".to_owned(), "sh".to_owned());
    if draw.one_in(2) {
        case.environment.insert("V".to_owned(), "from $shell".to_owned());
    }
    case
}

fn write_service(name: &str, earlier: &[&str], draw: &mut Draw, out: &mut String) {
    writeln!(out, "  {name}:").unwrap();
    let mut used: Vec<&str> = Vec::new();
    match draw.below(4) {
        0 => out.push_str("    <<: *base\n"),
        1 if !earlier.is_empty() => {
            writeln!(out, "    extends: {}", draw.of(earlier)).unwrap();
            // An alias belongs to one service.
            used.push("networks");
        }
        _ => writeln!(out, "    image: \"{name}:${{TAG}}\"").unwrap(),
    }
    if !earlier.is_empty() && draw.one_in(2) {
        let needed = draw.of(earlier);
        let form = draw.of(&[
            "[NEEDED]",
            "{NEEDED: {condition: service_healthy}}",
            "{NEEDED: {condition: service_started, required: false}}",
        ]);
        writeln!(out, "    depends_on: {}", form.replace("NEEDED", needed)).unwrap();
    }
    for _ in 0..draw.below(9) {
        write_field(name, &mut used, draw, out);
    }
}

fn write_field(name: &str, used: &mut Vec<&str>, draw: &mut Draw, out: &mut String) {
    let (field, forms) = FIELDS[draw.below(FIELDS.len())];
    if used.contains(&field) {
        return;
    }
    used.push(field);
    let form = draw.of(forms).replace("NAME", &name.replace('_', "-"));
    writeln!(out, "    {field}: {form}").unwrap();
}

fn overriding(names: &[&str], includes: bool, draw: &mut Draw) -> String {
    let mut out = String::from("services:\n");
    for name in names {
        if draw.one_in(3) {
            continue;
        }
        writeln!(out, "  {name}:\n    x-over: 1").unwrap();
        let mut used = vec!["networks"];
        for (field, value) in TAGGED {
            if draw.one_in(6) {
                used.push(field);
                match draw.one_in(3) {
                    true => writeln!(out, "    {field}: !reset null").unwrap(),
                    false => writeln!(out, "    {field}: !override {value}").unwrap(),
                }
            }
        }
        for _ in 0..draw.below(6) {
            write_field(name, &mut used, draw, &mut out);
        }
    }
    out.push_str("  more:\n    image: more\n");
    if includes {
        out.push_str("  inner:\n    user: over\n");
    }
    out
}
