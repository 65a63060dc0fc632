//! Tests of the health checks as a whole.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod load;
mod monitor;
mod probes;

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use daemon::clock::{BootInstant, Clock};
use model::pod::health::Health;
use model::spec::HealthCheck;

use super::{CheckKind, ContainerCheck};

struct TokioClock(tokio::time::Instant);

impl TokioClock {
    fn new() -> Self {
        Self(tokio::time::Instant::now())
    }
}

impl Clock for TokioClock {
    fn now(&self) -> BootInstant {
        BootInstant { millis: 5000 + self.0.elapsed().as_millis() as u64 }
    }
}

fn check(handle: &str, spec: &str, clock: &dyn Clock) -> ContainerCheck {
    let spec: HealthCheck = serde_json::from_str(spec).unwrap();
    ContainerCheck {
        handle: handle.to_owned(),
        kind: CheckKind::Healthcheck,
        method: spec.method().unwrap(),
        timing: spec.timing(),
        address: Some(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        started: clock.now(),
        health: Health::Starting,
    }
}

const SECOND: Duration = Duration::from_secs(1);
