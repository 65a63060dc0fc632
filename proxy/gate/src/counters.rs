//! The gate's metrics.

use metrics::{Counter, Unit, counter, describe_counter};

const LET_IN: &str = "kubeleet_proxy_let_in_total";
const REFUSED: &str = "kubeleet_proxy_refused_total";
const DRAINED: &str = "kubeleet_proxy_drained_total";
const CUT: &str = "kubeleet_proxy_cut_total";

pub fn describe() {
    describe_counter!(LET_IN, Unit::Count, "Requests and connections that gates of this host let in");
    describe_counter!(
        REFUSED,
        Unit::Count,
        "Requests and connections that gates refused: closed, because the pod is about to be stopped; unknown, because \
         it is not on this host"
    );
    describe_counter!(
        DRAINED,
        Unit::Count,
        "Pods that let go of their last request before they were stopped"
    );
    describe_counter!(
        CUT,
        Unit::Count,
        "Requests and connections that were cut because they took longer than the pod's `drain`"
    );
}

/// Callers keep the counter: a look-up for each request is measurable.
pub(crate) fn let_in() -> Counter {
    counter!(LET_IN)
}

pub(crate) fn refused(reason: &'static str) -> Counter {
    counter!(REFUSED, "reason" => reason)
}

pub(crate) fn drained(cut: u64) {
    counter!(DRAINED).increment(1);
    counter!(CUT).increment(cut);
}
