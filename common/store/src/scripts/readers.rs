//! The Lua functions that read a script's keys and arguments: `head_keys()`, `pod_args(i)` … See the prelude.

use super::script::{Group, RESOURCES, Script};

/// Up to this number, reading values one by one is faster than `unpack`.
const FEW: usize = 3;

impl Script {
    pub(super) fn readers(&self) -> String {
        // Locals are faster than globals. Lua captures the latest locals fastest, so these come late.
        let mut lines = vec![
            "local redis, KEYS, ARGV, unpack, tonumber = redis, KEYS, ARGV, unpack, tonumber".to_owned(),
        ];
        // Lua expressions for the number of keys and arguments before a group, from `events` and `meta` on.
        let (mut keys_before, mut args_before) = ("2".to_owned(), "0".to_owned());
        lines.extend(functions("head", "", &self.head, &keys_before, &args_before));
        keys_before = (2 + self.head.keys.len()).to_string();
        args_before = self.head.arg_count().to_string();
        for batch in self.batches {
            let (name, keys, args) = (batch.name, batch.item.keys.len(), batch.item.arg_count());
            let count = batch.count_name();
            let length = match self.head.args.iter().position(|arg| *arg == count) {
                Some(index) => format!("tonumber(ARGV[{}])", index + 1),
                None => format!("(#ARGV - {args_before}) / {args}"),
            };
            lines.push(format!("local {count} = {length}"));
            lines.extend(functions(name, "i", &batch.item, &keys_before, &args_before));
            if !self.is_last(batch) {
                lines.push(format!("local after_{name}_keys = {keys_before} + {count} * {keys}"));
                lines.push(format!("local after_{name}_args = {args_before} + {count} * {args}"));
                keys_before = format!("after_{name}_keys");
                args_before = format!("after_{name}_args");
            }
        }
        lines.join("\n")
    }
}

fn functions(
    name: &str,
    parameter: &str,
    group: &Group,
    keys_before: &str,
    args_before: &str,
) -> Vec<String> {
    let function =
        |what: &str, values: &str| format!("local function {name}_{what}({parameter}) {values} end");
    let is_item = !parameter.is_empty();
    let values = |array: &str, before: &str, size: usize, range: std::ops::Range<usize>| {
        let item = if is_item { format!("local at = {before} + (i - 1) * {size}; ") } else { String::new() };
        let base = if is_item { "at" } else { before };
        let values: Vec<String> =
            range.clone().map(|index| format!("{array}[{base} + {}]", index + 1)).collect();
        if values.len() <= FEW {
            return (item, values.join(", "));
        }
        (item, format!("unpack({array}, {base} + {}, {base} + {})", range.start + 1, range.end))
    };
    let (keys, all) = (group.keys.len(), group.arg_count());
    let plain = group.args.iter().filter(|arg| **arg != RESOURCES).count();
    let mut functions = Vec::new();
    if keys > 0 {
        let (item, values) = values("KEYS", keys_before, keys, 0..keys);
        functions.push(function("keys", &format!("{item}return {values}")));
    }
    if plain > 0 {
        let (item, values) = values("ARGV", args_before, all, 0..plain);
        functions.push(function("args", &format!("{item}return {values}")));
    }
    if all > plain {
        let (item, values) = values("ARGV", args_before, all, plain..all);
        functions.push(function(RESOURCES, &format!("{item}return {{ {values} }}")));
    }
    functions
}
