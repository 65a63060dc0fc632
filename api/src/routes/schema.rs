//! `/schema`: JSON Schemas of user documents, for editors.

use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;

/// The JSON Schema of a service's document, for editors.
#[utoipa::path(get, path = "/schema/service", tag = "process", responses(
    (status = 200, description = "The JSON Schema", body = Value, content_type = "application/schema+json"),
))]
pub(crate) async fn get_service_schema() -> impl IntoResponse {
    ([(CONTENT_TYPE, "application/schema+json")], model::schema::of_service().to_string())
}
