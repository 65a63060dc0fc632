//! Statistics of a run.

macro_rules! stats {
    ($($(#[$doc:meta])* $name:ident,)*) => {
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
    stalls,
    write_outages,
    engine_hangs,
    failovers,
    emptied,
    older_states,
    /// Workers started with the number of another database.
    other_databases,
    deaths,
    /// Workers with the name of another one.
    second_workers,
    /// Registrations under a name that another worker had.
    refused_names,
    starts,
    removed_payloads,
    copied_slots,
    requeued,
    /// Lost, late or delivered twice.
    faulty_hints,
    let_in,
    refused_by_gates,
    ticks,
    preemptions,
    /// Simulated, from the end of the faults.
    convergence_millis,
}
