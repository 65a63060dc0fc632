//! Tests against this machine's real engine. Each uses its own node.

#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test fails by panicking and may say why it is skipped"
)]

use model::spec::{OnDisconnect, PullPolicy};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use model::ids::{AssignmentId, NodeName};
use model::spec::ContainerSpec;
use parking_lot::Mutex;
use testkit::faulty_engine::{EngineFault, FaultyEngine, engine_socket};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{OnceCell, Semaphore};

use super::deadlines::READ;
use super::engine::DockerRuntime;
use super::engine_record::EngineRecord;
use super::sample_image::{Recipe, ensure_hello_image, import_recipe};
use super::*;
use crate::testing::{identity, no_logins};
use crate::{Container, ContainerRequest, ContainerState, ExecResult, Identity, Runtime, RuntimeError};
use testkit::eventually;

/// Unlike `kubeleet-test/shell`, which other tests use at the same time.
const SHELL_IMAGE: &str = "kubeleet-test/worker-shell:1";

struct Fixture {
    docker: DockerRuntime,
    node: NodeName,
}

impl Fixture {
    /// `None` without an engine; panics then if `REQUIRE` names docker.
    async fn new() -> Option<Self> {
        let docker = DockerRuntime::connect(None).unwrap();
        if let Err(error) = docker.ping().await {
            testkit::require::skipped("docker", &error.to_string());
            return None;
        }
        static IMAGE: OnceCell<()> = OnceCell::const_new();
        IMAGE
            .get_or_init(|| async {
                let programs = [(Path::new("/bin/sh"), "/bin/sh"), (Path::new("/bin/sleep"), "/bin/sleep")];
                let recipe =
                    Recipe { programs: &programs, command: &["/bin/sleep", "600"], ..Default::default() };
                import_recipe(&docker, recipe, SHELL_IMAGE).await.unwrap();
            })
            .await;
        Some(Self { docker, node: NodeName::new(format!("test-{}", AssignmentId::random())).unwrap() })
    }

    fn request(&self, pod: &str, script: &str) -> ContainerRequest {
        let mut container = ContainerSpec::from_image(SHELL_IMAGE);
        container.command.0 = ["/bin/sh", "-c", script].map(str::to_owned).to_vec();
        let pod = format!("{pod}-{}", self.node);
        ContainerRequest::new(identity(self.node.as_str(), &pod, "assignment"), container)
    }

    async fn list(&self) -> Vec<Container> {
        self.docker.list(&self.node).await.unwrap()
    }
}

impl Drop for Fixture {
    /// A panicking test cannot await.
    fn drop(&mut self) {
        let shell = format!(
            "docker ps -aq --filter label=kubeleet.node={} | xargs -r docker rm -fv >/dev/null",
            self.node
        );
        let _ = std::process::Command::new("sh").args(["-c", &shell]).status();
    }
}

/// A bare `sleep` as process 1 would ignore SIGTERM.
const GRACEFUL: &str = "trap 'echo bye; exit 7' TERM; echo ready; while :; do sleep 0.1; done";

#[tokio::test]
async fn running_twice_is_one_container_and_a_new_worker_finds_it() {
    let Some(fixture) = Fixture::new().await else { return };
    let request = fixture.request("twice", GRACEFUL);
    let (one, two) = tokio::join!(fixture.docker.run(&request), fixture.docker.run(&request));
    let (one, two) = (one.unwrap(), two.unwrap());
    assert_eq!(one.handle, two.handle);
    assert_eq!(one.state, ContainerState::Running);
    assert_eq!(one.grace, request.identity.grace);
    assert!(!one.network.as_ref().unwrap().address.is_empty());

    let after_restart = DockerRuntime::connect(None).unwrap();
    assert_eq!(after_restart.list(&fixture.node).await.unwrap(), std::slice::from_ref(&one));
    assert_eq!(after_restart.run(&request).await.unwrap(), one);
    let other_node = NodeName::new("test-unused").unwrap();
    assert_eq!(after_restart.list(&other_node).await.unwrap(), []);
}

#[tokio::test]
async fn an_exited_container_is_found_and_restarted_only_on_request() {
    let Some(fixture) = Fixture::new().await else { return };
    let request = fixture.request("exit", "exit 3");
    let container = fixture.docker.run(&request).await.unwrap();
    let exited = ContainerState::Exited { code: 3, out_of_memory: false };
    eventually("exited with 3", || async { (fixture.list().await.first()?.state == exited).then_some(()) })
        .await;
    assert_eq!(fixture.docker.run(&request).await.unwrap().state, exited);

    let mut hints = fixture.docker.hints(&fixture.node).await.unwrap();
    fixture.docker.restart(&container.handle).await.unwrap();
    let hint = tokio::time::timeout(Duration::from_secs(10), hints.next()).await.unwrap().unwrap();
    assert_eq!(hint.pod, Some(request.identity.pod));
    assert!(matches!(fixture.docker.restart("no-such-container").await, Err(RuntimeError::NotFound(_))));
}

#[tokio::test]
async fn a_stop_waits_for_the_grace_period_and_no_longer() {
    let Some(fixture) = Fixture::new().await else { return };
    let graceful = fixture.docker.run(&fixture.request("graceful", GRACEFUL)).await.unwrap();
    let stubborn = fixture
        .docker
        .run(&fixture.request("stubborn", "trap '' TERM; while :; do sleep 0.1; done"))
        .await
        .unwrap();
    let begin = Instant::now();
    fixture.docker.stop(&graceful.handle, Duration::from_secs(30)).await.unwrap();
    assert!(begin.elapsed() < Duration::from_secs(20), "it exited by itself: {:?}", begin.elapsed());
    let begin = Instant::now();
    fixture.docker.stop(&stubborn.handle, Duration::from_millis(1500)).await.unwrap();
    assert!(begin.elapsed() >= Duration::from_millis(1500), "it had its grace period: {:?}", begin.elapsed());
    assert_eq!(fixture.list().await, []);
    fixture.docker.stop(&stubborn.handle, Duration::ZERO).await.unwrap();
}

#[tokio::test]
async fn logs_have_a_tail_and_follow_to_the_end() {
    let Some(fixture) = Fixture::new().await else { return };
    let script = "echo one; sleep 0.2; echo two >&2; sleep 0.2; echo three; trap 'echo bye; exit 0' TERM; \
                  while :; do sleep 0.1; done";
    let container = fixture.docker.run(&fixture.request("logs", script)).await.unwrap();
    eventually("three lines", || async {
        (read(&fixture, &container, 10).await == "one\ntwo\nthree\n").then_some(())
    })
    .await;
    assert_eq!(read(&fixture, &container, 1).await, "three\n");

    let mut following = fixture.docker.logs(&container.handle, 1, true).await.unwrap();
    assert_eq!(following.next().await.unwrap().unwrap(), "three\n");
    let (stopped, rest) =
        tokio::join!(fixture.docker.stop(&container.handle, Duration::from_secs(10)), following.next());
    stopped.unwrap();
    assert_eq!(rest.unwrap().unwrap(), "bye\n");
    assert!(following.next().await.is_none());
    let gone = fixture.docker.logs(&container.handle, 1, true).await;
    assert!(matches!(gone.err(), Some(RuntimeError::NotFound(_))));
}

async fn read(fixture: &Fixture, container: &Container, tail: usize) -> String {
    let lines = fixture.docker.logs(&container.handle, tail, false).await.unwrap();
    String::from_utf8(lines.try_collect::<Vec<Bytes>>().await.unwrap().concat()).unwrap()
}

#[tokio::test]
async fn the_error_for_a_missing_image_has_the_engines_message() {
    let Some(fixture) = Fixture::new().await else { return };
    let image = "localhost:1/kubeleet-test/missing:1";
    let error = fixture.docker.ensure_image(image, PullPolicy::Missing, &no_logins()).await.unwrap_err();
    assert!(matches!(&error, RuntimeError::Image(message) if message.contains("refused")), "{error:?}");
    let mut request = fixture.request("missing", "true");
    request.container.image = image.to_owned();
    let error = fixture.docker.run(&request).await.unwrap_err();
    assert!(matches!(&error, RuntimeError::Image(message) if message.contains(image)), "{error:?}");
    assert_eq!(fixture.list().await, []);
    fixture.docker.ensure_image(SHELL_IMAGE, PullPolicy::Missing, &no_logins()).await.unwrap();
    assert!(
        fixture.docker.has_image(SHELL_IMAGE).await.unwrap()
            && !fixture.docker.has_image(image).await.unwrap()
    );
}

#[tokio::test]
async fn a_container_that_cannot_start_is_removed() {
    let Some(fixture) = Fixture::new().await else { return };
    let mut request = fixture.request("noexec", "");
    request.container.command.0 = vec!["no-such-program".to_owned()];
    let error = fixture.docker.run(&request).await.unwrap_err();
    assert!(
        matches!(&error, RuntimeError::Failed(message) if message.contains("no-such-program")),
        "{error:?}"
    );
    assert_eq!(fixture.list().await, []);

    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut request = fixture.request("port", GRACEFUL);
    request.container.ports = vec![format!("{}:80", taken.local_addr().unwrap().port()).parse().unwrap()];
    let error = fixture.docker.run(&request).await.unwrap_err();
    assert!(matches!(&error, RuntimeError::PortTaken(message) if message.contains("in use")), "{error:?}");
    assert_eq!(fixture.list().await, []);
}

#[tokio::test]
async fn limits_reach_the_container_and_memory_is_enforced() {
    let Some(fixture) = Fixture::new().await else { return };
    // An engine may miss the cause of a death right after the start:
    // <https://github.com/containerd/containerd/issues/8180>.
    for name in ["memory-1", "memory-2", "memory-3"] {
        let mut request = fixture.request(name, "x=0123456789abcdef; while :; do x=$x$x; done");
        request.container.memory = Some("8MiB".parse().unwrap());
        request.container.cpus = Some("0.5".parse().unwrap());
        let container = fixture.docker.run(&request).await.unwrap();
        let state = eventually("killed because of its memory", || async {
            let listed = fixture.list().await.into_iter().find(|listed| listed.handle == container.handle);
            let state = listed?.state;
            matches!(state, ContainerState::Exited { .. }).then_some(state)
        });
        match state.await {
            ContainerState::Exited { code: 137, out_of_memory: true } => return,
            ContainerState::Exited { code: 137, .. } => {}
            other => panic!("{other:?}"),
        }
    }
    panic!("no container is known to have ended because of its memory");
}

#[tokio::test]
async fn every_setting_of_a_container_takes_effect() {
    let Some(fixture) = Fixture::new().await else { return };
    let script = "pwd; ulimit -n; (: >/x) 2>/dev/null || echo closed; : >/scratch/x && echo open; \
                  while read name value rest; do case $name in Uid:|CapBnd:) echo $value;; esac; done \
                  </proc/self/status; trap 'exit 0' QUIT; echo ready; while :; do sleep 0.1; done";
    let mut request = fixture.request("settings", "");
    let settings = serde_json::json!({
        "image": request.container.image, "entrypoint": ["/bin/sh"], "command": ["-c", script],
        "working_dir": "/bin", "user": "1000:1000", "read_only": true, "tmpfs": "/scratch:size=1m",
        "ulimits": {"nofile": {"soft": 100, "hard": 200}}, "pids_limit": 50, "cap_drop": ["ALL"],
        "stop_signal": "QUIT",
    });
    request.container = serde_json::from_value(settings).unwrap();
    let container = fixture.docker.run(&request).await.unwrap();
    let output = eventually("the program is ready", || async {
        let output = read(&fixture, &container, 20).await;
        output.contains("ready").then_some(output)
    });
    let output = output.await;
    let lines: Vec<&str> = output.lines().collect();
    assert_eq!(lines, ["/bin", "100", "closed", "open", "1000", "0000000000000000", "ready"]);
    let began = Instant::now();
    fixture.docker.stop(&container.handle, Duration::from_secs(30)).await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}

/// `AUDIT_WRITE`, `MKNOD`, `NET_RAW` and `SETFCAP`, as in `linux/capability.h`.
const UNUSUAL_CAPABILITIES: [u32; 4] = [29, 27, 13, 31];
/// As nginx, postgres, redis and sshd use them.
const USUAL_CAPABILITIES: [u32; 10] = [0, 1, 3, 4, 5, 6, 7, 10, 8, 18];

#[tokio::test]
async fn a_container_lacks_the_capabilities_that_hardly_any_image_needs() {
    let Some(fixture) = Fixture::new().await else { return };
    let script =
        "while read name value; do case $name in CapBnd:) echo $value;; esac; done </proc/self/status";
    let container = fixture.docker.run(&fixture.request("caps", script)).await.unwrap();
    let output = eventually("its capabilities", || async {
        let output = read(&fixture, &container, 10).await;
        u64::from_str_radix(output.trim(), 16).ok()
    });
    let capabilities = output.await;
    let has = |capability: u32| capabilities & (1 << capability) != 0;
    assert_eq!(UNUSUAL_CAPABILITIES.map(has), [false; 4], "{capabilities:x}");
    assert_eq!(USUAL_CAPABILITIES.map(has), [true; 10], "{capabilities:x}");
}

#[tokio::test]
async fn a_container_of_another_node_with_our_name_is_not_taken_over() {
    let Some(fixture) = Fixture::new().await else { return };
    let request = fixture.request("taken", GRACEFUL);
    fixture.docker.run(&request).await.unwrap();
    let other = NodeName::new(format!("{}-b", fixture.node)).unwrap();
    let request_of_other = ContainerRequest {
        identity: Identity { node: other, ..request.identity.clone() },
        ..request.clone()
    };
    let error = fixture.docker.run(&request_of_other).await.unwrap_err();
    assert!(
        matches!(&error, RuntimeError::Failed(message) if message.contains("not this pod's")),
        "{error:?}"
    );
}

#[tokio::test]
async fn a_created_container_is_started_by_the_next_run() {
    let Some(fixture) = Fixture::new().await else { return };
    let request = fixture.request("created", GRACEFUL);
    let name = request.identity.container_name();
    let options = bollard::query_parameters::CreateContainerOptionsBuilder::default().name(&name).build();
    let engine = fixture.docker.client.docker().unwrap();
    engine.create_container(Some(options), create::create_body(&request, &[], None)).await.unwrap();
    assert_eq!(fixture.list().await[0].state, ContainerState::Created);
    assert_eq!(fixture.docker.run(&request).await.unwrap().state, ContainerState::Running);
    assert_eq!(fixture.list().await.len(), 1);
}

struct FakeEngine {
    runtime: DockerRuntime,
    host: String,
    _dir: tempfile::TempDir,
    server: tokio::task::JoinHandle<()>,
}

impl FakeEngine {
    fn new<F: Future<Output = Option<(u16, String)>> + Send + 'static>(
        answer: impl Fn(String) -> F + Clone + Send + 'static,
    ) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("engine.sock");
        let listener = tokio::net::UnixListener::bind(&path).unwrap();
        let server = tokio::spawn(async move {
            while let Ok((mut connection, _)) = listener.accept().await {
                let answer = answer.clone();
                tokio::spawn(async move {
                    let mut head = vec![0; 4096];
                    let length = connection.read(&mut head).await.unwrap();
                    let head = String::from_utf8_lossy(&head[..length]).into_owned();
                    let Some((status, body)) = answer(head).await else {
                        return std::future::pending().await;
                    };
                    let length = body.len();
                    let head = format!("HTTP/1.1 {status} X\r\nContent-Length: {length}\r\n\r\n");
                    connection.write_all((head + &body).as_bytes()).await.unwrap();
                });
            }
        });
        let host = format!("unix://{}", path.display());
        let runtime = DockerRuntime::connect(Some(&host)).unwrap();
        Self { runtime, host, _dir: dir, server }
    }
}

impl Drop for FakeEngine {
    fn drop(&mut self) {
        self.server.abort();
    }
}

#[tokio::test]
async fn another_engine_starts_nothing() {
    let id = Arc::new(Mutex::new(Some("A")));
    let answers = id.clone();
    let engine = FakeEngine::new(move |line| {
        let id = *answers.lock();
        async move {
            let Some(id) = id else { return Some((500, r#"{"message":"it starts"}"#.to_owned())) };
            let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
            Some((200, if path.ends_with("/info") { format!(r#"{{"ID":"{id}"}}"#) } else { "{}".to_owned() }))
        }
    });
    let ping = || engine.runtime.ping();
    let run = async |change: Option<&'static str>| {
        *id.lock() = None;
        ping().await.unwrap_err();
        *id.lock() = change;
        engine.runtime.ensure_first_engine().await
    };
    assert_eq!(ping().await.unwrap().id, "A");
    let another = run(Some("B")).await.unwrap_err().to_string();
    assert!(
        another.contains("with the id B and not A") && another.contains("restart this worker"),
        "{another}"
    );
    assert_eq!(ping().await.unwrap_err().to_string(), another);
    assert_eq!(run(Some("A")).await, Ok(()));
    assert_eq!(ping().await.unwrap().id, "A");
}

#[tokio::test]
async fn pods_that_wait_for_the_same_image_share_one_pull() {
    static PULLS: AtomicUsize = AtomicUsize::new(0);
    let release = Arc::new(Semaphore::new(0));
    let gate = release.clone();
    let engine = FakeEngine::new(move |line| {
        let gate = gate.clone();
        async move {
            if line.starts_with("GET /images/") {
                return Some((404, r#"{"message":"No such image"}"#.to_owned()));
            }
            assert!(line.starts_with("POST /images/create?fromImage=busy%3Alatest"), "{line}");
            let number = PULLS.fetch_add(1, Ordering::SeqCst);
            gate.acquire().await.unwrap().forget();
            let failure = r#"{"errorDetail":{"message":"manifest unknown"},"error":"manifest unknown"}"#;
            Some((200, if number == 0 { failure } else { r#"{"status":"done"}"# }.to_owned()))
        }
    });
    let waiting = || async { (engine.runtime.images.waiting("busy:latest") == 2).then_some(()) };
    let free = async {
        eventually("both wait", waiting).await;
        release.add_permits(1);
    };
    let logins = no_logins();
    let (one, two, ()) = tokio::join!(
        engine.runtime.ensure_image("busy", PullPolicy::Missing, &logins),
        engine.runtime.ensure_image("busy:latest", PullPolicy::Missing, &logins),
        free
    );
    let failed = RuntimeError::Image("manifest unknown".to_owned());
    assert_eq!((one, two), (Err(failed.clone()), Err(failed)));
    assert_eq!(PULLS.load(Ordering::SeqCst), 1);
    release.add_permits(1);
    engine.runtime.ensure_image("busy", PullPolicy::Missing, &no_logins()).await.unwrap();
    assert_eq!(PULLS.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn an_image_of_a_private_registry_is_pulled_with_its_credentials() {
    let engine = FakeEngine::new(|head| async move {
        if head.starts_with("GET /images/") {
            return Some((404, r#"{"message":"No such image"}"#.to_owned()));
        }
        let header = head.lines().find(|line| line.to_lowercase().starts_with("x-registry-auth:"));
        let value = header.and_then(|line| line.split(": ").nth(1)).unwrap_or_default();
        let decoded = base64::Engine::decode(&base64::engine::general_purpose::STANDARD, value.trim());
        let auth: serde_json::Value =
            serde_json::from_slice(&decoded.unwrap_or_default()).unwrap_or_default();
        let is_right = auth["username"] == "me" && auth["password"] == "hunter2";
        let denied = r#"{"errorDetail":{"message":"access denied"},"error":"access denied"}"#;
        Some((200, if is_right { r#"{"status":"done"}"# } else { denied }.to_owned()))
    });
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("config.json");
    std::fs::write(
        &path,
        r#"{"auths":{"reg.example:5000":{"auth":"bWU6aHVudGVyMg=="}},"credsStore":"kubeleet-none"}"#,
    )
    .unwrap();
    let runtime =
        DockerRuntime::connect(Some(&engine.host)).unwrap().with_registry_config(Some(path.clone()));
    runtime.ensure_image("reg.example:5000/team/web:1", PullPolicy::Missing, &no_logins()).await.unwrap();
    let other = runtime
        .ensure_image("other.example/web", PullPolicy::Missing, &no_logins())
        .await
        .unwrap_err()
        .to_string();
    assert!(other.contains("access denied; credentials used for other.example: none; "), "{other}");
    assert!(other.contains("docker-credential-kubeleet-none is not in the PATH"), "{other}");
    std::fs::write(&path, "hunter2").unwrap();
    let broken = runtime
        .ensure_image("reg.example:5000/team/api:1", PullPolicy::Missing, &no_logins())
        .await
        .unwrap_err()
        .to_string();
    assert!(broken.contains("config.json") && !broken.contains("hunter2"), "{broken}");
}

#[tokio::test]
async fn the_engine_is_asked_for_an_image_once_until_it_is_missing() {
    static REQUESTS: AtomicUsize = AtomicUsize::new(0);
    let engine = FakeEngine::new(|line| async move {
        if line.starts_with("GET /images/") {
            REQUESTS.fetch_add(1, Ordering::SeqCst);
            return Some((200, "{}".to_owned()));
        }
        if line.starts_with("GET /networks/") {
            return Some((404, r#"{"message":"network not found"}"#.to_owned()));
        }
        assert!(line.starts_with("POST /containers/create"), "{line}");
        Some((404, r#"{"message":"No such image: busy:latest"}"#.to_owned()))
    });
    for _ in 0..3 {
        engine.runtime.ensure_image("busy", PullPolicy::Missing, &no_logins()).await.unwrap();
    }
    assert_eq!(REQUESTS.load(Ordering::SeqCst), 1);
    let request = ContainerRequest::new(identity("n", "p", "a"), ContainerSpec::from_image("busy"));
    let gone = engine.runtime.run(&request).await;
    assert!(matches!(gone, Err(RuntimeError::Image(_))), "{gone:?}");
    engine.runtime.ensure_image("busy", PullPolicy::Missing, &no_logins()).await.unwrap();
    assert_eq!(REQUESTS.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn podman_is_told_from_docker() {
    let engine = FakeEngine::new(|line| async move {
        let version = r#"{"Version":"4.9.3","Components":[{"Name":"Podman Engine","Version":"4.9.3"}]}"#;
        Some((200, if line.contains("_ping") { "OK" } else { version }.to_owned()))
    });
    let info = engine.runtime.ping().await.unwrap();
    assert_eq!((info.runtime, info.version.as_str()), ("podman", "4.9.3"));
}

#[tokio::test]
async fn an_engine_that_does_not_answer_is_an_engine_error_in_time() {
    let engine = FakeEngine::new(|_| async { None });
    let docker = &engine.runtime;
    let node = NodeName::new("node").unwrap();
    let begin = Instant::now();
    let logins = no_logins();
    let (ping, list, hints, image) = tokio::join!(
        docker.ping(),
        docker.list(&node),
        docker.hints(&node),
        docker.ensure_image("x", PullPolicy::Missing, &logins)
    );
    assert!(begin.elapsed() < READ + Duration::from_secs(5), "{:?}", begin.elapsed());
    assert!(matches!(ping, Err(RuntimeError::Engine(message)) if message.contains("within 3 s")));
    assert!(matches!(list, Err(RuntimeError::Engine(_))));
    assert!(matches!(hints.err(), Some(RuntimeError::Engine(_))));
    assert!(matches!(image, Err(RuntimeError::Engine(_))));
}

#[tokio::test]
async fn an_image_of_this_executable_is_created_once_and_runs() {
    let Some(fixture) = Fixture::new().await else { return };
    let docker = &fixture.docker;
    let tags = [format!("kubeleet-test/{}:1", fixture.node), format!("kubeleet-test/{}", fixture.node)];
    let tags = [tags[0].as_str(), tags[1].as_str()];
    assert!(ensure_hello_image(docker, &tags).await.unwrap());
    assert!(!ensure_hello_image(docker, &tags).await.unwrap());
    let mut request = fixture.request("hello", "");
    request.container = ContainerSpec::from_image(tags[1]);
    let container = docker.run(&request).await.unwrap();
    // The test harness takes `hello` for a filter: it finds its libraries.
    let output = eventually("output of the test harness", || async {
        let output = read(&fixture, &container, 100).await;
        output.contains("test result").then_some(output)
    });
    assert!(output.await.contains("running"));
    docker.stop(&container.handle, Duration::ZERO).await.unwrap();
    for tag in tags {
        docker.remove_image(tag).await.unwrap();
        assert!(!docker.has_image(tag).await.unwrap());
    }
}

fn fake_row(id: &str, state: &str) -> String {
    format!(
        r#"{{"Id":"{id}","State":"{state}","Labels":{{"kubeleet.pod":"{id}","kubeleet.assignment":"a"}}}}"#
    )
}

#[tokio::test]
async fn a_container_that_cannot_be_read_or_inspected_affects_no_other() {
    let engine = FakeEngine::new(|line| async move {
        let rows = [("runs", "running"), ("odd", "gliding"), ("sick", "exited"), ("new", "initialized")];
        let rows = rows.map(|(id, state)| fake_row(id, state)).join(",") + ",7";
        // Like Podman's list of a container before its cleanup.
        let ended = r#"{"Id":"ended","State":{"Status":"stopped","ExitCode":3,"Health":{"Status":"odd"}},
            "Config":{"Labels":{"kubeleet.pod":"ended","kubeleet.assignment":"a"},"Env":["PASSWORD=hunter2"]}}"#;
        match () {
            () if line.contains("/containers/sick/") => None,
            () if line.contains("/containers/ended/") => Some((200, ended.to_owned())),
            () => Some((200, format!("[{rows},{}]", fake_row("ended", "stopped")))),
        }
    });
    let node = NodeName::new("node").unwrap();
    let states = |list: Vec<Container>| {
        let mut states: Vec<_> = list.into_iter().map(|one| (one.handle, one.state)).collect();
        states.sort_by(|one, other| one.0.cmp(&other.0));
        states
    };
    let state = |handle: &str, state| (handle.to_owned(), state);
    let exited = ContainerState::Exited { code: 3, out_of_memory: false };
    assert_eq!(
        states(engine.runtime.list(&node).await.unwrap()),
        [
            state("ended", exited),
            state("new", ContainerState::Created),
            state("odd", ContainerState::Unknown),
            state("runs", ContainerState::Running),
            state("sick", ContainerState::Unknown),
        ]
    );
    let live = tokio::time::timeout(Duration::from_secs(1), engine.runtime.list_live(&node)).await.unwrap();
    assert_eq!(
        states(live.unwrap()),
        [
            state("new", ContainerState::Created),
            state("odd", ContainerState::Unknown),
            state("runs", ContainerState::Running)
        ]
    );
}

async fn exec(fixture: &Fixture, container: &Container, script: &str, limit: Duration) -> ExecResult {
    let command = ["/bin/sh", "-c", script].map(str::to_owned);
    fixture.docker.exec(&container.handle, &command, limit).await.unwrap()
}

#[tokio::test]
async fn a_command_runs_in_the_container_with_its_user_and_directory() {
    let Some(fixture) = Fixture::new().await else { return };
    let mut request = fixture.request("exec", GRACEFUL);
    let settings = serde_json::json!({"image": request.container.image, "command": request.container.command,
        "working_dir": "/bin", "user": "1000:1000", "environment": {"GREETING": "hello"}});
    request.container = serde_json::from_value(settings).unwrap();
    let container = fixture.docker.run(&request).await.unwrap();
    let long = Duration::from_secs(60);
    let script = "pwd; echo $GREETING >&2; while read name value rest; do case $name in Uid:) echo $value;; esac; \
                  done </proc/self/status; exit 3";
    let result = exec(&fixture, &container, script, long).await;
    assert_eq!(result.exit_code, Some(3));
    let mut lines: Vec<&str> = result.output.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["/bin", "1000", "hello"]);

    let result = fixture.docker.exec(&container.handle, &["/no/such/program".to_owned()], long).await;
    let (exit_code, output) = match result.unwrap() {
        ExecResult { exit_code: Some(exit_code), output } => (exit_code, output),
        other => panic!("{other:?}"),
    };
    assert!([126, 127].contains(&exit_code) && output.contains("/no/such/program"), "{exit_code}: {output}");

    fixture.docker.stop(&container.handle, Duration::from_secs(5)).await.unwrap();
    let gone = fixture.docker.exec(&container.handle, &["/bin/sh".to_owned()], long).await;
    assert!(matches!(gone, Err(RuntimeError::NotFound(_))), "{gone:?}");
}

#[tokio::test]
async fn no_second_command_is_started_while_the_first_one_hangs() {
    let Some(fixture) = Fixture::new().await else { return };
    let container = fixture.docker.run(&fixture.request("hangs", GRACEFUL)).await.unwrap();
    let script = "echo begun; while [ ! -e /tmp-end ]; do sleep 0.1; done; echo ended";
    let short = Duration::from_secs(3);
    let first = exec(&fixture, &container, script, short).await;
    assert_eq!(first, ExecResult { exit_code: None, output: "begun\n".to_owned() });
    let second = exec(&fixture, &container, script, short).await;
    assert_eq!(second.exit_code, None);
    assert!(second.output.contains("still runs"), "{second:?}");
    assert_eq!(exec(&fixture, &container, ": > /tmp-end", Duration::from_secs(60)).await.exit_code, Some(0));
    let third = eventually("the first has ended", || async {
        let result = exec(&fixture, &container, script, Duration::from_secs(60)).await;
        result.exit_code.map(|_| result)
    });
    assert_eq!(third.await, ExecResult { exit_code: Some(0), output: "begun\nended\n".to_owned() });
}

#[tokio::test]
async fn no_command_runs_in_a_container_that_has_ended() {
    let Some(fixture) = Fixture::new().await else { return };
    let container = fixture.docker.run(&fixture.request("ended", "exit 3")).await.unwrap();
    let exited = ContainerState::Exited { code: 3, out_of_memory: false };
    eventually("exited", || async { (fixture.list().await.first()?.state == exited).then_some(()) }).await;
    let result =
        fixture.docker.exec(&container.handle, &["/bin/sh".to_owned()], Duration::from_secs(60)).await;
    assert!(matches!(result, Err(RuntimeError::NotFound(_))), "{result:?}");
}

/// Like `fsGroup` of Kubernetes.
#[tokio::test]
async fn a_new_volume_belongs_to_whom_its_document_says() {
    let Some(fixture) = Fixture::new().await else { return };
    let script = "echo x > /data/file && echo y > /deep/er/file && exec sleep 60";
    let mut request = fixture.request("owner", script);
    request.container.user = Some("1234:1235".to_owned());
    let volumes = r#"[{"source":"data","target":"/data","uid":1234,"mode":"0700"},
        {"target":"/deep/er","gid":1235}]"#;
    request.container.volumes = serde_json::from_str(volumes).unwrap();
    request.volume_epochs.insert("data".to_owned(), 7);
    let container = fixture.docker.run(&request).await.unwrap();
    eventually("it runs", || async {
        (fixture.list().await.first()?.state == ContainerState::Running).then_some(())
    })
    .await;
    let look = "test -s /data/file && test -s /deep/er/file";
    let looked = exec(&fixture, &container, look, Duration::from_secs(30)).await;
    let own = fixture.docker.volumes(&fixture.node).await.unwrap();
    fixture.docker.stop(&container.handle, Duration::ZERO).await.unwrap();
    for volume in own {
        assert!(fixture.docker.remove_volume(&volume.handle).await.unwrap());
    }
    assert_eq!(looked.exit_code, Some(0), "{looked:?}");
}

#[tokio::test]
async fn the_check_of_an_image_is_read() {
    let Some(fixture) = Fixture::new().await else { return };
    let image = format!("kubeleet-test/checked:{}", fixture.node);
    let changes = [r#"HEALTHCHECK --interval=7s --retries=5 CMD ["/bin/sh", "-c", "exit 0"]"#.to_owned()];
    let empty = vec![0; 1024];
    let tar = stream::once(async { Ok(Bytes::from(empty)) });
    images::import::import(&fixture.docker.client, &image, &changes, tar).await.unwrap();
    let check = fixture.docker.image_check(&image).await;
    let came_from_registry = fixture.docker.came_from_registry(&image).await.unwrap();
    let seen = fixture.docker.client.docker().unwrap().inspect_image(&image).await.unwrap();
    assert_eq!(came_from_registry, !seen.repo_digests.unwrap_or_default().is_empty());
    fixture.docker.remove_image(&image).await.unwrap();
    let check = check.unwrap().unwrap();
    assert_eq!((check.timing().interval, check.timing().retries), (Duration::from_secs(7), 5));
    let words = ["/bin/sh", "-c", "exit 0"].map(str::to_owned).to_vec();
    assert_eq!(check.method(), Some(model::spec::ProbeMethod::Command(words)));
    assert_eq!(fixture.docker.image_check(SHELL_IMAGE).await.unwrap(), None);
    assert_eq!(fixture.docker.image_check("kubeleet-test/missing:1").await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn containers_of_this_machine_end_in_time_although_the_engine_stops_and_kills_nothing() {
    let Some(fixture) = Fixture::new().await else { return };
    if !rustix::process::geteuid().is_root() {
        return testkit::require::skipped("netns", "only root may signal processes of containers");
    }
    let proxy = FaultyEngine::start(&engine_socket());
    let docker = DockerRuntime::connect(Some(&proxy.host())).unwrap();
    let mut containers = Vec::new();
    for (pod, script) in [("deaf", "trap '' TERM; while :; do sleep 1; done"), ("obeys", GRACEFUL)] {
        let request = fixture.request(pod, script);
        let identity = Identity { on_disconnect: OnDisconnect::Stop, ..request.identity.clone() };
        containers.push(docker.run(&ContainerRequest { identity, ..request }).await.unwrap());
    }
    let _listed = docker.list(&fixture.node).await.unwrap();
    let known = || containers.iter().all(|one| docker.first_processes.knows(&one.handle));
    eventually("the processes are known", || async { known().then_some(()) }).await;
    proxy.set("/containers/", EngineFault::Hang);
    let begun = Instant::now();
    let kill_by = tokio::time::Instant::now() + Duration::from_secs(1);
    docker.end_all(&containers, kill_by).await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    let codes = eventually("the engine has noticed their ends", || async {
        let mut codes = Vec::new();
        for container in fixture.list().await {
            let ContainerState::Exited { code, .. } = container.state else { return None };
            codes.push(code);
        }
        codes.sort_unstable();
        Some(codes)
    });
    assert_eq!(codes.await, [7, 137], "one ended by itself");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn containers_whose_processes_are_not_seen_are_ended_by_the_engine() {
    let Some(fixture) = Fixture::new().await else { return };
    let proxy = FaultyEngine::start(&engine_socket());
    proxy.set("/json", EngineFault::Fail);
    let blind = DockerRuntime::connect(Some(&proxy.host())).unwrap();
    let script = "trap '' TERM; while :; do sleep 1; done";
    let container = fixture.docker.run(&fixture.request("deaf", script)).await.unwrap();
    let kill_by = tokio::time::Instant::now() + Duration::from_secs(1);
    blind.end_all(std::slice::from_ref(&container), kill_by).await.unwrap();
    let state = eventually("it has ended", || async {
        let state = fixture.list().await.first()?.state;
        (!state.may_run()).then_some(state)
    });
    assert!(matches!(state.await, ContainerState::Exited { code: 137, .. }));
}

/// Like a change of `DOCKER_HOST`.
#[tokio::test]
async fn an_engine_that_has_not_the_pods_of_this_node_is_not_used() {
    let Some(fixture) = Fixture::new().await else { return };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("n.engine-host");
    let recorded = |pods: &[&str]| {
        let record = EngineRecord::read(path.clone(), pods.iter().map(|&pod| pod.to_owned()).collect());
        DockerRuntime::connect(None).unwrap().recorded(record)
    };
    std::fs::write(&path, r#"{"id":"former","address":"unix:///former.sock"}"#).unwrap();
    let held = recorded(&["web-0", "db-1"]);
    let request = fixture.request("held", GRACEFUL);
    let errors = [
        held.list(&fixture.node).await.err(),
        held.list_live(&fixture.node).await.err(),
        held.volumes(&fixture.node).await.err(),
        held.run(&request).await.err(),
        held.ping().await.err(),
    ];
    for error in errors {
        let Some(RuntimeError::Engine(why)) = error else { panic!("{error:?}") };
        assert!(why.contains("web-0, db-1") && why.contains("unix:///former.sock"), "{why}");
    }
    assert_eq!(fixture.list().await, []);
    let empty = recorded(&[]);
    empty.ping().await.unwrap();
    assert!(!std::fs::read_to_string(&path).unwrap().contains("former"));
    assert_eq!(recorded(&["web-0"]).list(&fixture.node).await.unwrap(), []);
}
