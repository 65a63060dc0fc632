//! The process: a socket, the router behind it, and an orderly end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use common::config::Config;
use common::store::{LinkOptions, Store};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::router::router;
use crate::state::App;

/// How long requests and background work may take to end after shutdown was asked for.
const END_WITHIN: Duration = Duration::from_secs(10);
/// How often histograms are tidied.
const UPKEEP: Duration = Duration::from_secs(5);

/// The API can not serve.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// The address can not be had.
    #[error(
        "the API can not listen on {address}: {source}; is another one running there? Set KUBELEET_LISTEN"
    )]
    Bind {
        /// The address.
        address: SocketAddr,
        /// Why not.
        source: std::io::Error,
    },
    /// The socket failed while serving.
    #[error("the API's socket failed: {0}")]
    Serve(std::io::Error),
}

/// An API that has its address and does not answer yet.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    app: App,
}

impl Server {
    /// Takes the address of `config.listen`; port 0 means any free one. Redis need not be there.
    ///
    /// # Errors
    /// [`ApiError::Bind`] when the address can not be had.
    pub async fn bind(config: Arc<Config>, store: Store) -> Result<Self, ApiError> {
        let failed = |source| ApiError::Bind { address: config.listen, source };
        let listener = TcpListener::bind(config.listen).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, address, app: App::new(config, store) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers until `shutdown`. Then takes no new connections, ends streams, lets requests finish for a while, and
    /// lets go of work in the background: reconcile finishes it.
    ///
    /// # Errors
    /// [`ApiError::Serve`] when the socket fails.
    pub async fn run(self, shutdown: CancellationToken) -> Result<(), ApiError> {
        let Self { listener, address, app } = self;
        let _end = shutdown_follows(&app, &shutdown);
        tracing::info!(%address, "the API listens");
        let feed = app.feed.clone();
        app.tasks.spawn(async move { feed.run().await });
        app.tasks.spawn(upkeep(app.clone()));
        let serve = axum::serve(listener, router(app.clone()))
            .with_graceful_shutdown(app.shutdown.clone().cancelled_owned());
        let late = async {
            app.shutdown.cancelled().await;
            tokio::time::sleep(END_WITHIN).await;
        };
        let result = tokio::select! {
            result = serve => result.map_err(ApiError::Serve),
            () = late => {
                tracing::warn!("some requests did not end within {END_WITHIN:?}");
                Ok(())
            }
        };
        app.shutdown.cancel();
        app.tasks.close();
        if tokio::time::timeout(END_WITHIN, app.tasks.wait()).await.is_err() {
            tracing::warn!("some work in the background did not end; reconcile finishes it");
        }
        result
    }
}

/// Passes shutdown on to what belongs to this server, until the guard is dropped.
fn shutdown_follows(app: &App, shutdown: &CancellationToken) -> tokio_util::task::AbortOnDropHandle<()> {
    let (own, shutdown) = (app.shutdown.clone(), shutdown.clone());
    tokio_util::task::AbortOnDropHandle::new(tokio::spawn(async move {
        shutdown.cancelled().await;
        own.cancel();
    }))
}

async fn upkeep(app: App) {
    let tidy = async {
        loop {
            tokio::time::sleep(UPKEEP).await;
            app.metrics.run_upkeep();
        }
    };
    app.shutdown.run_until_cancelled(tidy).await;
}

/// Serves the API of this configuration until `shutdown`.
///
/// # Errors
/// See [`Server::bind`] and [`Server::run`].
pub async fn run(config: Arc<Config>, shutdown: CancellationToken) -> Result<(), ApiError> {
    let store = Store::new(config.redis.clone(), LinkOptions::default());
    Server::bind(config, store).await?.run(shutdown).await
}
