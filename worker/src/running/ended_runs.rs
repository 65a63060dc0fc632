//! The id of a container's ended run, and the last lines that a container wrote: parts of its record.

use std::time::Duration;

use engine::Runtime;
use futures_util::StreamExt;
use model::ids::{AssignmentId, ContainerName};
use model::pod::EndedRun;

const LINES: usize = 10;
const READ_TIME: Duration = Duration::from_secs(2);

/// Unique in the pod: a run that is reported twice is recorded once.
pub(crate) fn id(assignment: &AssignmentId, container: Option<&ContainerName>, restarts: u32) -> String {
    let assignment: String =
        assignment.as_str().chars().filter(char::is_ascii_alphanumeric).take(12).collect();
    let container = container.map_or("", ContainerName::as_str);
    format!("{assignment}.{container}.{restarts}")
}

pub(crate) async fn last_output(runtime: &dyn Runtime, handle: &str) -> String {
    let mut output = Vec::new();
    let read = async {
        let Ok(mut lines) = runtime.logs(handle, LINES, false).await else { return };
        while let Some(Ok(bytes)) = lines.next().await {
            output.extend_from_slice(&bytes);
            let surplus = output.len().saturating_sub(EndedRun::MAX_OUTPUT);
            output.drain(..surplus);
        }
    };
    let _in_time = tokio::time::timeout(READ_TIME, read).await;
    String::from_utf8_lossy(&output).trim_end().to_owned()
}
