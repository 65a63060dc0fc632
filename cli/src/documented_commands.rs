//! Commands in the documentation exist in this program.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};

use crate::help::command_line;

fn pages(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            pages(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path);
        }
    }
}

/// `None` if a part is omitted or comes from another command.
fn words(line: &str) -> Option<Vec<String>> {
    let (mut words, mut word, mut quote) = (Vec::new(), String::new(), None);
    for c in line.chars() {
        match (quote, c) {
            (Some(end), c) if c == end => quote = None,
            (None, '\'' | '"') => quote = Some(c),
            (None, '|' | '>' | '<' | '&' | ';' | ')') => break,
            (None, '#') if word.is_empty() => break,
            (None, '[' | '…' | '`') => return None,
            (_, '$') => return None,
            (None, ' ') => words.extend((!word.is_empty()).then(|| std::mem::take(&mut word))),
            (_, c) => word.push(c),
        }
    }
    words.extend((!word.is_empty()).then_some(word));
    Some(words)
}

/// Code is indented by four, or fenced within a list.
fn commands(page: &str) -> Vec<Vec<String>> {
    let mut is_fenced = false;
    let code = page.lines().filter_map(|line| {
        is_fenced ^= line.trim_start().starts_with("```");
        line.strip_prefix("    ").or(line.strip_prefix("  ").filter(|_| is_fenced))
    });
    let code = code.map(|line| line.trim_start_matches("$ ").trim_start());
    code.filter(|line| line.starts_with("kubeleet ")).filter_map(words).collect()
}

#[test]
fn every_command_of_the_documentation_can_be_typed() {
    let mut files = Vec::new();
    pages(&Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("docs"), &mut files);
    let (mut checked, mut wrong) = (0, Vec::new());
    for file in files {
        for words in commands(&std::fs::read_to_string(&file).unwrap()) {
            checked += 1;
            if let Err(error) = command_line().try_get_matches_from(&words)
                && error.use_stderr()
            {
                wrong.push(format!("{}: {}: {error}", file.display(), words.join(" ")));
            }
        }
    }
    assert!(checked >= 80, "{checked}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_line_is_split_as_a_shell_would() {
    for (line, expected) in [
        ("kubeleet logs web --grep 'a b' | head", vec!["kubeleet", "logs", "web", "--grep", "a b"]),
        ("kubeleet status    # all", vec!["kubeleet", "status"]),
        ("kubeleet backup >file", vec!["kubeleet", "backup"]),
    ] {
        assert_eq!(words(line).unwrap(), expected);
    }
    assert_eq!(words("kubeleet run $IMAGE"), None);
    assert_eq!(words("kubeleet ps [-w]"), None);
}
