//! Certificates for rules with `tls: auto`, ordered by ACME with HTTP-01.
//!
//! The holder of a lease orders. Every proxy loads ordered certificates, and its ingress answers challenges.
//!
//! Of this workspace it may import `daemon`, `model`, `store`, `routing` and `ingress`.
//!
//! Tests: acme, scenarios::acme, scripts::certificates

mod authority;
mod auto_hosts;
mod follow;
mod order;
mod orderer;

use std::path::Path;
use std::sync::Arc;

use daemon::config::Config;
use daemon::state_file::StateFile;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, OptionFuture};
use ingress::certificates::stored::StoredCertificates;
use ingress::{Challenges, IngressConfig};
use routing::snapshot::RoutingSnapshot;
use store::Store;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use auto_hosts::AutoHosts;
use follow::Follow;
use order::Ordering;
use orderer::Orderer;

pub struct Acme {
    challenges: Arc<Challenges>,
    answering: BoxFuture<'static, ()>,
    /// `None` without HTTPS or without the secret key.
    https: Option<(Follow, Orderer)>,
}

impl Acme {
    /// Also serves the certificates that the previous process saved.
    pub fn new(
        config: &Config,
        store: &Store,
        socket: &Path,
        snapshot: &watch::Receiver<Arc<RoutingSnapshot>>,
    ) -> Self {
        let (challenges, answering) = Challenges::new(store.clone());
        let has_https = config.ingress_listen.is_some() && config.ingress_tls_listen.is_some();
        let https = config.secret_key.clone().filter(|_| has_https).map(|key| {
            let (settings, hosts) = (config.acme.clone(), AutoHosts::new(snapshot.clone()));
            let stored = Arc::new(StoredCertificates::new(key.clone()));
            let follow = Follow {
                store: store.clone(),
                stored: stored.clone(),
                hosts: hosts.clone(),
                directory: settings.directory.clone(),
                file: StateFile::new(socket.with_extension("certificates.json")).private(),
            };
            follow.read_file();
            let ordering = Ordering { store: store.clone(), settings, key };
            (follow, Orderer::new(ordering, &config.node, stored, hosts))
        });
        Self { challenges, answering: answering.boxed(), https }
    }

    pub fn serve_by(&self, ingress: &mut IngressConfig) {
        ingress.challenges = Some(self.challenges.clone());
        if let (Some(https), Some((follow, _))) = (&mut ingress.https, &self.https) {
            https.stored = Some(follow.stored.clone());
        }
    }

    pub async fn run(self, shutdown: CancellationToken) {
        let https = self.https.map(|(follow, orderer)| async { tokio::join!(follow.run(), orderer.run()) });
        let all = async { tokio::join!(OptionFuture::from(https), self.answering) };
        shutdown.run_until_cancelled(all).await;
    }
}
