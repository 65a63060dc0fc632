//! Volumes of a container, as in Compose, and kubeleet's kinds.

use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize};

use super::checks;
use super::file_reference::{FileMode, OwnerId};
use crate::ids::AppName;
use crate::spec::units::Memory;

/// The lifetime of the data of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum VolumeKind {
    /// It belongs to one pod and is removed with it. The containers of the pod share it by its source.
    Local,
    /// It belongs to one replica of a service, stays when the pod goes, and ties the replica to its node.
    Persistent,
    /// It is one directory for all pods of the service, or of its app, on a file system that nodes share.
    Shared,
    /// It is in memory, and empty at each start of the container.
    Tmpfs,
    /// It is a path of the host, which the operator of the node has to allow.
    Bind,
}

impl VolumeKind {
    pub fn as_str(self) -> &'static str {
        match self {
            VolumeKind::Local => "local",
            VolumeKind::Persistent => "persistent",
            VolumeKind::Shared => "shared",
            VolumeKind::Tmpfs => "tmpfs",
            VolumeKind::Bind => "bind",
        }
    }
}

/// Read from a text (`data:/var/lib/app`, `/cache`) or a map.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct VolumeMount {
    pub kind: VolumeKind,
    /// A name, or a path of the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    pub target: String,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub space: Option<Memory>,
    /// Of its folder at creation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<FileMode>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub app: Option<AppName>,
    /// Never stored: it is refused.
    #[serde(skip)]
    contradiction: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FolderOwner {
    pub uid: u32,
    pub gid: u32,
    pub mode: u32,
}

impl VolumeMount {
    /// `None` leaves a new folder to the image. If only a group is set, it may write.
    pub fn folder_owner(&self) -> Option<FolderOwner> {
        if self.uid.is_none() && self.gid.is_none() && self.mode.is_none() {
            return None;
        }
        let by_default = if self.gid.is_some() { 0o775 } else { 0o755 };
        let mode = self.mode.map_or(by_default, FileMode::bits);
        Some(FolderOwner { uid: self.uid.unwrap_or(0), gid: self.gid.unwrap_or(0), mode })
    }
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PersistentVolume {
    pub source: String,
    /// Bytes.
    pub space: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SharedVolume {
    pub source: String,
    /// `None` if it belongs to the service.
    pub app: Option<AppName>,
    /// Bytes.
    pub space: Option<u64>,
}

const MAX_SOURCE: usize = 63;

impl VolumeMount {
    pub(in crate::spec) fn problem(&self) -> Option<String> {
        let path = checks::path(&self.target).map(|problem| format!("its target {problem}"));
        let contradiction = || self.contradiction.clone();
        path.or_else(|| self.target_problem()).or_else(contradiction).or_else(|| self.source_problem())
    }

    fn target_problem(&self) -> Option<String> {
        let has_dots = self.target.split('/').any(|part| part == "..");
        match self.target.trim_end_matches('/') {
            "" => Some("cannot replace the root of the container".to_owned()),
            _ if has_dots || self.target.contains(':') => {
                Some("its target cannot contain `..` or a colon".to_owned())
            }
            _ => None,
        }
    }

    fn source_problem(&self) -> Option<String> {
        match (self.kind, self.source.as_deref()) {
            (VolumeKind::Persistent, None) => {
                Some("a persistent volume needs a name, as in data:/var/lib/app".to_owned())
            }
            (VolumeKind::Shared, None) => Some("a shared volume needs a name in `source`".to_owned()),
            (VolumeKind::Tmpfs, Some(_)) => Some("a tmpfs has no source".to_owned()),
            (VolumeKind::Bind, None) => {
                Some("a bind needs a path of the host, as in /srv/app:/var/lib/app".to_owned())
            }
            (VolumeKind::Bind, Some(path)) => self.bind_problem(path),
            (_, Some(source)) if !is_source(source) => Some(format!(
                "{source:?} cannot be the name of a volume: write 1 to {MAX_SOURCE} of A-Z, a-z, 0-9, '.', '_' and '-', \
                 not beginning with one of the last three"
            )),
            _ => None,
        }
    }
}

impl VolumeMount {
    fn bind_problem(&self, path: &str) -> Option<String> {
        if let Some(problem) = checks::path(path) {
            return Some(format!("its path of the host {problem}"));
        }
        if path.split('/').any(|part| part == "..") || path.contains(':') {
            return Some("its path of the host cannot contain `..` or a colon".to_owned());
        }
        self.space.map(|_| "a path of the host has no `space`".to_owned())
    }
}

fn is_source(text: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    (1..=MAX_SOURCE).contains(&text.len())
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(is_allowed)
}

/// `[source:]target[:options]`.
impl std::str::FromStr for VolumeMount {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<&str> = text.split(':').collect();
        let (source, target, options) = match parts[..] {
            [target] => (None, target, ""),
            [source, target] => (Some(source), target, ""),
            [source, target, options] => (Some(source), target, options),
            _ => return Err("a volume is `name:/path`, `name:/path:ro` or `/path`".to_owned()),
        };
        if let Some(path) = source.filter(|source| source.starts_with(['.', '~'])) {
            return Err(no_relative_bind(path));
        }
        let read_only = match options {
            "" | "rw" => false,
            "ro" => true,
            _ => return Err("the only options of a volume are `ro` and `rw`".to_owned()),
        };
        let kind = match source {
            Some(path) if path.starts_with('/') => VolumeKind::Bind,
            Some(_) => VolumeKind::Persistent,
            None => VolumeKind::Local,
        };
        let source = source.map(str::to_owned);
        Ok(Self {
            kind,
            source,
            target: target.to_owned(),
            read_only,
            space: None,
            uid: None,
            gid: None,
            mode: None,
            app: None,
            contradiction: None,
        })
    }
}

fn no_relative_bind(path: &str) -> String {
    format!(
        "{path:?} is relative, and a node has no current folder: write an absolute path, or the name of a volume"
    )
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LongForm {
    #[serde(default, rename = "type")]
    type_name: Option<String>,
    kind: Option<VolumeKind>,
    source: Option<String>,
    target: String,
    #[serde(default)]
    read_only: bool,
    space: Option<Memory>,
    uid: Option<OwnerId>,
    gid: Option<OwnerId>,
    mode: Option<FileMode>,
    app: Option<AppName>,
    tmpfs: Option<TmpfsOptions>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TmpfsOptions {
    size: Option<Memory>,
}

impl LongForm {
    fn into_volume(self) -> Result<VolumeMount, String> {
        let Self { type_name, kind, source, target, read_only, space, uid, gid, mode, app, tmpfs } = self;
        use VolumeKind::{Bind, Local, Persistent, Shared, Tmpfs};
        let of_type: &[VolumeKind] = match type_name.as_deref() {
            None => &[Local, Persistent, Shared, Tmpfs, Bind],
            Some("volume") => &[Local, Persistent, Shared],
            Some("tmpfs") => &[Tmpfs],
            Some("bind") => &[Bind],
            Some(_) => return Err("`type` must be volume, bind or tmpfs".to_owned()),
        };
        let by_default = match of_type {
            [only] => *only,
            _ if source.is_none() => Local,
            _ => Persistent,
        };
        let kind = kind.unwrap_or(by_default);
        let mut contradiction = None;
        if !of_type.contains(&kind) {
            contradiction = Some(format!("`type` and the kind {} contradict each other", kind.as_str()));
        } else if tmpfs.is_some() && kind != Tmpfs {
            contradiction = Some("`tmpfs` belongs to a volume of the type tmpfs".to_owned());
        } else if app.is_some() && kind != Shared {
            contradiction = Some("`app` belongs to a volume of the kind shared".to_owned());
        } else if (uid.is_some() || gid.is_some() || mode.is_some()) && !matches!(kind, Local | Persistent) {
            let detail = "`uid`, `gid` and `mode` belong to a volume of the kind persistent or local";
            contradiction = Some(detail.to_owned());
        }
        if kind == VolumeKind::Bind
            && let Some(path) = source.as_deref().filter(|path| path.starts_with(['.', '~']))
        {
            return Err(no_relative_bind(path));
        }
        let space = space.or(tmpfs.and_then(|options| options.size));
        let (uid, gid) = (uid.map(u32::from), gid.map(u32::from));
        Ok(VolumeMount { kind, source, target, read_only, space, uid, gid, mode, app, contradiction })
    }
}

impl<'de> Deserialize<'de> for VolumeMount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = VolumeMount;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a volume such as \"data:/var/lib/app\", or a map with source and target")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<VolumeMount, E> {
                text.parse().map_err(E::custom)
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<VolumeMount, A::Error> {
                let long = LongForm::deserialize(MapAccessDeserializer::new(map))?;
                long.into_volume().map_err(de::Error::custom)
            }
        }
        deserializer.deserialize_any(Reader)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{ContainerSpec, DesiredService, PodSpec, ServiceInput};

    fn read(json: &str) -> Result<VolumeMount, String> {
        let volume: VolumeMount = serde_json::from_str(json).map_err(|error| error.to_string())?;
        match volume.problem() {
            Some(problem) => Err(problem),
            None => Ok(volume),
        }
    }

    #[test]
    fn every_form_of_compose_is_read_and_what_is_stored_is_read_again() {
        use VolumeKind::{Bind, Local, Persistent, Tmpfs};
        let table = [
            (r#""data:/var""#, Persistent, Some("data"), "/var", false, None),
            (r#""data:/var:ro""#, Persistent, Some("data"), "/var", true, None),
            (r#""data:/var:rw""#, Persistent, Some("data"), "/var", false, None),
            (r#""/cache""#, Local, None, "/cache", false, None),
            (r#""/srv/app:/app:ro""#, Bind, Some("/srv/app"), "/app", true, None),
            (r#"{"type":"bind","source":"/srv","target":"/app"}"#, Bind, Some("/srv"), "/app", false, None),
            (
                r#"{"type":"volume","source":"data","target":"/var"}"#,
                Persistent,
                Some("data"),
                "/var",
                false,
                None,
            ),
            (r#"{"type":"volume","target":"/var","read_only":true}"#, Local, None, "/var", true, None),
            (
                r#"{"source":"s","target":"/s","kind":"local","space":"10G"}"#,
                Local,
                Some("s"),
                "/s",
                false,
                Some(10u64 << 30),
            ),
            (
                r#"{"type":"tmpfs","target":"/run","tmpfs":{"size":"64m"}}"#,
                Tmpfs,
                None,
                "/run",
                false,
                Some(64 << 20),
            ),
        ];
        for (json, kind, source, target, read_only, space) in table {
            let volume = read(json).unwrap();
            assert_eq!((volume.kind, volume.source.as_deref()), (kind, source), "{json}");
            assert_eq!((volume.target.as_str(), volume.read_only), (target, read_only), "{json}");
            assert_eq!(volume.space.map(Memory::bytes), space, "{json}");
            assert_eq!(read(&serde_json::to_string(&volume).unwrap()).unwrap(), volume, "{json}");
        }
    }

    #[test]
    fn what_cannot_be_meant_is_refused_with_the_reason() {
        for (json, part) in [
            (r#""./src:/app:ro""#, "is relative"),
            (r#""~/src:/app:ro""#, "is relative"),
            (r#"{"type":"bind","source":"../x","target":"/d"}"#, "is relative"),
            (r#"{"type":"bind","source":"x","target":"/d"}"#, "path of the host"),
            (r#"{"type":"bind","target":"/d"}"#, "needs a path of the host"),
            (r#""/srv/../etc:/d""#, "path of the host cannot contain `..`"),
            (r#"{"type":"bind","source":"/srv","target":"/d","space":"1G"}"#, "no `space`"),
            (r#"{"type":"volume","kind":"bind","source":"/srv","target":"/d"}"#, "contradict"),
            (r#""data:/var:z""#, "`ro` and `rw`"),
            (r#""data""#, "absolute path"),
            (r#""data:/""#, "root"),
            (r#""data:/a/../b""#, "`..`"),
            (r#""-a:/var""#, "name of a volume"),
            (r#""a:b:c:d""#, "name:/path"),
            (r#"{"target":"/x","kind":"persistent"}"#, "needs a name"),
            (r#"{"type":"tmpfs","source":"a","target":"/x"}"#, "no source"),
            (r#"{"type":"tmpfs","kind":"local","target":"/x"}"#, "contradict"),
            (r#"{"type":"npipe","target":"/x"}"#, "volume, bind or tmpfs"),
            (r#"{"type":"tmpfs","target":"/x","uid":1}"#, "persistent or local"),
            (r#"{"source":"a","target":"/x","kind":"shared","mode":"0770"}"#, "persistent or local"),
            (r#"{"source":"a","target":"/x","mode":"rwx"}"#, "mode"),
            (r#"{"source":"a","target":"/x","uid":"root"}"#, "not the number of a user"),
            (r#"{"source":"a","target":"/x","gid":4294967295}"#, "not the number of a user or group"),
            (r#"{"source":"a","target":"/x","volume":{"nocopy":true}}"#, "unknown field"),
            (r#"{"source":"a"}"#, "target"),
        ] {
            let reason = read(json).unwrap_err();
            assert!(reason.contains(part), "{json}: {reason}");
        }
    }

    #[test]
    fn a_new_volume_belongs_to_whom_the_document_says_and_a_group_can_write() {
        for (fields, expected) in [
            ("", None),
            (r#","uid":999"#, Some((999, 0, 0o755))),
            (r#","gid":999"#, Some((0, 999, 0o775))),
            (r#","uid":999,"gid":998,"mode":"0700""#, Some((999, 998, 0o700))),
            (r#","uid":"999","gid":"0998""#, Some((999, 998, 0o775))),
        ] {
            let volume = read(&format!(r#"{{"source":"d","target":"/d"{fields}}}"#)).unwrap();
            let again: VolumeMount = serde_json::from_str(&serde_json::to_string(&volume).unwrap()).unwrap();
            assert_eq!(again, volume);
            let owner = volume.folder_owner().map(|owner| (owner.uid, owner.gid, owner.mode));
            assert_eq!(owner, expected, "{fields}");
        }
    }

    #[test]
    fn a_path_has_one_volume_and_a_source_one_kind() {
        let container: ContainerSpec = serde_json::from_str(
            r#"{"image":"x","tmpfs":["/a:size=1m"],"configs":["c"],"volumes":["d:/a","d:/b","/b","/c"]}"#,
        )
        .unwrap();
        let pointers: Vec<String> = container.violations("").into_iter().map(|v| v.pointer).collect();
        assert_eq!(pointers, ["/volumes/0", "/volumes/2", "/volumes/3"]);
        let pod: PodSpec = serde_json::from_str(
            r#"{"containers":[{"image":"x","name":"a","volumes":["d:/a"]},
                {"image":"x","name":"b","volumes":[{"source":"d","target":"/a","kind":"local"},"e:/e","d:/d"]}]}"#,
        )
        .unwrap();
        let violations = pod.containers_violations();
        assert_eq!(
            violations.iter().map(|v| v.pointer.as_str()).collect::<Vec<_>>(),
            ["/containers/1/volumes/0"]
        );
        let sources: Vec<String> = pod.persistent_volumes().into_iter().map(|v| v.source).collect();
        assert_eq!(sources, ["d", "e"]);
    }

    #[test]
    fn the_containers_of_a_pod_reserve_a_volume_once_and_only_what_is_on_the_node() {
        let pod: PodSpec = serde_json::from_str(
            r#"{"containers":[
                {"image":"x","name":"a","volumes":[{"source":"d","target":"/d","space":"1G"},
                    {"target":"/one","space":"2G"},{"type":"tmpfs","target":"/t","tmpfs":{"size":"4G"}},
                    {"source":"s","target":"/s","kind":"shared","space":"8G"}]},
                {"image":"x","name":"b","volumes":[{"source":"d","target":"/e","space":"3G"},"/cache",
                    {"target":"/one","space":"2G"}]}]}"#,
        )
        .unwrap();
        assert_eq!(pod.request().disk_bytes, 7 << 30);
        assert!(pod.has_shared_volumes());
    }

    #[test]
    fn a_volume_is_shared_in_the_app_of_its_service_and_in_no_other() {
        let mounted = |app: &str, named: &str| {
            let json = format!(
                r#"{{"name":"shop-web","image":"x",{app}"volumes":[{{"source":"up","target":"/up","kind":"shared"{named}}}]}}"#
            );
            let value: serde_json::Value = serde_json::from_str(&json).unwrap();
            ServiceInput::from_value(&value).unwrap().normalize()
        };
        let app_of = |desired: DesiredService| {
            desired.pod.containers[0].volumes[0].app.as_ref().map(ToString::to_string)
        };
        assert_eq!(app_of(mounted("", "").unwrap()), None);
        assert_eq!(app_of(mounted(r#""app":"shop","#, "").unwrap()), Some("shop".to_owned()));
        assert_eq!(app_of(mounted(r#""app":"shop","#, r#","app":"shop""#).unwrap()), Some("shop".to_owned()));
        for (app, named) in [("", r#","app":"shop""#), (r#""app":"shop","#, r#","app":"other""#)] {
            let violations = mounted(app, named).unwrap_err();
            assert_eq!(violations[0].pointer, "/volumes/0/app");
        }
    }
}
