//! Secrets and configs as table rows and descriptions.

use api_types::ValueView;
use jiff::Timestamp;
use model::value::ValueKind;
use serde::Serialize;

use crate::describe_layout::DescribeLayout;
use crate::{TableRow, Titles, humanize};

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(transparent)]
pub struct ValueRow {
    view: ValueView,
    #[serde(skip)]
    kind: ValueKind,
}

pub fn row(kind: ValueKind, view: ValueView) -> ValueRow {
    ValueRow { view, kind }
}

pub fn rows(kind: ValueKind, views: Vec<ValueView>) -> Vec<ValueRow> {
    views.into_iter().map(|view| row(kind, view)).collect()
}

impl TableRow for ValueRow {
    const TITLES: Titles = &["NAME", "VERSION", "UPDATED", "AGE"];

    fn cells(&self, _wide: bool, now: Timestamp) -> Vec<String> {
        let ValueView { name, version, created_at, updated_at, .. } = &self.view;
        let age = |at: &str| humanize::age(at, now);
        vec![name.to_string(), version.to_string(), age(updated_at), age(created_at)]
    }

    fn name(&self) -> String {
        format!("{}/{}", self.kind, self.view.name)
    }
}

pub fn describe(row: &ValueRow, users: &[String], now: Timestamp) -> String {
    let ValueView { name, version, created_at, updated_at, app, .. } = &row.view;
    let age = |at: &str| format!("{at} ({} ago)", humanize::age(at, now));
    let mut layout = DescribeLayout::default();
    layout.field("Name", name.as_str());
    if let Some(app) = app {
        layout.field("App", app.as_str());
    }
    layout
        .field("Version", version.to_string())
        .field("Updated", age(updated_at))
        .field("Created", age(created_at))
        .field("Used by", if users.is_empty() { "no service".to_owned() } else { users.join(", ") })
        .finish()
}
