//! Against the real engine of this machine. Each test has a node of its own, so they neither meet nor leave anything.

#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test fails by panicking and may say why it is skipped"
)]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use common::ids::AssignmentId;
use common::spec::ContainerSpec;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{OnceCell, Semaphore};

use super::*;
use crate::runtime::hello::{Recipe, ensure_hello_image, import_recipe};
use crate::runtime::testing::{eventually, identity};
use crate::runtime::{ContainerState, Identity};

const SHELL_IMAGE: &str = "kubeleet-test/shell:1";

/// One engine, one node name that no other test has, and an image with a shell.
struct Bench {
    docker: DockerRuntime,
    node: NodeName,
}

impl Bench {
    /// None when there is no engine; panics then if `REQUIRE` names docker.
    async fn new() -> Option<Self> {
        let docker = DockerRuntime::connect(None).unwrap();
        if let Err(error) = docker.ping().await {
            let required = std::env::var("REQUIRE").is_ok_and(|list| list.contains("docker"));
            assert!(!required, "REQUIRE=docker, but: {error}");
            eprintln!("SKIPPED (no docker): {error}");
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
        let mut container = ContainerSpec::of_image(SHELL_IMAGE);
        container.command.0 = ["/bin/sh", "-c", script].map(str::to_owned).to_vec();
        // The pod's id decides the container's name, which is unique on the engine, not on the node.
        let pod = format!("{pod}-{}", self.node);
        ContainerRequest { identity: identity(self.node.as_str(), &pod, "assignment"), container }
    }

    async fn list(&self) -> Vec<Container> {
        self.docker.list(&self.node).await.unwrap()
    }
}

impl Drop for Bench {
    /// By the command line, because there is no awaiting while a test panics.
    fn drop(&mut self) {
        let shell = format!(
            "docker ps -aq --filter label=kubeleet.node={} | xargs -r docker rm -fv >/dev/null",
            self.node
        );
        let _ = std::process::Command::new("sh").args(["-c", &shell]).status();
    }
}

/// Sleeps until SIGTERM and then ends with 7: a bare `sleep` as process 1 would ignore it.
const POLITE: &str = "trap 'echo bye; exit 7' TERM; echo ready; while :; do sleep 0.1; done";

#[tokio::test]
async fn run_twice_is_one_container_and_a_new_worker_adopts_it() {
    let Some(bench) = Bench::new().await else { return };
    let request = bench.request("twice", POLITE);
    let (one, two) = tokio::join!(bench.docker.run(&request), bench.docker.run(&request));
    let (one, two) = (one.unwrap(), two.unwrap());
    assert_eq!(one.handle, two.handle);
    assert_eq!(one.state, ContainerState::Running);
    assert_eq!(one.grace, request.identity.grace);
    assert!(!one.address.is_empty());

    let after_restart = DockerRuntime::connect(None).unwrap();
    assert_eq!(after_restart.list(&bench.node).await.unwrap(), std::slice::from_ref(&one));
    assert_eq!(after_restart.run(&request).await.unwrap(), one);
    let other_node = NodeName::new("test-nobody").unwrap();
    assert_eq!(after_restart.list(&other_node).await.unwrap(), []);
}

#[tokio::test]
async fn an_exit_is_seen_adopted_and_restarted_only_when_asked() {
    let Some(bench) = Bench::new().await else { return };
    let request = bench.request("exit", "exit 3");
    let container = bench.docker.run(&request).await.unwrap();
    let exited = ContainerState::Exited { code: 3, out_of_memory: false };
    eventually("exited with 3", || async { (bench.list().await.first()?.state == exited).then_some(()) })
        .await;
    assert_eq!(bench.docker.run(&request).await.unwrap().state, exited);

    let mut hints = bench.docker.hints(&bench.node).await.unwrap();
    bench.docker.restart(&container.handle).await.unwrap();
    let hint = tokio::time::timeout(Duration::from_secs(10), hints.next()).await.unwrap().unwrap();
    assert_eq!(hint.pod, Some(request.identity.pod));
    assert!(matches!(bench.docker.restart("no-such-container").await, Err(RuntimeError::NotFound(_))));
}

#[tokio::test]
async fn stop_gives_the_grace_and_no_more() {
    let Some(bench) = Bench::new().await else { return };
    let polite = bench.docker.run(&bench.request("polite", POLITE)).await.unwrap();
    let deaf =
        bench.docker.run(&bench.request("deaf", "trap '' TERM; while :; do sleep 0.1; done")).await.unwrap();
    let begin = Instant::now();
    bench.docker.stop(&polite.handle, Duration::from_secs(30)).await.unwrap();
    assert!(begin.elapsed() < Duration::from_secs(20), "it ended by itself: {:?}", begin.elapsed());
    let begin = Instant::now();
    bench.docker.stop(&deaf.handle, Duration::from_millis(1500)).await.unwrap();
    assert!(begin.elapsed() >= Duration::from_millis(1500), "it had its grace: {:?}", begin.elapsed());
    assert_eq!(bench.list().await, []);
    bench.docker.stop(&deaf.handle, Duration::ZERO).await.unwrap();
}

#[tokio::test]
async fn logs_have_a_tail_and_follow_to_the_end() {
    let Some(bench) = Bench::new().await else { return };
    let script = "echo one; sleep 0.2; echo two >&2; sleep 0.2; echo three; trap 'echo bye; exit 0' TERM; \
                  while :; do sleep 0.1; done";
    let container = bench.docker.run(&bench.request("logs", script)).await.unwrap();
    eventually("three lines", || async {
        (read(&bench, &container, 10).await == "one\ntwo\nthree\n").then_some(())
    })
    .await;
    assert_eq!(read(&bench, &container, 1).await, "three\n");

    let mut following = bench.docker.logs(&container.handle, 1, true).await.unwrap();
    assert_eq!(following.next().await.unwrap().unwrap(), "three\n");
    let (stopped, rest) =
        tokio::join!(bench.docker.stop(&container.handle, Duration::from_secs(10)), following.next());
    stopped.unwrap();
    assert_eq!(rest.unwrap().unwrap(), "bye\n");
    assert!(following.next().await.is_none());
    let gone = bench.docker.logs(&container.handle, 1, true).await;
    assert!(matches!(gone.err(), Some(RuntimeError::NotFound(_))));
}

async fn read(bench: &Bench, container: &Container, tail: usize) -> String {
    let lines = bench.docker.logs(&container.handle, tail, false).await.unwrap();
    String::from_utf8(lines.try_collect::<Vec<Bytes>>().await.unwrap().concat()).unwrap()
}

#[tokio::test]
async fn a_missing_image_is_told_in_the_engines_words() {
    let Some(bench) = Bench::new().await else { return };
    let image = "localhost:1/kubeleet-test/missing:1";
    let error = bench.docker.ensure_image(image).await.unwrap_err();
    assert!(matches!(&error, RuntimeError::Image(words) if words.contains("refused")), "{error:?}");
    let mut request = bench.request("missing", "true");
    request.container.image = image.to_owned();
    let error = bench.docker.run(&request).await.unwrap_err();
    assert!(matches!(&error, RuntimeError::Image(words) if words.contains(image)), "{error:?}");
    assert_eq!(bench.list().await, []);
    bench.docker.ensure_image(SHELL_IMAGE).await.unwrap();
    assert!(
        bench.docker.has_image(SHELL_IMAGE).await.unwrap() && !bench.docker.has_image(image).await.unwrap()
    );
}

#[tokio::test]
async fn what_can_not_start_is_refused_and_leaves_nothing() {
    let Some(bench) = Bench::new().await else { return };
    let mut request = bench.request("noexec", "");
    request.container.command.0 = vec!["no-such-program".to_owned()];
    let error = bench.docker.run(&request).await.unwrap_err();
    assert!(matches!(&error, RuntimeError::Refused(words) if words.contains("no-such-program")), "{error:?}");
    assert_eq!(bench.list().await, []);

    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut request = bench.request("port", POLITE);
    request.container.ports = vec![format!("{}:80", taken.local_addr().unwrap().port()).parse().unwrap()];
    let error = bench.docker.run(&request).await.unwrap_err();
    assert!(matches!(&error, RuntimeError::Failed(words) if words.contains("in use")), "{error:?}");
    assert_eq!(bench.list().await, []);
}

#[tokio::test]
async fn limits_reach_the_container_and_memory_has_an_end() {
    let Some(bench) = Bench::new().await else { return };
    let mut request = bench.request("memory", "x=0123456789abcdef; while :; do x=$x$x; done");
    request.container.memory = Some("8MiB".parse().unwrap());
    request.container.cpus = Some("0.5".parse().unwrap());
    bench.docker.run(&request).await.unwrap();
    let state = eventually("killed for its memory", || async {
        let state = bench.list().await.first()?.state;
        matches!(state, ContainerState::Exited { .. }).then_some(state)
    });
    assert_eq!(state.await, ContainerState::Exited { code: 137, out_of_memory: true });
}

#[tokio::test]
async fn a_name_held_by_a_stranger_is_not_adopted() {
    let Some(bench) = Bench::new().await else { return };
    let request = bench.request("stranger", POLITE);
    bench.docker.run(&request).await.unwrap();
    // The same name, because pod and assignment are the same, but another node's.
    let other = NodeName::new(format!("{}-b", bench.node)).unwrap();
    let stranger = ContainerRequest {
        identity: Identity { node: other, ..request.identity.clone() },
        container: request.container.clone(),
    };
    let error = bench.docker.run(&stranger).await.unwrap_err();
    assert!(matches!(&error, RuntimeError::Failed(words) if words.contains("not this pod's")), "{error:?}");
}

#[tokio::test]
async fn a_created_container_is_started_by_the_next_run() {
    let Some(bench) = Bench::new().await else { return };
    let request = bench.request("created", POLITE);
    // The worker dies between the two calls.
    let name = request.identity.container_name();
    let options = bollard::query_parameters::CreateContainerOptionsBuilder::default().name(&name).build();
    let engine = bench.docker.client.docker().unwrap();
    engine.create_container(Some(options), create::create_body(&request)).await.unwrap();
    assert_eq!(bench.list().await[0].state, ContainerState::Created);
    assert_eq!(bench.docker.run(&request).await.unwrap().state, ContainerState::Running);
    assert_eq!(bench.list().await.len(), 1);
}

/// An engine of our own making: answers each request by its first line, `None` never.
struct FakeEngine {
    runtime: DockerRuntime,
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
                    let line =
                        String::from_utf8_lossy(&head[..length]).lines().next().unwrap_or("").to_owned();
                    let Some((status, body)) = answer(line).await else {
                        return std::future::pending().await;
                    };
                    let length = body.len();
                    let head = format!("HTTP/1.1 {status} X\r\nContent-Length: {length}\r\n\r\n");
                    connection.write_all((head + &body).as_bytes()).await.unwrap();
                });
            }
        });
        let runtime = DockerRuntime::connect(Some(&format!("unix://{}", path.display()))).unwrap();
        Self { runtime, _dir: dir, server }
    }
}

impl Drop for FakeEngine {
    fn drop(&mut self) {
        self.server.abort();
    }
}

#[tokio::test]
async fn many_pods_that_wait_for_one_image_share_one_pull() {
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
    let (one, two, ()) =
        tokio::join!(engine.runtime.ensure_image("busy"), engine.runtime.ensure_image("busy:latest"), free);
    let failed = RuntimeError::Image("manifest unknown".to_owned());
    assert_eq!((one, two), (Err(failed.clone()), Err(failed)));
    assert_eq!(PULLS.load(Ordering::SeqCst), 1);
    release.add_permits(1);
    engine.runtime.ensure_image("busy").await.unwrap();
    assert_eq!(PULLS.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn an_image_is_looked_for_once_until_it_is_found_gone() {
    static LOOKS: AtomicUsize = AtomicUsize::new(0);
    let engine = FakeEngine::new(|line| async move {
        if line.starts_with("GET /images/") {
            LOOKS.fetch_add(1, Ordering::SeqCst);
            return Some((200, "{}".to_owned()));
        }
        assert!(line.starts_with("POST /containers/create"), "{line}");
        Some((404, r#"{"message":"No such image: busy:latest"}"#.to_owned()))
    });
    for _ in 0..3 {
        engine.runtime.ensure_image("busy").await.unwrap();
    }
    assert_eq!(LOOKS.load(Ordering::SeqCst), 1);
    let request =
        ContainerRequest { identity: identity("n", "p", "a"), container: ContainerSpec::of_image("busy") };
    let gone = engine.runtime.run(&request).await;
    assert!(matches!(gone, Err(RuntimeError::Image(_))), "{gone:?}");
    engine.runtime.ensure_image("busy").await.unwrap();
    assert_eq!(LOOKS.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn podman_is_told_from_docker() {
    let engine = FakeEngine::new(|line| async move {
        let version = r#"{"Version":"4.9.3","Components":[{"Name":"Podman Engine","Version":"4.9.3"}]}"#;
        Some((200, if line.contains("_ping") { "OK" } else { version }.to_owned()))
    });
    let info = engine.runtime.ping().await.unwrap();
    assert_eq!((info.runtime, info.version.as_str()), ("podman", "Podman 4.9.3"));
}

/// As one does whose disk hangs: it accepts, and that is all.
#[tokio::test]
async fn an_engine_that_does_not_answer_is_an_engine_error_in_time() {
    let engine = FakeEngine::new(|_| async { None });
    let docker = &engine.runtime;
    let node = NodeName::new("node").unwrap();
    let begin = Instant::now();
    let (ping, list, hints, image) =
        tokio::join!(docker.ping(), docker.list(&node), docker.hints(&node), docker.ensure_image("x"));
    assert!(begin.elapsed() < QUICK + Duration::from_secs(5), "{:?}", begin.elapsed());
    assert!(matches!(ping, Err(RuntimeError::Engine(words)) if words.contains("within 3 s")));
    assert!(matches!(list, Err(RuntimeError::Engine(_))));
    assert!(matches!(hints.err(), Some(RuntimeError::Engine(_))));
    assert!(matches!(image, Err(RuntimeError::Engine(_))));
}

#[tokio::test]
async fn an_image_of_this_executable_is_made_once_and_runs() {
    let Some(bench) = Bench::new().await else { return };
    let docker = &bench.docker;
    let tags = [format!("kubeleet-test/{}:1", bench.node), format!("kubeleet-test/{}", bench.node)];
    let tags = [tags[0].as_str(), tags[1].as_str()];
    assert!(ensure_hello_image(docker, &tags).await.unwrap());
    assert!(!ensure_hello_image(docker, &tags).await.unwrap());
    let mut request = bench.request("hello", "");
    request.container = ContainerSpec::of_image(tags[1]);
    let container = docker.run(&request).await.unwrap();
    // This executable is the test harness: `hello` is a filter to it, and its libraries are what is tried here.
    let output = eventually("output of the test harness", || async {
        let output = read(&bench, &container, 100).await;
        output.contains("test result").then_some(output)
    });
    assert!(output.await.contains("running"));
    docker.stop(&container.handle, Duration::ZERO).await.unwrap();
    for tag in tags {
        docker.remove_image(tag).await.unwrap();
        assert!(!docker.has_image(tag).await.unwrap());
    }
}
