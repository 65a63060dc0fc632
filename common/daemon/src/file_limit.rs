//! The limit of open files and connections of this process.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The usual 1024 is for programs that use `select`. Child processes inherit it.
pub fn raise() -> u64 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: maximum, maximum };
    let limit = if setrlimit(Resource::Nofile, raised).is_ok() { maximum } else { current };
    limit.unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_becomes_the_highest() {
        let highest = getrlimit(Resource::Nofile).maximum;
        assert_eq!(raise(), highest.unwrap_or(u64::MAX));
        assert_eq!(getrlimit(Resource::Nofile).current, highest);
    }
}
