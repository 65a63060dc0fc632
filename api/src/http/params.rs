//! Parameters of requests.

use axum::extract::{FromRequestParts, Path, Query};
use axum::http::header::IF_MATCH;
use axum::http::request::Parts;
use axum::http::{StatusCode, Uri};
use document::{self, DocumentNode, Vocabulary};
use model::ids::{AppName, InvalidName, NodeName, PodId, RegistryHost, ServiceName, ValueName, VolumeName};
use model::service::selector::LabelSelector;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use utoipa::openapi::path::{Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::{Object, RefOr, Required, Schema, Type};
use utoipa::{IntoParams, PartialSchema, ToSchema};

use crate::http::problem::{ApiProblem, ProblemKind};

pub(crate) const DEFAULT_PAGE_SIZE: usize = 1000;
pub(crate) const MAX_PAGE_SIZE: usize = 10_000;

/// The last variable part of a path, e.g. `web` in `/service/web/scale`.
pub(crate) trait PathName: Sized + PartialSchema {
    const PARAMETER: &str;

    /// An invalid name belongs to no object, so its problem is that of a missing one.
    fn parse(text: String) -> Result<Self, ApiProblem>;
}

macro_rules! path_names {
    ($($name:ident $parameter:literal $missing:ident;)*) => {$(
        impl PathName for $name {
            const PARAMETER: &str = $parameter;

            fn parse(text: String) -> Result<Self, ApiProblem> {
                Self::new(text).map_err(|error| invalid_name(ProblemKind::$missing, &error))
            }
        }
    )*};
}

path_names! {
    ServiceName "name" ServiceNotFound;
    // An app is no object of its own: no problem says that one is missing.
    AppName "name" RouteNotFound;
    NodeName "name" NodeNotFound;
    ValueName "name" ValueNotFound;
    VolumeName "name" VolumeNotFound;
    PodId "uuid" PodNotFound;
}

impl PathName for RegistryHost {
    const PARAMETER: &str = "host";

    fn parse(text: String) -> Result<Self, ApiProblem> {
        Self::of_address(&text).map_err(|error| invalid_name(ProblemKind::RegistryNotFound, &error))
    }
}

fn invalid_name(kind: ProblemKind, error: &InvalidName) -> ApiProblem {
    ApiProblem::new(kind, error.to_string())
}

pub(crate) struct InPath<T>(pub(crate) T);

impl<T: PathName, S: Send + Sync> FromRequestParts<S> for InPath<T> {
    type Rejection = ApiProblem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiProblem> {
        match Path::<String>::from_request_parts(parts, state).await {
            Ok(Path(text)) => T::parse(text).map(InPath),
            Err(rejection) if rejection.status() == StatusCode::BAD_REQUEST => {
                Err(ApiProblem::new(ProblemKind::BadRequest, format!("the path is invalid: {rejection}")))
            }
            Err(rejection) => {
                tracing::error!("the path of a route does not fit its handler: {rejection}");
                Err(ApiProblem::internal())
            }
        }
    }
}

impl<T: PathName> IntoParams for InPath<T> {
    fn into_params(_: impl Fn() -> Option<ParameterIn>) -> Vec<Parameter> {
        let parameter = ParameterBuilder::new()
            .name(T::PARAMETER)
            .parameter_in(ParameterIn::Path)
            .required(Required::True)
            .schema(Some(T::schema()));
        vec![parameter.build()]
    }
}

pub(crate) fn string_schema(pattern: &str, description: &str, example: &str) -> RefOr<Schema> {
    let mut object = Object::with_type(Type::String);
    object.pattern = Some(pattern.to_owned());
    object.description = Some(description.to_owned());
    object.example = Some(example.into());
    RefOr::T(Schema::Object(object))
}

pub(crate) fn query_pairs(uri: &Uri) -> Result<Vec<(String, String)>, ApiProblem> {
    let pairs = Query::<Vec<(String, String)>>::try_from_uri(uri);
    pairs.map(|Query(pairs)| pairs).map_err(|_| {
        ApiProblem::new(
            ProblemKind::InvalidQuery,
            "the query must have the form name=value&name=value, in UTF-8",
        )
    })
}

pub(crate) struct Params<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Params<T> {
    type Rejection = ApiProblem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiProblem> {
        let query = DocumentNode::from_pairs(query_pairs(&parts.uri)?);
        let read = document::read(&query, Vocabulary::Parameters).into_result();
        read.map(Params).map_err(|mistakes| {
            let details: Vec<_> = mistakes.into_iter().map(|mistake| mistake.detail).collect();
            ApiProblem::new(ProblemKind::InvalidQuery, details.join("; "))
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IfMatch {
    None,
    Exists,
    Revision(u64),
}

impl IfMatch {
    /// `*` asks for no revision: where it stands, the routes answer 404 to a missing object anyway.
    pub(crate) fn revision(self) -> Option<u64> {
        match self {
            IfMatch::Revision(revision) => Some(revision),
            IfMatch::None | IfMatch::Exists => None,
        }
    }

    fn parse(text: &str) -> Option<Self> {
        if text == "*" {
            return Some(IfMatch::Exists);
        }
        let quoted = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
        let digits = quoted.unwrap_or(text);
        let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
        digits.parse().ok().filter(|_| is_number).map(IfMatch::Revision)
    }
}

impl<S: Send + Sync> FromRequestParts<S> for IfMatch {
    type Rejection = ApiProblem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiProblem> {
        let Some(header) = parts.headers.get(IF_MATCH) else { return Ok(IfMatch::None) };
        IfMatch::parse(header.to_str().unwrap_or_default().trim()).ok_or_else(|| {
            let detail = "the header If-Match is invalid: write one revision such as \"3\", or *";
            ApiProblem::new(ProblemKind::BadRequest, detail)
        })
    }
}

impl IntoParams for IfMatch {
    fn into_params(_: impl Fn() -> Option<ParameterIn>) -> Vec<Parameter> {
        let description = "The revision that the service must have, as its ETag says; `*`: it must exist. \
                           Clients that retry writes should send the revision they last read.";
        let schema = string_schema("^(\\*|[0-9]{1,19}|\"[0-9]{1,19}\")$", "A revision, or `*`", "\"3\"");
        vec![optional_header("If-Match", description, schema)]
    }
}

pub(crate) fn optional_header(name: &str, description: &str, schema: RefOr<Schema>) -> Parameter {
    ParameterBuilder::new()
        .name(name)
        .parameter_in(ParameterIn::Header)
        .required(Required::False)
        .description(Some(description))
        .schema(Some(schema))
        .build()
}

/// Selects a page of a list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Paging {
    /// Items on the page.
    #[param(minimum = 1, maximum = 10000, default = 1000)]
    pub(crate) limit: Option<u32>,
    /// The `next` of the previous page.
    pub(crate) after: Option<String>,
}

/// Options for a service that may not fit the cluster.
#[derive(Debug, Clone, Copy, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct PlacementOptions {
    /// Whether pods that fit are started and the rest wait for resources. Otherwise the whole request is
    /// refused.
    #[serde(default)]
    #[param(required = false, default = false)]
    pub(crate) allow_partial: bool,
    /// Whether nothing is written: the answer is 204, or the problem for which the request would be refused.
    /// Only the write itself finds a route that another service has.
    #[serde(default)]
    #[param(required = false, default = false)]
    pub(crate) dry_run: bool,
}

pub(crate) fn page_size(limit: Option<u32>) -> Result<usize, ApiProblem> {
    match limit.map_or(DEFAULT_PAGE_SIZE, |limit| limit as usize) {
        size @ 1..=MAX_PAGE_SIZE => Ok(size),
        _ => Err(ApiProblem::new(
            ProblemKind::InvalidQuery,
            format!("limit: write a number from 1 to {MAX_PAGE_SIZE}"),
        )),
    }
}

/// Also returns the response's `next` if more follow.
pub(crate) fn page_of<N: AsRef<str>>(
    mut names: Vec<N>,
    paging: &Paging,
) -> Result<(Vec<N>, Option<String>), ApiProblem> {
    let limit = page_size(paging.limit)?;
    names.retain(|name| paging.after.as_deref().is_none_or(|after| name.as_ref() > after));
    let has_more = names.len() > limit;
    names.truncate(limit);
    let next = names.last().filter(|_| has_more).map(|name| name.as_ref().to_owned());
    Ok((names, next))
}

/// As [`LabelSelector`] parses it.
pub(crate) struct SelectorText;

impl PartialSchema for SelectorText {
    fn schema() -> RefOr<Schema> {
        let (key, value) = (r"[^ \t=!(),]+", r"([^ \t=!(),][^ \t!(),]*)?");
        let listed = r"[^ \t=!(),]*";
        let values = format!(r"\([ \t]*{listed}[ \t]*(,[ \t]*{listed}[ \t]*)*\)");
        let requirement = format!(
            r"[ \t]*(![ \t]*{key}|{key}[ \t]*(!=|==?)[ \t]*{value}|{key}[ \t]+(in|notin)[ \t]*{values}|{key})[ \t]*"
        );
        let pattern = format!("^{requirement}(,{requirement})*$");
        let description = "Requirements joined by commas: `key=value`, `key!=value`, `key in (a,b)`, \
                           `key notin (a,b)`, `key`, `!key`";
        string_schema(&pattern, description, "team=web,tier in (front,back)")
    }
}

impl ToSchema for SelectorText {}

pub(crate) fn parse_selector(text: &str) -> Result<LabelSelector, ApiProblem> {
    text.parse().map_err(|error| ApiProblem::new(ProblemKind::InvalidQuery, format!("label: {error}")))
}

pub(crate) fn invalid_cursor() -> ApiProblem {
    ApiProblem::new(ProblemKind::InvalidQuery, "after: write the `next` of the previous page")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn if_match_takes_one_revision_or_a_star() {
        assert_eq!(IfMatch::parse("*"), Some(IfMatch::Exists));
        for text in ["3", "\"3\""] {
            assert_eq!(IfMatch::parse(text), Some(IfMatch::Revision(3)), "{text}");
        }
        for bad in ["", "\"\"", "x", "+3", "-1", "W/\"3\"", "\"1\", \"2\"", "99999999999999999999"] {
            assert_eq!(IfMatch::parse(bad), None, "{bad}");
        }
    }
}
