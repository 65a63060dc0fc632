//! Services in the text of a file, as users write them or `get -o yaml` prints them.

use api_types::ServiceView;
use document::{self, DocumentNode, Mistake};
use model::spec::ServiceInput;

const LIST_FIELD: &str = "items";

/// Returns all mistakes, each as `file:line:column: message`. JSON is valid YAML.
pub(crate) fn parse(file: &str, text: &str) -> Result<Vec<ServiceInput>, Vec<String>> {
    let file = display_name(file);
    let (documents, mut mistakes) = document::yaml(text);
    if documents.is_empty() && mistakes.is_empty() {
        return Err(vec![format!("{file}: no service in it")]);
    }
    let mut services = Vec::new();
    for document in documents.into_iter().flat_map(services_of) {
        let reading = ServiceInput::check(&document);
        mistakes.extend(reading.mistakes);
        services.extend(reading.value);
    }
    if mistakes.is_empty() {
        return Ok(services);
    }
    mistakes.sort_by_key(|mistake| mistake.place);
    Err(mistakes.iter().map(|mistake| line(file, mistake)).collect())
}

fn services_of(mut document: DocumentNode) -> Vec<DocumentNode> {
    match document.take_list(LIST_FIELD) {
        Some(items) => items.into_iter().flat_map(services_of).collect(),
        None => {
            // `get -o yaml` prints them, and files may contain them.
            ServiceView::SERVER_FIELDS.iter().for_each(|field| document.remove_field(field));
            vec![document]
        }
    }
}

pub(crate) fn display_name(file: &str) -> &str {
    if file == "-" { "standard input" } else { file }
}

fn line(file: &str, mistake: &Mistake) -> String {
    match mistake.place {
        Some(place) => format!("{file}:{}:{}: {}", place.line, place.column, mistake.detail),
        None => format!("{file}: {}", mistake.detail),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use testkit::api_fixtures as fixtures;

    use super::*;

    #[test]
    fn yaml_and_json_mean_the_same() {
        let yaml = "name: web\nimage: nginx\nreplica: 3\nmemory: 64m\nrestart: no\n\
                    environment:\n  N: 1\n  B: true\n";
        let json = r#"{"name":"web","image":"nginx","replica":3,"memory":"64m","restart":"no",
            "environment":{"N":1,"B":true}}"#;
        let parsed = parse("-", yaml).unwrap();
        assert_eq!(parsed, parse("-", json).unwrap());
        assert_eq!((parsed.len(), parsed[0].replicas), (1, 3));
    }

    #[test]
    fn what_the_api_prints_can_be_read_again() {
        let mut view = fixtures::service("web");
        view.durability = Some(api_types::DurabilityView {
            state: api_types::DurabilityState::SingleMachine,
            replicas: 0,
            known: 0,
            message: String::new(),
        });
        let yaml = serde_saphyr::to_string(&view).unwrap();
        let json = serde_json::to_string_pretty(&view).unwrap();
        for text in [yaml, json] {
            let read = parse("-", &text).unwrap().remove(0).normalize().unwrap();
            assert_eq!((read.replicas, &read.fields.labels), (view.replicas, &view.fields.labels), "{text}");
            assert_eq!(read.pod.containers, view.pod.containers, "{text}");
        }
        let list = serde_json::json!({ "items": [view, fixtures::service("db")], "next": "db" });
        let services = parse("-", &serde_saphyr::to_string(&list).unwrap()).unwrap();
        let names: Vec<_> = services.iter().map(|service| service.name().as_str()).collect();
        assert_eq!(names, ["web", "db"]);
        assert_eq!(parse("-", "items: []\n").unwrap(), []);
        let found = parse("x", "items:\n- name: web\n  image: nginx\n- name: db\n  imgae: x\n").unwrap_err();
        assert!(found[0].starts_with("x:4:3: image") && found[1].starts_with("x:5:3: unknown"), "{found:?}");
    }

    #[test]
    fn a_started_service_can_be_applied_as_it_is_printed() {
        let mut view = serde_json::to_value(fixtures::service("web")).unwrap();
        view["images"] = serde_json::json!([{"image": "nginx:1.27", "digest": "sha256:abc"}]);
        let service = parse("-", &view.to_string()).unwrap().remove(0);
        assert_eq!(service.name().as_str(), "web");
        for field in ServiceView::SERVER_FIELDS {
            let text = format!("name: web\nimage: nginx\n{field}: null\n");
            assert!(parse("-", &text).is_ok(), "{field}");
        }
        let server = ServiceView::SERVER_FIELDS;
        for field in ["images", "job_status", "cron_status", "status", "revision", "durability"] {
            assert!(server.contains(&field), "{field}");
        }
        for field in ["name", "replicas", "kind", "job", "cron", "update", "containers", "labels"] {
            assert!(!server.contains(&field), "{field}");
        }
    }

    #[test]
    fn a_file_can_hold_several_documents() {
        let text = "---\nname: a\nimage: x\n---\n# a comment\n---\nname: b\nimage: y\nreplicas: 0\n...\n";
        let names: Vec<_> = parse("-", text).unwrap().into_iter().map(|s| s.name().to_string()).collect();
        assert_eq!(names, ["a", "b"]);
    }

    /// The first two lines are valid.
    #[test]
    fn every_mistake_has_its_line_and_plain_words() {
        let table: &[(&str, &[&str])] = &[
            ("replicsa: 2", &["3:1: unknown field \"replicsa\"; did you mean \"replicas\"?"]),
            (
                "stopGracePeriod: 2",
                &["3:1: unknown field \"stopGracePeriod\"; did you mean \"stop_grace_period\"?"],
            ),
            ("env: {}", &["3:1: unknown field \"env\"; did you mean \"environment\"?"]),
            ("volumes: [a]", &["3:11: volumes[0]: its target must be an absolute path, such as /srv"]),
            ("colour: red", &["3:1: unknown field \"colour\"; `kubeleet explain service` lists the fields"]),
            ("replicas: two", &["3:11: replicas must be a whole number from 0 to 2000000, not \"two\""]),
            ("replicas: -2", &["3:11: replicas must be a whole number from 0 to 2000000, not -2"]),
            ("replicas: 1.5", &["3:11: replicas must be a whole number from 0 to 2000000, not 1.5"]),
            ("replicas: 3000000", &["3:11: replicas: at most 2000000 replicas"]),
            ("replica: 3000000", &["3:10: replicas: at most 2000000 replicas"]),
            (
                "environment: {A: null, B: [1]}",
                &[
                    "3:18: environment.A must be a string, a number or a boolean, not null",
                    "3:27: environment.B must be a string, a number or a boolean, not a list",
                ],
            ),
            ("environment: [A=1, B]", &["3:20: environment[1]: write KEY=value"]),
            ("name: db", &["3:1: \"name\" is set twice; is a line `---` missing above it?"]),
            (
                "memory: 1k",
                &["3:9: memory: must be at least 6 MiB: Docker does not start a container with less"],
            ),
            (
                "memory: much",
                &["3:9: memory: \"much\" is not an amount of memory: write 64MiB, 64m or bytes"],
            ),
            ("cpus: 0", &["3:7: cpus: must be at least 0.01 cores"]),
            (
                "ports: [http, 80, 70000]",
                &[
                    "3:9: ports[0]: \"http\" is not a port: write 80, 8080:80 or 0.0.0.0:8080:80/udp",
                    "3:19: ports[2]: 70000 is not a port: a port is at most 65535",
                ],
            ),
            (
                "ports: [{contaner: 80}]",
                &[
                    "3:9: ports[0].container is missing",
                    "3:10: unknown field \"contaner\"; did you mean \"container\"?",
                ],
            ),
            ("ports: 80", &["3:8: ports must be a list, not 80"]),
            ("labels: [a]", &["3:9: labels must be a map of names to values, not a list"]),
            (
                "restart: sometimes",
                &["3:10: restart must be one of always, on-failure, never, not \"sometimes\""],
            ),
            (
                "restart: Always",
                &[
                    "3:10: restart must be one of always, on-failure, never, not \"Always\"; did you mean always?",
                ],
            ),
            (
                "memory: 512",
                &["3:9: memory: must be at least 6 MiB, and 512 without a unit is in bytes: write 512MiB"],
            ),
            ("ports: [99999]", &["3:9: ports[0]: 99999 is not a port: a port is at most 65535"]),
            (
                "ports: ['8000-8010:80']",
                &["3:9: ports[0]: \"8000-8010:80\" is a range of ports: write a line for each port"],
            ),
            (
                "healthcheck: curl localhost",
                &["3:14: healthcheck must be a map of fields, not \"curl localhost\": write \
                     {test: curl -f localhost} or {http: {port: 80}}"],
            ),
            ("restart: [no]", &["3:10: restart must be one of always, on-failure, never, not a list"]),
            ("replica: 2\nreplicas: 3", &["4:1: \"replicas\" is set twice, under different names; keep one"]),
            ("command: \"a 'b\"", &["3:10: command: a quotation mark is not closed"]),
            (
                "containers: [{image: a}]",
                &["2:8: image: cannot be combined with `containers`: set it in the container instead"],
            ),
            ("environment:\n\tA: 1", &["4:1: a tab indents this line; write spaces"]),
            ("labels: {a: 1", &["3:9: a bracket is not closed, or a comma is missing"]),
            ("command: \"a", &["4:1: a quotation mark is not closed, or text follows the closing one"]),
            ("memory 64m", &["3:1: a \":\" is missing after the name of a field"]),
            (
                "command: a: b",
                &[
                    "3:11: a \":\" is not allowed here; check the indentation, and put text that has \": \" in \
                     quotation marks",
                ],
            ),
            ("command: @a", &["3:10: this character cannot begin a value; put the text in quotation marks"]),
            ("command: *a", &["3:10: an alias (*name) names no anchor (&name) above it"]),
        ];
        for (lines, expected) in table {
            let found = parse("web.yaml", &format!("name: web\nimage: nginx\n{lines}\n")).unwrap_err();
            let expected: Vec<_> = expected.iter().map(|text| format!("web.yaml:{text}")).collect();
            assert_eq!(found, expected, "{lines}");
        }
    }

    #[test]
    fn all_mistakes_of_all_documents_are_found_at_once() {
        let text =
            "name: Web\nreplicas: two\nmemory: 1k\n---\nimage: x\n---\nname: ok\nimage: x\n---\nname: b\n";
        let found = parse("-", text).unwrap_err();
        let rule = "1 to 63 lower-case letters, digits or '-', beginning and ending with a letter or digit";
        let expected = [
            format!("1:7: name: service name \"Web\" is not valid: {rule}"),
            "2:11: replicas must be a whole number from 0 to 2000000, not \"two\"".to_owned(),
            "5:1: name is missing".to_owned(),
            "10:1: image: an image is required, as for `docker run`".to_owned(),
        ];
        assert_eq!(found, expected.map(|text| format!("standard input:{text}")));
    }

    #[test]
    fn files_that_are_no_services_say_so() {
        assert_eq!(parse("-", "").unwrap_err(), ["standard input: no service in it"]);
        let list = parse("x", "- a\n").unwrap_err();
        assert_eq!(list, ["x:1:1: the document must be a map of fields, not a list"]);
        let compose = parse("x", "version: '3'\nservices:\n  a: {image: x}\n").unwrap_err();
        assert!(compose[0].contains("a Compose file: `kubeleet apply -f` reads those"), "{compose:?}");
        assert!(parse("x.json", "{\"name\":").is_err());
    }
}
