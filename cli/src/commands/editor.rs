//! The user's editor: which one, and a file opened in it.

use std::path::Path;
use std::process::Command;

use output::humanize;

use super::error::{CommandError, CommandResult};

/// Default if neither `VISUAL` nor `EDITOR` is set.
const DEFAULT: &str = "vi";

pub(super) fn command() -> String {
    let set = |name| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
    set("VISUAL").or_else(|| set("EDITOR")).unwrap_or_else(|| DEFAULT.to_owned())
}

/// Opens a file in an editor and waits for its end. A shell splits the command line, which may have options:
/// `code --wait`.
///
/// # Errors
/// The editor cannot be started, or fails.
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
