//! `queue edit` and `queue requeue --file`.

use std::io::{Read, Write};

use api_types::DeadLetterView;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use output::humanize;
use output::objects::queues;
use output::stderr;

use crate::commands::context::Context;
use crate::commands::editor;
use crate::commands::error::{CommandError, CommandResult};
use crate::exit::Exit;

pub(crate) async fn edit(id: &str, context: &mut Context<'_>) -> CommandResult {
    let all = context.client.dead_letters(None).await?;
    let dead_letter = all.into_iter().find(|dead_letter| dead_letter.id == id).ok_or_else(|| {
        CommandError::NotFound(format!("there is no dead letter {id}; `kubeleet queue peek dq` lists them"))
    })?;
    let before = payload(&dead_letter);
    stderr::note(&format!("dead letter {id}: {}", humanize::printable(&dead_letter.reason)));
    let file = write_file(&before)?;
    editor::open(&editor::command(), file.path())?;
    let saved = std::fs::read(file.path()).map_err(|error| cannot("read the edited file", &error))?;
    let after = without_final_line_feed(saved, &before);
    if after == before {
        stderr::note(&format!("dead letter {id} unchanged, not requeued"));
        return Ok(Exit::Ok);
    }
    match requeue(id, after, context).await {
        Err(error) => {
            let kept = file.into_temp_path().keep();
            let hint = kept.map(|path| {
                format!("; your text is in {0}: kubeleet queue requeue {id} --file {0}", path.display())
            });
            stderr::note(&format!("the dead letter is as it was{}", hint.unwrap_or_default()));
            Err(error)
        }
        result => result,
    }
}

pub(crate) async fn requeue_from_file(
    ids: &[String],
    file: &str,
    context: &mut Context<'_>,
) -> CommandResult {
    let [id] = ids else {
        return Err(CommandError::Usage(
            "--file replaces the payload of one dead letter: give one ID".to_owned(),
        ));
    };
    let mut bytes = Vec::new();
    let result = match file {
        "-" => std::io::stdin().read_to_end(&mut bytes).map(drop),
        path => std::fs::read(path).map(|content| bytes = content),
    };
    match result {
        Ok(()) => requeue(id, without_final_line_feed(bytes, b""), context).await,
        Err(error) => Err(CommandError::unreadable(file, &error)),
    }
}

async fn requeue(id: &str, edited: Vec<u8>, context: &mut Context<'_>) -> CommandResult {
    if edited.is_empty() {
        return Err(CommandError::Usage(format!(
            "the payload is empty; to drop the dead letter: kubeleet queue drop {id}"
        )));
    }
    context.client.requeue_dead_letter(id, Some(edited)).await?;
    let text = format!("dead letter {id} edited and requeued");
    context.output.print_named_result(&queues::dead_letter_name(id), &text, "requeued")?;
    Ok(Exit::Ok)
}

fn payload(dead_letter: &DeadLetterView) -> Vec<u8> {
    let text = dead_letter.payload.as_bytes();
    match dead_letter.encoding.as_deref() {
        Some("base64") => STANDARD.decode(text).unwrap_or_else(|_| text.to_vec()),
        _ => text.to_vec(),
    }
}

/// Only this user can read it: payloads can contain secrets.
fn write_file(payload: &[u8]) -> CommandResult<tempfile::NamedTempFile> {
    let file = tempfile::Builder::new().prefix("kubeleet-dead-letter-").suffix(".json").tempfile();
    let mut file = file.map_err(|error| cannot("create a temporary file", &error))?;
    let written = file.write_all(payload).and_then(|()| file.write_all(b"\n")).and_then(|()| file.flush());
    written.map_err(|error| cannot("write a temporary file", &error))?;
    Ok(file)
}

/// Editors add it, unless the payload had one before.
fn without_final_line_feed(mut bytes: Vec<u8>, before: &[u8]) -> Vec<u8> {
    if bytes.ends_with(b"\n") && !before.ends_with(b"\n") {
        bytes.pop();
    }
    bytes
}

fn cannot(operation: &str, error: &std::io::Error) -> CommandError {
    CommandError::Other(format!("cannot {operation}: {}", humanize::system_error(error)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn an_editor_with_arguments_changes_the_file() {
        let file = write_file(b"{\"replica\":\"0\"}").unwrap();
        editor::open("sed -i s/\\\"0\\\"/0/", file.path()).unwrap();
        assert_eq!(std::fs::read(file.path()).unwrap(), b"{\"replica\":0}\n");
        let failed = editor::open("false", file.path()).unwrap_err().to_string();
        assert!(failed.starts_with("the editor \"false\" failed"), "{failed}");
    }

    #[test]
    fn only_the_line_feed_of_the_editor_is_removed() {
        assert_eq!(without_final_line_feed(b"{}\n".to_vec(), b"{}"), b"{}");
        assert_eq!(without_final_line_feed(b"{}\n".to_vec(), b"x\n"), b"{}\n");
    }

    #[test]
    fn a_payload_that_is_not_utf8_is_edited_as_its_bytes() {
        let dead_letter = DeadLetterView {
            id: "0123456789ab".to_owned(),
            queue: "sq".to_owned(),
            payload: "//4=".to_owned(),
            encoding: Some("base64".to_owned()),
            reason: "payload is not UTF-8".to_owned(),
            at: "2026-01-31T00:00:00Z".to_owned(),
        };
        assert_eq!(payload(&dead_letter), [0xff, 0xfe]);
    }
}
