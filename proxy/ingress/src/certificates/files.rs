//! Reads the directory with certificates and their keys.

use std::io::{self, ErrorKind};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::parse::CertificateError;

const CERTBOT_CHAIN: &str = "fullchain.pem";
const CERTBOT_KEY: &str = "privkey.pem";
const MAX_BYTES: u64 = 1 << 20;

pub(super) struct CertificateTexts {
    pub(super) chain: Vec<u8>,
    pub(super) key: Vec<u8>,
    pub(super) is_key_exposed: bool,
}

pub(super) struct FoundCertificate {
    pub(super) file: String,
    pub(super) key_file: String,
    pub(super) texts: Result<CertificateTexts, CertificateError>,
}

/// `NAME.crt` or `NAME.pem` with `NAME.key`, and `NAME/fullchain.pem` with `NAME/privkey.pem`.
///
/// # Errors
/// An unreadable file is an error in its entry.
pub(super) fn read(directory: &Path) -> io::Result<Vec<FoundCertificate>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        // Skips names that are not UTF-8.
        names.extend(entry?.file_name().into_string().ok().filter(|name| !name.starts_with('.')));
    }
    names.sort();
    let pairs = names.into_iter().filter_map(|name| pair(directory, name));
    Ok(pairs.map(|(file, key_file)| found(directory, file, key_file)).collect())
}

fn pair(directory: &Path, name: String) -> Option<(String, String)> {
    if let Some(stem) = name.strip_suffix(".crt").or_else(|| name.strip_suffix(".pem")) {
        let key = format!("{stem}.key");
        return Some((name, key));
    }
    let chain = format!("{name}/{CERTBOT_CHAIN}");
    // Does not follow links: a dangling link of certbot must be reported.
    let is_there = directory.join(&chain).symlink_metadata().is_ok();
    is_there.then(|| (chain, format!("{name}/{CERTBOT_KEY}")))
}

fn found(directory: &Path, file: String, key_file: String) -> FoundCertificate {
    let texts = (|| {
        let chain = text(directory, &file)?;
        let key = match text(directory, &key_file) {
            Err(_) if is_missing(&directory.join(&key_file)) => {
                return Err(CertificateError::NoKeyFile { key_file: key_file.clone() });
            }
            key => key?,
        };
        let mode = directory.join(&key_file).metadata().map_or(0, |metadata| metadata.permissions().mode());
        Ok(CertificateTexts { chain, key, is_key_exposed: mode & 0o004 != 0 })
    })();
    FoundCertificate { file, key_file, texts }
}

fn is_missing(path: &Path) -> bool {
    path.symlink_metadata().is_err_and(|error| error.kind() == ErrorKind::NotFound)
}

fn text(directory: &Path, file: &str) -> Result<Vec<u8>, CertificateError> {
    let path = directory.join(file);
    let read = || {
        let metadata = path.metadata()?;
        // Reading a pipe would never end.
        if !metadata.is_file() || metadata.len() > MAX_BYTES {
            return Err(io::Error::other("it is no file of at most 1 MiB"));
        }
        std::fs::read(&path)
    };
    read().map_err(|error| CertificateError::Unreadable { file: file.to_owned(), error: error.to_string() })
}
