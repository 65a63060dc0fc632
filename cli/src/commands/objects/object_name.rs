//! Types of objects, and names as `-o name` prints them: `service/web`, `pod/web-0`.

use model::spec::Kind;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ObjectType {
    Service,
    /// A service of this kind; so is a cron.
    Job,
    Cron,
    App,
    Pod,
    Node,
    Queue,
    DeadLetter,
    Secret,
    Config,
    Volume,
    Registry,
    Route,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ObjectName {
    pub(crate) object_type: Option<ObjectType>,
    pub(crate) name: String,
}

impl ObjectName {
    pub(crate) fn untyped(name: &str) -> Self {
        Self { object_type: None, name: name.to_owned() }
    }
}

/// The first word is the type's name in the API and in output; some are kubectl's.
pub(crate) const TYPES: [(ObjectType, &str); 13] = [
    (ObjectType::Service, "service services svc deploy deployment deployments sts statefulset statefulsets"),
    (ObjectType::Job, "job jobs"),
    (ObjectType::Cron, "cron crons cj cronjob cronjobs"),
    (ObjectType::App, "app apps"),
    (ObjectType::Pod, "pod pods po"),
    (ObjectType::Node, "node nodes no"),
    (ObjectType::Queue, "queue queues"),
    (ObjectType::DeadLetter, "letter letters"),
    (ObjectType::Secret, "secret secrets"),
    (ObjectType::Config, "config configs cm configmap configmaps"),
    (ObjectType::Volume, "volume volumes vol pvc persistentvolumeclaim"),
    (ObjectType::Registry, "registry registries"),
    (ObjectType::Route, "route routes ing ingress ingresses"),
];

impl ObjectType {
    pub(crate) fn parse(word: &str) -> Option<Self> {
        TYPES.into_iter().find(|(_, words)| words.split(' ').any(|one| one == word)).map(|(of, _)| of)
    }

    pub(crate) fn as_str(self) -> &'static str {
        let words = TYPES.into_iter().find(|(of, _)| *of == self).map(|(_, words)| words);
        words.and_then(|words| words.split(' ').next()).unwrap_or_default()
    }

    pub(crate) fn names(self) -> impl Fn(&str) -> Result<String, String> + Clone + Send + Sync {
        move |text| name_of(self, text)
    }

    /// All commands for services accept them.
    pub(crate) fn is_service(self) -> bool {
        self.service_kind().is_some() || self == Self::Service
    }

    /// `None` for any kind, or if its objects are not services.
    pub(crate) fn service_kind(self) -> Option<Kind> {
        match self {
            Self::Job => Some(Kind::Job),
            Self::Cron => Some(Kind::Cron),
            _ => None,
        }
    }
}

/// A text without a leading type is a name, because a pushed pod's uuid may contain a slash.
pub(crate) fn split(text: &str) -> ObjectName {
    let typed = text.split_once('/').and_then(|(word, name)| Some((ObjectType::parse(word)?, name)));
    match typed {
        Some((object_type, name)) => ObjectName { object_type: Some(object_type), name: name.to_owned() },
        None => ObjectName::untyped(text),
    }
}

/// `TYPE NAME…`, `TYPE/NAME…` or `NAME…`; a type alone has no names.
pub(crate) fn parse_words(words: &[String]) -> Result<(Option<ObjectType>, Vec<ObjectName>), String> {
    let first = words.first().and_then(|word| ObjectType::parse(word));
    let (Some(first), rest) = (first, words.get(1..).unwrap_or_default()) else {
        return Ok((None, words.iter().map(|word| split(word)).collect()));
    };
    let named = rest.iter().map(|word| {
        let object = split(word);
        match object.object_type {
            Some(other) if other != first => {
                Err(format!("{word:?} is not a {}: leave out the word {:?}", first.as_str(), words[0]))
            }
            _ => Ok(ObjectName { object_type: Some(first), name: object.name }),
        }
    });
    Ok((Some(first), named.collect::<Result<_, _>>()?))
}

fn name_of(expected: ObjectType, text: &str) -> Result<String, String> {
    match split(text) {
        ObjectName { object_type: Some(other), name } if other.is_service() && expected.is_service() => {
            Ok(name)
        }
        ObjectName { object_type: Some(other), .. } if other != expected => {
            Err(format!("this is a {}, but the command needs a {}", other.as_str(), expected.as_str()))
        }
        ObjectName { name, .. } => Ok(name),
    }
}

/// A single word that is a type is also a name.
pub(crate) fn services(words: &[String]) -> Result<Vec<String>, String> {
    let (_, objects) = parse_words(words)?;
    if objects.is_empty() {
        return Ok(words.to_vec());
    }
    let names = objects.into_iter().map(|ObjectName { object_type, name }| match object_type {
        None => without_unknown_type(name),
        Some(of) if of.is_service() => Ok(name),
        Some(other) => Err(format!("{name} is a {}, but the command needs a service", other.as_str())),
    });
    names.collect()
}

pub(crate) fn service(text: &str) -> Result<String, String> {
    without_unknown_type(name_of(ObjectType::Service, text)?)
}

/// Service names contain no `/`.
fn without_unknown_type(name: String) -> Result<String, String> {
    match name.split_once('/') {
        Some((word, name)) => Err(format!("there is no type {word}; did you mean service/{name}?")),
        None => Ok(name),
    }
}

/// With its type.
pub(crate) fn pod_or_service(text: &str) -> Result<String, String> {
    match split(text).object_type {
        Some(of) if of != ObjectType::Pod && !of.is_service() => {
            Err(format!("this is a {}, but the command needs a pod or a service", of.as_str()))
        }
        _ => Ok(text.to_owned()),
    }
}

pub(crate) fn value(text: &str) -> Result<String, String> {
    match split(text) {
        ObjectName { object_type: None | Some(ObjectType::Secret | ObjectType::Config), name } => Ok(name),
        ObjectName { object_type: Some(other), .. } => {
            Err(format!("this is a {}, but the command needs a secret or config", other.as_str()))
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    fn parsed(line: &str) -> Result<(Option<ObjectType>, Vec<ObjectName>), String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        parse_words(&words)
    }

    fn object(object_type: Option<ObjectType>, name: &str) -> ObjectName {
        ObjectName { object_type, name: name.to_owned() }
    }

    #[test]
    fn types_are_words_or_prefixes_of_names() {
        use ObjectType::{App, Config, DeadLetter, Node, Pod, Queue, Secret, Service, Volume};
        for (line, object_type, name) in [
            ("svc web", Some(Service), "web"),
            ("services service/web", Some(Service), "web"),
            ("svc/web", Some(Service), "web"),
            ("app shop", Some(App), "shop"),
            ("po web-0", Some(Pod), "web-0"),
            ("pods pod/web-0", Some(Pod), "web-0"),
            ("no/worker1", Some(Node), "worker1"),
            ("queue pq:worker1", Some(Queue), "pq:worker1"),
            ("letter/0123", Some(DeadLetter), "0123"),
            ("secret db_password", Some(Secret), "db_password"),
            ("configs/app.conf", Some(Config), "app.conf"),
            ("vol/web_data_0", Some(Volume), "web_data_0"),
            ("job sums", Some(ObjectType::Job), "sums"),
            ("cronjobs/nightly", Some(ObjectType::Cron), "nightly"),
            ("web", None, "web"),
            ("a/b", None, "a/b"),
        ] {
            assert_eq!(parsed(line).unwrap().1, [object(object_type, name)], "{line}");
        }
    }

    #[test]
    fn a_type_alone_has_no_names() {
        assert_eq!(parsed("svc").unwrap(), (Some(ObjectType::Service), vec![]));
        assert_eq!(parsed("").unwrap(), (None, vec![]));
        assert_eq!(parsed("pod a b").unwrap().1.len(), 2);
    }

    #[test]
    fn a_name_of_another_type_is_refused() {
        assert!(parsed("svc pod/web-0").unwrap_err().contains("not a service"));
        let pod = ObjectType::Pod.names();
        assert_eq!(pod("pod/web-0").unwrap(), "web-0");
        assert!(pod("svc/web").unwrap_err().contains("needs a pod"));
        assert!(service("daemonset/y").unwrap_err().contains("did you mean service/y"));
        assert_eq!(service("deployment/y").unwrap(), "y");
        assert!(pod_or_service("node/a").unwrap_err().contains("needs a pod or a service"));
        assert_eq!(
            ["a", "pod/a", "svc/a"].map(|text| pod_or_service(text).unwrap()),
            ["a", "pod/a", "svc/a"]
        );
        assert_eq!(service("job/sums").unwrap(), "sums", "a job is a service");
    }
}
