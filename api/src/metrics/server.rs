//! The metrics server of daemons without an API.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::get;
use daemon::listen::listen;
use metrics_exporter_prometheus::PrometheusHandle;
use model::value::secret::Secret;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::recorder::{recorder, render, upkeep};
use crate::http::auth::{AccessControl, require_access};
use crate::http::connections;
use crate::http::middleware;
use crate::http::problem::ApiProblem;

const MAX_CONNECTIONS: usize = 64;

pub struct MetricsServer {
    listener: TcpListener,
    address: SocketAddr,
    router: Router,
    recorder: PrometheusHandle,
}

impl MetricsServer {
    /// Port 0 means any free port. Metrics are recorded from now on.
    pub async fn bind(
        address: SocketAddr,
        token: Option<&Secret>,
        read_token: Option<&Secret>,
    ) -> std::io::Result<Self> {
        let listener = listen(address)?;
        let address = listener.local_addr()?;
        Ok(Self { listener, address, router: metrics_router(token, read_token), recorder: recorder() })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub async fn run(self, shutdown: CancellationToken) {
        let Self { listener, address, router, recorder } = self;
        tracing::info!(%address, "serving /metrics and /healthz");
        let serve = connections::serve(listener, router, MAX_CONNECTIONS, shutdown.clone());
        tokio::select! {
            () = serve => {}
            () = upkeep(recorder, shutdown) => {}
        }
    }
}

/// For a server that is bound later.
pub fn keep_measurements() {
    recorder();
}

pub(crate) fn metrics_router(token: Option<&Secret>, read_token: Option<&Secret>) -> Router {
    let recorder = recorder();
    let access = Arc::new(AccessControl::new(token, read_token));
    let router = Router::new()
        .route("/metrics", get(move || async move { render(&recorder) }))
        .route("/healthz", get(async || "ok\n"))
        .fallback(async || ApiProblem::route_not_found())
        .layer(from_fn_with_state(access, require_access));
    middleware::apply(router)
}
