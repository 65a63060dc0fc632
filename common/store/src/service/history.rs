//! The history of services: former specifications, so that a change can be undone.
//!
//! `history:<service>` has a field for each of the last ten generations: "<time ms> <fingerprint> <outcome>",
//! and the specification on the lines below. The outcome is `good`, `failed <why>`, `rolled_back <why>`, or
//! empty. A failover may lose the latest entry.

use crate::keys;
use crate::reply::{HashFields, RawFields, parse, read};
use crate::service::stored_spec::SpecFile;
use crate::{Store, StoreError};
use model::RedisMillis;
use model::ids::{ServiceName, SpecId};
use model::pod::image::{self, ImageContent};
use model::service::Service;
use model::spec::{DesiredService, PodSpec};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum GenerationOutcome {
    #[default]
    Unknown,
    Good,
    Failed(String),
    RolledBack(String),
}

impl GenerationOutcome {
    fn read(text: &str) -> Self {
        match text.split_once(' ').unwrap_or((text, "")) {
            ("good", _) => Self::Good,
            ("failed", why) => Self::Failed(why.to_owned()),
            ("rolled_back", why) => Self::RolledBack(why.to_owned()),
            _ => Self::Unknown,
        }
    }

    pub fn failure(&self) -> Option<&str> {
        match self {
            Self::Failed(why) | Self::RolledBack(why) => Some(why),
            Self::Unknown | Self::Good => None,
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct FormerGeneration {
    pub generation: u64,
    pub until: RedisMillis,
    pub fingerprint: String,
    pub outcome: GenerationOutcome,
    pub pod: PodSpec,
    pub spec: Option<SpecId>,
    pub images: Vec<ImageContent>,
}

impl FormerGeneration {
    /// `None` if written by hand or by a newer version.
    fn read(generation: &[u8], value: &[u8]) -> Option<Self> {
        let generation = parse(generation)?;
        let (head, text) = std::str::from_utf8(value).ok()?.split_once('\n')?;
        let mut words = head.splitn(3, ' ');
        let until = words.next()?.parse().ok()?;
        let fingerprint = words.next().unwrap_or_default().to_owned();
        let outcome = GenerationOutcome::read(words.next().unwrap_or_default());
        let pod = SpecFile::read(text.as_bytes()).ok()?;
        Some(Self { generation, until, fingerprint, outcome, pod, spec: None, images: Vec::new() })
    }

    fn with_images(mut self, service: &HashFields<'_>) -> Self {
        self.spec = service.parse(&format!("former_spec:{}", self.generation)).ok();
        if let Some(spec) = &self.spec {
            self.images = image::from_text(&service.text(&format!("images:{spec}")));
        }
        self
    }

    /// Compares specification and images. Images are unknown until the first pod of a generation starts.
    pub fn differs_from(&self, service: &Service) -> bool {
        let is_restarted = !self.images.is_empty() && self.spec.as_ref() != Some(&service.spec_id);
        let has_others =
            service.images.is_empty() || image::differing(&service.images, &self.images).is_some();
        self.pod != service.pod || (is_restarted && has_others)
    }

    pub fn desired(&self, service: &Service) -> DesiredService {
        DesiredService { pod: self.pod.clone(), ..DesiredService::from(service.clone()) }
    }
}

impl Store {
    /// Returns at most ten, newest first, all with different specifications or images.
    ///
    /// # Errors
    /// `WrongType` if another program has written the key.
    pub async fn former_generations(&self, name: &ServiceName) -> Result<Vec<FormerGeneration>, StoreError> {
        let what = format!("reading the history of service {name}");
        let mut pipe = redis::pipe();
        pipe.cmd("HGETALL").arg(keys::history(name)).cmd("HGETALL").arg(keys::service(name));
        let mut replies = self.link.pipeline_each(pipe).await?.into_iter();
        let mut next = || replies.next().unwrap_or(Ok(redis::Value::Array(Vec::new())));
        let fields: RawFields = read(&what, next()?)?;
        let service = HashFields::read(&what, next()?)?;
        let former = fields.iter().filter_map(|(field, value)| FormerGeneration::read(field, value));
        let mut former: Vec<FormerGeneration> = former
            .map(|one| match &service {
                Some(service) => one.with_images(service),
                None => one,
            })
            .collect();
        former.sort_unstable_by_key(|one| std::cmp::Reverse(one.generation));
        Ok(former)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_read_and_what_is_none_is_left_out() {
        let text = r#"{"service":"web","pod":{"containers":[{"image":"nginx:1"}]}}"#;
        let read = |field: &str, value: &str| FormerGeneration::read(field.as_bytes(), value.as_bytes());
        let entry = read("3", &format!("1700000000000 ab12\n{text}")).unwrap();
        assert_eq!((entry.generation, entry.until, entry.pod.image()), (3, 1_700_000_000_000, "nginx:1"));
        let later = read("3", &format!("1 ab12 by=alice\n{text}")).unwrap();
        assert_eq!(later.until, 1, "a later version may add words");
        let bad = read("3", &format!("1 ab12 failed exit code 3\n{text}")).unwrap();
        assert_eq!(bad.outcome.failure(), Some("exit code 3"));
        let good = read("3", &format!("1  good\n{text}")).unwrap();
        assert_eq!((good.fingerprint.as_str(), good.outcome), ("", GenerationOutcome::Good));
        for (field, value) in [
            ("x", format!("1 ab\n{text}")),
            ("-1", format!("1 ab\n{text}")),
            ("3", text.to_owned()),
            ("3", format!("soon ab\n{text}")),
            ("3", "1 ab\nno JSON".to_owned()),
            ("3", "1 ab\n{\"version\":99}".to_owned()),
            ("3", String::new()),
        ] {
            assert_eq!(read(field, &value), None, "{field} {value}");
        }
    }
}
