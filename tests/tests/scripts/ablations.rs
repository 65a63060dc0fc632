//! The store's scripts with a safeguard removed: the checks of the invariants must notice each.

use kubeleet_tests::{Ablation, Fixture};

use crate::{
    addresses, checks, dead_letters, host_ports, named_resources, nodes, preemption, relations, session,
    unschedulable, volumes,
};

macro_rules! notices {
    ($(
        $(#[$doc:meta])*
        $name:ident: $check:path, $file:literal, $from:literal => $to:literal, $sign:literal;
    )*) => {$(
        $(#[$doc])*
        #[tokio::test]
        async fn $name() {
            let fixture = Fixture::ablated(Ablation { file: $file, from: $from, to: $to }).await;
            let wrong = $check(&fixture).await;
            assert!(wrong.iter().any(|line| line.contains($sign)), "it did not notice; it saw {wrong:?}");
        }
    )*};
}

notices! {
    /// Invariant 2.
    an_ack_that_leaves_the_payload_in_rq: checks::pods_start, "ack",
        "remove_from_rq(acked)" => "", "Starting(\"w1\")";
    /// Invariant 3.
    writes_that_are_not_fenced: checks::a_dead_worker_writes, "_prelude",
        "return node[1] ~= incarnation or node[2] ~= 'alive'" => "return false", "not fenced";
    /// Invariant 3.
    an_ack_that_does_not_compare_the_assignment: checks::an_old_assignment_is_acknowledged, "ack",
        "holder ~= node or current_assignment ~= assignment" => "holder ~= node", "Running";
    /// Invariant 9.
    an_assignment_that_does_not_check_resources: checks::two_schedulers_fill_a_node, "assign",
        "node.free_pods < 1 or not fits(request, node.free)" => "node.free_pods < 1", "has a capacity of";
    /// Invariant 9.
    an_assignment_that_reserves_no_resources: checks::two_schedulers_fill_a_node, "assign",
        "reserve(node_key, #node.queue, node.reserved)" => "reserve(node_key, #node.queue, {})",
        "has a capacity of";
    /// Invariant 9.
    an_assignment_that_does_not_check_host_ports: host_ports::two_schedulers_want_one_host_port, "assign",
        "request.ports ~= '' and not has_free_ports(node, uuid, request.ports)" => "false", "have the host port";
    /// Invariant 9.
    a_release_that_keeps_host_ports: host_ports::many_drain_one_node_with_host_ports, "_prelude",
        "redis.call('HDEL', node_key, field)" => "", "keeps the host port";
    /// Invariant 9.
    an_assignment_of_ids_that_others_have: named_resources::two_schedulers_want_two_ids, "assign",
        "if not holders[f] then" => "do", "have the id";
    /// Invariant 9.
    a_release_that_keeps_ids: named_resources::many_drain_one_node_with_ids, "_prelude",
        "if ids then each_id(ids, release_field) end" => "", "keeps the id";
    /// Invariant 5.
    a_pause_that_knows_no_longer_fence: session::another_node_has_a_longer_fence, "claim",
        "math.max(tonumber(pause_ms), longest_fence)" => "tonumber(pause_ms)", "the pause is shorter";
    /// Invariant 7.
    a_rejection_of_a_pod_that_was_recovered: dead_letters::a_pod_is_recovered_before_it_is_rejected, "reject",
        "only_unknown == '1' and phase" => "false", "a pod with a record is rejected";
    an_assignment_that_ignores_the_mark_of_a_related_service: relations::two_schedulers_place_a_pair, "assign",
        "or service.related == ''" => "or true", "are both on w1";
    a_preemption_that_keeps_no_room: preemption::the_room_is_of_one_pod, "assign",
        "found.nominee, found.kept = read_nomination(nominated)" => "", "another pod gets the room";
    a_nominee_that_does_not_give_its_room_back: preemption::the_room_is_of_one_pod, "assign",
        "redis.call('HDEL', node.key, 'nominated')" => "", "room is still kept";
    an_address_that_is_not_looked_up_by_its_number: addresses::values_written_by_hand, "_prelude",
        "redis.call('HGET', addresses, '#' .. number) == name" => "true", "is told, and these are listed";
    an_assignment_that_waits_for_no_reports_of_volumes: volumes::records_are_lost, "assign",
        "if #unreported > 0 then return true end" => "", "before w1 has reported";
    a_report_of_volumes_that_counts_for_any_run_of_redis: volumes::records_are_lost, "volumes_report",
        "seen_run == current_run and" => "", "after an incomplete report";
    an_assignment_that_knows_a_machine_by_its_name: volumes::another_machine_has_the_name, "assign",
        "record.engine_id ~= '' and record.engine_id ~= engine_of(node)" => "false", "empty on another machine with";
    a_payload_that_is_put_back_by_the_name_of_its_node: volumes::a_payload_is_missing_when_a_name_changes,
        "pod_requeue", "engine_id ~= (current_engine or '')" => "false", "starts on an empty volume";
    a_machine_that_is_not_waited_for_because_its_name_is_taken: volumes::a_machine_that_has_data_is_refused,
        "register", "redis.pcall('HSETNX', reports, former_machine(node, engine_id), '')" => "", "asks for its name";
    a_name_whose_former_machine_is_forgotten: volumes::another_machine_has_the_name, "register",
        "redis.pcall('HSET', reports, former_machine(node, known_engine), reported or '')" => "",
        "is forgotten";
    a_machine_that_takes_over_what_ran_on_another: volumes::another_machine_has_the_name, "register",
        "if is_other and state == 'alive'" => "if false", "are the other one's";
    /// Invariant 17.
    a_volume_that_is_of_the_first_reporter: volumes::an_old_copy_reports_first, "volumes_report",
        "#unreported_nodes(reports) == 0 and pause_left(tonumber(settle_after_ms)) == 0" => "true",
        "on the old copy, before w2 has reported";
    /// Invariant 17.
    a_copy_that_another_machine_forgets: volumes::a_copy_on_a_former_machine, "volumes_report",
        "copy ~= nil and copy.engine_id ~= '' and copy.engine_id ~= engine_id" => "false",
        "empty on the other machine";
    /// Invariant 17.
    an_old_copy_that_may_be_the_volume: volumes::an_old_copy_reports_first, "volumes_report",
        "copy.epoch > youngest.epoch" => "copy.epoch < youngest.epoch", "the old copy has won";
    /// Invariant 17.
    a_volume_that_is_created_where_it_is_lost: volumes::a_volume_is_lost, "volumes_claim",
        "if is_present ~= '1' and found ~= '1' then" => "if is_present ~= '1' then", "starts on an empty volume";
    /// Invariant 17.
    data_that_was_given_up_and_is_forgotten: volumes::data_that_was_given_up_comes_back, "_prelude",
        "return at ~= nil and not (epoch and epoch > at)" => "return false", "it is bound by itself";
    an_assignment_that_does_not_look_where_the_data_is: volumes::records_are_lost, "assign",
        "record.node ~= node.name" => "false", "although w1 has reported it";
    /// Invariant 2.
    an_assignment_that_leaves_the_payload_in_flight: checks::pods_start, "assign",
        "taken[#taken + 1] = payload" => "", "InFlight";
    /// Invariant 2.
    an_incomplete_search: checks::an_unlisted_scheduler_has_the_payload, "pod_requeue",
        "if not known[scheduler] then return 'CHANGED' end" => "", "Waiting";
    /// Invariant 1.
    a_slot_that_is_taken_twice: checks::many_create_the_same_pods, "pods_create",
        "not holders[p] and not taken[replica]" => "true", "for 20 slots";
    /// Invariant 4.
    a_drain_that_does_not_check_whether_it_moved_the_payload: checks::many_drain_one_node, "drain",
        "removed == 0" => "false", "for 200 pods";
    /// Invariant 9.
    a_drain_that_releases_nothing: checks::many_drain_one_node, "drain",
        "release(node_key, pod_key)\n    redis.call('RPUSH'" => "redis.call('RPUSH'", "has used_pods";
    /// Invariant 7.
    a_reject_that_removes_every_equal_payload: checks::equal_junk_is_kept_twice, "reject",
        "redis.call('LREM', source, -1, payload)" => "redis.call('LREM', source, 0, payload)",
        "two were sent";
    /// Invariant 7.
    a_drain_that_removes_every_equal_payload: checks::equal_junk_of_a_dead_node_is_queued_twice, "drain",
        "redis.call('LREM', source, -1, payload)" => "redis.call('LREM', source, 0, payload)",
        "two were sent";
    /// Invariant 9.
    a_claim_that_reserves_nothing: checks::a_pushed_pod_reserves_resources, "claim",
        "reserve(node_key, 1, request)" => "", "has used_pods";
    a_park_that_ignores_room: unschedulable::room_appears_before_pods_are_parked, "park",
        "(read_meta('freed')[1] or '0') ~= seen_freed" => "false", "are parked";
    room_that_is_not_counted: unschedulable::room_appears_before_pods_are_parked, "_prelude",
        "redis.pcall('HINCRBY', META, 'freed', 1)" => "", "are parked";
    a_minute_after_which_no_pod_of_a_class_is_tried: unschedulable::a_minute_passes, "unpark",
        "first_of(class) ~= uuid" => "true", "is never tried";
    a_minute_after_which_all_pods_of_a_class_are_tried: unschedulable::a_minute_passes, "unpark",
        "has_gone[class] = true" => "has_gone[class] = nil", "are tried";
    heartbeats_in_the_future_that_stay: checks::a_dead_node_has_a_heartbeat_in_the_future, "declare_dead",
        "and (is_no_past(beat) or (listed and is_no_past(listed)))" => "and false", "stays at";
    /// Invariant 16.
    a_death_by_a_scheduler_that_could_not_write: nodes::schedulers_that_prove_too_little_declare, "declare_dead",
        ", tonumber(writable_ms)" => "", "could write for 20 s";
    /// Invariant 16.
    a_death_right_after_a_mass_loss: nodes::schedulers_that_prove_too_little_declare, "declare_dead",
        ", tonumber(calm_ms)" => "", "had a mass loss";
    /// Invariant 16.
    a_death_after_the_latest_write: nodes::schedulers_that_prove_too_little_declare, "declare_dead",
        ", proven_until - last_beat" => "", "wrote last";
    /// Invariant 18.
    a_death_before_the_nodes_own_time: nodes::a_scheduler_has_shorter_times_than_a_node, "declare_dead",
        "own_dead_after_ms or 0" => "0", "after 60 s";
    a_heartbeat_that_is_refused_at_maxmemory: checks::a_worker_beats_at_maxmemory, "_prelude",
        "redis.pcall('PERSIST', META)" => "", "OOM";
}
