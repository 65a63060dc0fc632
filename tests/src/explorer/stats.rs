//! What happened, in numbers.

macro_rules! stats {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What happened in a run that found nothing.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        pub struct Stats {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl std::ops::AddAssign for Stats {
            fn add_assign(&mut self, other: Self) {
                $(self.$name += other.$name;)*
            }
        }
    };
}

stats! {
    /// Requests that reached Redis.
    requests,
    /// Calls of engines.
    engine_calls,
    /// Requests that did not reach Redis, and were said to have failed.
    refused,
    /// Requests whose reply was lost.
    lost_replies,
    /// Requests that nobody heard of again.
    unanswered,
    /// Requests that reached Redis after their sender had given them up, or was dead.
    late,
    /// Processes that died.
    crashes,
    /// Processes that were asked to end.
    ends,
    /// Hosts that died.
    host_crashes,
    /// Processes that stood still for a while.
    pauses,
    /// Hosts that were suspended.
    suspensions,
    /// Processes that could not reach Redis for a while.
    partitions,
    /// Times in which Redis answered nobody.
    stalls,
    /// Times in which an engine hung.
    hangs,
    /// Failovers that lost writes.
    failovers,
    /// Nodes declared dead.
    deaths,
    /// Containers started.
    starts,
    /// Payloads that somebody removed.
    lost_payloads,
    /// Pods whose payload reconcile had to put back.
    requeued,
    /// Wake-ups lost, late, or heard twice.
    bad_hints,
    /// Milliseconds of the world's time until everything rested.
    to_rest,
}
