//! What can go wrong between a command and the API, in words for the person who typed it.

use api::dto::Problem;

use crate::exit::Exit;

/// A call did not work.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientError {
    /// `--api` can not be used.
    #[error("{text:?} can not be the API's address: {why} (--api or KUBELEET_API)")]
    BadAddress {
        /// What was given.
        text: String,
        /// Why not.
        why: String,
    },
    /// The token can not be used.
    #[error("the token can not be used: {0} (--token, --token-file, KUBELEET_TOKEN or KUBELEET_TOKEN_FILE)")]
    BadToken(String),
    /// Nobody answers.
    #[error(
        "no API at {address} ({why}): is `kubeleet dev` or `kubeleet api` running? Set --api or KUBELEET_API"
    )]
    Unreachable {
        /// Where.
        address: String,
        /// What the network said.
        why: String,
    },
    /// Somebody accepts, and does not answer, or stops in the middle.
    #[error("{what}: the API at {address} does not answer properly ({why}){}", all_the_same(*.wrote))]
    Broken {
        /// What was to be done.
        what: String,
        /// Where.
        address: String,
        /// What the network said.
        why: String,
        /// Whether something was to be changed.
        wrote: bool,
    },
    /// The API says no.
    #[error("{}", tell(.what, .problem))]
    Problem {
        /// What was to be done.
        what: String,
        /// Its words.
        problem: Box<Problem>,
    },
    /// Something else than our API answers.
    #[error(
        "{what}: {address} answers {status}, but not as kubeleet's API does; is --api right? It says: {text}"
    )]
    Stranger {
        /// What was to be done.
        what: String,
        /// Where.
        address: String,
        /// HTTP status.
        status: u16,
        /// The beginning of what it says.
        text: String,
    },
}

impl ClientError {
    /// The HTTP status, where the API gave one.
    pub(crate) fn status(&self) -> Option<u16> {
        match self {
            Self::Problem { problem, .. } => Some(problem.status),
            _ => None,
        }
    }

    /// Whether the same call may work a moment later.
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Broken { .. } => true,
            Self::Problem { problem, .. } => matches!(problem.status, 408 | 429 | 500..=599),
            Self::BadAddress { .. } | Self::BadToken(_) | Self::Stranger { .. } => false,
        }
    }

    /// How a command that met it ends.
    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::BadAddress { .. } | Self::BadToken(_) => Exit::Usage,
            Self::Unreachable { .. } | Self::Broken { .. } => Exit::Unreachable,
            Self::Stranger { .. } => Exit::Error,
            Self::Problem { problem, .. } => match problem.status {
                401 | 403 => Exit::Unauthorized,
                404 => Exit::NotFound,
                409 | 412 => Exit::Conflict,
                503 | 504 => Exit::Unreachable,
                _ => Exit::Error,
            },
        }
    }
}

fn all_the_same(wrote: bool) -> &'static str {
    if wrote { "; it may have done it all the same" } else { "" }
}

fn tell(what: &str, problem: &Problem) -> String {
    let mut text = match advice(&problem.kind) {
        Some(advice) => format!("{what}: {}; {advice}", without_http(&problem.detail)),
        None if problem.detail.is_empty() => format!("{what}: {}", problem.title),
        None => format!("{what}: {}: {}", problem.title, problem.detail),
    };
    // A single violation is often the detail already.
    for error in problem.errors.iter().filter(|error| !problem.detail.contains(&error.detail)) {
        let at = if error.pointer.is_empty() { "the whole document" } else { &error.pointer };
        text.push_str(&format!("\n  {at}: {}", error.detail));
    }
    match problem.status {
        401 => text.push_str("\n  give the token with --token-file, KUBELEET_TOKEN_FILE or KUBELEET_TOKEN"),
        500 => text.push_str(&format!("\n  the API's log says more under request id {}", problem.request_id)),
        _ => {}
    }
    text
}

/// What to type next. The API says what to request next, which helps nobody here.
fn advice(kind: &str) -> Option<&'static str> {
    match kind.rsplit('/').next()? {
        "service-not-found" => Some("`kubeleet service ls` lists them"),
        "pod-not-found" => Some("`kubeleet pod ls` lists them"),
        "node-not-found" => Some("`kubeleet node ls` lists them"),
        "letter-not-found" => Some("`kubeleet queue peek dq` lists them"),
        "service-exists" => {
            Some("choose another --name, or change it with `kubeleet apply` or `kubeleet service scale`")
        }
        _ => None,
    }
}

/// What comes before the first request that a text recommends.
fn without_http(detail: &str) -> &str {
    let methods = ["GET /", "PUT /", "POST /", "PATCH /", "DELETE /"];
    let end = methods.iter().filter_map(|method| detail.find(method)).min().unwrap_or(detail.len());
    detail[..end].trim_end_matches([' ', ';', ':', '.', ','])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_is_something_to_type() {
        for (kind, detail, shown) in [
            (
                "/problems/service-not-found",
                "there is no service web; GET /service lists them",
                "x: there is no service web; `kubeleet service ls` lists them",
            ),
            (
                "/problems/pod-not-found",
                "there is no pod p; a stopped one is forgotten after an hour. GET /pod lists them",
                "x: there is no pod p; a stopped one is forgotten after an hour; `kubeleet pod ls` lists them",
            ),
            ("/problems/redis-unavailable", "Redis is loading", "x: Title: Redis is loading"),
            ("about:blank", "", "x: Title"),
        ] {
            let problem = Problem {
                kind: kind.to_owned(),
                title: "Title".to_owned(),
                status: 404,
                detail: detail.to_owned(),
                instance: String::new(),
                request_id: String::new(),
                errors: Vec::new(),
            };
            assert_eq!(tell("x", &problem), shown);
        }
    }
}
