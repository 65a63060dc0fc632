//! `routes`: a route belongs to one service, and follows from the records of services.

use kubeleet_tests::Fixture;
use model::ids::ServiceName;
use model::spec::{DesiredService, ServiceInput};
use serde_json::{Value, json};
use store::{PutMode, PutOutcome};

use crate::changing_nothing;

fn service(name: &str, ingress: Value) -> DesiredService {
    let input = json!({"name": name, "image": "nginx", "replicas": 0, "ingress": ingress});
    ServiceInput::from_value(&input).unwrap().normalize().unwrap()
}

async fn put(fixture: &Fixture, name: &str, ingress: Value) -> PutOutcome {
    fixture.store.put_service(&service(name, ingress), PutMode::Upsert, None).await.unwrap().0
}

async fn forget(fixture: &Fixture, name: &str) {
    let name = ServiceName::new(name).unwrap();
    fixture.store.delete_service(&name).await.unwrap();
    let service = fixture.store.service(&name).await.unwrap().unwrap();
    assert!(fixture.store.forget_service(&service).await.unwrap());
}

async fn routes(fixture: &Fixture) -> Vec<(String, String)> {
    let mut routes = fixture.keyspace().await.fields("routes");
    routes.sort();
    routes
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|(route, target)| ((*route).to_owned(), (*target).to_owned())).collect()
}

#[tokio::test]
async fn routes_follow_the_ingress_of_a_service_and_replace_no_pod() {
    let fixture = Fixture::new().await;
    let rules = json!([{"host": "web.example", "port": 80}, {"tcp": 5432, "port": 5433}]);
    let created = put(&fixture, "web", rules.clone()).await;
    assert!(matches!(created, PutOutcome::Created(_)), "{created:?}");
    assert_eq!(routes(&fixture).await, pairs(&[("tcp:5432", "web 5433"), ("web.example/", "web 80")]));
    let same = changing_nothing(&fixture, put(&fixture, "web", rules)).await;
    assert_eq!(same, PutOutcome::Unchanged { generation: 1 });
    let rules = json!([{"host": "web.example", "path": "/api/", "port": 81, "protocol": "h2c"}]);
    assert_eq!(put(&fixture, "web", rules).await, PutOutcome::Scaled { generation: 1 });
    assert_eq!(routes(&fixture).await, pairs(&[("web.example/api", "web 81 h2c")]));
    let read = fixture.store.routing().await.unwrap().routes;
    assert_eq!((read[0].0.as_str(), read[0].1.route()), ("web", "web.example/api".to_owned()));
    assert_eq!(put(&fixture, "web", json!([])).await, PutOutcome::Scaled { generation: 1 });
    assert_eq!(routes(&fixture).await, []);
    let fields = fixture.keyspace().await.fields("service:web");
    assert!(!fields.iter().any(|(field, _)| field == "ingress" || field == "routes"), "{fields:?}");
}

#[tokio::test]
async fn who_reaches_a_service_is_a_field_of_the_routes_and_goes_with_it() {
    let fixture = Fixture::new().await;
    let put = async |allow_from: Value| {
        let input = json!({"name": "db", "image": "nginx", "replicas": 0, "allow_from": allow_from,
                           "ingress": [{"tcp": 1, "port": 1}]});
        let service = ServiceInput::from_value(&input).unwrap().normalize().unwrap();
        fixture.store.put_service(&service, PutMode::Upsert, None).await.unwrap().0
    };
    for (allow_from, value) in [
        (Value::Null, None),
        (json!(["web", "api"]), Some("db api,web")),
        (json!([]), Some("db -")),
        (json!(["web"]), Some("db web")),
        (Value::Null, None),
    ] {
        put(allow_from.clone()).await;
        let expected = value.map(|value| ("from:db", value)).into_iter().chain([("tcp:1", "db 1")]);
        assert_eq!(routes(&fixture).await, pairs(&expected.collect::<Vec<_>>()));
        let stored = fixture.store.service(&ServiceName::new("db").unwrap()).await.unwrap().unwrap();
        assert_eq!(serde_json::to_value(&stored.fields.allow_from).unwrap(), stored_form(&allow_from));
        assert_eq!(put(allow_from).await, PutOutcome::Unchanged { generation: 1 });
    }
    put(json!(["web"])).await;
    let routing = fixture.store.routing().await.unwrap();
    assert_eq!((routing.routes.len(), routing.callers.len()), (1, 1));
    forget(&fixture, "db").await;
    assert_eq!(routes(&fixture).await, []);
}

#[tokio::test]
async fn an_alias_belongs_to_one_service_of_an_app_and_is_no_name_of_another() {
    let fixture = Fixture::new().await;
    let put = async |name: &str, app: &str, aliases: Value| {
        let input = json!({"name": name, "app": app, "image": "nginx", "replicas": 0, "aliases": aliases});
        let service = ServiceInput::from_value(&input).unwrap().normalize().unwrap();
        fixture.store.put_service(&service, PutMode::Upsert, None).await.unwrap().0
    };
    let taken =
        |route: &str, service: &str| PutOutcome::RouteTaken { route: route.into(), service: service.into() };
    put("shop-db", "shop", json!(["db.internal", "DataBase"])).await;
    put("blog-db", "blog", json!(["database"])).await;
    let all = [
        ("alias:blog/database", "blog-db"),
        ("alias:shop/database", "shop-db"),
        ("alias:shop/db.internal", "shop-db"),
    ];
    assert_eq!(routes(&fixture).await, pairs(&all));
    let same = changing_nothing(&fixture, put("shop-db", "shop", json!(["database", "db.internal"]))).await;
    assert_eq!(same, PutOutcome::Unchanged { generation: 1 });
    for (name, aliases, refused) in [
        ("shop-web", json!(["database"]), taken("alias:shop/database", "shop-db")),
        ("shop-web", json!(["db"]), taken("alias:shop/db", "shop-db")),
        ("shop-database", json!([]), taken("alias:shop/database", "shop-db")),
    ] {
        assert_eq!(changing_nothing(&fixture, put(name, "shop", aliases)).await, refused, "{name}");
    }
    let routing = fixture.store.routing().await.unwrap();
    assert_eq!((routing.routes.len(), routing.aliases.len()), (0, 2));
    assert_eq!(put("shop-db", "shop", json!(["db"])).await, PutOutcome::Scaled { generation: 1 });
    let stored = fixture.store.service(&ServiceName::new("shop-db").unwrap()).await.unwrap().unwrap();
    assert_eq!(stored.fields.aliases.names().collect::<Vec<_>>(), ["db"]);
    forget(&fixture, "shop-db").await;
    assert_eq!(routes(&fixture).await, pairs(&all[..1]));
}

fn stored_form(names: &Value) -> Value {
    let mut names = names.clone();
    if let Some(names) = names.as_array_mut() {
        names.sort_by_key(|name| name.to_string());
    }
    names
}

#[tokio::test]
async fn a_route_of_another_service_is_refused_and_nothing_is_changed() {
    let fixture = Fixture::new().await;
    put(&fixture, "web", json!([{"host": "a.example", "port": 80}, {"tcp": 1, "port": 1}])).await;
    put(&fixture, "other", json!([{"host": "b.example", "port": 80}])).await;
    for (rule, route) in
        [(json!({"host": "a.example", "port": 9}), "a.example/"), (json!({"tcp": 1, "port": 9}), "tcp:1")]
    {
        for name in ["other", "new"] {
            let rules = json!([{"host": "c.example", "port": 80}, rule]);
            let refused = changing_nothing(&fixture, put(&fixture, name, rules)).await;
            let taken = PutOutcome::RouteTaken { route: route.to_owned(), service: "web".to_owned() };
            assert_eq!(refused, taken, "{name}");
        }
    }
}

#[tokio::test]
async fn a_route_is_free_when_its_service_is_forgotten() {
    let fixture = Fixture::new().await;
    let rules = json!([{"host": "a.example", "port": 80}]);
    put(&fixture, "web", rules.clone()).await;
    fixture.store.delete_service(&ServiceName::new("web").unwrap()).await.unwrap();
    let taken = PutOutcome::RouteTaken { route: "a.example/".to_owned(), service: "web".to_owned() };
    assert_eq!(put(&fixture, "other", rules.clone()).await, taken, "its pods may still serve");
    forget(&fixture, "web").await;
    assert_eq!(routes(&fixture).await, []);
    assert!(matches!(put(&fixture, "other", rules.clone()).await, PutOutcome::Created(_)));
    // The scheduler of an earlier version forgets services without their routes.
    let () = fixture.redis.cli(&["HSET", "routes", "b.example/", "gone 80"]).await;
    put(&fixture, "other", json!([{"host": "b.example", "port": 81}])).await;
    assert_eq!(routes(&fixture).await, pairs(&[("b.example/", "other 81")]));
}

#[tokio::test]
async fn the_check_rebuilds_the_routes_from_the_services() {
    let fixture = Fixture::new().await;
    put(&fixture, "web", json!([{"host": "a.example", "port": 80}, {"tcp": 1, "port": 1}])).await;
    let before = routes(&fixture).await;
    assert_eq!(fixture.store.check().await.unwrap(), []);
    let _: u64 = fixture.redis.cli(&["HDEL", "routes", "a.example/"]).await;
    let () = fixture.redis.cli(&["HSET", "routes", "tcp:2", "web 2", "old/", "gone 80"]).await;
    let found = fixture.store.check().await.unwrap();
    assert_eq!(found.len(), 3, "{found:?}");
    for finding in &found {
        assert!(fixture.store.repair(finding).await.unwrap(), "{finding:?}");
        assert!(!fixture.store.repair(finding).await.unwrap(), "{finding:?}, again");
    }
    assert_eq!(routes(&fixture).await, before);
    assert_eq!(fixture.store.check().await.unwrap(), []);
}

#[tokio::test]
async fn a_service_that_is_recovered_has_its_routes_again() {
    let fixture = Fixture::new().await;
    put(&fixture, "web", json!([{"host": "a.example", "port": 80}, {"host": "b.example", "port": 80}])).await;
    let name = ServiceName::new("web").unwrap();
    let saved = fixture.store.saved_service(&name).await.unwrap().unwrap();
    forget(&fixture, "web").await;
    put(&fixture, "other", json!([{"host": "b.example", "port": 81}])).await;
    assert!(fixture.store.recover_record(&saved).await.unwrap());
    let expected = [("a.example/", "web 80"), ("b.example/", "other 81")];
    assert_eq!(routes(&fixture).await, pairs(&expected), "what another has got meanwhile stays there");
    let shared = fixture.store.check().await.unwrap();
    assert!(shared.iter().any(|finding| finding.problem.contains("other and web")), "{shared:?}");
    assert_eq!(fixture.store.service(&name).await.unwrap().unwrap().fields.ingress.len(), 2);
}
