//! The content of an image: a tag can move while pods of one generation start.

use serde::{Deserialize, Serialize};

/// The content that the name of an image had when a pod was started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ImageContent {
    /// The name in the specification.
    pub image: String,
    /// Its digest in the registry, by which other nodes can pull it; null for an image that was built or
    /// loaded on its node.
    pub digest: Option<String>,
    /// Its id on the engine of its node. Engines with different stores have different ids for one content.
    pub id: String,
}

const NO_DIGEST: &str = "-";

impl ImageContent {
    pub fn is_same(&self, other: &Self) -> bool {
        self.id == other.id || (self.digest.is_some() && self.digest == other.digest)
    }

    /// `name@digest`, which pulls exactly this content.
    pub fn reference(&self) -> Option<String> {
        Some(format!("{}@{}", repository(&self.image), self.digest.as_deref()?))
    }

    pub fn identity(&self) -> &str {
        self.digest.as_deref().unwrap_or(&self.id)
    }
}

pub fn repository(image: &str) -> &str {
    let image = image.split_once('@').map_or(image, |(name, _)| name);
    match image.rsplit_once(':') {
        // A colon before a slash belongs to a registry's port.
        Some((name, tag)) if !tag.contains('/') => name,
        _ => image,
    }
}

pub fn differing<'a>(these: &'a [ImageContent], pinned: &[ImageContent]) -> Option<&'a ImageContent> {
    let is_other =
        |one: &&ImageContent| pinned.iter().any(|pinned| pinned.image == one.image && !pinned.is_same(one));
    these.iter().find(is_other)
}

/// A line `<image> <digest> <id>` for each.
pub fn to_text(images: &[ImageContent]) -> String {
    let line = |one: &ImageContent| {
        format!("{} {} {}\n", one.image, one.digest.as_deref().unwrap_or(NO_DIGEST), one.id)
    };
    images.iter().map(line).collect()
}

/// Skips lines that were written by hand.
pub fn from_text(text: &str) -> Vec<ImageContent> {
    let read = |line: &str| {
        let mut words = line.split(' ');
        let (image, digest, id) = (words.next()?, words.next()?, words.next()?);
        let digest = (digest != NO_DIGEST).then(|| digest.to_owned());
        (!id.is_empty()).then(|| ImageContent { image: image.to_owned(), digest, id: id.to_owned() })
    };
    text.lines().filter_map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(digest: Option<&str>, id: &str) -> ImageContent {
        ImageContent { image: "web:1".to_owned(), digest: digest.map(str::to_owned), id: id.to_owned() }
    }

    #[test]
    fn what_is_stored_is_read_again_and_what_is_none_is_left_out() {
        let images = [content(Some("sha256:a"), "sha256:1"), content(None, "sha256:2")];
        let text = to_text(&images);
        assert_eq!(text, "web:1 sha256:a sha256:1\nweb:1 - sha256:2\n");
        assert_eq!(from_text(&format!("nonsense\n\na b \n{text}")), images);
    }

    #[test]
    fn the_same_content_has_the_same_digest_or_the_same_id() {
        for (one, other, expected) in [
            (content(Some("a"), "1"), content(Some("a"), "2"), true),
            (content(Some("a"), "1"), content(Some("b"), "1"), true),
            (content(Some("a"), "1"), content(None, "1"), true),
            (content(Some("a"), "1"), content(Some("b"), "2"), false),
            (content(Some("a"), "1"), content(None, "2"), false),
            (content(None, "1"), content(None, "2"), false),
        ] {
            assert_eq!(one.is_same(&other), expected, "{one:?} {other:?}");
            let these = [one];
            assert_eq!(differing(&these, &[other]).is_none(), expected);
            assert_eq!(differing(&these, &[]), None, "nothing is known");
        }
    }

    #[test]
    fn a_reference_has_the_digest_in_the_place_of_the_tag() {
        for (image, expected) in [
            ("nginx", "nginx@sha256:a"),
            ("registry:5000/team/web:2", "registry:5000/team/web@sha256:a"),
            ("registry:5000/team/web", "registry:5000/team/web@sha256:a"),
            ("nginx:1@sha256:b", "nginx@sha256:a"),
        ] {
            let content = ImageContent { image: image.to_owned(), ..content(Some("sha256:a"), "1") };
            assert_eq!(content.reference().as_deref(), Some(expected));
        }
        assert_eq!(content(None, "1").reference(), None);
    }
}
