//! The health check of an image (`HEALTHCHECK`), which the worker runs like those of services. Pure.

use std::time::Duration;

use bollard::models::{HealthConfig, ImageConfig, ImageInspect};
use model::spec::{Command, HealthCheck, HealthTest, Milliseconds};

/// Limits of a service's own check.
const INTERVAL: (Duration, Duration) = (Duration::from_millis(100), Milliseconds::MAX);
const TIMEOUT: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(3600));
const RETRIES: (i64, i64) = (1, 1000);

pub(crate) fn of_inspected(image: &ImageInspect) -> Option<HealthCheck> {
    image.config.as_ref().and_then(of_image)
}

pub(crate) fn of_image(config: &ImageConfig) -> Option<HealthCheck> {
    let described = config.healthcheck.as_ref()?;
    let words = described.test.clone().unwrap_or_default();
    let (kind, rest) = words.split_first()?;
    let shell = config.shell.as_deref().filter(|shell| !shell.is_empty());
    let (test, command) = match (kind.as_str(), shell) {
        ("NONE", _) => return None,
        ("CMD-SHELL", Some(shell)) => (None, Command([shell, rest].concat())),
        _ => (Some(HealthTest::new(words)), Command::default()),
    };
    Some(HealthCheck { test, command, ..times(described) })
}

/// Docker counts in nanoseconds; 0 means unset. Engines never stop containers because of an image's check,
/// whose author need not have considered the startup time: failures count only after a probe has passed.
fn times(described: &HealthConfig) -> HealthCheck {
    let duration = |nanos: Option<i64>, (least, most): (Duration, Duration)| {
        let nanos = u64::try_from(nanos?).ok().filter(|nanos| *nanos > 0)?;
        Some(Milliseconds::new(Duration::from_nanos(nanos).clamp(least, most)))
    };
    let retries = described.retries.filter(|retries| *retries > 0);
    HealthCheck {
        interval: duration(described.interval, INTERVAL),
        timeout: duration(described.timeout, TIMEOUT),
        start_period: Some(Milliseconds::new(Milliseconds::MAX)),
        start_interval: duration(described.start_interval, INTERVAL),
        retries: retries.and_then(|retries| u32::try_from(retries.clamp(RETRIES.0, RETRIES.1)).ok()),
        ..HealthCheck::default()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use model::spec::{ContainerSpec, ProbeMethod};

    use super::*;

    fn of(json: &str) -> Option<HealthCheck> {
        of_image(&serde_json::from_str(json).unwrap())
    }

    #[test]
    fn an_images_check_is_a_valid_check_of_a_service() {
        for (json, expected) in [
            (r#"{"Healthcheck":{"Test":["CMD","pg_isready"]}}"#, Some(&["pg_isready"][..])),
            (r#"{"Healthcheck":{"Test":["CMD-SHELL","exit 0"]}}"#, Some(&["/bin/sh", "-c", "exit 0"])),
            (
                r#"{"Shell":["/bin/bash","-ec"],"Healthcheck":{"Test":["CMD-SHELL","exit 0"]}}"#,
                Some(&["/bin/bash", "-ec", "exit 0"]),
            ),
            (r#"{"Healthcheck":{"Test":["NONE"]}}"#, None),
            (r#"{"Healthcheck":{"Test":[]}}"#, None),
            (r#"{"Healthcheck":{}}"#, None),
            (r#"{}"#, None),
        ] {
            let check = of(json);
            let method = check.as_ref().and_then(HealthCheck::method);
            let expected = expected
                .map(|words| ProbeMethod::Command(words.iter().map(|word| (*word).to_owned()).collect()));
            assert_eq!(method, expected, "{json}");
            let spec = ContainerSpec { healthcheck: check, ..ContainerSpec::from_image("x") };
            assert_eq!(spec.violations(""), [], "{json}");
        }
    }

    #[test]
    fn its_times_are_kept_within_the_limits_of_a_service() {
        let timing = |fields: &str| {
            let json = format!(r#"{{"Healthcheck":{{"Test":["CMD","a"],{fields}}}}}"#);
            of(&json).unwrap().timing()
        };
        let said =
            timing(r#""Interval":5000000000,"Timeout":1500000000,"StartPeriod":60000000000,"Retries":5"#);
        assert_eq!((said.interval.as_secs(), said.timeout.as_millis(), said.retries), (5, 1500, 5));
        assert_eq!(said.start_period, Milliseconds::MAX, "until a probe has passed");
        let nothing = timing(r#""Interval":0,"Timeout":0,"Retries":0"#);
        assert_eq!((nothing.interval.as_secs(), nothing.timeout.as_secs(), nothing.retries), (30, 30, 3));
        let extreme = timing(r#""Interval":1000000,"Timeout":9000000000000000000,"Retries":5000"#);
        assert_eq!(
            (extreme.interval.as_millis(), extreme.timeout.as_secs(), extreme.retries),
            (100, 3600, 1000)
        );
    }
}
