//! The network between the machines. A proxy before each server knows a connection's machine from its user
//! (`kubeleet2`, `replication1`, `sentinel3`, `proxy1`). Connections of a cut-off machine stay open and
//! silent.

use std::collections::BTreeSet;
use std::sync::Arc;

use kubeleet_tests::proxy::Rewriter;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

pub type Machine = usize;

#[derive(Debug, Default)]
struct Cut {
    machines: BTreeSet<Machine>,
    proxies: bool,
}

#[derive(Debug, Clone, Copy)]
struct Caller {
    machine: Machine,
    is_proxy: bool,
}

impl Cut {
    fn are_connected(&self, caller: Caller, server: Machine) -> bool {
        let is_cut = |machine| self.machines.contains(machine);
        is_cut(&caller.machine) == is_cut(&server) && !(self.proxies && caller.is_proxy)
    }
}

pub struct Net {
    cut: watch::Sender<Cut>,
    rewriter: Arc<Rewriter>,
    proxies: JoinSet<()>,
}

impl Net {
    pub fn new(rewriter: Rewriter) -> Self {
        Self { cut: watch::Sender::default(), rewriter: Arc::new(rewriter), proxies: JoinSet::new() }
    }

    pub async fn proxy(&mut self, machine: Machine, server: u16) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (cut, rewriter) = (self.cut.subscribe(), self.rewriter.clone());
        self.proxies.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let Ok((client, _)) = listener.accept().await else { continue };
                let connection = ProxiedConnection { machine, cut: cut.clone(), rewriter: rewriter.clone() };
                connections.spawn(connection.forward(client, server));
                while connections.try_join_next().is_some() {}
            }
        });
        port
    }

    pub fn cut(&self, machine: Machine) {
        self.cut.send_modify(|cut| {
            cut.machines.insert(machine);
        });
    }

    pub fn heal(&self) {
        self.cut.send_modify(|cut| cut.machines.clear());
    }

    pub fn cut_proxies(&self, are_cut: bool) {
        self.cut.send_modify(|cut| cut.proxies = are_cut);
    }
}

struct ProxiedConnection {
    machine: Machine,
    cut: watch::Receiver<Cut>,
    rewriter: Arc<Rewriter>,
}

impl ProxiedConnection {
    async fn forward(self, client: TcpStream, server: u16) -> std::io::Result<()> {
        client.set_nodelay(true)?;
        let server = TcpStream::connect(("127.0.0.1", server)).await?;
        server.set_nodelay(true)?;
        let (from_client, to_client) = client.into_split();
        let (from_server, to_server) = server.into_split();
        // The requests name the client's machine; the replies need it as well.
        let (caller, caller_receiver) = watch::channel(None);
        let replies = replies(from_server, to_client, self.machine, self.cut.clone(), caller_receiver);
        let requests = self.requests(from_client, to_server, caller);
        tokio::select! { ended = requests => ended, ended = replies => ended }
    }

    async fn requests(
        mut self,
        mut from: OwnedReadHalf,
        mut to: OwnedWriteHalf,
        caller: watch::Sender<Option<Caller>>,
    ) -> std::io::Result<()> {
        let mut pending = Vec::new();
        let mut client = None;
        loop {
            if from.read_buf(&mut pending).await? == 0 {
                return Ok(());
            }
            if client.is_none() {
                client = caller_of(&pending);
                caller.send_replace(client);
            }
            wait_until_connected(&mut self.cut, client, self.machine).await;
            let complete = self.rewriter.rewrite(&mut pending);
            to.write_all(&pending[..complete]).await?;
            pending.drain(..complete);
        }
    }
}

async fn replies(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    machine: Machine,
    mut cut: watch::Receiver<Cut>,
    caller: watch::Receiver<Option<Caller>>,
) -> std::io::Result<()> {
    let mut buffer = vec![0; 16 << 10];
    loop {
        let count = from.read(&mut buffer).await?;
        if count == 0 {
            return Ok(());
        }
        let client = *caller.borrow();
        wait_until_connected(&mut cut, client, machine).await;
        to.write_all(&buffer[..count]).await?;
    }
}

/// A client without login is never cut off.
async fn wait_until_connected(cut: &mut watch::Receiver<Cut>, client: Option<Caller>, server: Machine) {
    let Some(client) = client else { return };
    if cut.wait_for(|cut| cut.are_connected(client, server)).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// A name after `AUTH` ends with its machine's number.
fn caller_of(bytes: &[u8]) -> Option<Caller> {
    let at = bytes.windows(5).position(|five| five.eq_ignore_ascii_case(b"AUTH\r"))?;
    let mut lines = bytes[at..].split(|byte| *byte == b'\n').skip(2);
    let user = lines.next()?.strip_suffix(b"\r")?;
    let digit = user.last()?.checked_sub(b'1')?;
    (digit < 3).then(|| Caller { machine: digit.into(), is_proxy: user.starts_with(b"proxy") })
}
