//! The network between the machines: everybody reaches a server through a proxy of its own, which knows who calls by the
//! user that logs in (`kubeleet2`, `replication1`, `sentinel3`: the digit is the machine). A machine that is cut off
//! sends and hears nothing beyond itself: connections stay open and are silent, as when a cable was pulled.

use std::collections::BTreeSet;
use std::sync::Arc;

use kubeleet_tests::proxy::Rewriter;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Who a machine is: 0, 1, 2.
pub type Machine = usize;

/// The network. Dropped, every connection ends.
pub struct Net {
    cut: watch::Sender<BTreeSet<Machine>>,
    rewriter: Arc<Rewriter>,
    proxies: JoinSet<()>,
}

impl Net {
    /// With all cables in; `rewriter` changes what is sent to servers.
    pub fn new(rewriter: Rewriter) -> Self {
        Self { cut: watch::Sender::default(), rewriter: Arc::new(rewriter), proxies: JoinSet::new() }
    }

    /// A proxy for the server at a port of a machine; gives the port that everybody shall use.
    pub async fn proxy(&mut self, machine: Machine, server: u16) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (cut, rewriter) = (self.cut.subscribe(), self.rewriter.clone());
        self.proxies.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let Ok((client, _)) = listener.accept().await else { continue };
                let wire = Wire { machine, cut: cut.clone(), rewriter: rewriter.clone() };
                connections.spawn(wire.carry(client, server));
                while connections.try_join_next().is_some() {}
            }
        });
        port
    }

    /// Pulls the cable of a machine.
    pub fn cut(&self, machine: Machine) {
        self.cut.send_modify(|cut| {
            cut.insert(machine);
        });
    }

    /// Puts all cables in again.
    pub fn heal(&self) {
        self.cut.send_modify(BTreeSet::clear);
    }
}

/// One connection.
struct Wire {
    machine: Machine,
    cut: watch::Receiver<BTreeSet<Machine>>,
    rewriter: Arc<Rewriter>,
}

impl Wire {
    async fn carry(self, client: TcpStream, server: u16) -> std::io::Result<()> {
        client.set_nodelay(true)?;
        // A server that is not there is a connection that ends at once.
        let server = TcpStream::connect(("127.0.0.1", server)).await?;
        server.set_nodelay(true)?;
        let (from_client, to_client) = client.into_split();
        let (from_server, to_server) = server.into_split();
        // The other half learns who called from the one that hears it.
        let (caller, known) = watch::channel(None);
        let replies = replies(from_server, to_client, self.machine, self.cut.clone(), known);
        let requests = self.requests(from_client, to_server, caller);
        // Whoever hangs up first ends it for both.
        tokio::select! { ended = requests => ended, ended = replies => ended }
    }

    async fn requests(
        mut self,
        mut from: OwnedReadHalf,
        mut to: OwnedWriteHalf,
        caller: watch::Sender<Option<Machine>>,
    ) -> std::io::Result<()> {
        let mut pending = Vec::new();
        let mut who = None;
        loop {
            if from.read_buf(&mut pending).await? == 0 {
                return Ok(());
            }
            if who.is_none() {
                who = caller_of(&pending);
                caller.send_replace(who);
            }
            open(&mut self.cut, who, self.machine).await;
            let whole = self.rewriter.rewrite(&mut pending);
            to.write_all(&pending[..whole]).await?;
            pending.drain(..whole);
        }
    }
}

async fn replies(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    machine: Machine,
    mut cut: watch::Receiver<BTreeSet<Machine>>,
    known: watch::Receiver<Option<Machine>>,
) -> std::io::Result<()> {
    let mut buffer = vec![0; 16 << 10];
    loop {
        let count = from.read(&mut buffer).await?;
        if count == 0 {
            return Ok(());
        }
        let who = *known.borrow();
        open(&mut cut, who, machine).await;
        to.write_all(&buffer[..count]).await?;
    }
}

/// Waits until these two can hear each other. Somebody who has not said who he is comes from nowhere: he is not cut.
async fn open(cut: &mut watch::Receiver<BTreeSet<Machine>>, who: Option<Machine>, machine: Machine) {
    let Some(who) = who else { return };
    let together = |cut: &BTreeSet<Machine>| cut.contains(&who) == cut.contains(&machine);
    if cut.wait_for(together).await.is_err() {
        // The network is gone, and this with it.
        std::future::pending::<()>().await;
    }
}

/// The machine in the name of the user that logs in here, if one does: `AUTH`, and then a name that ends with it.
fn caller_of(bytes: &[u8]) -> Option<Machine> {
    let at = bytes.windows(5).position(|five| five.eq_ignore_ascii_case(b"AUTH\r"))?;
    let mut lines = bytes[at..].split(|byte| *byte == b'\n').skip(2);
    let user = lines.next()?.strip_suffix(b"\r")?;
    let digit = user.last()?.checked_sub(b'1')?;
    (digit < 3).then_some(digit.into())
}
