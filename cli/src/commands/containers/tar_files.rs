//! Local files as tar archives, and back. Archives are not trusted: nothing is written outside the target.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Component, Path};

use bytes::Bytes;
use tokio::sync::mpsc;

const PIECE: usize = 128 * 1024;

/// Blocks. Owners are omitted: in the container the files belong to root.
pub(crate) fn write(source: &Path, name: &str, archive: mpsc::Sender<Bytes>) -> Result<(), String> {
    let pieces = io::BufWriter::with_capacity(PIECE, Pieces(archive));
    let mut builder = tar::Builder::new(pieces);
    add(&mut builder, source, Path::new(name))?;
    let ended = builder.into_inner().and_then(|mut pieces| pieces.flush());
    ended.map_err(|error| error.to_string())
}

/// Skips sockets and devices.
fn add<W: Write>(builder: &mut tar::Builder<W>, path: &Path, name: &Path) -> Result<(), String> {
    let failed = |error: io::Error| format!("{}: {}", path.display(), daemon::system_error(&error));
    let metadata = path.symlink_metadata().map_err(failed)?;
    let kind = metadata.file_type();
    let mut header = tar::Header::new_gnu();
    header.set_metadata(&metadata);
    header.set_uid(0);
    header.set_gid(0);
    if kind.is_dir() {
        builder.append_data(&mut header, name, io::empty()).map_err(failed)?;
        let mut entries =
            fs::read_dir(path).map_err(failed)?.collect::<Result<Vec<_>, _>>().map_err(failed)?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            add(builder, &entry.path(), &name.join(entry.file_name()))?;
        }
    } else if kind.is_symlink() {
        let target = fs::read_link(path).map_err(failed)?;
        header.set_size(0);
        builder.append_link(&mut header, name, target).map_err(failed)?;
    } else if kind.is_file() {
        let file = File::open(path).map_err(failed)?;
        // A file that grows meanwhile is cut; one that shrinks ends the copy.
        let mut content = file.take(metadata.len());
        builder.append_data(&mut header, name, &mut content).map_err(failed)?;
        if content.limit() > 0 {
            return Err(format!("{} became shorter while it was read", path.display()));
        }
    }
    Ok(())
}

struct Pieces(mpsc::Sender<Bytes>);

impl Write for Pieces {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let sent = self.0.blocking_send(Bytes::copy_from_slice(data));
        sent.map_err(|_| io::Error::other("the copy has ended"))?;
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// `target` is a directory or the new name. Returns the names that were skipped. Blocks.
pub(crate) fn read(
    archive: mpsc::Receiver<Result<Bytes, String>>,
    target: &Path,
) -> Result<Vec<String>, String> {
    let mut archive = tar::Archive::new(Received { archive, rest: Bytes::new() });
    if target.is_dir() {
        return unpack(&mut archive, target).map(|(_, skipped)| skipped);
    }
    let failed = |error: io::Error| format!("{}: {}", target.display(), daemon::system_error(&error));
    let parent = target.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // The name is known only from the archive. An interrupted copy leaves nothing at the target.
    let apart = tempfile::Builder::new().prefix(".kubeleet-cp-").tempdir_in(parent).map_err(failed)?;
    let (root, skipped) = unpack(&mut archive, apart.path())?;
    let root = root.ok_or_else(|| "the archive is empty".to_owned())?;
    fs::rename(apart.path().join(root), target).map_err(failed)?;
    Ok(skipped)
}

fn unpack<R: Read>(
    archive: &mut tar::Archive<R>,
    directory: &Path,
) -> Result<(Option<std::ffi::OsString>, Vec<String>), String> {
    let broken = |error: io::Error| format!("the archive cannot be unpacked: {error}");
    let mut root = None;
    let mut skipped = Vec::new();
    for entry in archive.entries().map_err(broken)? {
        let mut entry = entry.map_err(broken)?;
        let path = entry.path().map_err(broken)?.into_owned();
        let is_safe = path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
        let kind = entry.header().entry_type();
        let is_known = kind.is_file() || kind.is_dir() || kind.is_symlink() || kind.is_hard_link();
        if !is_safe || !is_known {
            skipped.push(path.display().to_string());
            continue;
        }
        // `unpack_in` refuses to write through a link that leads out of the directory.
        if !entry.unpack_in(directory).map_err(broken)? {
            skipped.push(path.display().to_string());
            continue;
        }
        let first = path.components().find_map(|part| match part {
            Component::Normal(name) => Some(name.to_owned()),
            _ => None,
        });
        root = root.or(first);
    }
    Ok((root, skipped))
}

struct Received {
    archive: mpsc::Receiver<Result<Bytes, String>>,
    rest: Bytes,
}

impl Read for Received {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.rest.is_empty() {
            match self.archive.blocking_recv() {
                Some(Ok(piece)) => self.rest = piece,
                Some(Err(why)) => return Err(io::Error::other(why)),
                None => return Ok(0),
            }
        }
        let piece = self.rest.split_to(self.rest.len().min(buffer.len()));
        buffer[..piece.len()].copy_from_slice(&piece);
        Ok(piece.len())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn unpacked(archive: Vec<u8>, target: &Path) -> Result<Vec<String>, String> {
        let (sender, receiver) = mpsc::channel(1);
        let writer = std::thread::spawn(move || {
            for piece in archive.chunks(1000) {
                if sender.blocking_send(Ok(Bytes::copy_from_slice(piece))).is_err() {
                    return;
                }
            }
        });
        let result = read(receiver, target);
        writer.join().unwrap();
        result
    }

    fn written(source: &Path, name: &str) -> Vec<u8> {
        let (sender, mut receiver) = mpsc::channel(1);
        let (source, name) = (source.to_owned(), name.to_owned());
        let writer = std::thread::spawn(move || write(&source, &name, sender));
        let mut archive = Vec::new();
        while let Some(piece) = receiver.blocking_recv() {
            archive.extend_from_slice(&piece);
        }
        writer.join().unwrap().unwrap();
        archive
    }

    #[test]
    fn a_directory_comes_back_as_it_was() {
        let home = tempfile::tempdir().unwrap();
        let source = home.path().join("source");
        fs::create_dir_all(source.join("inner/empty")).unwrap();
        fs::write(source.join("inner/big"), vec![7; 300_000]).unwrap();
        fs::write(source.join("run.sh"), "#!/bin/sh\n").unwrap();
        fs::set_permissions(source.join("run.sh"), fs::Permissions::from_mode(0o750)).unwrap();
        symlink("run.sh", source.join("link")).unwrap();
        let archive = written(&source, "named");

        let copy = home.path().join("copy");
        assert_eq!(unpacked(archive.clone(), &copy), Ok(vec![]));
        assert_eq!(fs::read(copy.join("inner/big")).unwrap(), vec![7; 300_000]);
        assert!(copy.join("inner/empty").is_dir());
        assert_eq!(fs::read_link(copy.join("link")).unwrap(), Path::new("run.sh"));
        assert_eq!(copy.join("run.sh").metadata().unwrap().permissions().mode() & 0o777, 0o750);
        assert_eq!(unpacked(archive, &copy), Ok(vec![]));
        assert!(copy.join("named/run.sh").is_file());
        let left: Vec<_> =
            fs::read_dir(home.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left.len(), 2, "{left:?}");
    }

    /// No honest program writes it: these names with links or contents.
    fn hostile(entries: &[(&str, Option<&str>)]) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        for (name, link) in entries {
            let mut header = tar::Header::new_gnu();
            header.as_gnu_mut().unwrap().name[..name.len()].copy_from_slice(name.as_bytes());
            header.set_mode(0o644);
            header.set_size(if link.is_some() { 0 } else { 4 });
            header.set_entry_type(if link.is_some() {
                tar::EntryType::Symlink
            } else {
                tar::EntryType::Regular
            });
            if let Some(link) = link {
                header.as_gnu_mut().unwrap().linkname[..link.len()].copy_from_slice(link.as_bytes());
            }
            header.set_cksum();
            let content: &[u8] = if link.is_some() { b"" } else { b"evil" };
            builder.append(&header, content).unwrap();
        }
        builder.into_inner().unwrap()
    }

    #[test]
    fn nothing_is_written_outside_the_target() {
        let home = tempfile::tempdir().unwrap();
        let outside = home.path().join("outside");
        let target = home.path().join("target");
        fs::create_dir_all(&outside).unwrap();
        let out = outside.to_str().unwrap();
        let absolute = format!("{out}/file");
        let archives = [
            hostile(&[("../outside/file", None)]),
            hostile(&[("a/../../outside/file", None)]),
            hostile(&[(&absolute, None)]),
            hostile(&[("link", Some(out)), ("link/file", None)]),
            hostile(&[("a", Some("..")), ("a/outside/file", None)]),
            hostile(&[("link", Some(&absolute)), ("link", None)]),
        ];
        for archive in archives {
            fs::create_dir_all(&target).unwrap();
            let _refused = unpacked(archive.clone(), &target);
            assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
            fs::remove_dir_all(&target).unwrap();
            let _refused = unpacked(archive, &target);
            assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
            let _gone = fs::remove_dir_all(&target);
            let _gone = fs::remove_file(&target);
        }
    }
}
