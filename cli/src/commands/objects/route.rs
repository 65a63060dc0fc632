//! `route`: list, and explain the destination of a request.

use api_types::{CertificateView, RouteView};
use clap::Subcommand;
use client::PodFilter;
use jiff::Timestamp;
use model::ids::ServiceName;
use output::ListStyle;
use output::objects::routes::{self, Explanation, RoutePod};
use proxy::route::{RouteTable, host_name};

use crate::commands::context::Context;
use crate::commands::error::{CommandError, CommandResult};
use crate::commands::lists;
use crate::commands::type_args::TypeArgs;
use crate::exit::Exit;

pub(crate) type RouteArgs = TypeArgs<ListStyle, RouteCommand>;

/// Subcommands of `route`.
#[derive(Debug, Subcommand)]
pub(crate) enum RouteCommand {
    /// List the hosts, paths and ports that lead to services.
    #[command(visible_alias = "list")]
    Ls(ListStyle),
    /// Show which service and which of its pods get a request, and why not the others.
    #[command(visible_alias = "describe")]
    Explain {
        /// The address of the request, http://web.example/api, or of the connection, tcp:5432.
        url: String,
    },
}

pub(crate) async fn run(args: RouteArgs, context: &mut Context<'_>) -> CommandResult {
    match args.or_list(RouteCommand::Ls)? {
        RouteCommand::Ls(style) => list(style, context).await,
        RouteCommand::Explain { url } => explain(url, context).await,
    }
}

pub(crate) async fn list(style: ListStyle, context: &mut Context<'_>) -> CommandResult {
    let none = "no routes; `ingress: [{host: …, port: …}]` of a service makes them";
    lists::show(style, none, async |client| client.list::<RouteView>("route").await, context).await
}

pub(crate) async fn explain(url: String, context: &mut Context<'_>) -> CommandResult {
    let target = RouteTarget::parse(&url).map_err(CommandError::Usage)?;
    let known = context.client.list::<RouteView>("route").await?;
    let certificate = target.certificate(&known);
    let Some((service, port)) = target.service(known) else {
        let detail = format!("no route matches {url}: `kubeleet route ls` lists them");
        return Err(CommandError::Other(detail));
    };
    let filter = PodFilter { service: Some(service.to_string()), ..PodFilter::default() };
    let pods = context.client.pods(&filter).await?.iter().map(RoutePod::of).collect();
    let explanation = Explanation { url, service, port, certificate, pods };
    context.output.print_object(&explanation, |_| routes::describe(&explanation, Timestamp::now()))?;
    Ok(Exit::Ok)
}

#[derive(Debug, PartialEq, Eq)]
enum RouteTarget {
    Http { host: String, path: String },
    Tcp(u16),
}

impl RouteTarget {
    fn parse(url: &str) -> Result<Self, String> {
        if let Some(port) = url.strip_prefix("tcp://:").or_else(|| url.strip_prefix("tcp:")) {
            let port = port.parse();
            return port.map(Self::Tcp).map_err(|_| format!("{url:?} has no port: write tcp:5432"));
        }
        let address = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://")).unwrap_or(url);
        let address = address.split(['?', '#']).next().unwrap_or_default();
        let (host, path) = address.split_at(address.find('/').unwrap_or(address.len()));
        let path = if path.is_empty() { "/" } else { path };
        Ok(Self::Http { host: host.to_owned(), path: path.to_owned() })
    }

    fn certificate(&self, routes: &[RouteView]) -> Option<CertificateView> {
        let Self::Http { host, .. } = self else { return None };
        let name = host_name(host);
        routes.iter().find(|route| route.rule.auto_host() == Some(&*name))?.certificate.clone()
    }

    fn service(&self, routes: Vec<RouteView>) -> Option<(ServiceName, u16)> {
        let table = RouteTable::new(routes.into_iter().map(|route| (route.service, route.rule)).collect());
        match self {
            Self::Http { host, path } => {
                table.http(host, path).map(|route| (route.service.clone(), route.port))
            }
            Self::Tcp(port) => table.tcp().get(port).map(|route| (route.service.clone(), route.port)),
        }
    }
}

#[cfg(test)]
mod tests {
    use model::network::ingress::IngressRule;

    use super::*;

    #[test]
    fn an_address_leads_to_the_service_of_its_route() {
        let routes = [("web.example/", "web 80"), ("web.example/api", "api 81"), ("tcp:5432", "db 5433")];
        let routes = routes.map(|(route, target)| {
            let (service, rule) = IngressRule::parse(route, target).unwrap();
            RouteView { route: route.to_owned(), service, rule, certificate: None }
        });
        for (url, expected) in [
            ("http://web.example", Some(("web", 80))),
            ("https://web.example:8443/api/x?y", Some(("api", 81))),
            ("web.example/apix", Some(("web", 80))),
            ("other.example", None),
            ("tcp:5432", Some(("db", 5433))),
            ("tcp://:5432", Some(("db", 5433))),
            ("tcp:1", None),
        ] {
            let found = RouteTarget::parse(url).unwrap().service(routes.to_vec());
            let found = found.as_ref().map(|(service, port)| (service.as_str(), *port));
            assert_eq!(found, expected, "{url}");
        }
        assert!(RouteTarget::parse("tcp:x").is_err());
    }
}
