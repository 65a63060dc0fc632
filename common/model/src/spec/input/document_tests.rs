#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
use document::{MAX_MISTAKES, Values, Vocabulary, yaml};

use crate::spec::{PlacementProfile, ServiceInput};

fn mistakes(text: &str) -> Vec<String> {
    let (documents, syntax) = yaml(text);
    let found = documents.iter().flat_map(|d| ServiceInput::read(d).mistakes);
    syntax.into_iter().chain(found).map(|mistake| mistake.to_string()).collect()
}

#[test]
fn whole_numbers_may_be_written_with_a_point_in_every_field() {
    let service = |port: &str, tcp: &str| {
        format!("{{name: a, image: b, replicas: 2.0, ingress: [{{port: {port}, tcp: {tcp}}}]}}")
    };
    assert_eq!(mistakes(&service("80.0", "5432.0")), [""; 0]);
    let found = mistakes(&service("80.5", "-1.0"));
    assert!(found.len() == 2 && found[0].contains("ingress[0].port must be a whole number"), "{found:?}");
}

const WORDS_OF_PROGRAMMERS: [&str; 12] = [
    "serde",
    "untagged",
    "invalid type",
    "u16",
    "u32",
    "u64",
    "DuplicateKeyPolicy",
    "from_str",
    "expected",
    "variant",
    "struct ",
    "did not find",
];

#[test]
fn no_message_speaks_to_programmers() {
    let values = [
        "null",
        "true",
        "-1",
        "1e300",
        ".inf",
        "x",
        "[x]",
        "{x: y}",
        "!!int x",
        "*x",
        "\"",
        "[",
        "@",
        "{a: 1, a: 2}",
    ];
    let fields = [
        "name",
        "replicas",
        "labels",
        "on_disconnect",
        "stop_grace_period",
        "containers",
        "image",
        "command",
        "environment",
        "ports",
        "memory",
        "cpus",
        "restart",
        "unknown",
    ];
    for (field, value) in fields.iter().flat_map(|field| values.map(|value| (field, value))) {
        for text in [format!("{field}: {value}\n"), format!("containers:\n- {field}: {value}\n")] {
            for found in mistakes(&text) {
                let word = WORDS_OF_PROGRAMMERS.iter().find(|word| found.contains(**word));
                assert_eq!(word, None, "{text}: {found}");
            }
        }
    }
}

#[test]
fn aliases_and_merges_are_read_at_the_place_of_their_use() {
    let text = "name: a\nlabels: &l {x: 1.10}\nimage: b\n---\nname: c\nimage: d\n";
    let (documents, _) = yaml(text);
    let services = documents.iter().map(|d| ServiceInput::read(d).into_result().unwrap());
    // A number in place of a text is taken as it was written.
    assert_eq!(services.map(|s| s.fields.labels.get("x").cloned()).next().unwrap().unwrap(), "1.10");
    let found = mistakes("name: web\nports: &p [x]\ncontainers:\n- {image: a, ports: *p}\n");
    assert_eq!(found.len(), 2);
    assert!(found[1].ends_with("(line 4, column 21)"), "{found:?}");
}

#[test]
fn aliases_cannot_make_a_small_text_large() {
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..9 {
        let below = format!("*a{}, ", level - 1).repeat(10);
        text.push_str(&format!("a{level}: &a{level} [{below}]\n"));
    }
    let found = mistakes(&text);
    assert!(found[0].starts_with("aliases (*name) repeat too many values"), "{found:?}");
}

#[test]
fn lists_and_maps_inside_each_other_are_limited() {
    for (open, close) in [("[", "]"), ("{a: ", "}")] {
        let text = |depth| format!("x: {}1{}", open.repeat(depth), close.repeat(depth));
        assert!(yaml(&text(20)).1.is_empty(), "{open}");
        let found = mistakes(&text(100));
        assert!(found[0].starts_with("the document has too many parts, or too many inside"), "{found:?}");
    }
}

#[test]
fn an_unknown_profile_is_answered_with_the_known_ones() {
    let found = mistakes("name: web\nimage: nginx\nscheduler: tetris\n");
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("tetris"), "{found:?}");
    assert!(PlacementProfile::ALL.iter().all(|known| found[0].contains(known.as_str())), "{found:?}");
}

#[test]
fn at_most_twenty_mistakes_are_reported() {
    let text: String = (0..100).map(|n| format!("field{n}: 1\n")).collect();
    assert_eq!(mistakes(&text).len(), MAX_MISTAKES);
}

#[test]
fn a_message_can_hide_values() {
    for text in [
        "name: hunter2!",
        "replicas: hunter2",
        "memory: hunter2",
        "restart: \"hunter2\\\"\"",
        "ports: [hunter2]",
    ] {
        let (documents, _) = yaml(text);
        let error = ServiceInput::from_node(&documents[0]).unwrap_err();
        assert!(error.message(Vocabulary::Fields, Values::Shown).contains("hunter2"), "{text}");
        let hidden = error.message(Vocabulary::Fields, Values::Hidden);
        assert!(!hidden.contains("hunter2"), "{hidden}");
    }
}
