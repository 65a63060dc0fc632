//! The task that connects to the master, checks the connection, and finds the next master.

use std::time::{Duration, Instant};

use futures_util::StreamExt;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use super::dial::{Address, STABLE_AFTER, reconnect_backoff};
use super::fault::LinkFault;
use super::sentinel::Sentinels;
use super::state::{MasterConnection, SharedState};
use super::transport::LinkConnection;
use daemon::backoff::Backoff;
use daemon::redis_url::{HostPort, RedisEndpoint};

const CHECK_INTERVAL: Duration = Duration::from_secs(2);
/// Then the listener checks that the Sentinel is there.
const MAX_SILENCE: Duration = Duration::from_secs(10);

pub(super) async fn run(shared: &SharedState, endpoint: RedisEndpoint) {
    let master_switched = Notify::new();
    let mut locator = match endpoint {
        RedisEndpoint::Tcp(at) => MasterLocator::Fixed(Address::Tcp(at)),
        RedisEndpoint::Unix(path) => MasterLocator::Fixed(Address::Unix(path)),
        RedisEndpoint::Sentinel { peers, name } => {
            let mut locator = MasterLocator::Sentinels(Sentinels::new(name.clone(), peers.clone()));
            tokio::join!(
                stay_connected(shared, &mut locator, &master_switched),
                listen_for_switches(shared, &peers, &name, &master_switched)
            );
            return;
        }
    };
    stay_connected(shared, &mut locator, &master_switched).await;
}

enum MasterLocator {
    Fixed(Address),
    Sentinels(Sentinels),
}

impl MasterLocator {
    async fn locate(&mut self, shared: &SharedState) -> Result<Address, LinkFault> {
        match self {
            Self::Fixed(address) => Ok(address.clone()),
            Self::Sentinels(sentinels) => {
                let (master, view) = sentinels.ask(&shared.dialer).await?;
                shared.record_sentinel_view(view);
                Ok(Address::Tcp(master))
            }
        }
    }
}

async fn stay_connected(shared: &SharedState, locator: &mut MasterLocator, master_switched: &Notify) {
    let mut backoff = reconnect_backoff();
    loop {
        match connect(shared, locator).await {
            Ok((connection, address)) => {
                let since = Instant::now();
                let master = shared.set_connected(connection, address);
                tokio::select! {
                    () = shared.connection_lost(master.generation) => {}
                    fault = monitor(shared, locator, &master) => {
                        shared.handle_shared_fault(master.generation, &fault);
                    }
                }
                if since.elapsed() >= STABLE_AFTER {
                    backoff.reset();
                }
            }
            Err(fault) => shared.record_connect_failure(fault.error),
        }
        wait_to_retry(&mut backoff, master_switched).await;
    }
}

/// An announcement ends the wait: the backoff can be seconds long.
async fn wait_to_retry(backoff: &mut Backoff, master_switched: &Notify) {
    tokio::select! {
        () = sleep(backoff.next()) => {}
        () = master_switched.notified() => backoff.reset(),
    }
}

async fn connect(
    shared: &SharedState,
    locator: &mut MasterLocator,
) -> Result<(LinkConnection, Address), LinkFault> {
    let address = locator.locate(shared).await?;
    let connection = shared.dialer.connect_to_master(&address, shared.response_timeout).await?;
    Ok((connection, address))
}

/// Returns the reason to give up the connection.
async fn monitor(shared: &SharedState, locator: &mut MasterLocator, master: &MasterConnection) -> LinkFault {
    loop {
        drop(timeout(CHECK_INTERVAL, shared.check_requested()).await);
        // When the master stops answering, the Sentinels may name another one.
        let is_master = shared.dialer.check_master(&master.connection, &master.address);
        let checked = tokio::try_join!(check_sentinels(shared, locator, master), is_master);
        if let Err(fault) = checked {
            return fault;
        }
    }
}

async fn check_sentinels(
    shared: &SharedState,
    locator: &mut MasterLocator,
    master: &MasterConnection,
) -> Result<(), LinkFault> {
    match locator.locate(shared).await {
        Ok(address) if address != master.address => {
            tracing::info!(old = %master.address, new = %address, "the Sentinels name another master");
            Err(LinkFault::not_master())
        }
        Ok(_) => Ok(()),
        // Without Sentinels there is no failover: the master stays in use.
        Err(fault) => {
            tracing::debug!(error = %fault.error, "the Sentinels cannot be asked for the master");
            Ok(())
        }
    }
}

/// [`monitor`] would notice a failover later.
async fn listen_for_switches(shared: &SharedState, peers: &[HostPort], name: &str, master_switched: &Notify) {
    let mut backoff = reconnect_backoff();
    for peer in peers.iter().cycle() {
        let since = Instant::now();
        if let Err(fault) = listen(shared, peer, name, master_switched).await {
            tracing::debug!(sentinel = %peer, error = %fault.error, "lost the subscription to this Sentinel");
        }
        if since.elapsed() >= STABLE_AFTER {
            backoff.reset();
        }
        sleep(backoff.next()).await;
    }
}

async fn listen(
    shared: &SharedState,
    peer: &HostPort,
    name: &str,
    master_switched: &Notify,
) -> Result<(), LinkFault> {
    let fault = |error: redis::RedisError| LinkFault::of("SUBSCRIBE", &error);
    let silent = || LinkFault::lost("SUBSCRIBE", "no answer");
    let (mut sink, mut messages) = shared.dialer.subscribe_at_sentinel(peer).await?.split();
    let subscribed = timeout(shared.connect_timeout, sink.subscribe("+switch-master")).await;
    subscribed.map_err(|_| silent())?.map_err(fault)?;
    loop {
        match timeout(MAX_SILENCE, messages.next()).await {
            // "<name> <old host> <old port> <new host> <new port>"
            Ok(Some(message)) => {
                let payload = message.get_payload_bytes();
                if payload.split(|&byte| byte == b' ').next() == Some(name.as_bytes()) {
                    shared.request_check();
                    master_switched.notify_one();
                }
            }
            Ok(None) => return Err(silent()),
            Err(_) => {
                let pong = timeout(shared.connect_timeout, sink.ping::<redis::Value>()).await;
                pong.map_err(|_| silent())?.map_err(fault)?;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_switch_of_the_master_ends_the_wait_for_the_next_attempt() {
        let (mut backoff, master_switched) = (reconnect_backoff(), Notify::new());
        for _ in 0..10 {
            backoff.next();
        }
        master_switched.notify_one();
        let start = Instant::now();
        wait_to_retry(&mut backoff, &master_switched).await;
        assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
        assert!(backoff.next() < Duration::from_secs(1), "and the next waits are short again");
    }
}
