//! Attaches a client to the future output of a container.

use engine::{Container, ContainerState};
use futures_util::StreamExt;
use model::stream::channel::Frame;
use store::Channel;

use crate::answer::ends::{ChannelEnd, broken, state_of, until_left};
use crate::session::context::SessionContext;

pub(super) async fn serve(
    context: &SessionContext,
    container: &Container,
    channel: &mut Channel,
) -> Result<ChannelEnd, String> {
    let opened = context.worker.runtime.logs(&container.handle, 0, true).await;
    let mut output = opened.map_err(|error| error.to_string())?;
    let Channel { writer, reader } = channel;
    let copying = async {
        writer.send(Frame::Started).await?;
        while let Some(part) = output.next().await {
            match part {
                Ok(data) => writer.send_data(data, Frame::Output).await?,
                Err(error) => return Ok(Some(Frame::Failed(error.to_string()))),
            }
        }
        Ok(match state_of(context, container).await {
            Some(ContainerState::Exited { code, .. }) => {
                Some(Frame::Exit(u8::try_from(code).unwrap_or(u8::MAX)))
            }
            _ => Some(Frame::Failed("the container is gone".to_owned())),
        })
    };
    Ok(tokio::select! {
        copied = copying => copied.unwrap_or_else(|error| broken(&error)),
        left = until_left(reader) => left,
    })
}
