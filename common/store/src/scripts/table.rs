//! The list of scripts: processes, keys and arguments, and changes of pod phases.
//!
//! A script `name in folder` is the file `lua/folder/name.lua`, whose header explains its arguments. It
//! becomes a module with a struct `Head` and one for the items of each batch, so that a missing argument does
//! not compile. `seen_`, `expected_` and `known_` are values that the caller has read: if they have changed
//! the script changes nothing.
//!
//! Tests check `run_by` and `moves`, which also stand in the reference. A batch has two names, because macros
//! cannot change the case: its type here, and its name in Lua.

use std::sync::OnceLock;

use redis::{ScriptInvocation, ToRedisArgs};

use super::script::{AtMaxmemory, BatchItem, Call, Group, ItemBatch, ProcessKind, Script, ScriptArg};
use model::pod::lifecycle::{Phase, PodEvent};

macro_rules! scripts {
    ($(
        $script:ident in $folder:ident {
            run_by: [$($process:ident),+],
            at_maxmemory: $at_maxmemory:ident,
            keys: [$($key:ident),*],
            args: [$($arg:ident),*],
            $(batch $Item:ident $item:ident {
                keys: [$($item_key:ident),*],
                args: [$($item_arg:ident),*],
            })*
            $(creates: $($phase:ident)|+,)?
            $(moves: [$($event:ident),*],)?
        }
    )*) => {
        $(
            #[allow(non_camel_case_types, reason = "each type parameter is named like its field")]
            pub(crate) mod $script {
                use super::*;

                pub(super) static SCRIPT: Script = Script {
                    name: stringify!($script),
                    text: include_str!(concat!("../lua/", stringify!($folder), "/", stringify!($script), ".lua")),
                    head: Group { keys: &[$(stringify!($key)),*], args: &[$(stringify!($arg)),*] },
                    batches: &[$(ItemBatch {
                        name: stringify!($item),
                        item: Group {
                            keys: &[$(stringify!($item_key)),*],
                            args: &[$(stringify!($item_arg)),*],
                        },
                    }),*],
                    run_by: &[$(ProcessKind::$process),+],
                    at_maxmemory: AtMaxmemory::$at_maxmemory,
                    creates: &[$($(Phase::$phase),+)?],
                    moves: &[$($(PodEvent::$event),*)?],
                    compiled: OnceLock::new(),
                };

                pub(crate) struct Head<$($key,)* $($arg,)*> {
                    $(pub(crate) $key: $key,)*
                    $(pub(crate) $arg: $arg,)*
                }

                impl<$($key: ToRedisArgs,)* $($arg: ScriptArg,)*> Head<$($key,)* $($arg,)*> {
                    pub(crate) fn call(self) -> Call<'static> {
                        let mut call = Call::begin(&SCRIPT);
                        $(call.key(self.$key);)*
                        $(self.$arg.add_to(&mut call);)*
                        call
                    }
                }

                $(
                    pub(crate) struct $Item<$($item_key,)* $($item_arg,)*> {
                        $(pub(crate) $item_key: $item_key,)*
                        $(pub(crate) $item_arg: $item_arg,)*
                    }

                    impl<$($item_key: ToRedisArgs,)* $($item_arg: ScriptArg,)*> BatchItem
                        for $Item<$($item_key,)* $($item_arg,)*>
                    {
                        const SCRIPT: &'static str = stringify!($script);

                        fn add_to(self, call: &mut ScriptInvocation<'_>) {
                            $(call.key(self.$item_key);)*
                            $(self.$item_arg.add_to(call);)*
                        }
                    }
                )*
            }
        )*

        pub static SCRIPTS: &[&Script] = &[$(&$script::SCRIPT),*];
    };
}

scripts! {
    ack in pod {
        run_by: [Worker],
        at_maxmemory: Allowed,
        keys: [node_key, rq, cs, stop_set],
        args: [service_count, node, incarnation],
        batch Service service {
            keys: [ep_key],
            args: [name],
        }
        batch Pod pod {
            keys: [pod_key],
            args: [payload, assignment, address, published, starting, service_index],
        }
        moves: [Ack],
    }
    address in network {
        run_by: [Proxy],
        at_maxmemory: Refused,
        keys: [service_key, addresses, freed],
        args: [service, slot, confirmed, slot_share, first, count],
    }
    addresses_free in network {
        run_by: [Scheduler],
        at_maxmemory: Allowed,
        keys: [addresses, freed],
        args: [name_count, slot_share, first, count],
        batch Name name {
            keys: [service_key],
            args: [service, slot],
        }
        batch Number number {
            keys: [],
            args: [number],
        }
    }
    assign in pod {
        run_by: [Scheduler],
        at_maxmemory: Allowed,
        keys: [in_flight, pushed, volumes, reports, copies, given_up],
        args: [node_count, request_count, counted_count, volume_count, pushed_pod_count, dead_after_ms],
        batch Node node {
            keys: [node_key, pq],
            args: [node, seen_incarnation, expected_pods, seen_labels, offered_ids],
        }
        batch Request request {
            keys: [],
            args: [ports, named, name, resources],
        }
        batch Counted counted {
            keys: [service_key, uq],
            args: [name, seen_mark, next_mark, opens_domains, related],
        }
        batch Volume volume {
            keys: [volume_key],
            args: [pod_index, name, service, source, replica, space],
        }
        batch PushedPod pushed_pod {
            keys: [],
            args: [pod_index, name, image, replica],
        }
        batch Pod pod {
            keys: [pod_key],
            args: [payload, node_index, request_index, new_assignment],
        }
        creates: Assigned,
        moves: [Assign],
    }
    certificate_begin in network {
        run_by: [Proxy],
        at_maxmemory: Allowed,
        keys: [certificate_key, lease_key],
        args: [host, caller, attempt],
    }
    certificate_challenge in network {
        run_by: [Proxy],
        at_maxmemory: Allowed,
        keys: [certificate_key],
        args: [host, attempt, token, authorization],
    }
    certificate_fail in network {
        run_by: [Proxy],
        at_maxmemory: Allowed,
        keys: [certificate_key],
        args: [host, attempt, failure, wait_ms],
    }
    certificate_store in network {
        run_by: [Proxy],
        at_maxmemory: Allowed,
        keys: [certificate_key],
        args: [host, id, chain, key, not_before, not_after, directory],
    }
    channel_close in network {
        run_by: [Api, Worker],
        at_maxmemory: Allowed,
        keys: [record, unread],
        args: [uuid, message],
    }
    channel_open in network {
        run_by: [Api],
        at_maxmemory: Refused,
        keys: [pod_key, node_key, requests, record],
        args: [uuid, node, request, word, message, is_quiet, expire_seconds, max_requests],
    }
    claim in pod {
        run_by: [Worker],
        at_maxmemory: Allowed,
        keys: [node_key, rq, pushed, cs],
        args: [pushed_pod_count, node, incarnation, max_attempts, pause_ms],
        batch PushedPod pushed_pod {
            keys: [],
            args: [pod_index, new_assignment, name, image, replica, ports, resources],
        }
        batch Pod pod {
            keys: [pod_key],
            args: [payload],
        }
        creates: Assigned,
    }
    cluster_recover in recovery {
        run_by: [Api],
        at_maxmemory: Allowed,
        keys: [services],
        args: [cluster, seen],
    }
    cordon in node {
        run_by: [Api],
        at_maxmemory: Allowed,
        keys: [node_key],
        args: [node, cordoned],
    }
    cron_tick in service {
        run_by: [Api, Scheduler],
        at_maxmemory: Refused,
        keys: [
            cron_key, job_key, services, spec_key, unconfirmed, former_specs, runs, done, tries, relations
        ],
        args: [
            cron, seen_write, seen_ticks, ticks, tick, skipped, missed, job, spec, spec_text, fingerprint,
            completions, fields, related, write
        ],
    }
    dead_letter_requeue in pod {
        run_by: [Api],
        at_maxmemory: Allowed,
        keys: [dq, source_queue, sq, pod_key, nodes, pushed],
        args: [dead_letter, payload, uuid, node, is_edited, name, image, replica, resources],
        moves: [Requeue],
    }
    declare_dead in node {
        run_by: [Scheduler],
        at_maxmemory: Allowed,
        keys: [node_key, beats, stop_set],
        args: [
            node, seen_incarnation, dead_after_ms, pause_ms, min_gap_ms, proven_until, writable_ms, calm_ms
        ],
    }
    disk_pressure in node {
        run_by: [Worker],
        at_maxmemory: Allowed,
        keys: [node_key],
        args: [node, incarnation, problem],
    }
    drain in node {
        run_by: [Scheduler],
        at_maxmemory: Allowed,
        keys: [node_key, sq, source, stop_set],
        args: [node, seen_incarnation, source_type],
        batch Pod pod {
            keys: [pod_key, wanted_key, ep_key],
            args: [payload, uuid],
        }
        moves: [NodeDied],
    }
    external_ack in node {
        run_by: [Scheduler],
        at_maxmemory: Allowed,
        keys: [node_key, cs, pushed],
        args: [node],
        batch Pod pod {
            keys: [pod_key, ep_key],
            args: [payload, uuid, new_assignment, name, image, replica],
        }
        creates: Running,
        moves: [Ack],
    }
    external_beat in node {
        run_by: [Scheduler],
        at_maxmemory: Allowed,
        keys: [node_key, nodes, beats, heartbeat_key, pq, rq, cs],
        args: [node, new_incarnation, max_pods, seen],
    }
    finish in pod {
        run_by: [Worker],
        at_maxmemory: Allowed,
        keys: [node_key, rq, cs, stop_set, wanted_key, pod_key, ep_key, service_key, done, tries],
        args: [
            node, incarnation, uuid, assignment, payload, outcome, reason, message, exit_code, containers,
            kept_runs, runs, drained
        ],
        moves: [Stopped, Succeeded, Failed],
    }
    follow in network {
        run_by: [Api, Proxy],
        at_maxmemory: Allowed,
        keys: [ep_key],
        args: [known_version, known_master],
    }
    follow_pods in pod {
        run_by: [Api, Proxy],
        at_maxmemory: Allowed,
        keys: [ep_key],
        args: [master, is_last],
        batch Pod pod {
            keys: [pod_key],
            args: [uuid],
        }
    }
    former_containers in node {
        run_by: [Worker],
        at_maxmemory: Allowed,
        keys: [node_key],
        args: [node, former, containers],
    }
    give_back in pod {
        run_by: [Worker],
        at_maxmemory: Allowed,
        keys: [node_key, rq, sq, pod_key],
        args: [node, incarnation, uuid, assignment, payload, ports, reason, message],
        moves: [GiveBack],
    }
    heartbeat in node {
        run_by: [Worker],
        at_maxmemory: Allowed,
        keys: [node_key, beats, heartbeat_key, stop_set, held],
        args: [node, incarnation, psi, engine_problem, cluster, containers_held],
        batch Pod pod {
            keys: [pod_key],
            args: [uuid, assignment],
        }
    }
    in_flight in pod {
        run_by: [Worker],
        at_maxmemory: Allowed,
        keys: [rq, dq, pq],
        args: [],
    }
    job_count in service {
        run_by: [Scheduler],
        at_maxmemory: Allowed,
        keys: [service_key, done, tries],
        args: [service],
        batch Pod pod {
            keys: [pod_key],
            args: [uuid],
        }
    }
    job_end in service {
        run_by: [Scheduler],
        at_maxmemory: Allowed,
        keys: [service_key, done],
        args: [service, failure],
    }
    lease in node {
        run_by: [Api, Proxy, Scheduler],
        at_maxmemory: Allowed,
        keys: [lease_key],
        args: [caller, period_ms],
    }
    lease_release in node {
        run_by: [Api],
        at_maxmemory: Allowed,
        keys: [lease_key],
        args: [caller],
    }
    lost in pod {
        run_by: [Worker],
        at_maxmemory: Allowed,
        keys: [node_key, cs, pq, pod_key, ep_key],
        args: [node, incarnation, uuid, assignment, payload, new_assignment],
        moves: [Lost],
    }
    members_put in service {
        run_by: [Scheduler],
        at_maxmemory: Allowed,
        keys: [service_key],
        args: [service, seen_members, members, slots, mark, message],
    }
    members_restore in recovery {
        run_by: [Scheduler],
        at_maxmemory: Allowed,
        keys: [nodes, beats],
        args: [],
        batch Node node {
            keys: [node_key],
            args: [node],
        }
    }
    node_drain in node {
        run_by: [Api],
        at_maxmemory: Allowed,
        keys: [node_key],
        args: [node, id, deadline_ms, stop_bound, message],
    }
    node_drained in node {
        run_by: [Scheduler],
        at_maxmemory: Allowed,
        keys: [node_key],
        args: [node, id, reason, message],
    }
    node_held in node {
        run_by: [Worker],
        at_maxmemory: Allowed,
        keys: [node_key],
        args: [node, incarnation, pods],
    }
    moves_put in service {
        run_by: [Scheduler],
        at_maxmemory: Allowed,
        keys: [service_key],
        args: [service, seen_moves, moves, message],
    }
    node_label in node {
        run_by: [Api],
        at_maxmemory: Refused,
        keys: [node_key],
        args: [node, seen_labels, seen_own_labels, own_labels, message],
    }
    node_problems in node {
        run_by: [Worker],
        at_maxmemory: Allowed,
        keys: [node_key],
        args: [node, incarnation, problems],
    }
    node_remove in node {
        run_by: [Api],
        at_maxmemory: Allowed,
        keys: [
            node_key, nodes, beats, heartbeat_key, pq, rq, cs, stop_set, requests, reports, proxies, copies,
            reported
        ],
        args: [node, is_former],
    }
    note_condition in node {
        run_by: [Api, Scheduler],
        at_maxmemory: Allowed,
        keys: [holder_key],
        args: [condition, is_on, since, object, message],
    }
    note_images in service {
        run_by: [Worker],
        at_maxmemory: Allowed,
        keys: [node_key, pod_key, service_key],
        args: [node, incarnation, uuid, assignment, spec, images, differs],
    }
    nomination_drop in node {
        run_by: [Scheduler],
        at_maxmemory: Allowed,
        keys: [node_key],
        args: [nominee],
    }
    park in pod {
        run_by: [Scheduler],
        at_maxmemory: Allowed,
        keys: [in_flight, uq, uq_at, uq_why, uq_class, uq_by_class, pushed],
        args: [seen_freed],
        batch Pod pod {
            keys: [pod_key],
            args: [uuid, class, payload, refusals, message, name, image, replica, in_service, resources],
        }
        creates: Pending,
    }
    pod_requeue in pod {
        run_by: [Scheduler],
        at_maxmemory: Allowed,
        keys: [pod_key, wanted_key, sq, uq, node_key, pq, rq, cs, stop_set, schedulers, ep_key],
        args: [uuid, payload, seen_phase, seen_node],
        batch Scheduler scheduler {
            keys: [in_flight],
            args: [scheduler],
        }
        moves: [NodeDied],
    }
    pods_create in pod {
        run_by: [Api, Scheduler],
        at_maxmemory: Refused,
        keys: [service_key, slots, sq, done, unconfirmed],
        args: [service, spec, generation, image, last_write, is_second, step, resources],
        batch Pod pod {
            keys: [pod_key],
            args: [replica, payload],
        }
        creates: Pending,
    }
    pods_keep in pod {
        run_by: [Scheduler],
        at_maxmemory: Allowed,
        keys: [service_key],
        args: [service],
        batch Pod pod {
            keys: [pod_key],
            args: [seen_generation],
        }
    }
    pods_recover in recovery {
        run_by: [Api],
        at_maxmemory: Refused,
        keys: [wanted_key, sq, ep_key],
        args: [service],
        batch Pod pod {
            keys: [pod_key, node_key, cs],
            args: [
                uuid, payload, node, assignment, phase, name, image, replica, spec, generation, restarts,
                address, published, created_at, runs, slot, ids, resources
            ],
        }
        creates: Pending | Running | Succeeded | Failed,
    }
    pods_replace in pod {
        run_by: [Scheduler],
        at_maxmemory: Allowed,
        keys: [service_key, slots, ep_key],
        args: [spec, step, message],
        batch Pod pod {
            keys: [pod_key, stop_set, successor_key],
            args: [uuid, seen_node, successor],
        }
        moves: [Stop],
    }
    pods_restore in recovery {
        run_by: [Scheduler],
        at_maxmemory: Allowed,
        keys: [service_key, wanted_key, ep_key],
        args: [service, has_second],
        batch Pod pod {
            keys: [pod_key],
            args: [uuid],
        }
    }
    pods_stop in pod {
        run_by: [Api, Scheduler],
        at_maxmemory: Allowed,
        keys: [uq, uq_at, uq_why, uq_class, uq_by_class, wanted_key, ep_key],
        args: [reason, message, spares_ready],
        batch Pod pod {
            keys: [pod_key, stop_set],
            args: [uuid, seen_node],
        }
        moves: [Stop],
    }
    preempt in pod {
        run_by: [Scheduler],
        at_maxmemory: Allowed,
        keys: [node_key, stop_set, nominee_key, its_service_key],
        args: [
            node, seen_incarnation, nominee, name, its_seen_revision, kept_ms, dead_after_ms, message, resources
        ],
        batch Pod pod {
            keys: [pod_key, service_key, ep_key],
            args: [uuid, seen_assignment, seen_step, seen_revision],
        }
        moves: [Stop],
    }
    pushed_forget in pod {
        run_by: [Scheduler],
        at_maxmemory: Allowed,
        keys: [pushed],
        args: [retention_ms],
        batch Pod pod {
            keys: [pod_key],
            args: [uuid],
        }
    }
    reclaim_in_flight in pod {
        run_by: [Scheduler],
        at_maxmemory: Allowed,
        keys: [sq, in_flight, schedulers],
        args: [scheduler, silent_ms, max_count, has_ended],
    }
    register in node {
        run_by: [Worker],
        at_maxmemory: Allowed,
        keys: [node_key, nodes, beats, heartbeat_key, pq, rq, cs, stop_set, held, reports],
        args: [
            node, incarnation, labels, max_pods, runtime, engine_version, version, known_cluster,
            new_cluster, containers, takeover_after_ms, reserved, engine_id, times, settings, own_labels,
            resources
        ],
    }
    registry_delete in value {
        run_by: [Api],
        at_maxmemory: Allowed,
        keys: [registry_key, registries],
        args: [host],
    }
    registry_put in value {
        run_by: [Api],
        at_maxmemory: Refused,
        keys: [registry_key, registries],
        args: [host, user, password, max_count],
    }
    registry_restore in recovery {
        run_by: [Api],
        at_maxmemory: Refused,
        keys: [registry_key, registries],
        args: [host, user, password, updated_at],
    }
    reject in pod {
        run_by: [Worker, Scheduler],
        at_maxmemory: Allowed,
        keys: [source, dq, node_key, pod_key],
        args: [queue, payload, dead_letter, reason, uuid, node, incarnation, only_unknown],
        moves: [Reject],
    }
    repair in recovery {
        run_by: [Api, Scheduler],
        at_maxmemory: Allowed,
        keys: [key, aside, record_key],
        args: [action, element, seen_phase, seen_node],
    }
    report in pod {
        run_by: [Worker],
        at_maxmemory: Allowed,
        keys: [node_key, pod_key, ep_key],
        args: [
            node, incarnation, uuid, assignment, reason, message, restarts, exit_code, address, published,
            containers, kept_runs, runs
        ],
    }
    rollout_done in service {
        run_by: [Scheduler],
        at_maxmemory: Allowed,
        keys: [rollouts],
        args: [value, seen],
    }
    rollout_mark in service {
        run_by: [Api, Scheduler],
        at_maxmemory: Refused,
        keys: [service_key],
        args: [service, generation, mark, text],
    }
    scheduler_beat in node {
        run_by: [Scheduler],
        at_maxmemory: Allowed,
        keys: [scheduler_key, forms_key],
        args: [times, forms],
    }
    service_delete in service {
        run_by: [Api],
        at_maxmemory: Allowed,
        keys: [service_key, unconfirmed, deleted],
        args: [service, expected_revision, write],
    }
    service_forget in service {
        run_by: [Scheduler],
        at_maxmemory: Allowed,
        keys: [
            service_key, services, slots, spec_key, routes, relations, ep_key, history, done, tries, runs,
            runs_of_cron
        ],
        args: [service],
    }
    service_put in service {
        run_by: [Api, Scheduler],
        at_maxmemory: Shrinking,
        keys: [
            service_key, services, spec_key, unconfirmed, former_specs, routes, relations, history, done, tries
        ],
        args: [service, mode, spec, spec_text, fingerprint, replicas, fields, seen_fields, change, app, kind,
               times, failure, undone, routes_text, related, expected_revision, write],
    }
    service_recover in recovery {
        run_by: [Api],
        at_maxmemory: Refused,
        keys: [service_key, services, unconfirmed, former_specs, routes, relations, done, tries, deleted],
        args: [field_count, completion_count, service, saved_revision, write],
        batch Field field {
            keys: [],
            args: [field, value],
        }
        batch Completion completion {
            keys: [],
            args: [index, result],
        }
        batch Failure failure {
            keys: [],
            args: [index, result],
        }
    }
    service_restart in service {
        run_by: [Api, Scheduler],
        at_maxmemory: Refused,
        keys: [service_key, spec_key, unconfirmed, former_specs, history],
        args: [service, spec, expected_revision, write, since, cause],
    }
    service_scale in service {
        run_by: [Api],
        at_maxmemory: Shrinking,
        keys: [service_key, unconfirmed],
        args: [service, replicas, expected_revision, write],
    }
    shared_directory in node {
        run_by: [Worker],
        at_maxmemory: Allowed,
        keys: [node_key],
        args: [node, incarnation, found, known, problem],
    }
    slot_free in pod {
        run_by: [Scheduler],
        at_maxmemory: Allowed,
        keys: [slots, ep_key],
        args: [service],
        batch Slot slot {
            keys: [pod_key],
            args: [replica, uuid],
        }
    }
    specs_expire in service {
        run_by: [Scheduler],
        at_maxmemory: Allowed,
        keys: [former_specs],
        args: [seen_reuse],
        batch Spec spec {
            keys: [spec_key],
            args: [spec],
        }
    }
    take in pod {
        run_by: [Scheduler],
        at_maxmemory: Allowed,
        keys: [sq, in_flight, schedulers, dq],
        args: [scheduler, max_in_flight, known_count],
    }
    take_work in pod {
        run_by: [Worker],
        at_maxmemory: Allowed,
        keys: [pq, rq, dq],
        args: [max_count],
    }
    unpark in pod {
        run_by: [Scheduler],
        at_maxmemory: Allowed,
        keys: [sq, uq, uq_at, uq_why, uq_class, uq_by_class],
        args: [max_count],
        batch Class class {
            keys: [],
            args: [class, count],
        }
    }
    unschedulable_classes in pod {
        run_by: [Scheduler],
        at_maxmemory: Allowed,
        keys: [uq, uq_why, uq_class, uq_by_class],
        args: [after, max_count],
    }
    usage_correct in node {
        run_by: [Scheduler],
        at_maxmemory: Allowed,
        keys: [node_key],
        args: [
            node, incarnation, seen_reservations, seen_pods, seen_used, pods, resources
        ],
        batch Port port {
            keys: [],
            args: [field, seen_holder, holder],
        }
    }
    value_delete in value {
        run_by: [Api],
        at_maxmemory: Allowed,
        keys: [value_key, names, rollouts],
        args: [kind, name],
    }
    value_put in value {
        run_by: [Api],
        at_maxmemory: Refused,
        keys: [value_key, names, rollouts],
        args: [kind, name, version, value, kept, max_count, app],
    }
    value_restore in recovery {
        run_by: [Api],
        at_maxmemory: Refused,
        keys: [value_key, names],
        args: [kind, name, version, value, created_at, updated_at, app],
    }
    volume_bind in volume {
        run_by: [Api],
        at_maxmemory: Allowed,
        keys: [volume_key, volumes, copies, given_up, problems, node_key, removals, slots],
        args: [name, service, source, replica, node],
        batch Pod pod {
            keys: [pod_key],
            args: [uuid],
        }
    }
    volume_copy_remove in volume {
        run_by: [Api],
        at_maxmemory: Allowed,
        keys: [copies, removals, node_key],
        args: [name, service, node],
    }
    volume_remove in volume {
        run_by: [Api],
        at_maxmemory: Allowed,
        keys: [volume_key, volumes, removals, former_removals, node_key, given_up, problems],
        args: [name, node, former_node, service, replica, is_mounted, is_wanted, is_forced],
        batch User user {
            keys: [slots],
            args: [slot],
        }
    }
    volumes_claim in volume {
        run_by: [Worker],
        at_maxmemory: Allowed,
        keys: [node_key, volumes, reports, copies, given_up, problems],
        args: [node, incarnation, settle_after_ms],
        batch Volume volume {
            keys: [volume_key],
            args: [name, service, source, replica, space, is_present, epoch],
        }
    }
    volumes_measured in volume {
        run_by: [Worker],
        at_maxmemory: Allowed,
        keys: [node_key],
        args: [node, incarnation, volume_count],
        batch Volume volume {
            keys: [volume_key],
            args: [name, used, over],
        }
        batch Excess excess {
            keys: [pod_key],
            args: [uuid, over],
        }
    }
    volumes_report in volume {
        run_by: [Worker],
        at_maxmemory: Allowed,
        keys: [node_key, volumes, removals, reports, copies, given_up, problems, reported],
        args: [node, incarnation, seen_run, is_whole, settle_after_ms],
        batch Volume volume {
            keys: [volume_key],
            args: [name, service, source, replica, space, epoch, mounted, change],
        }
    }
    volumes_restore in recovery {
        run_by: [Api],
        at_maxmemory: Refused,
        keys: [volumes, given_up],
        args: [],
        batch Volume volume {
            keys: [volume_key],
            args: [name, service, source, replica, space, node, engine_id, epoch, found, given_up_at],
        }
    }
    writes_confirmed in service {
        run_by: [Api, Scheduler],
        at_maxmemory: Allowed,
        keys: [unconfirmed],
        args: [announce, message],
        batch Write write {
            keys: [],
            args: [service, write],
        }
    }
    writes_unconfirmed in service {
        run_by: [Scheduler],
        at_maxmemory: Allowed,
        keys: [unconfirmed],
        args: [min_age_ms, max_count],
    }
}
