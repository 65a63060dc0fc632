//! Starts the process of a pod.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use common::system_error;
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};

use super::folder::{Folder, Record};
use super::log;
use super::system::MARKER;
use crate::runtime::RuntimeError;

const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
const MAX_OPEN_FILES: u64 = 65_536;

/// Starts the pod of this folder as the leader of a new process group. It outlives this process.
pub(super) fn spawn(folder: &Folder, record: &Record) -> Result<Child, RuntimeError> {
    let failed = |doing: &str, error: io::Error| {
        RuntimeError::Failed(format!("process pod {}: could not {doing}: {error}", folder.handle))
    };
    let Some((program, arguments)) = record.command.split_first() else {
        return Err(RuntimeError::Refused(NO_COMMAND.to_owned()));
    };
    let directory = record.working_dir.clone().unwrap_or_else(|| folder.work());
    if !directory.is_dir() {
        let reason = format!("its working_dir {directory:?} is no directory of this node");
        return Err(RuntimeError::Failed(reason));
    }
    let environment = folder.environment().map_err(|error| failed("read its environment", error))?;
    log::truncate(folder).map_err(|error| failed("truncate its log", error))?;
    let output = folder.open_log().map_err(|error| failed("open its log", error))?;
    let errors = output.try_clone().map_err(|error| failed("open its log", error))?;
    let child = Command::new(program)
        .args(arguments)
        .env_clear()
        .env("PATH", PATH)
        .env("HOME", folder.work())
        .envs(environment)
        .env(MARKER, &folder.path)
        .current_dir(directory)
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(errors)
        .spawn()
        .map_err(|error| match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied | io::ErrorKind::InvalidInput => {
                RuntimeError::Failed(format!(
                    "the command {program:?} cannot be started: {}",
                    system_error(&error)
                ))
            }
            _ if error.raw_os_error() == Some(rustix::io::Errno::NOEXEC.raw_os_error()) => {
                RuntimeError::Failed(format!(
                    "the command {program:?} cannot be started: it is not a program"
                ))
            }
            _ => failed("start it", error),
        })?;
    limit(&child, record);
    Ok(child)
}

/// Why a pod that names only an image is refused.
pub(super) const NO_COMMAND: &str = "the `process` runtime of this node has no images: \
     give the pod a `command` that exists on the node";

/// Sets the limits from outside, because no code of ours may run between fork and exec. So the program has
/// the worker's limits for its first instants; processes that it starts later inherit the right ones.
///
/// Memory is limited as private writable memory (`RLIMIT_DATA`), not as address space (`RLIMIT_AS`): language
/// runtimes reserve gigabytes of addresses that they never touch, and would not even start. The limit is per
/// process.
fn limit(child: &Child, record: &Record) {
    let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) else { return };
    let both = |value| Rlimit { current: Some(value), maximum: Some(value) };
    let files = getrlimit(Resource::Nofile).maximum.map_or(MAX_OPEN_FILES, |hard| hard.min(MAX_OPEN_FILES));
    let mut limits = vec![(Resource::Core, both(0)), (Resource::Nofile, both(files))];
    limits.extend(record.memory.map(|bytes| (Resource::Data, both(bytes))));
    for (resource, limit) in limits {
        match prlimit(Some(pid), resource, limit) {
            // It has ended already.
            Ok(_) | Err(rustix::io::Errno::SRCH) => {}
            Err(error) => {
                tracing::warn!(?resource, %error, "a resource limit of a process pod could not be set")
            }
        }
    }
}
