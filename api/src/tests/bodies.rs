//! Request bodies.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::{Api, answer, request};

#[tokio::test]
async fn an_invalid_body_has_the_right_problem() {
    let Some(api) = Api::start() else { return };
    let table = [
        ("", 400, "malformed-body"),
        ("{", 400, "malformed-body"),
        ("nonsense", 400, "malformed-body"),
        ("[]", 400, "invalid-body"),
        (r#"{"name":"web","imagee":"nginx"}"#, 400, "invalid-body"),
        (r#"{"image":"nginx"}"#, 400, "invalid-body"),
        (r#"{"name":"web","image":"nginx","replica":3000000}"#, 422, "invalid-service"),
        (r#"{"name":"web"}"#, 422, "invalid-service"),
    ];
    for (body, status, slug) in table {
        api.post("/service", body).await.problem(status, slug);
    }
    let problem = api.post("/service", r#"{"name":"web","image":"a b","memory":"1k"}"#).await;
    let problem = problem.problem(422, "invalid-service");
    let pointers: Vec<_> =
        problem["errors"].as_array().unwrap().iter().map(|e| e["pointer"].as_str().unwrap()).collect();
    assert_eq!(pointers, ["/image", "/memory"]);
    let upper =
        api.post("/service", r#"{"name":"web","image":"UPPER/Image"}"#).await.problem(422, "invalid-service");
    assert_eq!(upper["detail"], "/image: the name in an image reference must be lower-case");
    assert_eq!(problem["instance"], "/service");
}

#[tokio::test]
async fn mistakes_are_in_plain_words() {
    let Some(api) = Api::start() else { return };
    let table = [
        ("json", "", "the body is empty"),
        (
            "json",
            "{",
            "the body is not JSON: the text ends too early; is a bracket or quotation mark not closed? \
                       (line 1, column 1)",
        ),
        (
            "json",
            "{name:1}",
            "the body is not JSON: the name of a field must stand in quotation marks (line 1, column 2)",
        ),
        ("json", "[]", "the document must be a map of fields, not a list"),
        ("json", r#"{"name":"web","replicsa":2}"#, "unknown field \"replicsa\"; did you mean \"replicas\"?"),
        (
            "json",
            r#"{"name":"web","colour":2}"#,
            "unknown field \"colour\"; `kubeleet explain service` lists the fields",
        ),
        ("json", r#"{"image":"x"}"#, "name is missing"),
        (
            "json",
            r#"{"name":"web","replicas":"two"}"#,
            "replicas must be a whole number from 0 to 2000000, not \"two\"",
        ),
        (
            "json",
            r#"{"name":"web","replica":1,"replicas":2}"#,
            "\"replicas\" is set twice, under different names; keep one",
        ),
        ("json", r#"{"name":"web","name":"db"}"#, "\"name\" is set twice"),
        (
            "json",
            r#"{"name":"web","environment":{"C":null}}"#,
            "environment.C must be a string, a number or a boolean, not null",
        ),
        (
            "json",
            r#"{"name":"web","replicas":-1,"restart":"x","foo":1}"#,
            "3 fields are invalid; the first: replicas must be a whole number from 0 to 2000000, not -1",
        ),
        (
            "yaml",
            "name: a\nimage: x\n---\nname: b\nimage: y\n",
            "the body has 2 documents; send one per request",
        ),
        (
            "yaml",
            "name: a\nname: b\n",
            "the body is not YAML: \"name\" is set twice; is a line `---` missing above it? (line 2, column 1)",
        ),
        (
            "yaml",
            "name: a\nimage: x\nport: 80\n",
            "unknown field \"port\"; did you mean \"ports\"? (line 3, column 1)",
        ),
    ];
    for (format, body, detail) in table {
        let kind = format!("application/{format}");
        let answer = api.send("POST", "/service", &[("content-type", &kind)], body).await;
        assert_eq!((answer.status, &answer.json()["detail"]), (400, &detail.into()), "{body}");
    }
    for (query, detail) in [
        ("limit=x", "limit must be a whole number from 0, not \"x\""),
        ("labels=a", "unknown parameter \"labels\"; did you mean \"label\"?"),
        ("limt=1", "unknown parameter \"limt\"; did you mean \"limit\"?"),
    ] {
        let problem = api.get(&format!("/pod?{query}")).await.problem(400, "invalid-query");
        assert_eq!(problem["detail"], detail);
    }
}

#[tokio::test]
async fn a_body_is_at_most_a_mebibyte() {
    let Some(api) = Api::start() else { return };
    let body = |size: usize| format!(r#"{{"name":"web","image":"{}"}}"#, "x".repeat(size));
    api.post("/service", &body(1024 * 1024)).await.problem(413, "body-too-large");
    api.post("/service", &body(1024 * 1024 - 100)).await.problem(422, "invalid-service");
}

#[tokio::test]
async fn deep_nesting_is_refused() {
    let Some(api) = Api::start() else { return };
    for (open, close) in [("[", "]"), ("{\"a\":", "}"), ("- ", ""), ("{a: ", "}"), ("&a [*a,", "]")] {
        let body = format!("{}1{}", open.repeat(100_000), close.repeat(100_000));
        for kind in ["application/json", "application/yaml"] {
            for (method, path) in [("POST", "/service"), ("PATCH", "/service/web")] {
                let answer = api.send(method, path, &[("content-type", kind)], &body).await;
                assert!((400..500).contains(&answer.status), "{kind} {open}: {answer:?}");
            }
        }
    }
}

#[tokio::test]
async fn a_yaml_bomb_is_refused() {
    let Some(api) = Api::start() else { return };
    let mut yaml = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let below = format!("*a{}, ", level - 1).repeat(10);
        yaml.push_str(&format!("a{level}: &a{level} [{below}]\n"));
    }
    let kind = [("content-type", "application/yaml")];
    for (method, path) in [("POST", "/service"), ("PATCH", "/service/web")] {
        let answer = api.send(method, path, &kind, &yaml).await;
        assert!((400..500).contains(&answer.status), "{answer:?}");
    }
}

fn bodies() -> impl Strategy<Value = Vec<u8>> {
    let fragments = proptest::sample::select(vec![
        "{",
        "}",
        "[",
        "]",
        ":",
        ",",
        "\"",
        "\\",
        "\n",
        "  ",
        "- ",
        "name",
        "\"name\":\"web\"",
        "name: web",
        "image",
        "\"image\":\"nginx\"",
        "replica",
        "-1",
        "1e999",
        "null",
        "true",
        "\"environment\":",
        "&a",
        "*a",
        "!!binary",
        "<<",
        "---",
        "|",
        ">",
        "#",
        "\0",
        "\u{feff}",
        "é",
        "\"ports\":[",
        "\"memory\":",
        "18446744073709551616",
        "\"containers\":[{",
        "\"labels\":{",
        "'",
        "%",
        "@",
    ]);
    prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..200),
        proptest::collection::vec(fragments, 0..30).prop_map(|fragments| fragments.concat().into_bytes()),
    ]
}

#[test]
fn no_body_causes_a_server_error() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let _entered = runtime.enter();
    let Some(api) = Api::start() else { return };
    let kind = proptest::sample::select(vec![
        "application/json",
        "application/yaml",
        "application/x-www-form-urlencoded",
    ]);
    let target = proptest::sample::select(vec![
        ("POST", "/service"),
        ("PUT", "/service/web"),
        ("PATCH", "/service/web"),
        ("POST", "/service/web/scale"),
    ]);
    runtime.block_on(async { api.post("/service", r#"{"name":"web","image":"nginx"}"#).await });
    let mut runner = TestRunner::new(Config { cases: 1500, failure_persistence: None, ..Config::default() });
    let property = |(body, kind, (method, path)): (Vec<u8>, &str, (&str, &str))| {
        let answer =
            runtime.block_on(answer(&api.router, request(method, path, &[("content-type", kind)], body)));
        prop_assert!(answer.status < 500, "{answer:?}");
        if answer.status >= 400 {
            answer.problem(
                answer.status,
                answer.json()["type"].as_str().unwrap().trim_start_matches("/problems/"),
            );
        }
        Ok(())
    };
    runner.run(&(bodies(), kind, target), property).unwrap();
}

#[test]
fn no_path_or_query_causes_a_server_error() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let _entered = runtime.enter();
    let Some(api) = Api::start() else { return };
    let method =
        proptest::sample::select(vec!["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "BREW"]);
    let first =
        proptest::sample::select(vec!["service", "pod", "node", "queue", "queue/dq", "event", "x", "docs"]);
    let rest =
        "(/[a-z0-9:%]{0,8}){0,3}(\\?(limit|after|since|tail|phase|prefix|label|follow)=[a-z0-9:%-]{0,20})?";
    let mut runner = TestRunner::new(Config { cases: 1000, failure_persistence: None, ..Config::default() });
    let property = |(method, first, rest): (&str, &str, String)| {
        let path = format!("/{first}{rest}");
        // A list ends, unlike a stream.
        let headers = [("accept", "application/json")];
        if path.contains("follow=") || path.parse::<axum::http::Uri>().is_err() {
            return Ok(());
        }
        let answer = runtime.block_on(answer(&api.router, request(method, &path, &headers, "")));
        prop_assert!(answer.status < 500, "{method} {path}: {answer:?}");
        Ok(())
    };
    runner.run(&(method, first, rest), property).unwrap();
}
