//! Our scripts with something taken out: the checks that hold the invariants notice. What they notice is shown, so that
//! an ablation that fails for another reason than its own can be told.

use kubeleet_tests::{Ablation, Bed};

use crate::checks;

macro_rules! notices {
    ($($(#[$doc:meta])* $name:ident: $check:ident, $file:literal, $from:literal => $to:literal, $sign:literal;)*) => {$(
        $(#[$doc])*
        #[tokio::test]
        async fn $name() {
            let bed = Bed::ablated(Ablation { file: $file, from: $from, to: $to }).await;
            let wrong = checks::$check(&bed).await;
            assert!(wrong.iter().any(|line| line.contains($sign)), "it did not notice; it saw {wrong:?}");
        }
    )*};
}

notices! {
    /// Invariant 2.
    an_ack_that_leaves_the_payload_in_rq: pods_start, "ack",
        "take_out(run)" => "", "Starting(\"w1\")";
    /// Invariant 3.
    writes_that_are_not_fenced: a_zombie_speaks, "_prelude",
        "return node[1] ~= incarnation or node[2] ~= 'alive'" => "return false", "not told";
    /// Invariant 3.
    an_ack_that_does_not_compare_the_assignment: an_old_assignment_speaks, "ack",
        "node ~= name or held ~= assignment" => "node ~= name", "Running";
    /// Invariant 9.
    an_assignment_that_does_not_look_for_room: two_schedulers_fill_a_node, "assign",
        "node.free_pods < 1 or (cpu_wanted > 0 and node.free_cpu < cpu_wanted)" => "node.free_pods < 1", "holds";
    /// Invariant 9.
    an_assignment_that_sets_nothing_aside: two_schedulers_fill_a_node, "assign",
        "redis.call('HINCRBY', node_key, 'used_cpu', node.cpu)" => "", "holds";
    /// Invariant 2.
    an_assignment_that_keeps_the_payload_in_hand: pods_start, "assign",
        "leave[#leave + 1] = payload" => "", "InFlight";
    /// Invariant 2.
    an_incomplete_search: a_newcomer_has_it, "pod_requeue",
        "if not asked[scheduler] then return 'CHANGED' end" => "", "Waiting";
    /// Invariant 1.
    a_slot_that_is_taken_twice: many_make_the_same_pods, "pods_create",
        "not holders[i - 5] and not taken[replica]" => "true", "for 20 slots";
    /// Invariant 4.
    a_drain_that_does_not_ask_whether_it_moved_the_payload: many_drain_one_node, "drain",
        "removed == 0" => "false", "for 200 pods";
    /// Invariant 9.
    a_drain_that_gives_nothing_back: many_drain_one_node, "drain",
        "release(KEYS[3], cpu, memory)\n    redis.call('RPUSH'" => "redis.call('RPUSH'", "says used_pods";
    /// Invariant 7.
    a_reject_that_removes_every_equal_payload: equal_junk_is_kept_twice, "reject",
        "redis.call('LREM', KEYS[3], -1, payload)" => "redis.call('LREM', KEYS[3], 0, payload)", "two were sent";
    /// Invariant 9.
    a_claim_that_sets_nothing_aside: a_pushed_pod_is_accounted_for, "claim",
        "redis.call('HINCRBY', KEYS[3], 'used_pods', 1)" => "", "says used_pods";
}
