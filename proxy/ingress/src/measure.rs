//! The metrics of ingress.

use hyper::StatusCode;
use metrics::{
    Counter, Histogram, Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram,
};
use model::ids::ServiceName;

const REQUESTS: &str = "kubeleet_ingress_requests_total";
const SECONDS: &str = "kubeleet_ingress_answer_seconds";
const REPEATS: &str = "kubeleet_ingress_repeats_total";
const NOT_LISTENING: &str = "kubeleet_ingress_not_listening_total";
const CONNECTIONS: &str = "kubeleet_ingress_tcp_connections_total";
const UNROUTED: &str = "kubeleet_ingress_unrouted_total";
const REFUSED: &str = "kubeleet_ingress_refused_connections_total";
const FAILED_HANDSHAKES: &str = "kubeleet_ingress_failed_handshakes_total";
const CERTIFICATE_EXPIRES: &str = "kubeleet_ingress_certificate_expires_seconds";
const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

pub(super) struct ServiceMetrics {
    answers: [Counter; 5],
    pub(super) seconds: Histogram,
    pub(super) repeats: Counter,
    pub(super) not_listening: Counter,
    pub(super) connections: Counter,
}

impl ServiceMetrics {
    pub(super) fn new(service: &ServiceName) -> Self {
        let service = || service.as_str().to_owned();
        Self {
            answers: CLASSES.map(|class| counter!(REQUESTS, "service" => service(), "status" => class)),
            seconds: histogram!(SECONDS, "service" => service()),
            repeats: counter!(REPEATS, "service" => service()),
            not_listening: counter!(NOT_LISTENING, "service" => service()),
            connections: counter!(CONNECTIONS, "service" => service()),
        }
    }

    pub(super) fn answered(&self, status: StatusCode) {
        let class = usize::from(status.as_u16() / 100).saturating_sub(1);
        self.answers[class.min(CLASSES.len() - 1)].increment(1);
    }
}

pub fn describe() {
    describe_counter!(REQUESTS, Unit::Count, "Requests by service and class of their status");
    describe_histogram!(SECONDS, Unit::Seconds, "Time until the answer of a pod began");
    describe_counter!(REPEATS, Unit::Count, "Requests sent to another pod after one that did not answer");
    describe_counter!(
        NOT_LISTENING,
        Unit::Count,
        "Requests and connections that failed because no pod accepts connections on the rule's port"
    );
    describe_counter!(CONNECTIONS, Unit::Count, "TCP connections passed to a pod");
    describe_counter!(UNROUTED, Unit::Count, "Requests for which there is no route");
    describe_counter!(
        REFUSED,
        Unit::Count,
        "Connections closed, and requests by HTTP/2 refused: too many of a client, or in all"
    );
    describe_counter!(
        FAILED_HANDSHAKES,
        Unit::Count,
        "TLS handshakes that failed, such as for unknown names"
    );
    describe_gauge!(
        CERTIFICATE_EXPIRES,
        Unit::Seconds,
        "Time until a certificate expires, by its file or key in Redis; NaN once it is gone"
    );
}

pub(super) fn unrouted() {
    counter!(UNROUTED).increment(1);
}

pub(super) fn refused_connection() {
    counter!(REFUSED).increment(1);
}

pub(super) fn failed_handshake() {
    counter!(FAILED_HANDSHAKES).increment(1);
}

pub fn certificate_expires(file: &str, seconds_left: f64) {
    gauge!(CERTIFICATE_EXPIRES, "file" => file.to_owned()).set(seconds_left);
}
