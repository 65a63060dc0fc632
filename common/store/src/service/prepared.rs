//! Requests to pull images before pods are replaced.
//!
//! `prepared:<spec id>` has a field for each asked node: `requested <time ms>`, `pulling`, `ready`, or
//! `failed <why>`. It expires when no scheduler asks any more. External workers never answer.

use std::time::Duration;

use redis::cmd;

use crate::channels::{NodeQuestion, NodeRequest};
use crate::{Store, StoreError, keys};
use model::RedisMillis;
use model::ids::{NodeName, SpecId};
use model::service::Service;

const EXPIRE_SECONDS: u64 = 60;
const RETRY_SECONDS: u64 = 10;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PreparedImages {
    Requested(RedisMillis),
    Pulling,
    Ready,
    Failed(String),
}

impl PreparedImages {
    fn to_text(&self) -> String {
        match self {
            Self::Requested(at) => format!("requested {at}"),
            Self::Pulling => "pulling".to_owned(),
            Self::Ready => "ready".to_owned(),
            Self::Failed(why) => format!("failed {why}"),
        }
    }

    /// A field that was written by hand counts as requested long ago.
    fn read(text: &str) -> Self {
        match text.split_once(' ').unwrap_or((text, "")) {
            ("pulling", _) => Self::Pulling,
            ("ready", _) => Self::Ready,
            ("failed", why) => Self::Failed(why.to_owned()),
            (_, at) => Self::Requested(at.parse().unwrap_or_default()),
        }
    }
}

impl Store {
    /// A pulling worker reports at this interval, so that it is not asked again.
    pub const PREPARING_INTERVAL: Duration = Duration::from_secs(EXPIRE_SECONDS / 3);

    /// Returns `None` for a node that was not asked.
    pub async fn prepared_images(
        &self,
        spec: &SpecId,
        nodes: &[NodeName],
    ) -> Result<Vec<Option<PreparedImages>>, StoreError> {
        if nodes.is_empty() {
            return Ok(Vec::new());
        }
        let names: Vec<&str> = nodes.iter().map(NodeName::as_str).collect();
        let found: Vec<Option<String>> =
            self.link.query(cmd("HMGET").arg(keys::prepared(spec)).arg(names)).await?;
        Ok(found.into_iter().map(|text| text.as_deref().map(PreparedImages::read)).collect())
    }

    /// `now` is the time of Redis.
    pub async fn ask_to_prepare(
        &self,
        service: &Service,
        node: &NodeName,
        now: RedisMillis,
    ) -> Result<(), StoreError> {
        let spec = &service.spec_id;
        let request =
            NodeRequest::new(NodeQuestion::Prepare { spec: spec.clone(), service: service.name.clone() });
        let mut pipe = redis::pipe();
        let key = keys::prepared(spec);
        pipe.cmd("HSET").arg(&key).arg(node.as_str()).arg(PreparedImages::Requested(now).to_text()).ignore();
        pipe.cmd("EXPIRE").arg(&key).arg(EXPIRE_SECONDS).ignore();
        request.leave(node, &mut pipe);
        self.link.pipeline(&pipe).await
    }

    pub async fn note_prepared(
        &self,
        spec: &SpecId,
        node: &NodeName,
        images: &PreparedImages,
    ) -> Result<(), StoreError> {
        let is_failure = matches!(images, PreparedImages::Failed(_));
        let seconds = if is_failure { RETRY_SECONDS } else { EXPIRE_SECONDS };
        let mut pipe = redis::pipe();
        let key = keys::prepared(spec);
        pipe.cmd("HSET").arg(&key).arg(node.as_str()).arg(images.to_text()).ignore();
        pipe.cmd("EXPIRE").arg(&key).arg(seconds).ignore();
        self.link.pipeline(&pipe).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_as_it_was_written() {
        let failed = PreparedImages::Failed("no such tag".to_owned());
        for images in [PreparedImages::Requested(7), PreparedImages::Pulling, PreparedImages::Ready, failed] {
            assert_eq!(PreparedImages::read(&images.to_text()), images);
        }
        assert_eq!(PreparedImages::read("whatever"), PreparedImages::Requested(0));
    }
}
