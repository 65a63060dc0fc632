//! Chooses what a script needs of the prelude. Redis carries out all of a script's code on each call: with the whole
//! prelude that makes dozens of functions and asks for the time and for the length of `events`, which costs more than what most
//! scripts do.

use std::collections::HashSet;

/// How a part of the prelude begins, in the first column: it declares one or several names, and ends where the next begins.
const PART: &str = "local ";

/// Returns the parts of `prelude` that declare a name which one of `texts`, or a part that is kept, has as a word.
///
/// A word of a string or of a comment behind code counts too: it may keep a part that is not needed.
pub(super) fn needed(prelude: &str, texts: &[&str]) -> String {
    let mut words: HashSet<&str> = texts.iter().copied().flat_map(words).collect();
    let mut kept = Vec::new();
    // Lua finds a local only in what comes after it.
    for part in parts(prelude).into_iter().rev() {
        if declared(part[0]).any(|name| words.contains(name)) {
            words.extend(part.iter().copied().flat_map(self::words));
            kept.push(part);
        }
    }
    kept.reverse();
    kept.concat().join("\n")
}

/// The lines of each part, without those that are comments only.
fn parts(prelude: &str) -> Vec<Vec<&str>> {
    let mut parts: Vec<Vec<&str>> = Vec::new();
    for line in prelude.lines().filter(|line| !is_comment(line) && !line.is_empty()) {
        match parts.last_mut() {
            Some(part) if !line.starts_with(PART) => part.push(line),
            _ => parts.push(vec![line]),
        }
    }
    parts
}

fn is_comment(line: &str) -> bool {
    line.trim_start().starts_with("--")
}

/// The names that the first line of a part declares: `local function name(…)` or `local a, b = …`.
fn declared(first: &str) -> impl Iterator<Item = &str> {
    let rest = first.strip_prefix(PART).unwrap_or_default();
    let names = match rest.strip_prefix("function ") {
        Some(function) => function.split('(').next(),
        None => rest.split('=').next(),
    };
    words(names.unwrap_or_default())
}

/// The words of code.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let lines = text.lines().filter(|line| !is_comment(line));
    let words = lines.flat_map(|line| line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_'));
    words.filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::scripts::{PRELUDE, SCRIPTS};

    const SMALL: &str = "-- What it is for.
local A, B = 1, 2
-- Adds A.
local function plus(x)
  return x + A
end
local C = plus(0)
if C > 1 then C = 1 end
local function unused() return B end
";

    #[test]
    fn what_a_part_uses_is_kept_in_its_order() {
        let whole_of_c = "local A, B = 1, 2
local function plus(x)
  return x + A
end
local C = plus(0)
if C > 1 then C = 1 end";
        for (text, expected) in [
            ("return C", whole_of_c),
            ("return B", "local A, B = 1, 2"),
            ("return D or CC or plus_one", ""),
            ("-- C is not read here.\nreturn 1", ""),
        ] {
            assert_eq!(needed(SMALL, &[text]), expected, "{text}");
        }
        assert_eq!(needed(SMALL, &["return 1", "return C"]), whole_of_c);
    }

    #[test]
    fn each_part_begins_with_the_names_that_it_declares() {
        for part in parts(PRELUDE) {
            assert!(declared(part[0]).next().is_some(), "{part:?} declares nothing");
        }
    }

    #[test]
    fn each_part_is_needed_by_some_script() {
        let sources: Vec<String> = SCRIPTS.iter().map(|script| script.source()).collect();
        for part in parts(PRELUDE) {
            let part = part.join("\n");
            assert!(sources.iter().any(|source| source.contains(&part)), "no script needs\n{part}");
        }
    }

    #[test]
    fn most_scripts_need_little_of_it() {
        let kept = SCRIPTS.iter().map(|script| needed(PRELUDE, &[script.text()]).len()).sum::<usize>();
        let kept_on_average = kept / SCRIPTS.len();
        assert!(kept_on_average * 4 < PRELUDE.len(), "{kept_on_average} of {} bytes", PRELUDE.len());
    }
}
