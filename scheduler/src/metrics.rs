//! The metrics of the scheduler.

use ::metrics::{Unit, describe_counter, describe_gauge, describe_histogram};

pub(crate) const PODS_PLACED: &str = "kubeleet_pods_placed_total";
pub(crate) const PODS_PARKED: &str = "kubeleet_pods_parked_total";
pub(crate) const UNSCHEDULABLE_CLASSES: &str = "kubeleet_unschedulable_classes";
pub(crate) const PREEMPTIONS: &str = "kubeleet_preemptions_total";
pub(crate) const BATCH_SECONDS: &str = "kubeleet_placement_batch_seconds";
pub(crate) const NODES_DECLARED_DEAD: &str = "kubeleet_nodes_declared_dead_total";
pub(crate) const MASS_LOSS_BREAKER: &str = "kubeleet_mass_loss_brake";

pub fn describe_metrics() {
    describe_counter!(PODS_PLACED, "Pods that this scheduler assigned to a node");
    describe_counter!(PODS_PARKED, "Times that this scheduler recorded a pod as unschedulable");
    describe_gauge!(
        UNSCHEDULABLE_CLASSES,
        "Kinds of unschedulable pods, told by the scheduler that looks whether they fit; else 0"
    );
    describe_counter!(PREEMPTIONS, "Pods that this scheduler had stopped for others of a higher priority");
    describe_histogram!(BATCH_SECONDS, Unit::Seconds, "Time to place one batch of pods");
    describe_counter!(NODES_DECLARED_DEAD, "Nodes that this scheduler declared dead");
    describe_gauge!(
        MASS_LOSS_BREAKER,
        "1 while the mass-loss circuit breaker is open and no node is declared dead, else 0"
    );
    daemon::control_loop::describe_metrics();
}

#[cfg(test)]
mod tests {

    use ::metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString};
    use parking_lot::Mutex;

    use super::*;

    #[derive(Default)]
    struct Descriptions(Mutex<Vec<(&'static str, String, String)>>);

    impl Descriptions {
        fn add(&self, kind: &'static str, name: &KeyName, help: &SharedString) {
            let mut described = self.0.lock();
            described.push((kind, name.as_str().to_owned(), help.to_string()));
        }
    }

    impl Recorder for Descriptions {
        fn describe_counter(&self, name: KeyName, _: Option<Unit>, help: SharedString) {
            self.add("counter", &name, &help);
        }
        fn describe_gauge(&self, name: KeyName, _: Option<Unit>, help: SharedString) {
            self.add("gauge", &name, &help);
        }
        fn describe_histogram(&self, name: KeyName, _: Option<Unit>, help: SharedString) {
            self.add("histogram", &name, &help);
        }
        fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
            Counter::noop()
        }
        fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
            Gauge::noop()
        }
        fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
            Histogram::noop()
        }
    }

    /// The rules of `promtool check metrics`.
    #[test]
    fn metrics_follow_the_conventions_of_prometheus() {
        let descriptions = Descriptions::default();
        ::metrics::with_local_recorder(&descriptions, describe_metrics);
        let described = descriptions.0.into_inner();
        assert_eq!(described.len(), 8, "{described:?}");
        for (kind, name, help) in described {
            assert!(name.starts_with("kubeleet_") && !name.contains(':'), "{name}");
            assert!(!help.is_empty(), "{name}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{name}");
            assert_eq!(kind == "histogram", name.ends_with("_seconds"), "{name}");
        }
    }
}
