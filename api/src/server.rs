//! The server: socket, router, and graceful shutdown.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use daemon::config::Config;
use daemon::listen::listen;
use store::{LinkOptions, Store};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::http::connections;
use crate::metrics;
use crate::router::router;
use crate::state::AppState;

/// For requests, and then for background work, after shutdown began.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    #[error(
        "the API cannot listen on {address}: {error}; stop the process that uses the address, or set \
         KUBELEET_LISTEN"
    )]
    Bind { address: SocketAddr, error: std::io::Error },
}

pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    app: AppState,
}

impl Server {
    /// Port 0 means any free port. Redis need not be available.
    pub async fn bind(config: Arc<Config>, store: Store) -> Result<Self, ApiError> {
        let failed = |error| ApiError::Bind { address: config.listen, error };
        let listener = listen(config.listen).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, address, app: AppState::new(config, store) })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The reconcile loop finishes work that the shutdown cuts off.
    pub async fn run(self, shutdown: CancellationToken) {
        let Self { listener, address, app } = self;
        let _forwarding = forward_shutdown(&app, &shutdown);
        tracing::info!(%address, "the API is listening");
        let feed = app.feed.clone();
        app.tasks.spawn(async move { feed.run().await });
        let (watch, until) = (app.redis_watch.clone(), app.shutdown.clone());
        app.tasks.spawn(async move { watch.run(until).await });
        let (watch, store, until) = (app.proxy_watch.clone(), app.store.clone(), app.shutdown.clone());
        app.tasks.spawn(async move { watch.run(store, until).await });
        app.tasks.spawn(metrics::upkeep(app.metrics.clone(), app.shutdown.clone()));
        let router = router(app.clone());
        let max_connections = connections::most(app.config.max_connections, daemon::file_limit::raise());
        let serve = connections::serve(listener, router, max_connections, app.shutdown.clone());
        let deadline = async {
            app.shutdown.cancelled().await;
            tokio::time::sleep(SHUTDOWN_TIMEOUT).await;
        };
        tokio::select! {
            () = serve => {}
            () = deadline => {
                tracing::warn!("some requests did not end within {SHUTDOWN_TIMEOUT:?} and were cut off");
            }
        }
        app.shutdown.cancel();
        app.tasks.close();
        if tokio::time::timeout(SHUTDOWN_TIMEOUT, app.tasks.wait()).await.is_err() {
            tracing::warn!(
                "background work did not end within {SHUTDOWN_TIMEOUT:?}; the reconcile loop will finish it"
            );
        }
    }
}

fn forward_shutdown(app: &AppState, shutdown: &CancellationToken) -> tokio_util::task::AbortOnDropHandle<()> {
    let (own, shutdown) = (app.shutdown.clone(), shutdown.clone());
    tokio_util::task::AbortOnDropHandle::new(tokio::spawn(async move {
        shutdown.cancelled().await;
        own.cancel();
    }))
}

pub async fn run(config: Arc<Config>, shutdown: CancellationToken) -> Result<(), ApiError> {
    let store = Store::new(config.redis.clone(), LinkOptions::default());
    Server::bind(config, store).await?.run(shutdown).await;
    Ok(())
}
