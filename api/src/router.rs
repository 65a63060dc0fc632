//! Putting the API together: routes, then who may come in, then what is done around every request.

use std::fmt::Write;
use std::sync::OnceLock;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::{from_fn, from_fn_with_state};
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{Components, Info, License, OpenApi, PathItem};
use utoipa_swagger_ui::SwaggerUi;

use crate::around::around;
use crate::auth::guard;
use crate::body::MAX_BODY;
use crate::problem::{ApiProblem, Kind};
use crate::routes::routes;
use crate::state::App;

/// The whole API.
pub(crate) fn router(app: App) -> Router {
    let (routes, _) = routes().split_for_parts();
    routes
        .with_state(app.clone())
        .merge(SwaggerUi::new("/docs").url("/openapi.json", openapi()))
        .fallback(unknown)
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .layer(from_fn_with_state(app, guard))
        .layer(from_fn(around))
}

async fn unknown() -> ApiProblem {
    ApiProblem::new(Kind::RouteNotFound, "GET / lists the routes")
}

/// The document that describes the API, made from the routes themselves.
pub(crate) fn openapi() -> OpenApi {
    let (_, mut document) = routes().split_for_parts();
    let mut info = Info::new("kubeleet", env!("CARGO_PKG_VERSION"));
    info.description = Some(
        "Runs containers on a few to a few thousand machines, coordinated by nothing but Redis. Errors are RFC 9457 \
         problem details; docs/PROBLEMS.md lists their types."
            .to_owned(),
    );
    info.license = Some(License::new("Apache-2.0"));
    document.info = info;
    let components = document.components.get_or_insert_with(Components::new);
    components.add_security_scheme("token", SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer)));
    document.security = Some(vec![SecurityRequirement::new("token", Vec::<String>::new())]);
    document
}

/// The routes as text: method, path, and the first line of what they do.
pub(crate) fn index() -> &'static str {
    static TEXT: OnceLock<String> = OnceLock::new();
    TEXT.get_or_init(|| {
        let mut text =
            "kubeleet: the API. The same as a web page: /docs; for programs: /openapi.json\n\n".to_owned();
        for (path, item) in &openapi().paths.paths {
            for (method, summary) in operations(item) {
                // Writing to a text does not fail.
                let _ = writeln!(text, "{method:<7}{path:<28}{summary}");
            }
        }
        text
    })
}

/// Method and summary of each operation of a path.
pub(crate) fn operations(item: &PathItem) -> Vec<(&'static str, String)> {
    let all = [
        ("GET", &item.get),
        ("POST", &item.post),
        ("PUT", &item.put),
        ("PATCH", &item.patch),
        ("DELETE", &item.delete),
    ];
    let summary =
        |operation: &utoipa::openapi::path::Operation| operation.summary.clone().unwrap_or_default();
    all.into_iter().filter_map(|(method, found)| Some((method, summary(found.as_ref()?)))).collect()
}
