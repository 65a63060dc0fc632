//! The listening end of a kept connection.

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::BytesMut;
use gate::socket::Socket;
use gate::timer::Timer;
use gate::{Cut, Gates, Pass};
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};
use tokio_rustls::server::TlsStream;

use super::frame::{Arrived, HEADER, MAX_PAYLOAD_BYTES, TunnelFrame, data_header};
use super::protocol::{TunnelReply, reply_of};
use super::target::TunnelTarget;

/// The dialing end reuses none older than 4 s, and ends them when the pod leaves. Otherwise a stopping pod
/// waits this long for idle connections.
const MOST_IDLE: Duration = Duration::from_secs(5);
/// A slow request is confirmed, as a sign of life of this host.
const SIGN_OF_LIFE_AFTER: Duration = Duration::from_secs(1);
/// Unread bytes would cause a reset, which can overtake earlier data.
const DISCARD_WITHIN: Duration = Duration::from_secs(2);

type KeptPeer = TlsStream<Socket>;

/// `pass` admits the first request.
pub(super) async fn serve(
    gates: &Gates,
    target: &TunnelTarget,
    peer: KeptPeer,
    pod: TcpStream,
    pass: Pass,
) -> io::Result<()> {
    pod.set_nodelay(true)?;
    let (peer_read, mut peer_write) = tokio::io::split(peer);
    peer_write.write_all(&[TunnelReply::Connected.byte()]).await?;
    peer_write.flush().await?;
    let answering = Answering { writer: Mutex::new(peer_write), is_due: AtomicBool::new(false) };
    let (mut pod_read, pod_write) = pod.into_split();
    let mut requests = Requests {
        gates,
        target,
        start: pass.pod().start,
        pass: None,
        cut: pass.cut(),
        reader: FrameReader { peer: peer_read, arrived: Arrived::default() },
        pod: pod_write,
        answering: &answering,
        idle: Timer::new(Instant::now() + MOST_IDLE),
    };
    requests.pass = Some(pass);
    let mut has_pod_ended = false;
    let ended = {
        let passing = pin!(requests.pass_on());
        tokio::select! {
            biased;
            ended = answering.pass_on(&mut pod_read) => {
                has_pod_ended = ended.is_ok();
                ended
            }
            ended = passing => ended,
        }
    };
    // The connection to the pod ends before the gate learns that the request has.
    let Requests { pod, pass, mut reader, .. } = requests;
    drop((pod, pod_read));
    drop(pass);
    if has_pod_ended {
        reader.discard().await?;
    }
    ended
}

/// From the other proxy to the pod.
struct Requests<'a> {
    gates: &'a Gates,
    target: &'a TunnelTarget,
    start: u64,
    pass: Option<Pass>,
    cut: Cut,
    reader: FrameReader,
    pod: OwnedWriteHalf,
    answering: &'a Answering,
    idle: Timer,
}

impl Requests<'_> {
    async fn pass_on(&mut self) -> io::Result<()> {
        loop {
            let frame = if self.pass.is_some() {
                tokio::select! {
                    biased;
                    // Waiting for the cut takes a lock of the pod; checking does not.
                    frame = self.reader.next() => if self.cut.has_come() { return Ok(()) } else { frame? },
                    () = &mut self.cut => return Ok(()),
                }
            } else {
                let until = Instant::now() + MOST_IDLE;
                tokio::select! {
                    biased;
                    frame = self.reader.next() => frame?,
                    () = self.idle.until(until) => return Ok(()),
                }
            };
            match (frame, self.pass.is_some()) {
                (Some(TunnelFrame::Data(bytes)), true) => {
                    tokio::select! {
                        biased;
                        written = self.pod.write_all(&bytes) => written?,
                        () = &mut self.cut => return Ok(()),
                    }
                }
                (Some(TunnelFrame::End), true) => self.pass = None,
                (Some(TunnelFrame::Begin { wants_answer }), false) => match self.enter() {
                    Ok(()) if wants_answer => self.answering.send(&TunnelFrame::Accepted).await?,
                    Ok(()) => self.answering.is_due.store(true, Ordering::Relaxed),
                    Err(reply) => {
                        self.answering.send(&TunnelFrame::Refused(reply)).await?;
                        return self.reader.discard().await;
                    }
                },
                // The other end sends nothing more, but still reads.
                (None, true) => {
                    self.pod.shutdown().await?;
                    (&mut self.cut).await;
                    return Ok(());
                }
                (None, false) => return Ok(()),
                (Some(_), _) => return Err(io::Error::other("a frame that was not due")),
            }
        }
    }

    /// Refuses after a restart of the pod's container.
    fn enter(&mut self) -> Result<(), TunnelReply> {
        let pass = self.gates.enter(&self.target.pod, &self.target.assignment).map_err(reply_of)?;
        if pass.pod().start != self.start {
            return Err(TunnelReply::Unknown);
        }
        if !self.cut.is_of(&pass) {
            self.cut = pass.cut();
        }
        self.pass = Some(pass);
        Ok(())
    }
}

/// To the other proxy.
struct Answering {
    writer: Mutex<WriteHalf<KeptPeer>>,
    /// Nothing was sent yet about the last request.
    is_due: AtomicBool,
}

impl Answering {
    async fn pass_on(&self, pod: &mut OwnedReadHalf) -> io::Result<()> {
        let mut buffer = vec![0; HEADER + MAX_PAYLOAD_BYTES];
        let mut silence = Timer::new(Instant::now() + SIGN_OF_LIFE_AFTER);
        loop {
            let until = Instant::now() + SIGN_OF_LIFE_AFTER;
            let read = tokio::select! {
                biased;
                read = pod.read(&mut buffer[HEADER..]) => read,
                () = silence.until(until) => {
                    if self.is_due.load(Ordering::Relaxed) {
                        self.send(&TunnelFrame::Accepted).await?;
                    }
                    continue;
                }
            };
            let length = read?;
            if length == 0 {
                return self.writer.lock().await.shutdown().await;
            }
            buffer[..HEADER].copy_from_slice(&data_header(length));
            self.write(&buffer[..HEADER + length]).await?;
        }
    }

    async fn send(&self, frame: &TunnelFrame) -> io::Result<()> {
        let mut bytes = BytesMut::new();
        frame.write(&mut bytes);
        self.write(&bytes).await
    }

    async fn write(&self, bytes: &[u8]) -> io::Result<()> {
        self.is_due.store(false, Ordering::Relaxed);
        let mut writer = self.writer.lock().await;
        writer.write_all(bytes).await?;
        writer.flush().await
    }
}

struct FrameReader {
    peer: ReadHalf<KeptPeer>,
    arrived: Arrived,
}

impl FrameReader {
    /// Cancel safe.
    async fn next(&mut self) -> io::Result<Option<TunnelFrame>> {
        poll_fn(|cx| self.arrived.poll_frame(&mut self.peer, cx)).await
    }

    async fn discard(&mut self) -> io::Result<()> {
        let all = async {
            while self.next().await?.is_some() {}
            Ok(())
        };
        timeout(DISCARD_WITHIN, all).await.unwrap_or(Ok(()))
    }
}
