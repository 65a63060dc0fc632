//! Errors between a command and the API.

use api_types::Problem;

#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("invalid API address {text:?}: {reason} (from --api or KUBELEET_API)")]
    InvalidAddress { text: String, reason: String },
    #[error("invalid token: {0} (from --token, --token-file, KUBELEET_TOKEN or KUBELEET_TOKEN_FILE)")]
    InvalidToken(String),
    #[error(
        "no API at {address} ({cause}): is `kubeleet dev` or `kubeleet api` running? \
         Set --api or KUBELEET_API"
    )]
    Unreachable { address: String, cause: String },
    #[error(
        "{operation}: lost the connection to the API at {address} ({cause}){}",
        warning(*.may_have_changed)
    )]
    RequestFailed {
        operation: String,
        address: String,
        cause: String,
        /// The result of a write is unknown.
        may_have_changed: bool,
    },
    #[error("{}", describe(.operation, .problem))]
    Problem { operation: String, problem: Box<Problem> },
    #[error("{operation}: {address} is not a kubeleet API (status {status}, {body}); check --api")]
    NotKubeleet { operation: String, address: String, status: u16, body: String },
}

impl ClientError {
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Problem { problem, .. } => Some(problem.status),
            _ => None,
        }
    }

    /// Returns true if the API has no such object, also because no object can have this name.
    pub fn is_no_such_object(&self) -> bool {
        matches!(self.status(), Some(400 | 404 | 422))
    }

    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::RequestFailed { .. } => true,
            Self::Problem { problem, .. } => matches!(problem.status, 408 | 429 | 500..=599),
            Self::InvalidAddress { .. } | Self::InvalidToken(_) | Self::NotKubeleet { .. } => false,
        }
    }

    pub fn is_shortage(&self) -> bool {
        match self {
            Self::Problem { problem, .. } => {
                problem.kind.rsplit('/').next().is_some_and(|kind| kind.starts_with("insufficient-"))
            }
            _ => false,
        }
    }
}

/// `None` if the API has no such object.
pub fn found<T>(result: Result<T, ClientError>) -> Result<Option<T>, ClientError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.status() == Some(404) => Ok(None),
        Err(error) => Err(error),
    }
}

fn warning(may_have_changed: bool) -> &'static str {
    if may_have_changed { "; the change may have been made: check before you retry" } else { "" }
}

fn describe(operation: &str, problem: &Problem) -> String {
    let mut text = match advice(&problem.kind) {
        Some(advice) => {
            format!("{operation}: {}; {advice}", for_terminals(without_http_advice(&problem.detail)))
        }
        None if problem.detail.is_empty() => format!("{operation}: {}", problem.title),
        None if repeats(&problem.title, &problem.detail) => {
            format!("{operation}: {}", for_terminals(&problem.detail))
        }
        None => format!("{operation}: {}: {}", problem.title, for_terminals(&problem.detail)),
    };
    // The detail often repeats a single violation.
    for error in problem.errors.iter().filter(|error| !problem.detail.contains(&error.detail)) {
        let field = if error.pointer.is_empty() { "the whole document" } else { &error.pointer };
        text.push_str(&format!("\n  {field}: {}", error.detail));
    }
    for node in &problem.nodes {
        text.push_str(&format!("\n  {}: {}", node.node, node.reason));
    }
    if let Some(others) = problem.node_count.map(|count| count - problem.nodes.len().min(count))
        && others > 0
    {
        text.push_str(&format!("\n  and {others} more nodes"));
    }
    match problem.status {
        401 => text.push_str("\n  give the token with --token-file, KUBELEET_TOKEN_FILE or KUBELEET_TOKEN"),
        500 => text
            .push_str(&format!("\n  the API's log has the details under request id {}", problem.request_id)),
        _ => {}
    }
    text
}

/// The API's own advice is an HTTP request.
fn advice(kind: &str) -> Option<&'static str> {
    match kind.rsplit('/').next()? {
        "service-not-found" => Some("`kubeleet service ls` lists them"),
        "pod-not-found" => Some("`kubeleet pod ls` lists them"),
        "node-not-found" => Some("`kubeleet node ls` lists them"),
        "letter-not-found" => Some("`kubeleet queue peek dq` lists them"),
        "service-exists" => {
            Some("choose another --name, or change it with `kubeleet apply` or `kubeleet service scale`")
        }
        "value-exists" => Some("`rotate` with the same name stores its next version"),
        "value-not-found" => Some("`kubeleet secret ls` and `kubeleet config ls` list them"),
        "volume-not-found" => Some("`kubeleet volume ls` lists them"),
        kind if kind.starts_with("insufficient-") => {
            Some("with --allow-partial what fits is started and the rest waits; nothing was changed")
        }
        _ => None,
    }
}

fn for_terminals(detail: &str) -> String {
    detail.replace(" (?force=true)", "")
}

/// True if the detail contains the title's last words.
fn repeats(title: &str, detail: &str) -> bool {
    let end = title.split_once(' ').map_or("", |(_, end)| end);
    end.split(' ').count() > 2 && detail.contains(end)
}

fn without_http_advice(detail: &str) -> &str {
    let methods = ["GET /", "PUT /", "POST /", "PATCH /", "DELETE /"];
    let end = methods.iter().filter_map(|method| detail.find(method)).min().unwrap_or(detail.len());
    detail[..end].trim_end_matches([' ', ';', ':', '.', ','])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_is_a_command_instead_of_an_http_request() {
        for (kind, detail, shown) in [
            (
                "/problems/service-not-found",
                "there is no service web; GET /service lists them",
                "x: there is no service web; `kubeleet service ls` lists them",
            ),
            (
                "/problems/pod-not-found",
                "there is no pod p; a stopped one is forgotten after an hour. GET /pod lists them",
                "x: there is no pod p; a stopped one is forgotten after an hour; \
                 `kubeleet pod ls` lists them",
            ),
            ("/problems/redis-unavailable", "Redis is loading", "x: Title: Redis is loading"),
            (
                "/problems/insufficient-memory",
                "requires 12G of memory but only 10G can be allocated",
                "x: requires 12G of memory but only 10G can be allocated; \
                 with --allow-partial what fits is started and the rest waits; nothing was changed",
            ),
            ("about:blank", "", "x: Title"),
            (
                "/problems/object-in-use",
                "delete it nevertheless with `--force` (?force=true)",
                "x: Title: delete it nevertheless with `--force`",
            ),
        ] {
            let problem = Problem {
                kind: kind.to_owned(),
                title: "Title".to_owned(),
                status: 404,
                detail: detail.to_owned(),
                ..Problem::default()
            };
            assert_eq!(describe("x", &problem), shown);
        }
        assert!(repeats("Service is being deleted", "service web is being deleted; try again"));
        assert!(!repeats("Invalid service", "the service has no image"));
    }
}
