//! A document of a file: a service as a user writes it or as `get -o yaml` prints it, or a list of them.

use std::fmt;

use common::spec::ServiceInput;
use serde::de::value::{MapAccessDeserializer, StrDeserializer};
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// What only the API sets. `get -o yaml` prints it, and files may contain it.
const SERVER_FIELDS: [&str; 7] =
    ["state", "generation", "revision", "created_at", "updated_at", "status", "durability"];
/// The field of a list, as `get -o yaml` prints one.
const LIST_FIELD: &str = "items";

/// The services of one document.
pub(super) struct ServiceDocument(pub(super) Vec<ServiceInput>);

impl<'de> Deserialize<'de> for ServiceDocument {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(DocumentVisitor)
    }
}

struct DocumentVisitor;

impl<'de> Visitor<'de> for DocumentVisitor {
    type Value = ServiceDocument;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a service")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ServiceDocument, A::Error> {
        let mut list = None;
        let fields = UserFields { map, list: &mut list };
        let service = ServiceInput::deserialize(MapAccessDeserializer::new(fields));
        match list {
            Some(services) => Ok(ServiceDocument(services)),
            None => Ok(ServiceDocument(vec![service?])),
        }
    }
}

/// The fields of a map without those that the API sets. The rest is passed on as it is, so that errors keep
/// their positions.
struct UserFields<'a, A> {
    map: A,
    /// The services, if the map is a list.
    list: &'a mut Option<Vec<ServiceInput>>,
}

impl<'de, A: MapAccess<'de>> UserFields<'_, A> {
    /// Reads the map to its end.
    fn read_list(&mut self) -> Result<(), A::Error> {
        let documents: Vec<ServiceDocument> = self.map.next_value()?;
        *self.list = Some(documents.into_iter().flat_map(|document| document.0).collect());
        while self.map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(())
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for UserFields<'_, A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, mut seed: K) -> Result<Option<K::Value>, A::Error> {
        loop {
            match self.map.next_key_seed(FieldSeed(seed))? {
                None => return Ok(None),
                Some(Field::User(key)) => return Ok(Some(key)),
                Some(Field::List) => {
                    self.read_list()?;
                    return Ok(None);
                }
                Some(Field::Server(returned)) => {
                    self.map.next_value::<IgnoredAny>()?;
                    seed = returned;
                }
            }
        }
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        self.map.next_value_seed(seed)
    }
}

/// A key of the map.
enum Field<K, V> {
    /// The key as the seed reads it.
    User(V),
    /// A field that the API sets. The seed is needed for the next key.
    Server(K),
    List,
}

struct FieldSeed<K>(K);

impl<'de, K: DeserializeSeed<'de>> DeserializeSeed<'de> for FieldSeed<K> {
    type Value = Field<K, K::Value>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de, K: DeserializeSeed<'de>> Visitor<'de> for FieldSeed<K> {
    type Value = Field<K, K::Value>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("the name of a field")
    }

    fn visit_str<E: serde::de::Error>(self, key: &str) -> Result<Self::Value, E> {
        if key == LIST_FIELD {
            return Ok(Field::List);
        }
        if SERVER_FIELDS.contains(&key) {
            return Ok(Field::Server(self.0));
        }
        self.0.deserialize(StrDeserializer::new(key)).map(Field::User)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use crate::client::fixtures;

    fn names(text: &str) -> Result<Vec<String>, serde_saphyr::Error> {
        let document: ServiceDocument = serde_saphyr::from_str(text)?;
        Ok(document.0.into_iter().map(|service| service.name.to_string()).collect())
    }

    #[test]
    fn what_the_api_prints_can_be_read_again() {
        let mut view = fixtures::service("web");
        view.durability = Some(common::api::DurabilityView {
            state: common::api::DurabilityState::SingleMachine,
            replicas: 0,
            known: 0,
            message: String::new(),
        });
        let yaml = serde_saphyr::to_string(&view).unwrap();
        let json = serde_json::to_string_pretty(&view).unwrap();
        for text in [yaml, json] {
            let ServiceDocument(services) = serde_saphyr::from_str(&text).unwrap();
            let read = services[0].clone().normalize().unwrap();
            assert_eq!((read.replicas, &read.labels), (view.replicas, &view.labels), "{text}");
            assert_eq!(read.pod.containers, view.containers, "{text}");
        }
        let list = serde_json::json!({ "items": [view, fixtures::service("db")], "next": "db" });
        assert_eq!(names(&serde_saphyr::to_string(&list).unwrap()).unwrap(), ["web", "db"]);
        assert_eq!(names("items: []\n").unwrap(), Vec::<String>::new());
    }

    #[test]
    fn errors_keep_their_positions() {
        for (text, line, part) in [
            ("name: web\nstatus: {x: 1}\nimgae: nginx\n", 3, "imgae"),
            ("imgae: nginx\nname: web\n", 1, "imgae"),
            ("name: web\nimage: nginx\nreplicas: two\n", 3, ""),
            ("items:\n- name: web\n  image: nginx\n- name: db\n  imgae: x\n", 5, "imgae"),
        ] {
            let error = names(text).unwrap_err();
            assert_eq!(error.location().unwrap().line(), line, "{text}{error}");
            assert!(error.to_string().contains(part), "{error}");
        }
        assert!(names("name: web\nname: db\nimage: x\n").is_err());
        assert!(names("status: {}\n").unwrap_err().to_string().contains("name"));
    }
}
