//! Completion script for bash. clap's script splits the line at `:` and `=`, and so completes neither
//! `pq:worker1` nor `tier=front`.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::Path;

use clap::Command;
use clap_complete::engine;
use clap_complete::env::EnvCompleter;

/// Splits the line at blanks, and removes from each candidate the text before the part that readline
/// replaces. bash 3.2 has neither `compopt` nor `nosort`.
const SCRIPT: &str = r#"_COMMAND_complete() {
    local -a words
    read -ra words <<<"${COMP_LINE:0:COMP_POINT}"
    [[ ${COMP_LINE:0:COMP_POINT} == *[[:space:]] ]] && words+=("")
    local word=${words[${#words[@]}-1]} IFS=$'\n'
    COMPREPLY=($(VARIABLE=bash PROGRAM -- "${words[@]}" 2>/dev/null))
    COMPREPLY=("${COMPREPLY[@]#"${word%"$2"}"}")
    if [[ ${COMPREPLY[0]-} == *[/=] ]]; then
        compopt -o nospace 2>/dev/null
    fi
}
complete -o bashdefault -o nosort -F _COMMAND_complete COMMAND 2>/dev/null ||
    complete -o bashdefault -F _COMMAND_complete COMMAND
"#;

pub(super) struct Bash;

impl EnvCompleter for Bash {
    fn name(&self) -> &'static str {
        "bash"
    }

    fn is(&self, name: &str) -> bool {
        name == self.name()
    }

    fn write_registration(
        &self,
        variable: &str,
        _name: &str,
        command: &str,
        program: &str,
        output: &mut dyn Write,
    ) -> io::Result<()> {
        let script =
            SCRIPT.replace("VARIABLE", variable).replace("COMMAND", command).replace("PROGRAM", program);
        output.write_all(script.as_bytes())
    }

    fn write_complete(
        &self,
        command: &mut Command,
        words: Vec<OsString>,
        directory: Option<&Path>,
        output: &mut dyn Write,
    ) -> io::Result<()> {
        let last = words.len().saturating_sub(1);
        let is_empty = words.last().is_none_or(|word| word.is_empty());
        let candidates = engine::complete(command, words, last, directory)?;
        let candidates = candidates.iter().map(|candidate| candidate.get_value().to_string_lossy());
        // Options are shown after a dash, or if there is nothing else.
        let (options, values): (Vec<_>, Vec<_>) = candidates.partition(|text| text.starts_with('-'));
        let shown = if is_empty && !values.is_empty() { values } else { [values, options].concat() };
        shown.iter().try_for_each(|text| writeln!(output, "{text}"))
    }
}
