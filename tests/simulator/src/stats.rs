//! Statistics of a run.

macro_rules! stats {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Of a run that violated no invariant.
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
    steps,
    /// That reached Redis.
    requests,
    engine_calls,
    /// Requests that did not reach Redis.
    refused,
    /// Requests that were executed and whose senders got an error.
    lost_replies,
    /// Requests whose senders got neither a reply nor an error.
    unanswered,
    /// Requests that reached Redis after their sender had given up or died.
    late,
    crashes,
    shutdowns,
    host_crashes,
    pauses,
    suspensions,
    partitions,
    /// Redis answered no request.
    stalls,
    /// Redis refused some or all writes.
    write_outages,
    engine_hangs,
    failovers,
    /// Redis had lost its data, and then got it back.
    emptied,
    older_states,
    /// Workers started with the number of another database.
    other_databases,
    /// Nodes declared dead.
    deaths,
    /// Workers with the name of another one.
    second_workers,
    /// Registrations under a name that another worker had.
    refused_names,
    starts,
    removed_payloads,
    copied_slots,
    /// Pods whose payload reconcile put back into a queue.
    requeued,
    /// Lost, late or delivered twice.
    faulty_hints,
    /// Requests to pods.
    let_in,
    refused_by_gates,
    /// Of crons, with their job.
    ticks,
    /// Simulated, from the end of the faults.
    convergence_millis,
}
