//! Full disks: the order of the cleanup, and the level at which a node takes no new pods.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use kubeleet_tests::docker::{Docker, IMAGE};
use kubeleet_tests::exclusive::beside_others;
use kubeleet_tests::registry::{Asks, Registry};
use kubeleet_tests::{Cluster, ClusterTiming, Http, command, require};
use serde_json::{Value, json};
use testkit::eventually::{check, eventually_within};

use crate::{SOON, sleeper};

struct SmallDisk(PathBuf);

impl SmallDisk {
    /// `None` where mounting is not allowed.
    fn mount(folder: &Path) -> Option<Self> {
        let path = folder.join("small-disk");
        std::fs::create_dir_all(&path).unwrap();
        let mount = Command::new("mount").args(["-t", "tmpfs", "-o", "size=64m", "none"]).arg(&path).status();
        mount.is_ok_and(|status| status.success()).then_some(Self(path))
    }

    fn fill(&self, percent: u64) {
        let filler = self.0.join("filler");
        drop(std::fs::remove_file(&filler));
        let found = rustix::fs::statvfs(&self.0).unwrap();
        let used = (found.f_blocks - found.f_bavail) * found.f_frsize;
        let wanted = (found.f_blocks * found.f_frsize * percent / 100).saturating_sub(used);
        std::fs::write(filler, vec![1; wanted as usize]).unwrap();
    }

    fn kept_logs(&self, node: &str) -> usize {
        std::fs::read_dir(self.0.join(format!("{node}.logs"))).map_or(0, Iterator::count)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Processes may still have it open.
        drop(Command::new("umount").arg("-l").arg(&self.0).status());
    }
}

async fn reasons(http: &Http) -> Vec<String> {
    let events = http.get("/event?follow=false&tail=500").await;
    let items = events["items"].as_array().cloned().unwrap_or_default();
    items.iter().filter_map(|event| event["reason"].as_str()).map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_fills_up_loses_kept_logs_first_and_then_takes_no_pods() {
    let _lock = beside_others().await;
    let cluster = Cluster::new(ClusterTiming::Short).await;
    let Some(disk) = SmallDisk::mount(cluster.folder()) else {
        return require::skipped("netns", "no file system can be mounted here");
    };
    let (api, _scheduler) = (cluster.api().await, cluster.scheduler());
    let data_dir = disk.0.display().to_string();
    let settings = [
        ("KUBELEET_DATA_DIR", data_dir.as_str()),
        ("KUBELEET_IMAGE_GC_HIGH", "60"),
        ("KUBELEET_IMAGE_GC_LOW", "50"),
        ("KUBELEET_DISK_PRESSURE", "90"),
    ];
    let _worker = cluster.worker_with("w1", "process", &settings);
    let (http, node) = (api.http(), cluster.node("w1"));
    http.nodes_ready(1).await;
    let writer = json!({"name": "writer", "image": "none", "stop_grace_period": 0,
        "command": ["/bin/sh", "-c", "head -c 4000000 /dev/zero | tr '\\0' x | fold -w 100; sleep 86400"]});
    http.post("/service", &writer).await;
    http.post("/service", &sleeper("stays", 1, "keep")).await;
    http.runs(SOON, "writer", 1).await;
    http.runs(SOON, "stays", 1).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    http.send(reqwest::Method::DELETE, "/service/writer", None).await;
    eventually_within(SOON, "its log is kept", || async {
        check(disk.kept_logs(&node) == 1, || "no kept log".to_owned())
    })
    .await;
    disk.fill(70);
    eventually_within(SOON, "the kept log goes", || async {
        check(disk.kept_logs(&node) == 0, || "it is still there".to_owned())
    })
    .await;
    let view = http.get(&format!("/node/{node}")).await;
    assert_eq!((&view["ready"], &view["disk_problem"]), (&json!(true), &Value::Null), "{view}");
    disk.fill(95);
    eventually_within(SOON, "the disk is full", || async {
        let view = http.get(&format!("/node/{node}")).await;
        check(view["disk_problem"].is_string(), || view.to_string())
    })
    .await;
    http.post("/service?allow_partial=true", &sleeper("waits", 1, "keep")).await;
    eventually_within(SOON, "no pod is placed there", || async {
        let pods = http.pods("service=waits").await;
        let pod = http.get(&format!("/pod/{}", pods[0]["uuid"].as_str().unwrap_or_default())).await;
        check(pod.to_string().contains("DiskPressure"), || pod.to_string())
    })
    .await;
    http.runs(SOON, "stays", 1).await;
    let shown = command(&http, &["node", "ls"]).await.unwrap();
    assert!(shown.contains("disk-pressure"), "{shown}");
    let told = command(&http, &["gc", "--dry-run"]).await.unwrap();
    assert!(told.contains(&node) && told.contains("95%"), "{told}");
    disk.fill(10);
    http.runs(SOON, "waits", 1).await;
    let reasons = reasons(&http).await;
    assert!(["DiskPressure", "DiskPressureEnded"].iter().all(|one| reasons.iter().any(|found| found == one)));
}

#[tokio::test(flavor = "multi_thread")]
async fn images_go_that_no_service_needs_and_that_this_worker_has_used() {
    let _lock = beside_others().await;
    let cluster = Cluster::new(ClusterTiming::Short).await;
    let Some(docker) = Docker::find(&cluster.prefix).await else { return };
    let unique = uuid::Uuid::new_v4().simple().to_string();
    let registry = Registry::start(Asks::Basic).await;
    // Locally built images cannot be pulled again.
    let image = |name: &str| match name {
        "built" => format!("kubeleet-gc-{name}:{unique}"),
        _ => registry.image(name),
    };
    docker.tag(IMAGE, &image("built")).await;
    for name in ["old", "former", "current", "foreign"] {
        docker.pull(&image(name)).await;
    }
    let (api, _scheduler) = (cluster.api().await, cluster.scheduler());
    let http = api.http();
    let service = |image: String| json!({"name": "web", "image": image, "replicas": 0});
    http.post("/service", &service(image("former"))).await;
    http.send(reqwest::Method::PUT, "/service/web", Some(&service(image("current")))).await;
    let (folder, node) = (cluster.folder().join("gc"), cluster.node("w1"));
    std::fs::create_dir_all(&folder).unwrap();
    let used = json!({image("old"): 1000, image("former"): 1000, image("current"): 1000,
        image("built"): 1000});
    std::fs::write(folder.join(format!("{node}.images")), used.to_string()).unwrap();
    let data_dir = folder.display().to_string();
    // The disk of this machine may be full: nothing may go by itself.
    let settings = [
        ("KUBELEET_DATA_DIR", data_dir.as_str()),
        ("KUBELEET_IMAGE_GC_HIGH", "100"),
        ("KUBELEET_IMAGE_GC_LOW", "100"),
    ];
    let _worker = cluster.worker_with("w1", "docker", &settings);
    http.nodes_ready(1).await;
    let told = http.send(reqwest::Method::POST, &format!("/node/{node}/gc?dry_run=true"), None).await.1;
    assert_eq!((&told["images"], &told["removed"]), (&json!([image("old")]), &json!([])), "{told}");
    assert_eq!(told["unpullable_images"], json!([image("built")]), "{told}");
    assert!(docker.has_image(&image("old")).await, "nothing goes in a dry run");
    let told = http.send(reqwest::Method::POST, &format!("/node/{node}/gc"), None).await.1;
    assert_eq!(told["removed"], json!([image("old")]), "{told}");
    let stay = [("old", false), ("former", true), ("current", true), ("foreign", true), ("built", true)];
    for (name, stays) in stay {
        assert_eq!(docker.has_image(&image(name)).await, stays, "{name}");
    }
    for name in ["former", "current", "foreign", "built"] {
        docker.remove_image(&image(name)).await;
    }
}
