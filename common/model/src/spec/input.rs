//! A service as a user describes it. One document has the fields of three structs: service, pod, and, unless
//! it lists `containers`, the only container.

use serde::ser::Serializer;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    ContainerSpec, Kind, MAX_REPLICAS, PodSpec, RestartPolicy, ServiceFields, Stateful, Violation,
    kind_checks, units,
};
use crate::ids::ServiceName;
use document::{self, DocumentNode, DocumentReadError, Mistake, Reading, Vocabulary};

/// The first is the normal form.
pub const REPLICAS_NAMES: [&str; 3] = ["replicas", "replica", "numInstances"];
/// Without it, the top level describes the only container.
const CONTAINERS: &str = "containers";
/// Its default depends on the volumes, and on `stateful`.
const ON_DISCONNECT: &str = "on_disconnect";
/// Stored with the pods.
const OF_SERVICE: [&str; 2] = ["kind", "mode"];
/// Its default depends on the kind.
const RESTART: &str = "restart";

/// The fields of a document that every other form of a service has as well.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
pub(crate) struct NameAndReplicas {
    /// Name of the service, unique in the cluster; a DNS label.
    name: ServiceName,
    /// Desired number of pods. `replica` and `numInstances` are accepted as names of this field.
    #[serde(
        alias = "replica",
        alias = "numInstances",
        default = "one",
        deserialize_with = "units::replicas"
    )]
    #[schema(default = 1, example = 3)]
    replicas: u32,
}

fn one() -> u32 {
    1
}

/// Not checked yet.
#[derive(Debug, Clone, PartialEq)]
pub struct ServiceInput {
    pub name: ServiceName,
    pub replicas: u32,
    pub fields: ServiceFields,
    pub pod: PodSpec,
    form: Form,
}

#[derive(Debug, Clone, PartialEq)]
enum Form {
    Short,
    /// `also_at_top`: fields that are also at the top level.
    Long {
        also_at_top: Vec<&'static str>,
    },
}

impl ServiceInput {
    pub fn name(&self) -> &ServiceName {
        &self.name
    }

    pub fn fields_among_others() -> &'static [&'static str] {
        &ContainerSpec::AMONG_OTHERS
    }

    pub fn field_groups() -> [(&'static str, Vec<&'static str>); 3] {
        let without_aliases = |names: Vec<&'static str>| {
            names.into_iter().filter(|name| !REPLICAS_NAMES[1..].contains(name)).collect::<Vec<_>>()
        };
        let mut of_container = document::field_names::<ContainerSpec>();
        of_container.retain(|name| !ContainerSpec::AMONG_OTHERS.contains(name));
        let mut of_service = without_aliases(document::field_names::<NameAndReplicas>());
        of_service.splice(1..1, OF_SERVICE);
        of_service.extend(document::field_names::<ServiceFields>());
        let mut of_pods = document::field_names::<PodSpec>();
        of_pods.retain(|name| !OF_SERVICE.contains(name));
        [
            ("The service", of_service),
            ("Its pods", of_pods),
            ("A container: at the top level if it is the only one, or in `containers`", of_container),
        ]
    }

    pub fn read(document: &DocumentNode) -> Reading<Self> {
        document::read_with(document, Vocabulary::Fields, Self::from_node)
    }

    pub fn from_value(value: &Value) -> Result<Self, Vec<Mistake>> {
        Self::read(&DocumentNode::from(value)).into_result()
    }

    pub(crate) fn from_node(node: &DocumentNode) -> Result<Self, DocumentReadError> {
        let mut of_container = document::field_names::<ContainerSpec>();
        of_container.retain(|name| !ContainerSpec::AMONG_OTHERS.contains(name));
        let mut pod: PodSpec = document::read_fields(node)?;
        // `normalize` reports a missing image.
        let at_top = node.with_default("image", "").without(&ContainerSpec::AMONG_OTHERS);
        let restart = if pod.kind.is_service() { "always" } else { "never" };
        let at_top = at_top.with_default(RESTART, restart);
        let at_top: ContainerSpec = document::read_fields(&at_top)?;
        let has_policy = node.has_value(ON_DISCONNECT);
        let form = if node.has_value(CONTAINERS) {
            // A job's containers end, unless the document says otherwise.
            if !pod.kind.is_service() {
                let without = node.items_of(CONTAINERS).map(|item| !item.has_value(RESTART));
                let unset =
                    pod.containers.iter_mut().zip(without).filter(|(one, unset)| *unset && !one.sidecar);
                unset.for_each(|(container, _)| container.restart = RestartPolicy::Never);
            }
            Form::Long { also_at_top: of_container.iter().copied().filter(|n| node.has_value(n)).collect() }
        } else {
            pod.containers = vec![at_top];
            Form::Short
        };
        if !has_policy {
            pod.on_disconnect = pod.default_on_disconnect();
        }
        let head = document::field_names::<NameAndReplicas>();
        let own = document::field_names::<ServiceFields>();
        let of_pod = document::field_names::<PodSpec>();
        document::check_fields(node, &[head, own, of_pod, of_container].concat())?;
        let fields = document::read_fields(node)?;
        // Last: a missing name would hide all other mistakes.
        let NameAndReplicas { name, replicas } = document::read_fields(node)?;
        Ok(Self { name, replicas, fields, pod, form })
    }

    pub fn normalize(self) -> Result<DesiredService, Vec<Violation>> {
        let Self { name, replicas, fields, mut pod, form } = self;
        let fields = fields.of_app();
        let app = fields.app.as_ref();
        let mut violations = pod.share_in_app(app, |index| form.pointer_of_container(index));
        if replicas > MAX_REPLICAS {
            violations.push(Violation::new("/replicas", format!("at most {MAX_REPLICAS} replicas")));
        }
        violations.extend(fields.violations(&name, &pod));
        violations.extend(kind_checks::violations(&name, replicas, &fields, &pod));
        violations.extend(kind_checks::global_violations(replicas, &fields, &pod));
        violations.extend(pod.stateful.iter().flat_map(Stateful::violations));
        violations.extend(pod.resources.violations());
        violations.extend(form.violations());
        for (index, container) in pod.containers.iter().enumerate() {
            violations.extend(container.violations(&form.pointer_of_container(index)));
        }
        if let Form::Long { .. } = form {
            violations.extend(pod.containers_violations());
        }
        if !violations.is_empty() {
            return Err(violations);
        }
        let fields = fields.normal(pod.kind);
        let replicas = match (pod.kind, &fields.job) {
            (Kind::Job, Some(job)) => job.completions,
            (Kind::Cron, _) => 0,
            _ if pod.mode.is_global() => 0,
            _ => replicas,
        };
        Ok(DesiredService { name, replicas, fields, pod })
    }

    pub fn long_form(&self) -> impl Serialize {
        self.document(None, self.pod.clone())
    }

    fn document<'a>(
        &'a self,
        only_container: Option<&'a ContainerSpec>,
        pod: PodSpec,
    ) -> ServiceDocument<'a> {
        let Self { name, replicas, fields, .. } = self;
        let replicas = (!pod.mode.is_global()).then_some(*replicas);
        ServiceDocument { name, replicas, fields, only_container, pod }
    }
}

#[derive(Serialize)]
struct ServiceDocument<'a> {
    name: &'a ServiceName,
    #[serde(skip_serializing_if = "Option::is_none")]
    replicas: Option<u32>,
    #[serde(flatten)]
    fields: &'a ServiceFields,
    #[serde(flatten)]
    only_container: Option<&'a ContainerSpec>,
    #[serde(flatten)]
    pod: PodSpec,
}

impl Form {
    fn of(containers: &[ContainerSpec]) -> Self {
        match containers {
            [only] if only.name.is_none() => Form::Short,
            _ => Form::Long { also_at_top: Vec::new() },
        }
    }

    fn violations(&self) -> Vec<Violation> {
        let Form::Long { also_at_top } = self else { return Vec::new() };
        let twice = also_at_top.iter().map(|field| {
            let detail = "cannot be combined with `containers`: set it in the container instead";
            Violation::new(format!("/{field}"), detail)
        });
        twice.collect()
    }

    fn pointer_of_container(&self, index: usize) -> String {
        match self {
            Form::Short => String::new(),
            Form::Long { .. } => format!("/{CONTAINERS}/{index}"),
        }
    }
}

impl Serialize for ServiceInput {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut pod = self.pod.clone();
        let containers = std::mem::take(&mut pod.containers);
        let document = match containers.as_slice() {
            [only] if only.name.is_none() => self.document(Some(only), pod),
            _ => self.document(None, self.pod.clone()),
        };
        document.serialize(serializer)
    }
}

/// Checked and in normal form.
#[derive(Debug, Clone, PartialEq)]
pub struct DesiredService {
    pub name: ServiceName,
    pub replicas: u32,
    pub fields: ServiceFields,
    pub pod: PodSpec,
}

impl From<DesiredService> for ServiceInput {
    fn from(desired: DesiredService) -> Self {
        let DesiredService { name, replicas, fields, pod } = desired;
        let form = Form::of(&pod.containers);
        let replicas = if pod.kind.is_service() && !pod.mode.is_global() { replicas } else { 1 };
        Self { name, replicas, fields, pod, form }
    }
}

#[cfg(test)]
mod document_tests;
#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::spec::OnDisconnect;

    fn normalize(json: &str) -> Result<DesiredService, Vec<Violation>> {
        ServiceInput::from_value(&serde_json::from_str(json).unwrap()).expect("parses").normalize()
    }

    #[test]
    fn the_smallest_service_gets_defaults() {
        let service = normalize(r#"{"name":"web","image":"nginx","replica":3}"#).unwrap();
        assert_eq!((service.replicas, service.pod.image()), (3, "nginx"));
        assert!(service.pod.needs_only_image());
        assert_eq!(service.pod.grace(), Duration::from_secs(10));
    }

    #[test]
    fn the_replica_count_has_three_names() {
        for field in ["replica", "replicas", "numInstances"] {
            let json = format!(r#"{{"name":"web","image":"nginx","{field}":7}}"#);
            assert_eq!(normalize(&json).unwrap().replicas, 7, "{field}");
        }
    }

    #[test]
    fn container_fields_cannot_be_in_two_places() {
        let json = r#"{"name":"web","memory":"1GiB","containers":[{"image":"nginx"}]}"#;
        let violations = normalize(json).unwrap_err();
        assert_eq!(violations[0].pointer, "/memory");
    }

    #[test]
    fn violations_point_to_the_field() {
        let json =
            r#"{"name":"web","replicas":3000000,"containers":[{"image":"","memory":"1KiB","cpus":0.001}]}"#;
        let violations = normalize(json).unwrap_err();
        let pointers: Vec<_> = violations.iter().map(|v| v.pointer.as_str()).collect();
        assert_eq!(
            pointers,
            ["/replicas", "/containers/0/image", "/containers/0/memory", "/containers/0/cpus"]
        );
    }

    #[test]
    fn the_name_of_a_service_begins_with_that_of_its_app() {
        let json = |name| format!(r#"{{"name":"{name}","image":"nginx","app":"shop"}}"#);
        assert_eq!(normalize(&json("shop-web")).unwrap().fields.app.unwrap().as_str(), "shop");
        for other in ["web", "shop", "shopweb"] {
            assert_eq!(normalize(&json(other)).unwrap_err()[0].pointer, "/app", "{other}");
        }
    }

    #[test]
    fn memory_has_an_upper_limit() {
        let json = |memory| format!(r#"{{"name":"web","image":"nginx","memory":"{memory}"}}"#);
        assert!(normalize(&json("1024TiB")).is_ok());
        assert_eq!(normalize(&json("1025TiB")).unwrap_err()[0].pointer, "/memory");
    }

    #[test]
    fn a_pod_with_data_stops_when_it_is_cut_off_unless_told_otherwise() {
        for (more, expected) in [
            (r#""volumes":["data:/var"]"#, OnDisconnect::Stop),
            (r#""volumes":["data:/var"],"on_disconnect":"keep""#, OnDisconnect::Keep),
            (r#""volumes":["/cache"]"#, OnDisconnect::Keep),
        ] {
            let service = normalize(&format!(r#"{{"name":"web","image":"nginx",{more}}}"#)).unwrap();
            assert_eq!(service.pod.on_disconnect, expected, "{more}");
            assert!(!service.pod.needs_only_image(), "{more}");
        }
    }

    #[test]
    fn unknown_fields_are_refused() {
        let value = serde_json::json!({"name": "web", "imgae": "nginx"});
        let mistakes = ServiceInput::from_value(&value).unwrap_err();
        assert!(mistakes[0].detail.contains("imgae"), "{mistakes:?}");
    }

    #[test]
    fn the_normal_form_round_trips() {
        let json = r#"{"name":"web","image":"nginx","command":"sh -c 'sleep 1'","environment":["A=b"],
            "ports":["8080:80"],"memory":"64m","cpus":"0.5","restart":"no","on_disconnect":"stop"}"#;
        let pod = normalize(json).unwrap().pod;
        let stored = serde_json::to_string(&pod).unwrap();
        assert_eq!(serde_json::from_str::<PodSpec>(&stored).unwrap(), pod);
        assert_eq!((pod.request().cpu_millis, pod.request().memory_bytes), (500, 64 << 20));
    }
}
