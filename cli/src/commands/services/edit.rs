//! `service edit`: stores the edited service unless another client changed it meanwhile.

use std::path::Path;

use api_types::ServiceView;
use clap::Args;
use model::spec::ServiceInput;
use output::humanize;
use output::stderr;

use crate::commands::apps::service_form;
use crate::commands::apps::services_in_text;
use crate::commands::context::Context;
use crate::commands::durability_warning::warn_if_unconfirmed;
use crate::commands::editor;
use crate::commands::error::{CommandError, CommandResult};
use crate::commands::objects::object_name;
use crate::exit::Exit;

/// Arguments of `service edit`.
#[derive(Debug, Args)]
#[command(after_help = "The editor is that of VISUAL or EDITOR; without both, vi.")]
pub(crate) struct EditArgs {
    /// Name of the service.
    #[arg(value_name = "SERVICE", value_parser = object_name::service)]
    pub(crate) service: String,
}

pub(crate) async fn run(args: &EditArgs, context: &mut Context<'_>) -> CommandResult {
    let name = context.service_name(&args.service).await?;
    let service = context.client.service(&name).await?;
    let before = service_form::yaml(&service_form::stored(&service))?;
    let file = temporary_file(&before)?;
    editor::open(&editor::command(), file.path())?;
    let after = std::fs::read_to_string(file.path()).map_err(|e| file_error(file.path(), &e))?;
    if after == before {
        context.output.print_result(&service, "unchanged")?;
        return Ok(Exit::Ok);
    }
    match apply_edited(&service, &after, context).await {
        Ok(()) => Ok(Exit::Ok),
        Err(error) => {
            if let Ok((_, path)) = file.keep() {
                stderr::note(&format!("the edited service is in {}", path.display()));
            }
            Err(error)
        }
    }
}

async fn apply_edited(before: &ServiceView, text: &str, context: &mut Context<'_>) -> CommandResult<()> {
    let services = services_in_text::parse("the edited service", text)
        .map_err(|mistakes| CommandError::Usage(mistakes.join("\n")))?;
    let [input] = <[ServiceInput; 1]>::try_from(services)
        .map_err(|_| CommandError::Usage("the edited file must hold one service".to_owned()))?;
    if *input.name() != before.name {
        let name = &before.name;
        return Err(CommandError::Usage(format!("service {name} cannot be renamed to {}", input.name())));
    }
    let service = context.client.put_service(&input, Some(before)).await?;
    warn_if_unconfirmed(&service);
    context.output.print_result(&service, "edited")?;
    Ok(())
}

/// Only its owner can read it: environment values may be secret.
fn temporary_file(text: &str) -> CommandResult<tempfile::NamedTempFile> {
    let directory = std::env::temp_dir();
    let file = tempfile::Builder::new().prefix("kubeleet-").suffix(".yaml").tempfile();
    let file = file.map_err(|e| file_error(&directory, &e))?;
    std::fs::write(file.path(), text).map_err(|e| file_error(file.path(), &e))?;
    Ok(file)
}

fn file_error(path: &Path, error: &std::io::Error) -> CommandError {
    CommandError::Other(format!("cannot use {}: {}", path.display(), humanize::system_error(error)))
}
