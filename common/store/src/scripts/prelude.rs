//! Selects the parts of the prelude that a script needs, because Redis executes all code of a script on each
//! call. The whole prelude costs more than most scripts do.

use std::collections::HashSet;

/// A part declares names, and ends where the next begins.
const PART: &str = "local ";

/// Parsing takes longer than selecting. Public for tests that change the prelude.
pub struct Prelude<'a> {
    parts: Vec<PreludePart<'a>>,
    names: Vec<(&'a [u8], usize)>,
}

impl std::fmt::Debug for Prelude<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Prelude").field("parts", &self.parts.len()).finish()
    }
}

struct PreludePart<'a> {
    /// Without comment lines.
    lines: Vec<&'a str>,
    /// The parts that declare one of its words.
    uses: Vec<usize>,
}

impl<'a> Prelude<'a> {
    pub fn new(text: &'a str) -> Self {
        let mut parts: Vec<PreludePart<'a>> = Vec::new();
        for line in text.lines().filter(|line| !is_comment(line) && !line.is_empty()) {
            match parts.last_mut() {
                Some(part) if !line.starts_with(PART) => part.lines.push(line),
                _ => parts.push(PreludePart { lines: vec![line], uses: Vec::new() }),
            }
        }
        let names = parts.iter().enumerate();
        let names = names.flat_map(|(index, part)| declared(part.lines[0]).map(move |name| (name, index)));
        let mut names: Vec<_> = names.collect();
        names.sort_unstable();
        let mut prelude = Self { parts, names };
        for index in 0..prelude.parts.len() {
            let lines = &prelude.parts[index].lines;
            prelude.parts[index].uses = lines.iter().flat_map(|line| prelude.used_by(line)).collect();
        }
        prelude
    }

    /// Words in strings and trailing comments count, too.
    pub(super) fn needed(&self, texts: &[&str]) -> String {
        let mut needed: HashSet<usize> = texts.iter().flat_map(|text| self.used_by(text)).collect();
        let mut kept = Vec::new();
        // A Lua local is visible only in later code.
        for (index, part) in self.parts.iter().enumerate().rev() {
            if needed.contains(&index) {
                needed.extend(&part.uses);
                kept.push(part);
            }
        }
        let lines = kept.into_iter().rev().flat_map(|part| &part.lines).copied();
        lines.collect::<Vec<_>>().join("\n")
    }

    fn used_by(&self, text: &'a str) -> impl Iterator<Item = usize> {
        words(text).flat_map(|word| {
            let first = self.names.partition_point(|(name, _)| *name < word);
            let named = self.names[first..].iter().take_while(move |(name, _)| *name == word);
            named.map(|(_, part)| *part)
        })
    }
}

fn is_comment(line: &str) -> bool {
    line.trim_start().starts_with("--")
}

/// Reads `local function name(…)` or `local a, b = …`.
fn declared(first: &str) -> impl Iterator<Item = &[u8]> {
    let rest = first.strip_prefix(PART).unwrap_or_default();
    let names = match rest.strip_prefix("function ") {
        Some(function) => function.split('(').next(),
        None => rest.split('=').next(),
    };
    words(names.unwrap_or_default())
}

fn words(text: &str) -> impl Iterator<Item = &[u8]> {
    let lines = text.lines().filter(|line| !is_comment(line));
    let is_between = |byte: &u8| !byte.is_ascii_alphanumeric() && *byte != b'_';
    lines.flat_map(move |line| line.as_bytes().split(is_between)).filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scripts::{PRELUDE, SCRIPTS};

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
            assert_eq!(Prelude::new(SMALL).needed(&[text]), expected, "{text}");
        }
        assert_eq!(Prelude::new(SMALL).needed(&["return 1", "return C"]), whole_of_c);
    }

    #[test]
    fn each_part_begins_with_the_names_that_it_declares() {
        for PreludePart { lines, .. } in Prelude::new(PRELUDE).parts {
            assert!(declared(lines[0]).next().is_some(), "{lines:?} declares nothing");
        }
    }

    #[test]
    fn each_part_is_needed_by_some_script() {
        let sources: Vec<String> = SCRIPTS.iter().map(|script| script.source()).collect();
        for part in Prelude::new(PRELUDE).parts {
            let part = part.lines.join("\n");
            assert!(sources.iter().any(|source| source.contains(&part)), "no script needs\n{part}");
        }
    }

    #[test]
    fn most_scripts_need_little_of_it() {
        let prelude = Prelude::new(PRELUDE);
        let kept = SCRIPTS.iter().map(|script| prelude.needed(&[script.text]).len()).sum::<usize>();
        let kept_on_average = kept / SCRIPTS.len();
        assert!(kept_on_average * 4 < PRELUDE.len(), "{kept_on_average} of {} bytes", PRELUDE.len());
    }
}
