//! Commands that run at a moment of a container's life.

use serde::{Deserialize, Serialize};

use crate::spec::units::Command;

/// Few enough for a grace period.
const MAX_HOOKS: usize = 10;

/// A command that runs in a container.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Hook {
    /// The command: a list of arguments, or a text that is split as a shell would split it. No shell runs it.
    pub command: Command,
}

/// Pointers are below the field.
pub(in crate::spec) fn problems(hooks: &[Hook]) -> Vec<(String, String)> {
    let too_many =
        (hooks.len() > MAX_HOOKS).then(|| (String::new(), format!("at most {MAX_HOOKS} commands")));
    let empty = hooks.iter().enumerate().filter(|(_, hook)| hook.command.is_empty());
    let empty = empty.map(|(at, _)| (format!("/{at}/command"), "names no command".to_owned()));
    too_many.into_iter().chain(empty).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn each_hook_names_a_command() {
        let hooks: Vec<Hook> =
            serde_json::from_str(r#"[{"command":["a","b c"]},{"command":"a 'b c'"}]"#).unwrap();
        assert_eq!(hooks[0], hooks[1]);
        assert_eq!(problems(&hooks), []);
        let pointers = |hooks: &[Hook]| -> Vec<String> {
            problems(hooks).into_iter().map(|(pointer, _)| pointer).collect()
        };
        assert_eq!(pointers(&[hooks[0].clone(), Hook::default()]), ["/1/command"]);
        assert_eq!(pointers(&vec![hooks[0].clone(); MAX_HOOKS + 1]), [""]);
    }
}
