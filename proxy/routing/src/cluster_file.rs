//! The file with the last known routes and endpoints, for a restart without Redis.

use std::collections::BTreeMap;
use std::sync::Arc;

use daemon::state_file::StateFile;
use model::ids::{PodId, ServiceName};
use model::network::endpoint::Endpoint;
use model::network::ingress::{IngressRule, read_rules};
use serde::{Deserialize, Serialize};
use store::{AliasesByApp, Callers, EndpointVersion, Routing};

use crate::cluster::FollowedCluster;
use crate::endpoint_set::EndpointSet;

#[derive(Default, Serialize, Deserialize)]
struct KnownClusterFile {
    routes: Vec<Route>,
    callers: Callers,
    aliases: AliasesByApp,
    services: BTreeMap<ServiceName, KnownEndpoints>,
}

#[derive(Serialize, Deserialize)]
struct Route {
    route: String,
    target: String,
}

#[derive(Serialize, Deserialize)]
struct KnownEndpoints {
    version: u64,
    master: String,
    endpoints: BTreeMap<PodId, String>,
    /// Hosts reported endpoints since Redis had this version.
    is_heard: bool,
}

pub(crate) fn text(known: &FollowedCluster) -> String {
    let fields = |(service, rule): &(ServiceName, IngressRule)| {
        let field = (rule.route(), rule.target(service));
        [Some(field), rule.options(service)].into_iter().flatten()
    };
    let service = |(name, set): (&ServiceName, &EndpointSet)| {
        let (version, is_heard) = set.to_save()?;
        let endpoints = set.iter().map(|one| (one.pod.clone(), one.to_string())).collect();
        let service =
            KnownEndpoints { version: version.version, master: version.master.clone(), endpoints, is_heard };
        Some((name.clone(), service))
    };
    let file = KnownClusterFile {
        routes: {
            let fields = known.routing.routes.iter().flat_map(fields);
            fields.map(|(route, target)| Route { route, target }).collect()
        },
        callers: known.routing.callers.clone(),
        aliases: known.routing.aliases.clone(),
        services: known.sets.iter().filter_map(service).collect(),
    };
    serde_json::to_string(&file).expect("texts and numbers serialize")
}

pub(crate) fn read(file: &StateFile) -> FollowedCluster {
    let file: KnownClusterFile = file.load_or_default("nothing is routed until Redis answers");
    let routes = read_rules(file.routes.iter().map(|one| (one.route.as_str(), one.target.as_str())));
    let set = |service: KnownEndpoints| {
        let endpoints = service.endpoints.into_iter();
        let endpoints = endpoints.filter_map(|(pod, line)| Endpoint::parse(pod, &line).ok()).collect();
        let version = EndpointVersion { version: service.version, master: service.master };
        EndpointSet::saved(version, endpoints, service.is_heard)
    };
    let sets = file.services.into_iter().map(|(name, service)| (name, set(service))).collect();
    let routing = Routing { routes, callers: file.callers, aliases: file.aliases };
    FollowedCluster { routing: Arc::new(routing), sets }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn what_is_written_is_read_again_and_what_is_broken_is_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let file = StateFile::new(folder.path().join("known.json"));
        assert_eq!(read(&file), FollowedCluster::default(), "there is no file yet");
        let web = ServiceName::new("web").unwrap();
        let endpoint = Endpoint::parse(PodId::new("p").unwrap(), "0 w a ready").unwrap();
        let version = EndpointVersion { version: 7, master: "0".to_owned() };
        let fields = [("web.example/", "web 80"), ("rule:web.example/", "web answer_timeout=300")];
        let rule = read_rules(fields).remove(0);
        for is_heard in [false, true] {
            let set = EndpointSet::saved(version.clone(), vec![endpoint.clone()], is_heard);
            let callers = [(web.clone(), [ServiceName::new("api").unwrap()].into())].into();
            let aliases = [("db.internal".to_owned(), web.clone())].into();
            let aliases = [(model::ids::AppName::new("shop").unwrap(), aliases)].into();
            let routing = Arc::new(Routing { routes: vec![rule.clone()], callers, aliases });
            let known = FollowedCluster { routing, sets: [(web.clone(), set)].into() };
            file.write(text(&known).as_bytes()).unwrap();
            assert_eq!(read(&file), known);
        }
        file.write(b"{").unwrap();
        assert_eq!(read(&file), FollowedCluster::default());
    }
}
