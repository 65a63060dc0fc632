//! Commands in pods, port-forwards and copies of files.

use std::fs;
use std::io::Write;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use kubeleet_tests::cluster::binary;
use kubeleet_tests::exclusive::beside_others;
use kubeleet_tests::terminal::Terminal;
use kubeleet_tests::{Cluster, ClusterTiming, DaemonProcess, Docker, Http};
use rustix::process::Signal;
use serde_json::json;
use testkit::eventually::{check, eventually_within};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::{SOON, sleeper};

fn kubeleet(http: &Http, args: &[&str]) -> Command {
    let mut command = Command::new(binary());
    command.args(args).env_clear().env("KUBELEET_API", format!("http://{}", http.address()));
    command
}

async fn run(http: &Http, args: &[&str], input: &[u8]) -> (Option<i32>, Vec<u8>, String) {
    let mut command = kubeleet(http, args);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let input = input.to_vec();
    let run = move || -> Output {
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap();
        output
    };
    let output = tokio::task::spawn_blocking(run).await.unwrap();
    (output.status.code(), output.stdout, String::from_utf8_lossy(&output.stderr).into_owned())
}

fn processes(words: &[u8]) -> usize {
    let all = fs::read_dir("/proc").unwrap().flatten();
    all.filter(|process| fs::read(process.path().join("cmdline")).is_ok_and(|line| line == words)).count()
}

struct Shell {
    _cluster_lock: Box<dyn std::any::Any>,
    cluster: Cluster,
    docker: Docker,
    api: DaemonProcess,
    worker: DaemonProcess,
    _scheduler: DaemonProcess,
}

impl Shell {
    async fn new() -> Option<Self> {
        let lock = beside_others().await;
        let cluster = Cluster::new(ClusterTiming::Short).await;
        let docker = Docker::find(&cluster.prefix).await?;
        let image = docker.make_shell_image().await;
        let (api, scheduler) = (cluster.api().await, cluster.scheduler());
        let worker = cluster.small_worker("w1", "docker", 6);
        let http = api.http();
        http.nodes_ready(1).await;
        let service = json!({"name": "web", "image": image, "replica": 1});
        let (status, created) = http.send(reqwest::Method::POST, "/service", Some(&service)).await;
        assert_eq!(status.as_u16(), 201, "{created}");
        http.runs(SOON, "web", 1).await;
        Some(Self { _cluster_lock: Box::new(lock), cluster, docker, api, worker, _scheduler: scheduler })
    }

    async fn run(&self, args: &[&str], input: &[u8]) -> (Option<i32>, Vec<u8>, String) {
        run(&self.api.http(), args, input).await
    }

    fn terminal(&self, args: &[&str]) -> Terminal {
        Terminal::start(kubeleet(&self.api.http(), args), 100, 30)
    }

    async fn events(&self) -> String {
        let (_, output, _) = self.run(&["events"], b"").await;
        String::from_utf8_lossy(&output).into_owned()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_end_with_their_exit_codes_and_outputs() {
    let Some(shell) = Shell::new().await else { return };
    let script = "echo out; echo err >&2; exit 3";
    let (code, output, errors) = shell.run(&["exec", "web-0", "--", "sh", "-c", script], b"").await;
    assert_eq!((code, output.as_slice(), errors.as_str()), (Some(3), b"out\n".as_slice(), "err\n"));
    let (code, output, errors) = shell.run(&["exec", "web-0", "--", "/bin/sh", "-c", "exit 0"], b"").await;
    assert_eq!((code, output.is_empty(), errors.is_empty()), (Some(0), true, true), "{errors}");
    // 126 or 127 depends on the engine's version; the words are its own.
    let (code, output, errors) = shell.run(&["exec", "web-0", "--", "no-such-program"], b"").await;
    let words = format!("{}{errors}", String::from_utf8_lossy(&output));
    assert!(
        matches!(code, Some(126 | 127)) && words.contains("executable file not found"),
        "{code:?} {words}"
    );
    let (code, output, _) = shell.run(&["exec", "web-0", "--", "cat"], b"not sent").await;
    assert_eq!((code, output.len()), (Some(0), 0));
    let (code, _, errors) = shell.run(&["exec", "web-0", "-c", "other", "--", "true"], b"").await;
    assert!(code == Some(1) && errors.contains("none named other"), "{code:?} {errors}");
    let (code, _, errors) = shell.run(&["exec", "nowhere-0", "--", "true"], b"").await;
    assert_eq!(code, Some(3), "{errors}");
    // Events are without the arguments of the command.
    let events = shell.events().await;
    assert!(events.contains("ExecStarted") && events.contains("exec of `sh`, by a local user"), "{events}");
    assert!(events.contains("exit code 3") && !events.contains("echo out"), "{events}");
}

#[tokio::test(flavor = "multi_thread")]
async fn five_megabytes_come_back_byte_for_byte() {
    let Some(shell) = Shell::new().await else { return };
    let data: Vec<u8> = (0..5_000_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let begun = Instant::now();
    let (code, output, errors) = shell.run(&["exec", "-i", "web-0", "--", "cat"], &data).await;
    assert_eq!(code, Some(0), "{errors}");
    assert!(output == data, "{} of {} bytes, or others", output.len(), data.len());
    println!("5 MB there and back in {:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_is_resized_interrupted_and_restored() {
    let Some(shell) = Shell::new().await else { return };
    let mut terminal = shell.terminal(&["exec", "-it", "web-0", "--", "sh"]);
    terminal.shows("# ").await;
    assert!(terminal.is_raw());
    terminal.press("stty size\r");
    terminal.shows("30 100").await;
    terminal.resize(123, 45);
    eventually_within(SOON, "the program sees the new size", || async {
        let (_, output, _) = shell
            .run(
                &["exec", "web-0", "--", "bash", "-c", "for t in /dev/pts/*[0-9]; do stty size < $t; done"],
                b"",
            )
            .await;
        let sizes = String::from_utf8_lossy(&output).into_owned();
        check(sizes.contains("45 123"), || sizes.clone())
    })
    .await;
    terminal.press("stty size\r");
    terminal.shows("45 123").await;
    // No other test has a process of these words.
    terminal.press("sleep 1357\r");
    eventually_within(SOON, "the command runs", || async { processes(b"sleep\x001357\x00") == 1 }).await;
    terminal.press("\x03");
    terminal.shows("# ").await;
    terminal.press("echo code $?\r");
    terminal.shows("code 130").await;
    let mut echoes = Vec::new();
    for key in "abcdefghijklmnopqrst".chars() {
        terminal.press(&key.to_string());
        let begun = Instant::now();
        while !terminal.text().contains(key) {
            assert!(begun.elapsed() < SOON);
            tokio::time::sleep(Duration::from_micros(200)).await;
        }
        echoes.push(begun.elapsed());
    }
    echoes.sort();
    println!("echo of a key: median {:?}, longest {:?}", echoes[10], echoes[19]);
    terminal.press("\x15exit 7\r");
    assert_eq!(terminal.ended().await, Some(7));
    assert!(!terminal.is_raw(), "the terminal is as before");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_is_killed_takes_its_command_with_it() {
    let Some(shell) = Shell::new().await else { return };
    let terminal = shell.terminal(&["exec", "-it", "web-0", "--", "sh", "-c", "echo begun; sleep 4321"]);
    terminal.shows("begun").await;
    let sleeps = || processes(b"sleep\x004321\x00");
    eventually_within(SOON, "the command runs", || async { sleeps() == 1 }).await;
    drop(terminal);
    eventually_within(SOON, "the command has ended", || async { sleeps() == 0 }).await;
    eventually_within(SOON, "the end is an event", || async {
        let events = shell.events().await;
        check(events.contains("ExecEnded"), || events.clone())
    })
    .await;
    let mut command =
        kubeleet(&shell.api.http(), &["exec", "web-0", "--", "sh", "-c", "echo begun; sleep 4321"]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut begun = [0; 5];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut begun).unwrap();
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, Signal::INT).unwrap();
    let status = tokio::task::spawn_blocking(move || child.wait().unwrap()).await.unwrap();
    assert_eq!(status.code(), Some(130));
    eventually_within(SOON, "the command has ended", || async { sleeps() == 0 }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_ends_ends_its_sessions_and_so_does_a_worker() {
    let Some(mut shell) = Shell::new().await else { return };
    let mut terminal = shell.terminal(&["exec", "-it", "web-0", "--", "sh"]);
    terminal.shows("# ").await;
    let container = shell.docker.containers().await.remove(0);
    shell.docker.kill(&container.id).await;
    terminal.shows("the container has ended").await;
    assert_eq!(terminal.ended().await, Some(137));
    assert!(!terminal.is_raw());
    eventually_within(SOON, "the container runs again", || async {
        let (code, _, errors) = shell.run(&["exec", "web-0", "--", "sh", "-c", "exit 0"], b"").await;
        check(code == Some(0), || errors.clone())
    })
    .await;
    let mut terminal = shell.terminal(&["exec", "-it", "web-0", "--", "sh"]);
    terminal.shows("# ").await;
    let _status = shell.worker.terminate();
    terminal.shows("ends its sessions").await;
    assert_eq!(terminal.ended().await, Some(1));
    eventually_within(SOON, "the channel is closed", || async {
        let keys: Vec<String> = shell.cluster.redis.cli(&["KEYS", "xs:*"]).await;
        check(keys.is_empty(), || format!("{keys:?}"))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn files_and_directories_are_copied_there_and_back() {
    let Some(shell) = Shell::new().await else { return };
    let home = tempfile::tempdir().unwrap();
    let source = home.path().join("source");
    fs::create_dir_all(source.join("inner")).unwrap();
    fs::write(source.join("inner/big"), vec![3; 3_000_000]).unwrap();
    fs::write(source.join("file with a space"), "text").unwrap();
    std::os::unix::fs::symlink("inner/big", source.join("link")).unwrap();
    let (source_text, copy) = (source.to_str().unwrap(), home.path().join("copy"));
    let (code, _, errors) = shell.run(&["cp", source_text, "web-0:/copied"], b"").await;
    assert_eq!(code, Some(0), "{errors}");
    let list = "ls -l /copied; cat '/copied/file with a space'";
    let (_, listed, _) = shell.run(&["exec", "web-0", "--", "sh", "-c", list], b"").await;
    let listed = String::from_utf8_lossy(&listed).into_owned();
    assert!(listed.contains("link -> inner/big") && listed.ends_with("text"), "{listed}");
    let (code, _, errors) = shell.run(&["cp", "web-0:/copied", copy.to_str().unwrap()], b"").await;
    assert_eq!(code, Some(0), "{errors}");
    let same = Command::new("diff").args(["-r", source_text, copy.to_str().unwrap()]).status().unwrap();
    assert!(same.success());
    let file = source.join("file with a space");
    let (code, _, errors) = shell.run(&["cp", file.to_str().unwrap(), "web-0:/bin/"], b"").await;
    assert_eq!(code, Some(0), "{errors}");
    let other = home.path().join("other");
    let from = "web-0:/bin/file with a space";
    let (code, _, errors) = shell.run(&["cp", from, other.to_str().unwrap()], b"").await;
    assert_eq!((code, fs::read_to_string(other).unwrap().as_str()), (Some(0), "text"), "{errors}");
    let (code, _, errors) = shell.run(&["cp", "web-0:/nowhere", "x"], b"").await;
    assert!(
        code == Some(1) && errors.contains("/nowhere") && !errors.contains("no such container"),
        "{errors}"
    );
    let (code, _, errors) = shell.run(&["cp", file.to_str().unwrap(), "web-0:/nowhere/x"], b"").await;
    assert!(code == Some(1) && errors.contains("/nowhere"), "{errors}");
}

#[tokio::test(flavor = "multi_thread")]
async fn attach_shows_what_a_container_writes_from_now_on() {
    let Some(shell) = Shell::new().await else { return };
    let mut terminal = shell.terminal(&["attach", "web-0"]);
    eventually_within(SOON, "it is attached", || async { shell.events().await.contains("AttachStarted") })
        .await;
    let container = shell.docker.containers().await.remove(0);
    eventually_within(SOON, "the output is shown", || async {
        let say = "echo from now on > /proc/1/fd/1";
        let _output = shell.docker.exec(&container.id, &["sh", "-c", say]).await;
        check(terminal.text().contains("from now on"), || terminal.text())
    })
    .await;
    assert!(!terminal.text().contains("hello"), "what it wrote before is not shown");
    shell.docker.kill(&container.id).await;
    assert_eq!(terminal.ended().await, Some(137));
}

#[tokio::test(flavor = "multi_thread")]
async fn run_connects_with_the_main_process_of_a_new_pod() {
    let Some(shell) = Shell::new().await else { return };
    let image = shell.docker.make_shell_image().await;
    let script = ["sh", "-c", "printf 'process %s, ' $$; cat; echo err >&2; exit 4"];
    let line = [&["run", "-i", "--name", "one", image], script.as_slice()].concat();
    let (code, output, errors) = shell.run(&line, b"its input").await;
    assert_eq!(
        (code, String::from_utf8_lossy(&output).as_ref()),
        (Some(4), "process 1, its input"),
        "{errors}"
    );
    assert!(errors.contains("err\n"), "{errors}");
    let (code, output, errors) =
        shell.run(&["run", "-i", "--name", "two", image, "sh", "-c", "ls /bin/sh"], b"").await;
    assert_eq!((code, output.as_slice()), (Some(0), b"/bin/sh\n".as_slice()), "{errors}");
    let mut terminal = shell.terminal(&["run", "-it", "--name", "three", image, "sh"]);
    // A prompt is no line, and is in no log.
    terminal.shows("# ").await;
    terminal.press("stty size\r");
    terminal.shows("30 100").await;
    terminal.press("exit 5\r");
    assert_eq!(terminal.ended().await, Some(5));
    let (_, services, _) = shell.run(&["service", "ls", "-q"], b"").await;
    assert_eq!(String::from_utf8_lossy(&services), "web\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn attach_reaches_the_terminal_of_a_container_again_and_again() {
    let Some(shell) = Shell::new().await else { return };
    let image = shell.docker.make_shell_image().await;
    let http = shell.api.http();
    let service = json!({"name": "game", "image": image, "command": ["sh"], "stdin_open": true, "tty": true});
    let (status, created) = http.send(reqwest::Method::POST, "/service", Some(&service)).await;
    assert_eq!(status.as_u16(), 201, "{created}");
    http.runs(SOON, "game", 1).await;
    for sum in ["$((40+2))", "$((40+3))"] {
        let mut terminal = shell.terminal(&["attach", "-it", "game-0"]);
        eventually_within(SOON, "it is raw", || async { check(terminal.is_raw(), || terminal.text()) }).await;
        terminal.press(&format!("echo {sum}\r"));
        terminal.shows(if sum.contains('2') { "42" } else { "43" }).await;
        terminal.press("\x10\x11");
        terminal.shows("the container runs on").await;
        assert_eq!(terminal.ended().await, Some(1));
    }
    http.runs(SOON, "game", 1).await;
    let (code, _, errors) = shell.run(&["attach", "-i", "web-0"], b"").await;
    assert!(code == Some(1) && errors.contains("set `stdin_open`"), "{code:?} {errors}");
}

async fn echo_server() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut from, mut to) = stream.split();
                let _ended = tokio::io::copy(&mut from, &mut to).await;
            });
        }
    });
    port
}

fn port_forward(http: &Http, pod: &str, port: u16) -> (std::process::Child, String) {
    let ports = format!("0:{port}");
    let mut command = kubeleet(http, &["port-forward", pod, &ports]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.as_mut().unwrap()), &mut line)
        .unwrap();
    let address = line.split(' ').next().unwrap().to_owned();
    (child, address)
}

#[tokio::test(flavor = "multi_thread")]
async fn port_forward_carries_twenty_megabytes_and_many_connections() {
    let _lock = beside_others().await;
    let cluster = Cluster::new(ClusterTiming::Short).await;
    let (api, _scheduler) = (cluster.api().await, cluster.scheduler());
    let _worker = cluster.worker("w1", "process");
    let http = api.http();
    http.nodes_ready(1).await;
    let (status, _) = http.send(reqwest::Method::POST, "/service", Some(&sleeper("web", 1, "keep"))).await;
    assert_eq!(status.as_u16(), 201);
    http.runs(SOON, "web", 1).await;
    let (mut forward, address) = port_forward(&http, "web-0", echo_server().await);
    let data: Vec<u8> = (0..20_000_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 11) as u8).collect();
    let begun = Instant::now();
    let (mut from, mut to) = TcpStream::connect(&address).await.unwrap().into_split();
    let sent = data.clone();
    let sending = tokio::spawn(async move {
        to.write_all(&sent).await.unwrap();
        to.shutdown().await.unwrap();
        to
    });
    let mut received = Vec::new();
    from.read_to_end(&mut received).await.unwrap();
    println!("20 MB there and back in {:?}", begun.elapsed());
    drop(sending.await.unwrap());
    assert!(received == data, "{} bytes of {}, or others", received.len(), data.len());
    let connections = (0..10_u8).map(|n| {
        let address = address.clone();
        async move {
            let mut stream = TcpStream::connect(&address).await.unwrap();
            stream.write_all(&[n; 1000]).await.unwrap();
            stream.shutdown().await.unwrap();
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).await.unwrap();
            answer == [n; 1000]
        }
    });
    let answers = futures_util::future::join_all(connections).await;
    assert!(answers.iter().all(|is_same| *is_same));
    let (_, events, _) = run(&http, &["events"], b"").await;
    let events = String::from_utf8_lossy(&events).into_owned();
    assert_eq!(events.matches("PortForwardStarted").count(), 1, "{events}");
    let (mut refused, address) = port_forward(&http, "web-0", 1);
    let mut stream = TcpStream::connect(&address).await.unwrap();
    assert_eq!(stream.read(&mut [0; 10]).await.unwrap_or(0), 0);
    for child in [&mut forward, &mut refused] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let (code, output, errors) =
        run(&http, &["exec", "-i", "web-0", "--", "sh", "-c", "cat; exit 4"], b"text").await;
    assert_eq!((code, output.as_slice()), (Some(4), b"text".as_slice()), "{errors}");
    let (code, _, errors) = run(&http, &["exec", "web-0", "--", "no-such-program"], b"").await;
    assert!(code == Some(127) && errors.contains("cannot be started"), "{code:?} {errors}");
    let mut terminal = Terminal::start(kubeleet(&http, &["exec", "-it", "web-0", "--", "sh"]), 80, 24);
    terminal.shows("gives no terminals").await;
    assert_eq!(terminal.ended().await, Some(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_turns_it_off_and_an_old_worker_does_not_answer() {
    let _lock = beside_others().await;
    let cluster = Cluster::new(ClusterTiming::Short).await;
    let (api, _scheduler) = (cluster.api().await, cluster.scheduler());
    let mut worker = cluster.worker_with("w1", "process", &[("KUBELEET_EXEC", "off")]);
    let http = api.http();
    http.nodes_ready(1).await;
    let (status, _) = http.send(reqwest::Method::POST, "/service", Some(&sleeper("web", 1, "keep"))).await;
    assert_eq!(status.as_u16(), 201);
    http.runs(SOON, "web", 1).await;
    let (code, _, errors) = run(&http, &["exec", "web-0", "--", "true"], b"").await;
    assert!(code == Some(1) && errors.contains("KUBELEET_EXEC"), "{code:?} {errors}");
    // A frozen worker is as silent as one of a version without exec.
    worker.freeze();
    let (code, _, errors) = run(&http, &["exec", "web-0", "--", "true"], b"").await;
    assert!(code == Some(1) && errors.contains("does not answer"), "{code:?} {errors}");
    worker.thaw();
    let _status = worker.terminate();
}
