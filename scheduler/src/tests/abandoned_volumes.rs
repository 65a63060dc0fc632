//! Volumes are removed when they have had no service for long enough, by count.

use std::time::Duration;

use model::ids::{NodeName, ServiceName};
use store::saved_state::SavedVolume;
use testkit::need_redis;

use super::cluster::{Cluster, defaults};
use crate::loops::abandoned_volumes::remove_abandoned;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const GRACE: Duration = DAY.saturating_mul(30);

fn volume(service: &str) -> SavedVolume {
    SavedVolume {
        service: ServiceName::new(service).unwrap(),
        source: "data".to_owned(),
        replica: 0,
        space: None,
        node: NodeName::new("gone").unwrap(),
        engine_id: None,
        epoch: None,
        found: false,
        given_up_at: None,
    }
}

async fn cluster() -> Cluster {
    let cluster = Cluster::new(defaults());
    cluster.post(r#"{"name":"web","image":"nginx"}"#, Some(0)).await;
    cluster.store.restore_volumes(&[volume("web"), volume("db")]).await.unwrap();
    cluster
}

async fn names(cluster: &Cluster) -> Vec<String> {
    cluster.store.volume_names().await.unwrap().iter().map(ToString::to_string).collect()
}

#[tokio::test]
async fn a_volume_is_removed_when_its_service_has_been_gone_for_long_enough() {
    need_redis!();
    let cluster = cluster().await;
    for days in [10, 19] {
        remove_abandoned(&cluster.store, DAY * days, GRACE).await.unwrap();
        assert_eq!(names(&cluster).await, ["db_data_0", "web_data_0"], "after {days} more days");
    }
    remove_abandoned(&cluster.store, DAY, GRACE).await.unwrap();
    assert_eq!(names(&cluster).await, ["web_data_0"]);
}

#[tokio::test]
async fn a_service_that_comes_back_begins_its_time_anew() {
    need_redis!();
    let cluster = cluster().await;
    remove_abandoned(&cluster.store, DAY * 29, GRACE).await.unwrap();
    cluster.post(r#"{"name":"db","image":"postgres"}"#, Some(0)).await;
    remove_abandoned(&cluster.store, DAY * 29, GRACE).await.unwrap();
    let name = ServiceName::new("db").unwrap();
    cluster.store.delete_service(&name).await.unwrap();
    let service = cluster.store.service(&name).await.unwrap().unwrap();
    assert!(cluster.store.forget_service(&service).await.unwrap());
    remove_abandoned(&cluster.store, DAY * 29, GRACE).await.unwrap();
    assert_eq!(names(&cluster).await, ["db_data_0", "web_data_0"]);
    remove_abandoned(&cluster.store, DAY, GRACE).await.unwrap();
    assert_eq!(names(&cluster).await, ["web_data_0"]);
}

#[tokio::test]
async fn a_service_that_is_missing_in_the_list_of_services_keeps_its_volume() {
    need_redis!();
    let cluster = cluster().await;
    let _: u32 = cluster.server.cli(&["DEL", "services"]).await;
    remove_abandoned(&cluster.store, GRACE, GRACE).await.unwrap();
    assert_eq!(names(&cluster).await, ["web_data_0"]);
    let _: u32 = cluster.server.cli(&["DEL", "service:web"]).await;
    let _: String = cluster.server.cli(&["SET", "service:web", "x"]).await;
    remove_abandoned(&cluster.store, GRACE, GRACE).await.unwrap();
    assert_eq!(names(&cluster).await, ["web_data_0"], "a broken record is one");
}

#[tokio::test]
async fn nothing_is_counted_while_a_worker_holds_and_a_wrong_count_is_none() {
    need_redis!();
    let cluster = cluster().await;
    let counts = ["HSET", "volumes:abandoned", "db_data_0", "99999999999999999999", "\u{1F600}", "x"];
    let _: u32 = cluster.server.cli(&counts).await;
    remove_abandoned(&cluster.store, DAY, GRACE).await.unwrap();
    assert_eq!(names(&cluster).await, ["db_data_0", "web_data_0"]);
    let count: String = cluster.server.cli(&["HGET", "volumes:abandoned", "db_data_0"]).await;
    assert_eq!(count, DAY.as_secs().to_string());
    let now = cluster.store.redis_now().await.unwrap();
    let _: u32 =
        cluster.server.cli(&["HSET", "held", "w1", &format!("0123456789abcdef 3 {now} records")]).await;
    assert_eq!(cluster.store.held_nodes().await.unwrap().len(), 1);
    remove_abandoned(&cluster.store, DAY * 300, GRACE).await.unwrap();
    assert_eq!(names(&cluster).await, ["db_data_0", "web_data_0"]);
}

/// After a recovery, services without pods are unknown.
#[tokio::test]
async fn a_volume_whose_record_was_lost_is_not_abandoned_before_its_service_was_seen() {
    need_redis!();
    let cluster = cluster().await;
    let _: u32 = cluster.server.cli(&["HSET", "volume:db_data_0", "recovered", "1"]).await;
    remove_abandoned(&cluster.store, DAY * 300, GRACE).await.unwrap();
    assert_eq!(names(&cluster).await, ["db_data_0", "web_data_0"]);
    cluster.post(r#"{"name":"db","image":"postgres"}"#, Some(0)).await;
    remove_abandoned(&cluster.store, DAY, GRACE).await.unwrap();
    let name = ServiceName::new("db").unwrap();
    cluster.store.delete_service(&name).await.unwrap();
    let service = cluster.store.service(&name).await.unwrap().unwrap();
    assert!(cluster.store.forget_service(&service).await.unwrap());
    remove_abandoned(&cluster.store, DAY, GRACE).await.unwrap();
    assert_eq!(cluster.store.abandoned_volumes().await.unwrap().len(), 1);
    remove_abandoned(&cluster.store, GRACE, GRACE).await.unwrap();
    assert_eq!(names(&cluster).await, ["web_data_0"]);
}
