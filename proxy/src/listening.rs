//! Listening on an address that may be in use for now.

use std::io;
use std::time::Duration;

/// How long what is in flight may take to end after the proxy was asked to stop.
pub(crate) const STOP_WITHIN: Duration = Duration::from_secs(10);
/// The wait until an address that cannot be listened on is tried again.
const INTERVAL: Duration = Duration::from_secs(5);

/// Tries until it works. Says once why it does not, with `advice`, which is a sentence.
pub(crate) async fn until_it_works<T, F>(advice: &str, mut listen: impl FnMut() -> F) -> T
where
    F: Future<Output = io::Result<T>>,
{
    let mut has_warned = false;
    loop {
        match listen().await {
            Ok(listening) => return listening,
            Err(error) if !has_warned => {
                has_warned = true;
                tracing::warn!("{error}; trying again every 5 s. {advice}");
            }
            Err(_) => {}
        }
        tokio::time::sleep(INTERVAL).await;
    }
}
