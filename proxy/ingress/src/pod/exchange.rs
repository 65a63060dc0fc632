//! Sends a request to a pod, and to another one where that is safe.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use gate::timer::Timer;
use hyper::body::{Body, Incoming};
use hyper::{Request, Response, StatusCode, Uri, header, http};
use routing::route::HttpRoute;
use tokio::time::Instant;
use tunnel::KeptStream;

use model::network::ingress::HttpProtocol;

use crate::answer::OwnAnswer;
use crate::client::body::ClientBody;
use crate::pod::connection::{Kept, PodConnection, PoolKey};
use crate::pod::from_pod::{FromPod, RequestResources};
use crate::pod::http2::{NextStream, SharedConnection};
use crate::pod::pod_path::{self, PodPath};
use crate::pod::request_to_pod::{BodyProgress, RequestToPod};
use crate::pod::retry_policy::{self, NoAnswer};
use crate::pod::routing_table::{NoPod, Pod};
use crate::pod::search::{ForRequest, RequestTarget, Search};
use crate::pod::stream_count::{ConnectionPermit, MOST_CONNECTIONS};
use crate::shared::IngressShared;

const FOR_EVER: Duration = Duration::from_secs(365 * 24 * 60 * 60);

pub(crate) struct OutgoingRequest {
    pub(crate) head: http::request::Parts,
    /// The unsent body.
    pub(crate) body: Option<ClientBody>,
    progress: Option<Arc<BodyProgress>>,
}

struct Failure {
    why: NoAnswer,
    detail: String,
    is_timeout: bool,
    at: FailedAt,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FailedAt {
    Pod,
    /// The pod is well, and takes no more requests at a time.
    StreamLimit,
    Gate,
    Host,
}

impl OutgoingRequest {
    pub(crate) fn new(request: Request<ClientBody>) -> Self {
        let (head, body) = request.into_parts();
        let body = (!body.is_end_stream()).then_some(body);
        let progress = body.as_ref().map(|_| Arc::default());
        Self { head, body, progress }
    }

    fn take_request(&mut self) -> Request<RequestToPod> {
        let body = match (self.body.take(), &self.progress) {
            (Some(body), Some(progress)) => {
                RequestToPod::Streamed { body, progress: progress.clone(), stream: None }
            }
            _ => RequestToPod::Empty,
        };
        Request::from_parts(self.head.clone(), body)
    }

    fn is_repeatable(&self) -> bool {
        self.head.method.is_idempotent() && self.body.is_none()
    }

    fn has_sent_body(&self) -> bool {
        self.progress.as_ref().is_some_and(|progress| progress.has_begun() || self.body.is_none())
    }

    fn has_ended(&self) -> bool {
        self.progress.as_ref().is_none_or(|progress| progress.has_ended())
    }
}

pub(crate) async fn exchange(
    shared: &IngressShared,
    route: &HttpRoute,
    mut request: Box<OutgoingRequest>,
    begun: Instant,
) -> Result<Response<FromPod>, OwnAnswer> {
    let target = RequestTarget { service: &route.service, slot: None, port: route.port };
    let known = ForRequest { is_repeatable: request.is_repeatable(), protocol: route.protocol };
    let mut search = Search::new(shared, target, known);
    if let Some(service) = search.service() {
        service.budget.lock().add_requests(1, begun.into_std());
    }
    let mut seen_by = 0;
    loop {
        let (pod, path) = search.next().await.map_err(|why| {
            if let (NoPod::NotListening, Some(service)) = (why, search.service()) {
                service.metrics.not_listening.increment(1);
            }
            no_pod(shared, route, why)
        })?;
        let failure = match attempt(shared, route, &mut request, &pod, path).await {
            Ok(response) => return Ok(response),
            Err(failure) => failure,
        };
        if request.progress.as_ref().is_some_and(|progress| progress.has_failed()) {
            return Err(OwnAnswer::bad_request("The body did not arrive whole, or is malformed."));
        }
        match failure.at {
            FailedAt::Pod => {
                pod.failed(&route.service, Instant::now().into_std());
                search.rule_out(&pod, failure.why == NoAnswer::Refused);
            }
            FailedAt::StreamLimit => search.rule_out_full(&pod),
            FailedAt::Gate => search.refused(&pod),
            FailedAt::Host => search.rule_out_host(&pod),
        }
        seen_by += u32::from(failure.why != NoAnswer::Refused);
        let has_budget = || {
            let budget = search.service().map(|service| service.budget.clone());
            budget.is_some_and(|budget| budget.lock().take(Instant::now().into_std()))
        };
        if !retry_policy::may_repeat(failure.why, &request.head.method, seen_by, has_budget) {
            return Err(failure.problem(shared, route, &pod));
        }
        if let Some(service) = search.service() {
            service.metrics.repeats.increment(1);
        }
    }
}

fn no_pod(shared: &IngressShared, route: &HttpRoute, why: NoPod) -> OwnAnswer {
    let (service, port) = (&route.service, route.port);
    match why {
        NoPod::NotReady => OwnAnswer::not_ready(format!("Service {service} has no ready pod.")),
        NoPod::NotListening => OwnAnswer::bad_gateway(format!(
            "No pod of service {service} accepts connections on port {port}, the port of its ingress rule."
        )),
        NoPod::Full => full(shared, route),
    }
}

fn full(shared: &IngressShared, route: &HttpRoute) -> OwnAnswer {
    let (service, port) = (&route.service, route.port);
    let detail =
        format!("Pods of service {service} take no more requests at a time by HTTP/2 on port {port}.");
    let key = (service.clone(), port, NoPod::Full);
    if let Some(left_out) = shared.warnings.unserved.admit_counting(key) {
        tracing::warn!(
            %service, port,
            "Request refused with 503: {detail} A thread of this proxy has up to {MOST_CONNECTIONS} \
             connections to a pod, and on each the streams that the pod's SETTINGS_MAX_CONCURRENT_STREAMS \
             allows. Run more replicas, or raise that setting.{left_out}"
        );
    }
    OwnAnswer::full(detail)
}

impl Failure {
    fn new(why: NoAnswer, detail: String) -> Self {
        Self { why, detail, is_timeout: false, at: FailedAt::Pod }
    }

    fn problem(self, shared: &IngressShared, route: &HttpRoute, pod: &Pod) -> OwnAnswer {
        let (service, id) = (&route.service, &pod.endpoint.pod);
        if let Some(left_out) = shared.warnings.failed.admit_counting((id.clone(), self.why)) {
            tracing::warn!(
                %service, pod = %id, node = %pod.endpoint.node,
                "Request failed and is not sent again: {}{left_out}", self.detail
            );
        }
        let detail = format!("Service {service}: {}.", self.detail);
        if self.is_timeout { OwnAnswer::timeout(detail) } else { OwnAnswer::bad_gateway(detail) }
    }
}

async fn attempt(
    shared: &IngressShared,
    route: &HttpRoute,
    request: &mut OutgoingRequest,
    pod: &Arc<Pod>,
    path: PodPath<PodConnection>,
) -> Result<Response<FromPod>, Failure> {
    let in_flight = pod.begin();
    let is_repeatable = request.is_repeatable();
    let (pass, key, mut source) = match path {
        PodPath::Here(pass) => {
            let key = PoolKey::new(pass.pod().start, route.port, route.protocol);
            let address = (pass.address(), route.port).into();
            let source = ConnectionSource::here(pod, key, address, is_repeatable).ok_or_else(|| {
                let detail = "it takes no more requests at a time by HTTP/2".to_owned();
                Failure { at: FailedAt::StreamLimit, ..Failure::new(NoAnswer::Refused, detail) }
            })?;
            (Some(pass), key, source)
        }
        PodPath::There(connection) => {
            let key = PoolKey::of_other_host(route.port, route.protocol);
            (None, key, ConnectionSource::Open(*connection))
        }
    };
    let is_reused = matches!(source, ConnectionSource::Open(_));
    let mut kept = source.take_kept();
    if let Some(pass) = pass.as_ref().filter(|pass| !kept.cut.as_ref().is_some_and(|cut| cut.is_of(pass))) {
        kept.cut = Some(pass.cut());
    }
    let (timer, cut) = (&mut kept.timer, &mut kept.cut);
    let progress = request.progress.clone();
    let sent = async {
        let mut connection = match source {
            ConnectionSource::Open(connection) => connection,
            // Boxed to keep the request's future small: most requests do not connect.
            ConnectionSource::Closed(address, permit) => {
                Box::pin(open(shared, pod, address, key, permit)).await?
            }
        };
        let sent = Instant::now();
        let response = send(shared, route, request, &mut connection, sent, timer).await?;
        learn(route, pod, response.status(), sent);
        Ok((connection, response))
    };
    let (connection, response) = tokio::select! {
        biased;
        sent = sent => sent.inspect_err(|failure: &Failure| {
            let is_client = progress.as_ref().is_some_and(|progress| progress.has_failed());
            if is_reused && !is_client && failure.at == FailedAt::Pod && !failure.is_timeout {
                pod.pools.note_closed(key);
            }
        })?,
        () = pod_path::until_cut(cut.as_mut()) => {
            let why = if request.has_sent_body() { NoAnswer::BodySent } else { NoAnswer::Unanswered };
            return Err(Failure::new(why, "the pod was stopped before it answered".to_owned()));
        }
    };
    let resources = RequestResources { connection, key, pod: pod.clone(), progress, kept, in_flight, pass };
    Ok(response.map(|body| FromPod::new(body, resources)))
}

fn learn(route: &HttpRoute, pod: &Pod, status: StatusCode, sent: Instant) {
    let now = Instant::now();
    match status {
        StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT => {
            pod.failed(&route.service, now.into_std());
        }
        _ => pod.answered(route.port, now - sent, now.into_std()),
    }
}

enum ConnectionSource {
    /// Through the tunnel, the gate there has admitted the request.
    Open(PodConnection),
    /// With a permit if requests share it.
    Closed(SocketAddr, Option<ConnectionPermit>),
}

impl ConnectionSource {
    /// For a pod of this host. `None` if it takes no more requests at a time.
    fn here(pod: &Pod, key: PoolKey, address: SocketAddr, is_repeatable: bool) -> Option<Self> {
        if key.protocol == HttpProtocol::Http {
            let kept = pod.pools.take(key, is_repeatable);
            return Some(kept.map_or(Self::Closed(address, None), Self::Open));
        }
        match pod.pools.next_stream(key) {
            NextStream::On(connection) => Some(Self::Open(PodConnection::Http2(connection))),
            NextStream::NeedsConnection(permit) => Some(Self::Closed(address, Some(permit))),
            NextStream::NoRoom => None,
        }
    }

    fn take_kept(&mut self) -> Kept {
        match self {
            ConnectionSource::Open(connection) => connection.take_kept(),
            ConnectionSource::Closed(..) => Kept::default(),
        }
    }
}

async fn open(
    shared: &IngressShared,
    pod: &Pod,
    address: SocketAddr,
    key: PoolKey,
    permit: Option<ConnectionPermit>,
) -> Result<PodConnection, Failure> {
    let connecting = async {
        let Some(permit) = permit else { return PodConnection::connect(address).await };
        let connection = SharedConnection::connect(address, permit).await?;
        Ok(PodConnection::Http2(pod.pools.share(key, connection)))
    };
    match tokio::time::timeout(shared.config.connect_within, connecting).await {
        Ok(Ok(connection)) => Ok(connection),
        Ok(Err(error)) => {
            let detail = format!("cannot connect to port {}: {error}", key.port);
            let is_refused = error.kind() == io::ErrorKind::ConnectionRefused;
            Err(Failure::new(if is_refused { NoAnswer::Refused } else { NoAnswer::NotConnected }, detail))
        }
        Err(_) => {
            let detail = format!(
                "no connection to port {} within {} s",
                key.port,
                shared.config.connect_within.as_secs()
            );
            Err(Failure { is_timeout: true, ..Failure::new(NoAnswer::NotConnected, detail) })
        }
    }
}

/// The timeout does not run out while the request's body is being sent.
async fn send(
    shared: &IngressShared,
    route: &HttpRoute,
    request: &mut OutgoingRequest,
    connection: &mut PodConnection,
    mut since: Instant,
    timer: &mut Option<Timer>,
) -> Result<Response<Incoming>, Failure> {
    let tunnel = connection.tunnel().cloned();
    let is_heard = || tunnel.as_ref().is_none_or(KeptStream::has_heard);
    let answer_within = route.answer_timeout.unwrap_or(FOR_EVER);
    let mut within = if is_heard() { answer_within } else { shared.config.connect_within };
    let failure = {
        let mut answer = pin!(connection.send(request.take_request()));
        loop {
            let deadline = since + within;
            let timer = timer.get_or_insert_with(|| Timer::new(deadline));
            let answered = poll_fn(|cx| match answer.as_mut().poll(cx) {
                Poll::Ready(answer) => Poll::Ready(Ok(answer)),
                Poll::Pending => timer.poll_until(deadline, cx).map(Err),
            });
            match answered.await {
                Err(()) if !is_heard() => {
                    let detail =
                        format!("the proxy of the pod's host says nothing within {} s", within.as_secs());
                    let failure = Failure::new(NoAnswer::Unanswered, detail);
                    return Err(Failure { is_timeout: true, at: FailedAt::Host, ..failure });
                }
                Err(()) if within != answer_within => within = answer_within,
                Ok(Ok(response)) => return Ok(response),
                Ok(Err(failure)) => break failure,
                Err(()) if !request.has_ended() => {}
                Err(()) => {
                    let detail =
                        format!("no answer within {} s, the `answer_timeout` of its rule", within.as_secs());
                    return Err(Failure { is_timeout: true, ..Failure::new(NoAnswer::BodySent, detail) });
                }
            }
            since = deadline;
        }
    };
    let failure = not_sent(request, failure);
    Err(match tunnel.and_then(|tunnel| tunnel.refusal()) {
        Some(refusal) => Failure {
            at: FailedAt::Gate,
            ..Failure::new(NoAnswer::Refused, format!("its gate refuses: {refusal}"))
        },
        None => failure,
    })
}

fn not_sent(
    request: &mut OutgoingRequest,
    mut failure: hyper::client::conn::TrySendError<Request<RequestToPod>>,
) -> Failure {
    let returned = failure.take_message();
    let was_sent = returned.is_none();
    if let Some(RequestToPod::Streamed { body, .. }) = returned.map(Request::into_body) {
        request.body = Some(body);
    }
    let why = match (was_sent, request.has_sent_body()) {
        (false, _) => NoAnswer::NotConnected,
        (true, false) => NoAnswer::Unanswered,
        (true, true) => NoAnswer::BodySent,
    };
    Failure::new(why, format!("the connection ended before the answer: {}", chain(failure.error())))
}

fn chain(error: &dyn std::error::Error) -> String {
    std::iter::successors(error.source(), |error| error.source())
        .fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

/// A path, or a URL for the pseudo-headers of HTTP/2.
pub(crate) fn set_target(head: &mut http::request::Parts, protocol: HttpProtocol, host: &str) {
    let path = head.uri.path_and_query();
    let is_path = path.is_some() && head.uri.authority().is_none();
    let mut target = http::uri::Parts::default();
    target.path_and_query = path.cloned().or_else(|| Some(http::uri::PathAndQuery::from_static("/")));
    match protocol {
        HttpProtocol::Http => {
            head.version = hyper::Version::HTTP_11;
            if let (false, Ok(host)) = (head.headers.contains_key(header::HOST), host.parse()) {
                head.headers.insert(header::HOST, host);
            }
            if is_path {
                return;
            }
        }
        HttpProtocol::H2c => {
            head.version = hyper::Version::HTTP_2;
            head.headers.remove(header::HOST);
            target.scheme = Some(http::uri::Scheme::HTTP);
            let fallback = || http::uri::Authority::from_static("localhost");
            target.authority = Some(host.parse().unwrap_or_else(|_| fallback()));
        }
    }
    if let Ok(uri) = Uri::from_parts(target) {
        head.uri = uri;
    }
}
