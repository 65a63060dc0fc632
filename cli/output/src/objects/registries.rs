//! Registry logins as table rows and descriptions.

use api_types::RegistryView;
use jiff::Timestamp;

use crate::describe_layout::DescribeLayout;
use crate::{TableRow, Titles, humanize};

impl TableRow for RegistryView {
    const TITLES: Titles = &["REGISTRY", "USER", "UPDATED"];

    fn cells(&self, _wide: bool, now: Timestamp) -> Vec<String> {
        vec![self.host.to_string(), self.user.clone(), humanize::age(&self.updated_at, now)]
    }

    fn name(&self) -> String {
        format!("registry/{}", self.host)
    }
}

pub fn describe(registry: &RegistryView, now: Timestamp) -> String {
    let RegistryView { host, user, updated_at, .. } = registry;
    let mut layout = DescribeLayout::default();
    layout
        .field("Registry", host.as_str())
        .field("User", user.as_str())
        .field("Updated", format!("{updated_at} ({} ago)", humanize::age(updated_at, now)));
    layout.finish()
}
