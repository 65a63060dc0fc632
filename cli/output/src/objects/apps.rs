//! Apps as table rows and descriptions.

use std::collections::BTreeMap;

use api_types::ServiceView;
use jiff::Timestamp;
use model::ids::AppName;
use serde::Serialize;

use super::services;
use crate::describe_layout::DescribeLayout;
use crate::{TableRow, Titles, humanize, table};

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AppSummary {
    name: AppName,
    ready: usize,
    services: Vec<ServiceView>,
}

impl AppSummary {
    pub fn all(services: Vec<ServiceView>) -> Vec<Self> {
        let mut apps: BTreeMap<AppName, Vec<ServiceView>> = BTreeMap::new();
        for service in services {
            if let Some(app) = service.fields.app.clone() {
                apps.entry(app).or_default().push(service);
            }
        }
        let summary = |(name, services): (AppName, Vec<ServiceView>)| {
            let ready = services.iter().filter(|service| is_ready(service)).count();
            Self { name, ready, services }
        };
        apps.into_iter().map(summary).collect()
    }

    pub fn has_name(&self, name: &str) -> bool {
        self.name.as_str() == name
    }

    pub fn service_names(&self) -> Vec<String> {
        self.services.iter().map(|service| service.name.to_string()).collect()
    }

    pub fn status(&self) -> &str {
        let words = self.services.iter().filter(|service| !is_ready(service));
        words.map(services::status_word).next().unwrap_or("ready")
    }
}

/// An ended job counts as ready.
fn is_ready(service: &ServiceView) -> bool {
    matches!(services::status_word(service), "ready" | "succeeded")
}

impl TableRow for AppSummary {
    const TITLES: Titles = &["NAME", "READY", "STATUS", "SERVICES"];

    fn cells(&self, _wide: bool, _now: Timestamp) -> Vec<String> {
        let names = self.services.iter().map(|service| short_name(&self.name, service));
        vec![
            self.name.to_string(),
            format!("{}/{}", self.ready, self.services.len()),
            self.status().to_owned(),
            humanize::shorten(&names.collect::<Vec<_>>().join(","), 60),
        ]
    }

    fn name(&self) -> String {
        format!("app/{}", self.name)
    }
}

fn short_name(app: &AppName, service: &ServiceView) -> String {
    app.short_name(&service.name).unwrap_or(service.name.as_str()).to_owned()
}

pub fn describe(app: &AppSummary) -> String {
    let row = |service: &ServiceView| {
        vec![
            short_name(&app.name, service),
            format!("{}/{}", service.status.ready_pods(), service.status.desired),
            services::status_word(service).to_owned(),
            service.pod.containers.first().map(|container| container.image.clone()).unwrap_or_default(),
            humanize::shorten_message(&service.status.message, 80),
        ]
    };
    let rows = app.services.iter().map(row).collect();
    let lines = table::render(&["NAME", "READY", "STATUS", "IMAGE", "MESSAGE"], rows);
    let mut layout = DescribeLayout::default();
    layout.field("Name", app.name.as_str()).field("Status", app.status()).field(
        "Ready",
        format!("{} of {}", app.ready, humanize::count(app.services.len() as u64, "service")),
    );
    layout.section("Services", lines.lines().map(|line| line.trim_end().to_owned()));
    layout.section("See also", [format!("kubeleet describe service/{}-<name>", app.name)]);
    layout.finish()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use testkit::api_fixtures as fixtures;

    use super::*;

    fn service(app: &str, name: &str, running: u64) -> ServiceView {
        let mut service = fixtures::service(&format!("{app}-{name}"));
        service.fields.app = Some(AppName::new(app).unwrap());
        service.status.running = running;
        service
    }

    #[test]
    fn services_are_grouped_by_app() {
        let services = vec![
            service("shop", "web", 3),
            fixtures::service("other"),
            service("blog", "web", 3),
            service("shop", "db", 1),
        ];
        let apps = AppSummary::all(services);
        let cells: Vec<_> =
            apps.iter().map(|app| app.cells(false, Timestamp::UNIX_EPOCH).join(" ")).collect();
        assert_eq!(cells, ["blog 1/1 ready web", "shop 2/2 ready web,db"]);
        assert!(describe(&apps[1]).contains("\nServices\n  NAME"), "{}", describe(&apps[1]));
    }
}
