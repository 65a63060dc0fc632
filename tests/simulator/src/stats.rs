//! Statistics of a run.

macro_rules! stats {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counts of events in a run that violated no invariant.
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
    /// Steps of the simulator.
    steps,
    /// Requests that reached Redis.
    requests,
    /// Calls of container engines.
    engine_calls,
    /// Requests that did not reach Redis; their senders got an error.
    refused,
    /// Requests that were executed and whose senders got an error.
    lost_replies,
    /// Requests whose senders got neither a reply nor an error.
    unanswered,
    /// Requests that reached Redis after their sender had given up or died.
    late,
    /// Crashed processes.
    crashes,
    /// Graceful shutdowns.
    shutdowns,
    /// Crashed hosts.
    host_crashes,
    /// Paused processes.
    pauses,
    /// Suspended hosts.
    suspensions,
    /// Partitions of a process from Redis.
    partitions,
    /// Times in which Redis answered no request.
    stalls,
    /// Times in which Redis refused some or all writes.
    write_outages,
    /// Times in which a container engine hung.
    engine_hangs,
    /// Failovers that lost writes.
    failovers,
    /// Times in which Redis had lost its data, and then got it back.
    emptied,
    /// Restores of an older state.
    older_states,
    /// Workers started with the number of another database.
    other_databases,
    /// Nodes declared dead.
    deaths,
    /// Second workers with the name of another one.
    second_workers,
    /// Registrations refused because another worker had the name.
    refused_names,
    /// Started containers.
    starts,
    /// Payloads removed by hand.
    removed_payloads,
    /// Copies of a service's slots over another's.
    copied_slots,
    /// Pods whose payload reconcile put back into a queue.
    requeued,
    /// Hints that were lost, late or delivered twice.
    faulty_hints,
    /// Requests that gates let in.
    let_in,
    /// Requests refused because the pod was to be stopped.
    refused_by_gates,
    /// Ticks of crons that had their job.
    ticks,
    /// Simulated milliseconds from the end of the faults to convergence.
    convergence_millis,
}
