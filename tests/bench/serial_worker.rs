//! The worker of the first kubeleet, for comparison: it starts and stops one container after the other.

use std::time::Instant;

use futures_util::future::join_all;
use kubeleet_tests::Redis;
use serde_json::json;

use crate::engine::Engine;
use crate::fleet::Fleet;
use crate::launch::Durations;
use crate::rig::Persistence;

pub async fn run(fleet: &Fleet, pods: usize) -> Durations {
    let redis = Persistence::Everysec.redis().await;
    let engines = fleet.engines.len();
    let nodes: Vec<String> = (0..engines).map(|index| format!("first{index}")).collect();
    let begin = Instant::now();
    for pod in 0..pods {
        let payload =
            json!({ "name": "first", "uuid": format!("first-{pod}"), "image": "-", "replica": pod });
        let queue = format!("pq:{}", nodes[pod % engines]);
        redis.cli::<u64>(&["LPUSH", &queue, &payload.to_string()]).await;
    }
    let loops = fleet.engines.iter().zip(&nodes).map(|(engine, node)| serve(&redis, engine, node));
    let ids = join_all(loops).await;
    let launched = begin.elapsed();
    let begin = Instant::now();
    join_all(fleet.engines.iter().zip(ids).map(|(engine, ids)| engine.remove(ids, 1))).await;
    (launched, begin.elapsed())
}

async fn serve(redis: &Redis, engine: &Engine, node: &str) -> Vec<String> {
    let (pq, rq, cs) = (format!("pq:{node}"), format!("rq:{node}"), format!("cs:{node}"));
    let mut connection = redis.connection().await.unwrap();
    let mut ids = Vec::new();
    for _ in 0..redis.cli::<usize>(&["LLEN", &pq]).await {
        let mut pop = redis::cmd("BRPOPLPUSH");
        pop.arg(&[&pq, &rq, "5"]);
        let payload: String = pop.query_async(&mut connection).await.unwrap();
        ids.extend(engine.launch(1, 1).await);
        let mut ack = redis::pipe();
        ack.cmd("SADD").arg(&[&cs, &payload]).cmd("LREM").arg(&[&rq, "1", &payload]);
        ack.exec_async(&mut connection).await.unwrap();
    }
    ids
}
