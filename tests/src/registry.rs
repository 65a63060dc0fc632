//! The pull half of an image registry on loopback, with one image under any name.

use std::collections::HashMap;
use std::io::Read;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use engine::docker::sample_image::layer;
use parking_lot::Mutex;
use serde_json::json;
use sha2::{Digest, Sha256};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::docker::recipe;

const MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
const CONFIG: &str = "application/vnd.docker.container.image.v1+json";
const LAYER: &str = "application/vnd.docker.image.rootfs.diff.tar.gzip";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asks {
    Basic,
    /// A token from another address, as public registries do.
    Bearer,
}

pub struct Registry {
    content: Arc<Content>,
    server: JoinHandle<()>,
}

struct Content {
    address: String,
    asks: Asks,
    /// `None` if everyone may pull.
    login: Mutex<Option<(String, String)>>,
    /// Every tag is the last one.
    manifests: Mutex<Vec<(String, Vec<u8>)>>,
    blobs: Mutex<HashMap<String, Vec<u8>>>,
}

impl Registry {
    pub async fn start(asks: Asks) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (manifest, blobs) = image(1);
        let (manifests, blobs) = (Mutex::new(vec![manifest]), Mutex::new(blobs));
        let login = Mutex::default();
        let content = Arc::new(Content { address, asks, login, manifests, blobs });
        let router = Router::new().fallback(answer).with_state(content.clone());
        let server = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { content, server }
    }

    pub fn host(&self) -> &str {
        &self.content.address
    }

    pub fn image(&self, tag: &str) -> String {
        format!("{}/kubeleet-test/private:{tag}", self.content.address)
    }

    /// The former image stays available by digest. Returns the new digest.
    pub fn move_tags(&self) -> String {
        let mut manifests = self.content.manifests.lock();
        let (manifest, blobs) = image(manifests.len() + 1);
        let digest = manifest.0.clone();
        manifests.push(manifest);
        self.content.blobs.lock().extend(blobs);
        digest
    }

    pub fn allow_only(&self, login: Option<(&str, &str)>) {
        let login = login.map(|(user, password)| (user.to_owned(), password.to_owned()));
        *self.content.login.lock() = login;
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.server.abort();
    }
}

fn image(version: usize) -> ((String, Vec<u8>), HashMap<String, Vec<u8>>) {
    let recipe = recipe();
    let mut tar = Vec::new();
    layer(&recipe).unwrap().read_to_end(&mut tar).unwrap();
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let config = json!({"architecture": architecture, "os": "linux", "config": {"Cmd": recipe.command, "Labels": {"version": version.to_string()}},
        "rootfs": {"type": "layers", "diff_ids": [digest(&tar)]}});
    let config = config.to_string().into_bytes();
    let part =
        |of: &str, bytes: &[u8]| json!({"mediaType": of, "size": bytes.len(), "digest": digest(bytes)});
    let manifest = json!({"schemaVersion": 2, "mediaType": MANIFEST, "config": part(CONFIG, &config),
        "layers": [part(LAYER, &tar)]});
    let manifest = manifest.to_string().into_bytes();
    let blobs = [config, tar].map(|bytes| (digest(&bytes), bytes));
    ((digest(&manifest), manifest), HashMap::from(blobs))
}

fn digest(bytes: &[u8]) -> String {
    let hex: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

async fn answer(State(content): State<Arc<Content>>, uri: Uri, headers: HeaderMap) -> Response {
    let login = content.login.lock().clone();
    let sent = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let basic = login
        .as_ref()
        .map(|(user, password)| format!("Basic {}", STANDARD.encode(format!("{user}:{password}"))));
    let token = basic.as_ref().map(|basic| digest(basic.as_bytes()));
    if uri.path() == "/token" {
        return match token {
            Some(token) if basic.as_deref() == Some(sent) => {
                (StatusCode::OK, json!({"token": token}).to_string()).into_response()
            }
            Some(_) => content.refusal(),
            None => (StatusCode::OK, json!({"token": "any"}).to_string()).into_response(),
        };
    }
    let expected = match content.asks {
        Asks::Basic => basic,
        Asks::Bearer => token.map(|token| format!("Bearer {token}")),
    };
    if expected.is_some_and(|expected| expected != sent) {
        return content.refusal();
    }
    match uri.path().rsplit('/').collect::<Vec<_>>()[..] {
        ["", "v2", ""] => StatusCode::OK.into_response(),
        [reference, "manifests", ..] => {
            let manifests = content.manifests.lock();
            let found = match reference.starts_with("sha256:") {
                true => manifests.iter().find(|(digest, _)| digest == reference),
                false => manifests.last(),
            };
            let Some((digest, manifest)) = found.cloned() else { return content.unknown() };
            ([(CONTENT_TYPE.as_str(), MANIFEST), ("docker-content-digest", &digest)], manifest)
                .into_response()
        }
        [digest, "blobs", ..] => match content.blobs.lock().get(digest) {
            Some(blob) => blob.clone().into_response(),
            None => StatusCode::NOT_FOUND.into_response(),
        },
        _ => StatusCode::NOT_FOUND.into_response(),
    }
}

impl Content {
    fn unknown(&self) -> Response {
        let error = json!({"errors": [{"code": "MANIFEST_UNKNOWN", "message": "manifest unknown"}]});
        let json = [(CONTENT_TYPE, "application/json")];
        (StatusCode::NOT_FOUND, json, error.to_string()).into_response()
    }

    fn refusal(&self) -> Response {
        let challenge = match self.asks {
            Asks::Basic => "Basic realm=\"test\"".to_owned(),
            Asks::Bearer => format!("Bearer realm=\"http://{}/token\",service=\"test\"", self.address),
        };
        let error =
            json!({"errors": [{"code": "UNAUTHORIZED", "message": "incorrect username or password"}]});
        let json = "application/json".to_owned();
        let headers = [(WWW_AUTHENTICATE, challenge), (CONTENT_TYPE, json)];
        (StatusCode::UNAUTHORIZED, headers, error.to_string()).into_response()
    }
}
