//! A new proxy process replaces the running one, with the signal that `systemctl reload` sends.

use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::Duration;

use kubeleet_tests::DaemonProcess;
use kubeleet_tests::exclusive::beside_others;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use testkit::eventually::{check, eventually_within};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use crate::SOON;
use crate::tunnel::{TwoHosts, comes_back, restart};

const TIMES: u64 = 4;

/// Stands in for systemd.
struct Notified(UnixDatagram);

impl Notified {
    fn bind(path: &Path) -> Self {
        let socket = UnixDatagram::bind(path).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Self(socket)
    }

    fn main_process(&self) -> Pid {
        let mut message = [0; 256];
        let length = self.0.recv(&mut message).expect("a process tells that it serves");
        let message = std::str::from_utf8(&message[..length]).unwrap();
        assert!(message.contains("READY=1"), "{message}");
        let process = message.lines().find_map(|line| line.strip_prefix("MAINPID=")).unwrap();
        Pid::from_raw(process.parse().unwrap()).unwrap()
    }
}

/// No test has started this process.
struct Last(Pid);

impl Drop for Last {
    fn drop(&mut self) {
        let _gone = kill_process(self.0, Signal::KILL);
    }
}

fn is_first(daemon: &DaemonProcess, process: Pid) -> bool {
    daemon.id().is_some_and(|id| id as i32 == process.as_raw_pid())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_is_followed_by_the_next_one_and_no_connection_is_lost() {
    let _lock = beside_others().await;
    let folder = tempfile::tempdir().unwrap();
    let paths = ["here", "there"].map(|name| folder.path().join(name));
    let notified = paths.each_ref().map(|path| Notified::bind(path));
    let hosts = TwoHosts::start([&paths[0], &paths[1]]).await;
    let mut main = notified.each_ref().map(|socket| Last(socket.main_process()));
    assert!(is_first(&hosts.proxies[0], main[0].0) && is_first(&hosts.proxies[1], main[1].0));
    let mut long = TcpStream::connect(("127.0.0.1", hosts.port)).await.unwrap();
    long.write_all(b"lo").await.unwrap();

    let sending = hosts.send_without_pause();
    for number in 1..=TIMES {
        for (socket, main) in notified.iter().zip(&mut main) {
            kill_process(main.0, Signal::HUP).unwrap();
            let next = socket.main_process();
            assert_ne!(next, main.0);
            std::mem::forget(std::mem::replace(main, Last(next)));
        }
        assert!(comes_back(hosts.port).await.unwrap(), "after {number}");
    }
    long.write_all(b"ng\n").await.unwrap();
    let mut answer = String::new();
    BufReader::new(long).read_line(&mut answer).await.unwrap();
    assert_eq!(answer, "long\n");
    // After the end of the long connection: a pod is stopped only when its connections have ended.
    for number in 1..=2 {
        restart(&hosts.api.http(), number).await;
    }
    let (answered, failed) = sending.stop().await;
    assert!(failed == 0 && answered > 10, "{answered} answered, {failed} failed");
    eventually_within(SOON, "the first processes have ended", || async {
        let codes = hosts.proxies.each_ref().map(DaemonProcess::ended_with);
        check(codes == [Some(0); 2], || format!("{codes:?}"))
    })
    .await;
    assert!(main.iter().all(|main| test_kill_process(main.0).is_ok()));
    drop(hosts.cluster);
}
