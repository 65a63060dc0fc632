//! Tests of the socket with a worker's end of real connections.

use model::ids::{AssignmentId, Incarnation, NodeName};
use model::network::handover::{FromProxy, Lines, LocalPod};
use testkit::eventually;
use tokio::task::JoinHandle;

use super::*;
use crate::fixtures::local_pod;

struct Host {
    directory: Arc<tempfile::TempDir>,
    gates: Arc<Gates>,
    shutdown: CancellationToken,
    served: JoinHandle<SocketEnd>,
}

impl Host {
    async fn new() -> Self {
        Self::in_directory(Arc::new(tempfile::tempdir().unwrap())).await
    }

    async fn in_directory(directory: Arc<tempfile::TempDir>) -> Self {
        let (gates, shutdown) = (Arc::new(Gates::default()), CancellationToken::new());
        let server = LocalServer::bind(directory.path().join("proxy.sock"), gates.clone()).await.unwrap();
        let served = tokio::spawn(server.run(shutdown.clone()));
        Self { directory, gates, shutdown, served }
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("proxy.sock")
    }

    async fn connect(&self) -> Worker {
        Worker { lines: lines(UnixStream::connect(self.socket()).await.unwrap()) }
    }

    async fn worker(&self, node: &str, pods: &[&LocalPod]) -> Worker {
        let mut worker = self.connect().await;
        let incarnation = Incarnation::new(AssignmentId::random().to_string()).unwrap();
        worker.say(&FromWorker::Hello { node: NodeName::new(node).unwrap(), incarnation }).await;
        let pods = pods.iter().map(|pod| (*pod).clone()).collect();
        worker.say(&FromWorker::Pods { pods, more: false }).await;
        worker.settled().await;
        worker
    }

    fn lets_in(&self, row: &LocalPod) -> bool {
        self.gates.enter(&row.pod, &row.assignment).is_ok()
    }

    async fn restart(self) -> Self {
        self.shutdown.cancel();
        self.served.await.unwrap();
        Self::in_directory(self.directory).await
    }
}

struct Worker {
    lines: Lines,
}

impl Worker {
    async fn say(&mut self, message: &FromWorker) {
        self.lines.send(to_line(message)).await.unwrap();
    }

    async fn hear(&mut self) -> FromProxy {
        let line = tokio::time::timeout(Duration::from_secs(20), self.lines.next()).await.unwrap();
        serde_json::from_str(&line.unwrap().unwrap()).unwrap()
    }

    async fn settled(&mut self) {
        self.say(&FromWorker::Ping).await;
        assert_eq!(self.hear().await, FromProxy::Pong);
    }

    async fn close(&mut self, row: &LocalPod, within: Duration) {
        let (pod, assignment) = (row.pod.clone(), row.assignment.clone());
        self.say(&FromWorker::Close { pod, assignment, within_ms: within.as_millis() as u64 }).await;
    }

    async fn is_ended(&mut self) -> bool {
        matches!(self.lines.next().await, None | Some(Err(_)))
    }
}

#[tokio::test]
async fn only_its_user_can_open_the_socket_and_one_proxy_serves_it() {
    let host = Host::new().await;
    let mode = std::fs::metadata(host.socket()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let second = LocalServer::bind(host.socket(), Arc::default()).await.err().unwrap().to_string();
    assert!(second.contains("another proxy of this host") && second.contains("proxy.sock"), "{second}");
    assert_eq!(ping(&host.socket()).await, Ok(()));
    host.shutdown.cancel();
    host.served.await.unwrap();
    let gone = ping(&host.directory.path().join("proxy.sock")).await.unwrap_err();
    assert!(gone.contains("no proxy listens on"), "{gone}");
}

#[tokio::test]
async fn a_socket_that_nobody_serves_any_more_is_replaced() {
    let directory = tempfile::tempdir().unwrap();
    drop(UnixListener::bind(directory.path().join("proxy.sock")).unwrap());
    let host = Host::in_directory(Arc::new(directory)).await;
    host.worker("n", &[]).await;
}

#[tokio::test]
async fn a_pod_is_reported_drained_once_it_is_saved_that_its_gate_is_closed() {
    let host = Host::new().await;
    let (a, b) = (local_pod("a"), local_pod("b"));
    let mut worker = host.worker("n", &[&a]).await;
    for round in 0..5 {
        worker.say(&FromWorker::Set { pod: LocalPod { replica: round, ..b.clone() } }).await;
        worker.say(&FromWorker::Set { pod: a.clone() }).await;
        worker.close(&a, Duration::from_secs(60)).await;
        while !matches!(worker.hear().await, FromProxy::Drained { .. }) {}
        let saved = pods_file::read(&pods_file::path(&host.socket()));
        let row = saved.iter().flat_map(|(_, rows)| rows).find(|row| row.pod == a.pod).unwrap();
        assert!(!row.open, "round {round}: a proxy that is restarted now would open it");
    }
}

#[tokio::test]
async fn a_closed_pod_is_reported_drained_when_its_last_request_has_ended() {
    let host = Host::new().await;
    let a = local_pod("a");
    let mut worker = host.worker("n", &[&a]).await;
    let pass = host.gates.enter(&a.pod, &a.assignment).unwrap();
    worker.close(&a, Duration::from_secs(60)).await;
    let (pod, assignment) = (a.pod.clone(), a.assignment.clone());
    assert_eq!(worker.hear().await, FromProxy::Closed { pod, assignment, in_flight: 1 });
    assert!(!host.lets_in(&a));
    worker.settled().await;
    drop(pass);
    let drained = worker.hear().await;
    assert!(matches!(&drained, FromProxy::Drained { cut: 0, pod, .. } if *pod == a.pod), "{drained:?}");
}

#[tokio::test]
async fn what_takes_longer_is_cut_and_counted_and_a_repeated_close_begins_anew() {
    let host = Host::new().await;
    let a = local_pod("a");
    let mut worker = host.worker("n", &[&a]).await;
    let pass = host.gates.enter(&a.pod, &a.assignment).unwrap();
    let request = tokio::spawn(async move { pass.cut().await });
    worker.close(&a, Duration::from_secs(3600)).await;
    worker.hear().await;
    worker.close(&a, Duration::from_millis(20)).await;
    assert!(matches!(worker.hear().await, FromProxy::Closed { in_flight: 1, .. }));
    let drained = worker.hear().await;
    assert!(matches!(drained, FromProxy::Drained { cut: 1, after_ms: 20.., .. }), "{drained:?}");
    request.await.unwrap();
}

#[tokio::test]
async fn a_pod_that_is_not_here_is_drained_at_once() {
    let host = Host::new().await;
    let mut worker = host.worker("n", &[]).await;
    worker.close(&local_pod("a"), Duration::from_secs(60)).await;
    assert!(matches!(worker.hear().await, FromProxy::Closed { in_flight: 0, .. }));
    assert!(matches!(worker.hear().await, FromProxy::Drained { cut: 0, .. }));
}

#[tokio::test]
async fn a_revoked_stop_opens_the_gate_and_cuts_nothing() {
    let host = Host::new().await;
    let a = local_pod("a");
    let mut worker = host.worker("n", &[&a]).await;
    let pass = host.gates.enter(&a.pod, &a.assignment).unwrap();
    worker.close(&a, Duration::from_millis(100)).await;
    worker.hear().await;
    worker.say(&FromWorker::Set { pod: a.clone() }).await;
    worker.settled().await;
    assert!(host.lets_in(&a));
    let cut = tokio::time::timeout(Duration::from_millis(300), pass.cut()).await;
    assert!(cut.is_err(), "the drain went on although the pod was opened again");
}

#[tokio::test]
async fn a_gate_stays_closed_when_its_worker_dies_and_the_next_session_goes_on() {
    let host = Host::new().await;
    let a = local_pod("a");
    let mut worker = host.worker("n", &[&a]).await;
    let pass = host.gates.enter(&a.pod, &a.assignment).unwrap();
    worker.close(&a, Duration::from_secs(60)).await;
    worker.hear().await;
    drop(worker);
    let closed = LocalPod { open: false, ..a.clone() };
    let mut next = host.worker("n", &[&closed]).await;
    assert!(!host.lets_in(&a));
    next.close(&a, Duration::from_secs(60)).await;
    assert!(matches!(next.hear().await, FromProxy::Closed { in_flight: 1, .. }));
    drop(pass);
    assert!(matches!(next.hear().await, FromProxy::Drained { cut: 0, .. }));
}

#[tokio::test]
async fn a_supervisor_closes_without_a_hello_and_can_do_nothing_else() {
    let host = Host::new().await;
    let (a, b) = (local_pod("a"), local_pod("b"));
    let _worker = host.worker("n", &[&a]).await;
    let mut supervisor = host.connect().await;
    supervisor.close(&a, Duration::from_secs(60)).await;
    assert!(matches!(supervisor.hear().await, FromProxy::Closed { .. }));
    assert!(!host.lets_in(&a));
    supervisor.hear().await;
    supervisor.say(&FromWorker::Set { pod: b.clone() }).await;
    assert!(supervisor.is_ended().await);
    assert!(!host.lets_in(&b));
}

#[tokio::test]
async fn a_line_that_is_too_long_ends_the_connection_and_one_that_is_not_understood_is_skipped() {
    let host = Host::new().await;
    let a = local_pod("a");
    let mut worker = host.worker("n", &[&a]).await;
    for line in ["", "{", r#"{"type":"later"}"#, r#"{"type":"set"}"#] {
        worker.lines.send(line).await.unwrap();
    }
    worker.settled().await;
    let _sent = worker.lines.send("x".repeat(2 << 20)).await;
    assert!(worker.is_ended().await);
    assert!(host.lets_in(&a));
}

#[tokio::test]
async fn a_restarted_proxy_serves_before_the_workers_speak() {
    let host = Host::new().await;
    let (a, b) = (local_pod("a"), local_pod("b"));
    let mut worker = host.worker("n", &[&a, &b]).await;
    worker.close(&b, Duration::ZERO).await;
    worker.hear().await;
    let host = host.restart().await;
    assert!(host.lets_in(&a) && !host.lets_in(&b), "as it was when the first one ended");
    assert!(!host.lets_in(&local_pod("c")), "unknown is refused");
}

#[tokio::test]
async fn what_changes_is_on_disk_soon() {
    let host = Host::new().await;
    let a = local_pod("a");
    let _worker = host.worker("n", &[&a]).await;
    let file = pods_file::path(&host.socket());
    let is_saved = || async { pods_file::read(&file).iter().any(|(_, pods)| pods.contains(&a)) };
    eventually("the pod is in the file", is_saved).await;
}

impl Host {
    async fn next(&self) -> Self {
        let directory = self.directory.clone();
        let (gates, shutdown) = (Arc::new(Gates::default()), CancellationToken::new());
        let listening = Listening::from(shutdown.clone());
        let server = LocalServer::take_over(self.socket(), gates.clone(), &listening).await.unwrap();
        let served = tokio::spawn(server.giving(listening).run(shutdown.clone()));
        Self { directory, gates, shutdown, served }
    }

    fn closes(&self, row: &LocalPod) -> bool {
        !self.lets_in(row)
    }
}

#[tokio::test]
async fn a_gate_is_let_go_of_when_no_process_has_anything_in_flight() {
    let first = Host::new().await;
    let a = local_pod("a");
    let mut worker = first.worker("n", &[&a]).await;
    let in_first = first.gates.enter(&a.pod, &a.assignment).unwrap();
    let second = first.next().await;
    assert!(worker.is_ended().await, "a worker has to speak to the next process");
    let in_second = second.gates.enter(&a.pod, &a.assignment).unwrap();
    let third = second.next().await;
    let mut worker = third.worker("n", &[&a]).await;
    worker.close(&a, Duration::from_secs(60)).await;
    assert!(matches!(worker.hear().await, FromProxy::Closed { .. }));
    eventually("all gates are closed", async || first.closes(&a) && second.closes(&a) && third.closes(&a))
        .await;
    worker.settled().await;
    drop(in_second);
    worker.settled().await;
    drop(in_first);
    let drained = worker.hear().await;
    assert!(matches!(&drained, FromProxy::Drained { cut: 0, pod, .. } if *pod == a.pod), "{drained:?}");
}

#[tokio::test]
async fn the_gates_of_the_process_before_do_as_those_of_the_next() {
    let first = Host::new().await;
    let (a, b) = (local_pod("a"), local_pod("b"));
    let mut before = first.worker("n", &[&a]).await;
    before.close(&a, Duration::from_secs(60)).await;
    let second = first.next().await;
    assert!(second.closes(&a), "a gate that was closed before is closed in the next process");
    let mut worker = second.worker("n", &[&a, &b]).await;
    eventually("a new pod is known, and one that is to run is opened again", async || {
        first.lets_in(&a) && first.lets_in(&b)
    })
    .await;
    let in_flight = first.gates.enter(&b.pod, &b.assignment).unwrap();
    let (pod, assignment) = (b.pod.clone(), b.assignment.clone());
    worker.say(&FromWorker::Remove { pod, assignment }).await;
    in_flight.cut().await;
    assert!(first.closes(&b) && second.closes(&b));
}

#[tokio::test]
async fn a_process_whose_next_one_does_not_come_serves_on() {
    let first = Host::new().await;
    let a = local_pod("a");
    let mut worker = first.worker("n", &[&a]).await;
    // The next process gets the sockets, replaces the first one's, and dies.
    let stream = UnixStream::connect(first.socket()).await.unwrap();
    let asked = take_over::ask(stream, &CancellationToken::new().into()).await.unwrap();
    drop(bind_private(&first.socket()).unwrap());
    drop(asked);
    eventually("it can be reached again", async || ping(&first.socket()).await.is_ok()).await;
    worker.settled().await;
    assert!(first.lets_in(&a));
}

#[tokio::test]
async fn a_process_ends_at_once_when_the_next_one_has_ended() {
    let first = Host::new().await;
    let second = first.next().await;
    second.shutdown.cancel();
    assert_eq!(first.served.await.unwrap(), SocketEnd::UntilNextEnded);
}

#[tokio::test]
async fn without_a_process_to_follow_it_starts_as_any_other() {
    let host = Host::new().await;
    host.shutdown.cancel();
    assert_eq!(host.served.await.unwrap(), SocketEnd::UntilShutdown);
    let directory = host.directory;
    let listening = Listening::from(CancellationToken::new());
    let path = directory.path().join("proxy.sock");
    LocalServer::take_over(path, Arc::default(), &listening).await.unwrap();
}
