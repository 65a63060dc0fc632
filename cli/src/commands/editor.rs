//! The user's editor.

use std::path::Path;
use std::process::Command;

use output::humanize;

use super::error::{CommandError, CommandResult};

/// Without `VISUAL` and `EDITOR`.
const DEFAULT: &str = "vi";

pub(super) fn command() -> String {
    let set = |name| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
    set("VISUAL").or_else(|| set("EDITOR")).unwrap_or_else(|| DEFAULT.to_owned())
}

/// Waits for the editor's end. A shell splits the command line, which may have options: `code --wait`.
pub(super) fn open(editor: &str, path: &Path) -> CommandResult<()> {
    let script = format!("{editor} \"$1\"");
    match Command::new("sh").args(["-c", &script, "sh"]).arg(path).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => {
            Err(CommandError::Other(format!("the editor {editor:?} failed ({status}); nothing was changed")))
        }
        Err(error) => {
            let reason = humanize::system_error(&error);
            Err(CommandError::Other(format!("cannot start the editor {editor:?}: {reason}")))
        }
    }
}
