//! Bind mounts of host paths. With links resolved, a path must be below a prefix that the operator allows.

use std::borrow::Cow;
use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use model::spec::{VolumeKind, VolumeMount};

use crate::{ContainerRequest, RuntimeError};

/// A hanging file system must not delay a pod's start for ever.
const LIMIT: Duration = Duration::from_secs(10);
/// A container with one of these sockets controls the node.
const ENGINE_SOCKETS: [&str; 5] = [
    "/var/run/docker.sock",
    "/run/docker.sock",
    "/run/podman/podman.sock",
    "/run/containerd/containerd.sock",
    "/run/crio/crio.sock",
];
const USERS: &str = "/run/user";
const USERS_SOCKETS: [&str; 2] = ["docker.sock", "podman/podman.sock"];

/// # Errors
/// `Refused` if a path leads outside the prefixes, `Failed` if it does not exist (yet).
pub(super) async fn resolved<'a>(
    request: &'a ContainerRequest,
    prefixes: &[PathBuf],
    own_socket: Option<&Path>,
) -> Result<Cow<'a, ContainerRequest>, RuntimeError> {
    if !request.container.volumes.iter().any(|volume| volume.kind == VolumeKind::Bind) {
        return Ok(Cow::Borrowed(request));
    }
    let (mut volumes, prefixes) = (request.container.volumes.clone(), prefixes.to_vec());
    let own_socket = own_socket.map(Path::to_path_buf);
    let resolving = tokio::task::spawn_blocking(move || -> Result<_, RuntimeError> {
        resolve_all(&mut volumes, &prefixes, own_socket)?;
        Ok(volumes)
    });
    let late = |_| RuntimeError::Failed("looking at the paths of its binds took too long".to_owned());
    let ended = |_| RuntimeError::Failed("looking at the paths of its binds failed".to_owned());
    let volumes = tokio::time::timeout(LIMIT, resolving).await.map_err(late)?.map_err(ended)?;
    let mut request = request.clone();
    request.container.volumes = volumes?;
    Ok(Cow::Owned(request))
}

fn resolve_all(
    volumes: &mut [VolumeMount],
    prefixes: &[PathBuf],
    own_socket: Option<PathBuf>,
) -> Result<(), RuntimeError> {
    let sockets = engine_sockets(own_socket);
    for volume in volumes.iter_mut().filter(|volume| volume.kind == VolumeKind::Bind) {
        let path = volume.source.clone().unwrap_or_default();
        let resolved = resolve(Path::new(&path), prefixes, &sockets)?;
        let text = resolved.into_os_string().into_string();
        volume.source = Some(text.map_err(|_| refused(&path, "it leads to a path that is not UTF-8"))?);
    }
    Ok(())
}

/// The first path that now leads elsewhere than at creation: engines follow links at each start.
pub(super) fn led_astray<'a>(
    mut sources: impl Iterator<Item = &'a Path>,
    prefixes: &[PathBuf],
) -> Option<(&'a Path, PathBuf)> {
    let allowed: Vec<PathBuf> = prefixes.iter().filter_map(|prefix| prefix.canonicalize().ok()).collect();
    sources.find_map(|source| {
        allowed.iter().any(|prefix| source.starts_with(prefix)).then_some(())?;
        let now = source.canonicalize().ok().filter(|now| now != source)?;
        Some((source, now))
    })
}

fn engine_sockets(own: Option<PathBuf>) -> Vec<PathBuf> {
    let users = std::fs::read_dir(USERS).into_iter().flatten().flatten();
    let of_users = users.flat_map(|user| USERS_SOCKETS.map(|name| user.path().join(name)));
    let all = ENGINE_SOCKETS.iter().map(PathBuf::from).chain(of_users).chain(own);
    all.filter_map(|path| path.canonicalize().ok()).collect()
}

fn resolve(path: &Path, prefixes: &[PathBuf], sockets: &[PathBuf]) -> Result<PathBuf, RuntimeError> {
    let shown = path.display();
    let failed = |error: std::io::Error| match error.kind() {
        ErrorKind::NotFound => RuntimeError::Failed(format!(
            "{shown} is not there on this node, or not for its worker: create it"
        )),
        _ => RuntimeError::Failed(format!("{shown} cannot be looked at: {error}")),
    };
    let resolved = path.canonicalize().map_err(failed)?;
    let allowed: Vec<PathBuf> = prefixes.iter().filter_map(|prefix| prefix.canonicalize().ok()).collect();
    if !allowed.iter().any(|prefix| resolved.starts_with(prefix)) {
        let why =
            format!("it leads to {}, which is below none of KUBELEET_BIND_PREFIXES", resolved.display());
        return Err(refused(&shown.to_string(), &why));
    }
    let file_type = resolved.metadata().map_err(failed)?.file_type();
    let is_special = !file_type.is_dir() && !file_type.is_file();
    if is_special && !allowed.contains(&resolved) {
        let kind = if file_type.is_socket() { "socket" } else { "device or pipe" };
        let why = format!("it is a {kind}, which KUBELEET_BIND_PREFIXES has to name by its exact path");
        return Err(refused(&shown.to_string(), &why));
    }
    if let Some(socket) = sockets.iter().find(|socket| **socket != resolved && socket.starts_with(&resolved))
    {
        let why = format!("{}, which owns the node, is below it", socket.display());
        return Err(refused(&shown.to_string(), &why));
    }
    Ok(resolved)
}

fn refused(path: &str, why: &str) -> RuntimeError {
    RuntimeError::Refused(format!(
        "`volumes` is refused by the policy of this node: {path} cannot be mounted: {why}"
    ))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use std::fs::{create_dir_all, write};
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn a_path_that_was_replaced_by_a_link_leads_astray() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        let (mounted, other, outside) = (root.join("srv/app"), root.join("srv/other"), root.join("outside"));
        for folder in [&mounted, &other, &outside] {
            create_dir_all(folder).unwrap();
        }
        let prefixes = [root.join("srv")];
        let sources = [other.as_path(), mounted.as_path()];
        let astray = || led_astray(sources.into_iter(), &prefixes);
        assert_eq!(astray(), None);
        std::fs::remove_dir(&mounted).unwrap();
        assert_eq!(astray(), None, "the engine says that it is not there");
        symlink("/", &mounted).unwrap();
        assert_eq!(astray(), Some((mounted.as_path(), PathBuf::from("/"))));
        assert_eq!(led_astray(sources.into_iter(), &[outside]), None, "no bind of a pod");
    }

    #[test]
    fn a_path_is_mounted_only_where_it_really_leads() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        let at = |path: &str| root.join(path);
        for folder in ["srv/app", "srv-other", "etc", "run"] {
            create_dir_all(at(folder)).unwrap();
        }
        write(at("etc/shadow"), "x").unwrap();
        symlink(at("etc"), at("srv/out")).unwrap();
        symlink(at("srv/app"), at("srv/in")).unwrap();
        symlink("../../etc/shadow", at("srv/app/relative")).unwrap();
        symlink(at("srv"), at("alias")).unwrap();
        let _engine = UnixListener::bind(at("run/docker.sock")).unwrap();
        let _other = UnixListener::bind(at("srv/app/other.sock")).unwrap();
        let sockets = [at("run/docker.sock")];
        let table: [(&str, &[&str], Result<&str, &str>); 14] = [
            ("srv/app", &["srv"], Ok("srv/app")),
            ("srv", &["srv"], Ok("srv")),
            ("srv/in", &["srv"], Ok("srv/app")),
            ("alias/app", &["alias"], Ok("srv/app")),
            ("srv/out", &["srv"], Err("below none of KUBELEET_BIND_PREFIXES")),
            ("srv/app/relative", &["srv"], Err("below none of")),
            ("srv/../etc", &["srv"], Err("below none of")),
            ("srv-other", &["srv"], Err("below none of")),
            ("srv/app", &[], Err("below none of")),
            ("srv/app", &["gone"], Err("below none of")),
            ("srv/gone", &["srv"], Err("is not there on this node")),
            ("srv/app/other.sock", &["srv"], Err("it is a socket")),
            ("run", &["run"], Err("owns the node")),
            ("run/docker.sock", &["run"], Err("it is a socket")),
        ];
        for (path, prefixes, expected) in table {
            let prefixes: Vec<PathBuf> = prefixes.iter().map(|prefix| at(prefix)).collect();
            let found = resolve(&at(path), &prefixes, &sockets);
            match (found, expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found, at(expected), "{path}"),
                (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{path}: {error}"),
                (found, _) => panic!("{path} below {prefixes:?}: {found:?}"),
            }
        }
        let exact = [at("run/docker.sock")];
        assert_eq!(resolve(&at("run/docker.sock"), &exact, &sockets).unwrap(), exact[0]);
    }
}
