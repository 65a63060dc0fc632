//! Secrets and configs. Responses never contain their content.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{DurabilityView, rfc3339};
use model::ids::{AppName, ValueName};
use model::value::{ValueBytes, ValueInfo};

/// The content of a secret or config, as a text in `value` or in base64 in `data`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ValueInput {
    /// The name. Needed to create one; otherwise the path has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<ValueName>,
    /// The content, if it is a text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<ValueBytes>,
    /// The content in base64: any bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<ValueBytes>,
    /// The app that it is a part of. A next version is then stored only if it is a part of this app already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app: Option<AppName>,
}

impl ValueInput {
    pub fn new(name: Option<ValueName>, content: &ValueBytes) -> Self {
        let encoded = ValueBytes::new(STANDARD.encode(content.expose()).into_bytes());
        Self { name, value: None, data: Some(encoded), app: None }
    }

    pub fn of_app(self, app: AppName) -> Self {
        Self { app: Some(app), ..self }
    }

    /// The error contains no part of the content.
    pub fn content(self) -> Result<ValueBytes, &'static str> {
        match (self.value, self.data) {
            (Some(value), None) => Ok(value),
            (None, Some(data)) => {
                let decoded = STANDARD.decode(data.expose().trim_ascii());
                decoded
                    .map(ValueBytes::new)
                    .map_err(|_| "`data` is not base64; a text can be sent as `value`")
            }
            (None, None) => Err("it has no content: send a text as `value`, or base64 as `data`"),
            (Some(_), Some(_)) => Err("send either `value` or `data`, not both"),
        }
    }
}

/// A secret or config, without its content.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ValueView {
    /// The name.
    pub name: ValueName,
    /// The current version: 1, and one more with each rotation. Pods that start get it.
    pub version: u64,
    /// When it was created.
    pub created_at: String,
    /// When the current version was stored.
    pub updated_at: String,
    /// The app that it is a part of, if it is: it goes with the app.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app: Option<AppName>,
    /// Whether Redis' replicas have confirmed the write. Only in responses to writes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub durability: Option<DurabilityView>,
}

/// Whether a content is that of the current version.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ValueComparison {
    /// The name.
    pub name: ValueName,
    /// The current version.
    pub version: u64,
    /// Whether the contents are the same.
    pub same: bool,
}

impl From<ValueInfo> for ValueView {
    fn from(info: ValueInfo) -> Self {
        Self {
            name: info.name,
            version: info.version,
            created_at: rfc3339(info.created_at),
            updated_at: rfc3339(info.updated_at),
            app: info.app,
            durability: None,
        }
    }
}
