//! Generates docs/reference/compose.md from the table of fields.

use crate::fields::{Support, TABLE};

const INTRODUCTION: &str = "\
# Fields of Compose files

Generated from the table in `compose/src/fields/table.rs`, which the program itself follows; a test holds it
complete against the published schema. [How to apply Compose files](../how-to/compose.md) has the rest.

A row stands for all that is in the field, unless that has rows of its own. `*` is any name. A field that is
not honoured is listed when the file is applied; with `--strict` it is refused. A refused field is always
refused.

| field | | |
|---|---|---|
";

pub fn markdown() -> String {
    let rows = TABLE.iter().map(|row| {
        let word = match row.support {
            Support::Honoured(_) => "honoured",
            Support::Refused => "refused",
            Support::NotHonoured => "not honoured",
            Support::Declares => "declares",
        };
        format!("| `{}` | {word} | {} |\n", row.path, row.advice)
    });
    INTRODUCTION.to_owned() + &rows.collect::<String>()
}
