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
    /// Requests that reached Redis after their sender had given them up or died.
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
    /// Times in which Redis refused the writes of some processes, or of all.
    write_outages,
    /// Times in which a container engine hung.
    engine_hangs,
    /// Failovers that lost writes.
    failovers,
    /// Times in which Redis had lost its data, and then got them back.
    emptied,
    /// Those of them after which an older state was restored.
    older_states,
    /// Workers that were started with the number of another database.
    other_databases,
    /// Nodes declared dead.
    deaths,
    /// Times in which a second worker had the name of another one.
    second_workers,
    /// Registrations that were refused because another worker had the name.
    refused_names,
    /// Started containers.
    starts,
    /// Payloads that were removed by hand.
    removed_payloads,
    /// Times in which the slots of a service were copied over those of another one.
    copied_slots,
    /// Pods whose payload reconcile put back into a queue.
    requeued,
    /// Hints that were lost, late or delivered twice.
    faulty_hints,
    /// Requests that a gate has let in,
    let_in,
    /// and those that it has refused because its pod was to be stopped.
    refused_by_gates,
    /// Ticks of crons that had their job.
    ticks,
    /// Simulated milliseconds from the end of the faults until the cluster had converged.
    convergence_millis,
}
