//! The one task that connects: it holds the connection to the master, notices its loss or its demotion also while
//! nobody asks anything, and finds the master again. Everyone else only waits for it.

use std::time::{Duration, Instant};

use futures_util::StreamExt;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use super::backoff::Backoff;
use super::dial::{Address, check_master};
use super::fault::Fault;
use super::sentinel::Sentinels;
use super::state::{Shared, Up};
use super::url::{HostPort, Place};
use super::wire::Connection;

/// How often master and sentinels are asked whether all is as it was.
const CHECK_EVERY: Duration = Duration::from_secs(2);
/// A connection that held for so long was a good one: the next loss is news, and tried again at once.
const SETTLED: Duration = Duration::from_secs(5);
/// How long a listener may hear nothing from a sentinel before it asks whether it is still there.
const LISTEN_PATIENCE: Duration = Duration::from_secs(10);

/// Runs until it is dropped.
pub(super) async fn keep(shared: &Shared, place: Place) {
    // There is another master.
    let news = Notify::new();
    match place {
        Place::Sentinel { peers, name } => {
            let mut finder = Finder::Sentinels(Sentinels::new(name.clone(), peers.clone()));
            tokio::join!(
                stay_connected(shared, &mut finder, &news),
                hear_of_switches(shared, &peers, &name, &news)
            );
        }
        Place::Tcp(at) => stay_connected(shared, &mut Finder::Fixed(Address::Tcp(at)), &news).await,
        Place::Unix(path) => stay_connected(shared, &mut Finder::Fixed(Address::Unix(path)), &news).await,
    }
}

/// Where the master is.
enum Finder {
    Fixed(Address),
    Sentinels(Sentinels),
}

impl Finder {
    async fn master(&mut self, shared: &Shared) -> Result<Address, Fault> {
        match self {
            Self::Fixed(address) => Ok(address.clone()),
            Self::Sentinels(sentinels) => {
                let (master, survey) = sentinels.ask(&shared.dialer).await?;
                shared.note_survey(survey);
                Ok(Address::Tcp(master))
            }
        }
    }
}

async fn stay_connected(shared: &Shared, finder: &mut Finder, news: &Notify) {
    let mut backoff = Backoff::default();
    loop {
        match connect(shared, finder).await {
            Ok((connection, master)) => {
                let since = Instant::now();
                let up = shared.gain(connection, master);
                tokio::select! {
                    () = shared.lost(up.generation) => {}
                    fault = watch_over(shared, finder, &up) => shared.act(up.generation, &fault),
                }
                if since.elapsed() >= SETTLED {
                    backoff.reset();
                }
            }
            Err(fault) => shared.still_away(fault.error),
        }
        pause(&mut backoff, news).await;
    }
}

/// Until the next try. By the time the sentinels have voted a pause is seconds long: their news ends it.
async fn pause(backoff: &mut Backoff, news: &Notify) {
    tokio::select! {
        () = sleep(backoff.next()) => {}
        () = news.notified() => backoff.reset(),
    }
}

async fn connect(shared: &Shared, finder: &mut Finder) -> Result<(Connection, Address), Fault> {
    let master = finder.master(shared).await?;
    let connection = shared.dialer.master(&master, shared.response_timeout).await?;
    Ok((connection, master))
}

/// Returns when the connection should be given up.
async fn watch_over(shared: &Shared, finder: &mut Finder, up: &Up) -> Fault {
    loop {
        drop(timeout(CHECK_EVERY, shared.rechecked()).await);
        // At the same time: a master that does not answer any more is just when the sentinels have news.
        let checked = tokio::try_join!(still_named(shared, finder, up), check_master(&up.connection));
        if let Err(fault) = checked {
            return fault;
        }
    }
}

async fn still_named(shared: &Shared, finder: &mut Finder, up: &Up) -> Result<(), Fault> {
    match finder.master(shared).await {
        Ok(master) if master != up.master => {
            tracing::info!(old = %up.master, new = %master, "the sentinels name another master");
            Err(Fault::not_master())
        }
        Ok(_) => Ok(()),
        // Without sentinels there is no failover; the master goes on.
        Err(fault) => {
            tracing::debug!(error = %fault.error, "the sentinels can not be asked");
            Ok(())
        }
    }
}

/// Listens to one sentinel after the other for the news of a failover; [`watch_over`] asks anyway, only later.
async fn hear_of_switches(shared: &Shared, peers: &[HostPort], name: &str, news: &Notify) {
    let mut backoff = Backoff::default();
    for peer in peers.iter().cycle() {
        let since = Instant::now();
        if let Err(fault) = listen(shared, peer, name, news).await {
            tracing::debug!(sentinel = %peer, error = %fault.error, "not listening to this sentinel any more");
        }
        if since.elapsed() >= SETTLED {
            backoff.reset();
        }
        sleep(backoff.next()).await;
    }
}

async fn listen(shared: &Shared, peer: &HostPort, name: &str, news: &Notify) -> Result<(), Fault> {
    let fault = |error: redis::RedisError| Fault::of("SUBSCRIBE", &error);
    let silent = || Fault::lost("SUBSCRIBE", "no answer");
    let (mut sink, mut messages) = shared.dialer.sentinel_messages(peer).await?.split();
    let subscribed = timeout(shared.connect_timeout, sink.subscribe("+switch-master")).await;
    subscribed.map_err(|_| silent())?.map_err(fault)?;
    loop {
        match timeout(LISTEN_PATIENCE, messages.next()).await {
            // "<name> <old host> <old port> <new host> <new port>"
            Ok(Some(message)) => {
                let about_ours =
                    message.get_payload_bytes().split(|&byte| byte == b' ').next() == Some(name.as_bytes());
                if about_ours {
                    shared.recheck();
                    news.notify_one();
                }
            }
            Ok(None) => return Err(silent()),
            Err(_) => {
                let alive = timeout(shared.connect_timeout, sink.ping::<redis::Value>()).await;
                alive.map_err(|_| silent())?.map_err(fault)?;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn news_of_another_master_end_the_pause_before_the_next_try() {
        let (mut backoff, news) = (Backoff::default(), Notify::new());
        for _ in 0..10 {
            backoff.next();
        }
        news.notify_one();
        let begun = Instant::now();
        pause(&mut backoff, &news).await;
        assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
        assert!(backoff.next() < Duration::from_secs(1), "and the next ones are short again");
    }
}
