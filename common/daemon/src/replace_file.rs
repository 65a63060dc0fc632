//! Small files that outlive a process.

use std::io::{self, Write};
use std::path::Path;

/// Replaces a file atomically, and waits until it is on disk.
///
/// # Errors
/// If the file or its directory cannot be written.
pub fn replace_file(path: &Path, text: &[u8]) -> io::Result<()> {
    std::fs::create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".tmp");
    let mut file = std::fs::File::create(&temporary)?;
    file.write_all(text)?;
    file.sync_all()?;
    drop(file);
    std::fs::rename(&temporary, path)
}
