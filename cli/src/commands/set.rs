//! `set`: changes one field of a service.

use clap::{Args, Subcommand};

use super::context::Context;
use super::durability::warn_if_unconfirmed;
use super::error::CommandError;
use super::object;
use super::wait::Goal;
use crate::exit::Exit;

/// Subcommands of `set`.
#[derive(Debug, Subcommand)]
pub(crate) enum SetCommand {
    /// Change the image of a service, and replace its pods step by step.
    Image(ImageArgs),
}

/// Arguments of `set image`.
#[derive(Debug, Args)]
pub(crate) struct ImageArgs {
    /// Name of the service.
    #[arg(value_name = "SERVICE", value_parser = object::service)]
    service: String,
    /// Image reference; CONTAINER=IMAGE, as kubectl has it, means the same.
    #[arg(value_name = "IMAGE")]
    image: String,
    /// Wait until all pods run with the new image.
    #[arg(long)]
    wait: bool,
}

/// Runs a subcommand.
pub(super) async fn run(command: SetCommand, context: &mut Context<'_>) -> Result<Exit, CommandError> {
    let SetCommand::Image(ImageArgs { service, image, wait }) = command;
    let service = context.service_name(&service).await?;
    let image = image_of(&image);
    let after = context.client.patch_service(&service, &serde_json::json!({ "image": image })).await?;
    warn_if_unconfirmed(&after);
    context.output.print_result(&after, &format!("image set to {image}"))?;
    if !wait {
        return Ok(Exit::Ok);
    }
    let goal = Goal::Ready { service, generation: after.generation };
    Ok(context.waiter().wait_for(goal).await)
}

/// Returns the image of `CONTAINER=IMAGE`: no reference has a `=`.
fn image_of(text: &str) -> &str {
    text.split_once('=').map_or(text, |(_, image)| image)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_with_the_name_of_its_container_is_that_image() {
        for (text, image) in
            [("nginx:2", "nginx:2"), ("web=nginx:2", "nginx:2"), ("a/b@sha256:c", "a/b@sha256:c")]
        {
            assert_eq!(image_of(text), image);
        }
    }
}
