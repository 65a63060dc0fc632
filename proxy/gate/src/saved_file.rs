//! Files with state for a restart without Redis.

use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::sleep;

/// Reads a saved file; the default if there is none. `loss` is logged if it is unreadable, such as `nothing
/// is routed until Redis answers`.
pub fn read_saved<T: Default>(
    path: &Path,
    parse: impl FnOnce(&[u8]) -> serde_json::Result<T>,
    loss: &str,
) -> T {
    let read = match std::fs::read(path) {
        Ok(text) => parse(&text).map_err(|error| error.to_string()),
        Err(error) if error.kind() == ErrorKind::NotFound => return T::default(),
        Err(error) => Err(error.to_string()),
    };
    read.unwrap_or_else(|why| {
        tracing::warn!("{} cannot be read: {why}; {loss}", path.display());
        T::default()
    })
}

/// Saves `text()` after changes, forever. `loss` is logged if that fails, such as `will not know the routes`.
pub async fn keep(
    path: PathBuf,
    interval: Duration,
    mut saved: String,
    text: impl Fn() -> String,
    loss: &str,
) {
    let mut is_logged = false;
    loop {
        sleep(interval).await;
        let text = text();
        if text == saved {
            continue;
        }
        let (file, content) = (path.clone(), text.clone());
        match tokio::task::spawn_blocking(move || write(&file, &content)).await {
            Ok(Ok(())) => (saved, is_logged) = (text, false),
            Ok(Err(error)) if !is_logged => {
                is_logged = true;
                let path = path.display();
                tracing::warn!(
                    "{path} cannot be written: {error}; a proxy that is restarted without Redis {loss}"
                );
            }
            Ok(Err(_)) | Err(_) => {}
        }
    }
}

/// Replaces the file atomically.
///
/// # Errors
/// The file system's errors.
pub fn write(path: &Path, text: &str) -> std::io::Result<()> {
    let temporary = path.with_extension("new");
    let mut file =
        std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&temporary, path)
}
