//! Commands for the contents of containers.

pub(crate) mod attach;
pub(crate) mod channel_streams;
pub(crate) mod container_args;
pub(crate) mod copy;
pub(crate) mod env_file;
pub(crate) mod exec;
pub(crate) mod logs;
pub(crate) mod name_from_image;
pub(crate) mod port;
pub(crate) mod port_forward;
pub(crate) mod run;
pub(crate) mod run_attached;
pub(crate) mod run_to_end;
pub(crate) mod tar_files;
pub(crate) mod terminal;
