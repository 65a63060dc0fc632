//! Compares the table of scripts with their files, their headers and the documents.

use std::collections::BTreeSet;

use super::script::{Group, ItemBatch, RESOURCES};
use super::*;
use model::node::resources::Resource;

fn script(name: &str) -> &'static Script {
    SCRIPTS.iter().find(|script| script.name == name).unwrap_or_else(|| panic!("no script is named {name}"))
}

fn groups(script: &Script) -> impl Iterator<Item = (&'static str, &Group)> {
    let batches = script.batches.iter().map(|batch| (batch.name, &batch.item));
    std::iter::once(("head", &script.head)).chain(batches)
}

fn before_calls<'a>(script: &'a Script, reader: &str) -> impl Iterator<Item = &'a str> {
    let found = script.text.match_indices(reader).map(|(at, _)| &script.text[..at]);
    // The suffix of a longer name is another function.
    found.filter(|before| !before.ends_with('_'))
}

fn locals<'a>(script: &'a Script, reader: &str) -> Vec<Vec<&'a str>> {
    before_calls(script, reader)
        .map(|before| {
            let statement = before.rfind("local ").map(|at| &before[at + "local ".len()..]);
            let names = statement.and_then(|statement| statement.trim_end().strip_suffix('='));
            let names = names.unwrap_or_else(|| panic!("{script:?}: {reader} must be read into locals"));
            names.split(',').map(str::trim).collect()
        })
        .collect()
}

#[test]
fn a_script_reads_what_the_table_declares() {
    for script in SCRIPTS {
        for (name, group) in groups(script) {
            let plain: Vec<&str> = group.args.iter().copied().filter(|arg| *arg != RESOURCES).collect();
            for (what, declared) in [("keys", group.keys), ("args", &plain[..])] {
                let reader = format!("{name}_{what}(");
                let mut is_complete = declared.is_empty();
                for names in locals(script, &reader) {
                    let agree =
                        names.iter().zip(declared).all(|(name, declared)| *name == "_" || name == declared);
                    assert!(
                        agree && names.len() <= declared.len(),
                        "{script:?} reads {reader} into {names:?}; the table declares {declared:?}"
                    );
                    is_complete |= names.len() == declared.len();
                }
                assert!(is_complete, "{script:?} does not read all of {reader}: {declared:?}");
            }
            let reads_resources = before_calls(script, &format!("{name}_{RESOURCES}(")).next().is_some();
            assert_eq!(reads_resources, plain.len() < group.args.len(), "{script:?}: {name}_{RESOURCES}");
        }
        for position in ["KEYS[", "ARGV["] {
            assert!(!script.text.contains(position), "{script:?} reads {position}…] by position");
        }
    }
}

#[test]
fn the_table_can_be_read_back() {
    for script in SCRIPTS {
        for (name, group) in groups(script) {
            let resources = group.args.iter().position(|arg| *arg == RESOURCES);
            assert!(resources.is_none_or(|index| index + 1 == group.args.len()), "{script:?}: {name}");
        }
        for batch in script.batches {
            assert!(
                !batch.item.args.is_empty() || !script.is_last(batch),
                "{script:?}: the number of items follows from the arguments"
            );
            let has_count = script.head.args.contains(&batch.count_name().as_str());
            assert_ne!(has_count, script.is_last(batch), "{script:?}: {}", batch.count_name());
        }
    }
}

#[test]
fn arguments_have_their_names() {
    let argv = |text: &str| text.split(' ').map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>();
    let ack = argv("1 w1 life web payload-1 a1 ip ports - 1 payload-2 a2 ip ports - 1");
    let read = script("ack").arguments(&ack);
    assert_eq!(read.head.get("incarnation"), Some(&b"life"[..]));
    assert_eq!(read.head.get("payload"), None);
    let payloads: Vec<_> = read.items.iter().filter_map(|item| item.get("payload")).collect();
    assert_eq!(payloads, [b"payload-1", b"payload-2"]);

    // Two nodes, one request, one service whose rules count its pods, one volume, one pushed pod.
    let assign = argv(
        "2 1 1 1 1 20000 w1 life - 3 gpu/0 w2 life - - - 80/tcp gpu=1 web 100 64 50 0 web seen next 1 - 1 web_data_0 web \
         data 0 - 1 web nginx 0 payload 2 1 a",
    );
    let read = script("assign").arguments(&assign);
    let values = |name| read.items.iter().filter_map(|item| item.get(name)).collect::<Vec<_>>();
    assert_eq!(values("node"), [b"w1", b"w2"]);
    assert_eq!(values("next_mark"), [b"next"]);
    assert_eq!(values("payload"), [b"payload"]);
    assert_eq!(values("image"), [b"nginx"]);
}

#[test]
fn a_script_describes_itself_and_its_replies() {
    for script in SCRIPTS {
        let header: Vec<&str> = script.text.lines().take_while(|line| line.starts_with("-- ")).collect();
        assert!(!header.is_empty(), "{script:?} has no header");
        assert!(header.iter().any(|line| line.starts_with("-- Reply: ")), "{script:?} describes no reply");
    }
}

#[test]
fn resources_are_the_same_in_the_prelude() {
    let names = Resource::ALL.map(|resource| format!("'{}'", resource.field())).join(", ");
    assert!(PRELUDE.contains(&format!("local RESOURCES = {{ {names} }}\n")));
}

fn names() -> BTreeSet<String> {
    SCRIPTS.iter().map(|script| script.name.to_owned()).collect()
}

#[test]
fn every_file_is_in_the_table() {
    let list =
        |folder: &std::path::Path| std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let folders = list(concat!(env!("CARGO_MANIFEST_DIR"), "/src/lua").as_ref()).filter(|path| path.is_dir());
    let files = folders.flat_map(|folder| list(&folder));
    let files = files.map(|file| file.file_name().unwrap().to_str().unwrap().to_owned());
    let names_of_files: BTreeSet<String> =
        files.filter_map(|file| Some(file.strip_suffix(".lua")?.to_owned())).collect();
    assert_eq!(names_of_files, names());
}

/// Without its length, a batch would be read together with those after it.
#[test]
fn the_head_has_the_length_of_each_batch_but_the_last() {
    for script in SCRIPTS {
        let followed = script.batches.split_last().map_or(&[][..], |(_, followed)| followed);
        for count in followed.iter().map(ItemBatch::count_name) {
            assert!(script.head.args.contains(&count.as_str()), "{script:?} is not told {count}");
        }
    }
}

#[test]
fn every_script_is_documented_and_every_documented_one_exists() {
    let document = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/redis.md");
    let text = std::fs::read_to_string(document).unwrap();
    let (_, section) =
        text.split_once("\n## Scripts\n").expect("docs/reference/redis.md has a section on scripts");
    let section = section.split("\n## ").next().unwrap_or_default();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    let documented: BTreeSet<String> = rows.map(|row| row.split('|').take(3).collect()).collect();
    let row = |script: &&Script| {
        let processes = script.run_by.iter().map(|process| format!("{process:?}").to_lowercase());
        format!(" `{}`  {} ", script.name, processes.collect::<Vec<_>>().join(", "))
    };
    assert_eq!(documented, SCRIPTS.iter().map(row).collect());
    // The columns "written by" and "read by" of the table of keys.
    let keys =
        text.lines().filter(|line| line.starts_with("| `")).filter(|line| line.matches('|').count() == 6);
    for row in keys {
        let columns: Vec<&str> = row.split('|').collect();
        for word in columns[4..6].iter().flat_map(|column| column.split('`').skip(1).step_by(2)) {
            let is_script = names().iter().any(|name| {
                word == name || word.strip_suffix('*').is_some_and(|prefix| name.starts_with(prefix))
            });
            assert!(
                is_script || OTHERS.contains(&word),
                "docs/reference/redis.md names `{word}`, which is no script"
            );
        }
    }
}

/// Readers and writers of keys beside scripts: a command, and a function of the prelude.
const OTHERS: &[&str] = &["healthcheck", "forget_pod"];
