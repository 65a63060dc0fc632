//! Images of programs and their libraries, made without a registry for `kubeleet dev`.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io::{self, Seek};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use tokio_util::io::ReaderStream;

use super::engine::DockerRuntime;
use super::images::import::import;
use crate::RuntimeError;
use crate::digest::hex;

/// Identifies the executable, so that a newer one replaces the image.
const SOURCE_LABEL: &str = "kubeleet.made-of";

const PATH_IN_IMAGE: &str = "/kubeleet";

#[derive(Debug, Clone, Copy, Default)]
pub struct Recipe<'a> {
    /// With absolute paths in the image.
    pub programs: &'a [(&'a Path, &'a str)],
    /// If empty, a pod's `command` names the program.
    pub entrypoint: &'a [&'a str],
    pub command: &'a [&'a str],
}

/// Tags an image that runs the hidden `hello` command. Returns true if something changed.
pub async fn ensure_hello_image(docker: &DockerRuntime, tags: &[&str]) -> Result<bool, RuntimeError> {
    // After a rebuild, still the running executable. Not `self`: the loader opens it too.
    let exe = PathBuf::from(format!("/proc/{}/exe", std::process::id()));
    let Some((first, others)) = tags.split_first() else { return Ok(false) };
    let mut has_changed = import_image(docker, &exe, &[PATH_IN_IMAGE, "hello"], first).await?;
    let expected = docker.image_labels(first).await?;
    for tag in others {
        let found = docker.image_labels(tag).await?;
        if found != expected {
            docker.tag_image(first, tag).await?;
            remove_replaced(docker, found).await;
            has_changed = true;
        }
    }
    Ok(has_changed)
}

/// Returns true if the image was created.
pub async fn import_image(
    docker: &DockerRuntime,
    exe: &Path,
    entrypoint: &[&str],
    tag: &str,
) -> Result<bool, RuntimeError> {
    let Some(path) = entrypoint.first() else {
        return Err(RuntimeError::Refused("an image needs an entry point".to_owned()));
    };
    import_recipe(docker, Recipe { programs: &[(exe, path)], entrypoint, command: &[] }, tag).await
}

pub async fn import_recipe(
    docker: &DockerRuntime,
    recipe: Recipe<'_>,
    tag: &str,
) -> Result<bool, RuntimeError> {
    let fingerprint = fingerprint(&recipe)?;
    let found = docker.image_labels(tag).await?;
    if found.as_ref().is_some_and(|(_, labels)| labels.get(SOURCE_LABEL) == Some(&fingerprint)) {
        return Ok(false);
    }
    let mut changes = vec![format!("LABEL {SOURCE_LABEL}={fingerprint}")];
    for (instruction, list) in [("ENTRYPOINT", recipe.entrypoint), ("CMD", recipe.command)] {
        if !list.is_empty() {
            changes.push(format!("{instruction} {}", serde_json::json!(list)));
        }
    }
    let programs = programs_of(&recipe);
    let tar = tokio::task::spawn_blocking(move || write_tar(&programs)).await;
    let tar = tar.map_err(|error| RuntimeError::Failed(format!("creating an image: {error}")))??;
    let stream = ReaderStream::with_capacity(tokio::fs::File::from_std(tar), 1 << 18);
    import(&docker.client, tag, &changes, stream).await?;
    remove_replaced(docker, found).await;
    Ok(true)
}

/// A tar, positioned at its beginning.
pub fn layer(recipe: &Recipe<'_>) -> Result<File, RuntimeError> {
    write_tar(&programs_of(recipe))
}

fn programs_of(recipe: &Recipe<'_>) -> Vec<(PathBuf, String)> {
    recipe.programs.iter().map(|(program, path)| (program.to_path_buf(), (*path).to_owned())).collect()
}

/// Each build would leave an image on disk.
async fn remove_replaced(docker: &DockerRuntime, replaced: Option<(String, HashMap<String, String>)>) {
    if let Some((id, _)) = replaced
        && let Err(error) = docker.remove_image(&id).await
    {
        tracing::debug!(image = id, %error, "a replaced image was not removed");
    }
}

/// Size and modification time: a digest of the programs takes seconds.
fn fingerprint(recipe: &Recipe<'_>) -> Result<String, RuntimeError> {
    let mut hasher = Sha256::new();
    for (program, path) in recipe.programs {
        let meta = std::fs::metadata(program).map_err(failed("read the program"))?;
        hasher.update(format!("{path} {} {} {}\n", meta.size(), meta.mtime(), meta.mtime_nsec()));
    }
    hasher.update(serde_json::json!([recipe.entrypoint, recipe.command]).to_string());
    Ok(hex(&hasher.finalize()[..8]))
}

fn failed(operation: &'static str) -> impl Fn(io::Error) -> RuntimeError {
    move |error| RuntimeError::Failed(format!("creating an image: could not {operation}: {error}"))
}

fn write_tar(programs: &[(PathBuf, String)]) -> Result<File, RuntimeError> {
    let mut tar = tar::Builder::new(tempfile::tempfile().map_err(failed("open a temporary file"))?);
    let mut libraries = BTreeSet::new();
    for (program, path) in programs {
        libraries.extend(libraries_of(program)?);
        append(&mut tar, program, path).map_err(failed("pack the program"))?;
    }
    for library in &libraries {
        append(&mut tar, library, &library.to_string_lossy()).map_err(failed("pack a library"))?;
    }
    // If this machine's loader uses directories beyond its built-in ones, so must the image's.
    let cache = Path::new("/etc/ld.so.cache");
    if !libraries.is_empty() && cache.exists() {
        append(&mut tar, cache, "/etc/ld.so.cache").map_err(failed("pack the loader's cache"))?;
    }
    let mut file = tar.into_inner().map_err(failed("finish the tar"))?;
    file.rewind().map_err(failed("rewind the tar"))?;
    Ok(file)
}

/// The loader opens the path it knows: links are resolved.
fn append(tar: &mut tar::Builder<File>, file: &Path, path: &str) -> io::Result<()> {
    let mut file = File::open(file)?;
    let mut header = tar::Header::new_gnu();
    header.set_size(file.metadata()?.len());
    header.set_mode(0o755);
    header.set_mtime(1);
    tar.append_data(&mut header, path.trim_start_matches('/'), &mut file)
}

/// Only the program's loader knows all rules; `--list` of glibc and musl does not run the program.
fn libraries_of(program: &Path) -> Result<BTreeSet<PathBuf>, RuntimeError> {
    let Some(loader) = interpreter(program).map_err(failed("read the program"))? else {
        return Ok(BTreeSet::new());
    };
    let output = std::process::Command::new(&loader)
        .arg("--list")
        .arg(program)
        .output()
        .map_err(failed("ask the loader which libraries the program needs"))?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        let detail = format!("creating an image: {} --list: {}", loader.display(), stderr.trim());
        return Err(RuntimeError::Failed(detail));
    }
    let mut libraries = listed_libraries(&String::from_utf8_lossy(&output.stdout));
    libraries.insert(loader);
    Ok(libraries)
}

/// Lines such as `libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x7f…)`; `linux-vdso` has no path.
fn listed_libraries(listing: &str) -> BTreeSet<PathBuf> {
    let path = |line: &str| {
        let path = line.split_once("=>").map_or(line, |(_, path)| path);
        let path = path.rsplit_once(" (").map_or(path, |(path, _)| path).trim();
        path.starts_with('/').then(|| PathBuf::from(path))
    };
    listing.lines().filter_map(path).collect()
}

/// `PT_INTERP` of an ELF header; `None` for a static program or a script.
fn interpreter(program: &Path) -> io::Result<Option<PathBuf>> {
    use std::os::unix::fs::FileExt;
    const PT_INTERP: u32 = 3;
    let file = File::open(program)?;
    let mut header = [0u8; 64];
    if file.read_exact_at(&mut header, 0).is_err() || header[..6] != *b"\x7fELF\x02\x01" {
        return Ok(None); // not 64-bit little-endian ELF
    }
    let (table, size, count) = (long(&header, 32), short(&header, 54), short(&header, 56));
    for index in 0..count {
        let mut entry = [0u8; 56];
        file.read_exact_at(&mut entry, table + index * size)?;
        if u32::from_le_bytes([entry[0], entry[1], entry[2], entry[3]]) == PT_INTERP {
            let mut path = vec![0u8; usize::try_from(long(&entry, 32).min(4096)).unwrap_or(4096)];
            file.read_exact_at(&mut path, long(&entry, 8))?;
            let text = String::from_utf8_lossy(&path);
            return Ok(Some(PathBuf::from(text.trim_end_matches('\0'))));
        }
    }
    Ok(None)
}

fn long(bytes: &[u8], at: usize) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(number)
}

fn short(bytes: &[u8], at: usize) -> u64 {
    u64::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn the_lists_of_both_loaders_are_parsed() {
        let glibc = "\tlinux-vdso.so.1 (0x00007ffd)\n\
                     \tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f)\n\
                     \t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n";
        let expected = ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"];
        assert_eq!(listed_libraries(glibc), expected.map(PathBuf::from).into());
        let musl =
            "\t/lib/ld-musl-x86_64.so.1 (0x7f)\n\tlibc.musl-x86_64.so.1 => /lib/ld-musl-x86_64.so.1 (0x7f)\n";
        assert_eq!(listed_libraries(musl), [PathBuf::from("/lib/ld-musl-x86_64.so.1")].into());
    }

    #[test]
    fn a_script_needs_no_libraries() {
        let dir = tempfile::tempdir().unwrap();
        let script = dir.path().join("script");
        std::fs::write(&script, "#!/bin/sh\n").unwrap();
        assert_eq!(libraries_of(&script).unwrap(), BTreeSet::new());
    }

    #[test]
    fn the_tar_has_the_program_and_its_libraries() {
        let exe = std::env::current_exe().unwrap();
        let mut archive = tar::Archive::new(write_tar(&[(exe.clone(), PATH_IN_IMAGE.to_owned())]).unwrap());
        let entries: Vec<_> =
            archive.entries().unwrap().map(|entry| entry.unwrap().path().unwrap().into_owned()).collect();
        assert_eq!(entries[0], Path::new("kubeleet"));
        for library in libraries_of(&exe).unwrap() {
            assert!(entries.contains(&library.strip_prefix("/").unwrap().to_path_buf()), "{library:?}");
        }
        assert!(entries.len() > 1, "a test executable is linked dynamically: {entries:?}");
    }
}
