//! One file per resource. A handler's annotation is its part of the OpenAPI document, and its name the
//! operation id.

mod apps;
mod backup;
mod channel;
mod cluster;
mod configs;
mod events;
mod garbage;
mod health;
mod index;
mod ingress;
mod logs;
mod merged_logs;
mod nodes;
mod pods;
mod problems;
mod queues;
mod registries;
mod schema;
mod secrets;
mod services;
mod status;
mod usage;
pub(crate) mod values;
mod volumes;

use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::state::AppState;

pub(crate) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(services::create_service, services::list_services))
        .routes(routes!(
            services::get_service,
            services::put_service,
            services::patch_service,
            services::delete_service
        ))
        .routes(routes!(services::scale_service))
        .routes(routes!(services::restart_service))
        .routes(routes!(services::list_results))
        .routes(routes!(services::run_service))
        .routes(routes!(services::list_history))
        .routes(routes!(services::undo_service))
        .routes(routes!(services::pause_service))
        .routes(routes!(services::resume_service))
        .routes(routes!(services::promote_service))
        .routes(routes!(apps::lock_app, apps::unlock_app))
        .routes(routes!(ingress::list_cluster_routes))
        .routes(routes!(secrets::create_secret, secrets::list_secrets))
        .routes(routes!(secrets::get_secret, secrets::rotate_secret, secrets::delete_secret))
        .routes(routes!(secrets::compare_secret))
        .routes(routes!(configs::create_config, configs::list_configs))
        .routes(routes!(configs::get_config, configs::rotate_config, configs::delete_config))
        .routes(routes!(registries::list_registries))
        .routes(routes!(registries::get_registry, registries::put_registry, registries::delete_registry))
        .routes(routes!(configs::compare_config))
        .routes(routes!(pods::list_pods))
        .routes(routes!(pods::get_pod, pods::stop_pod))
        .routes(routes!(pods::explain_pod))
        .routes(routes!(logs::get_pod_log))
        .routes(routes!(merged_logs::get_merged_log))
        .routes(routes!(channel::open_pod_channel))
        .routes(routes!(nodes::list_nodes))
        .routes(routes!(nodes::get_node, nodes::remove_node))
        .routes(routes!(nodes::cordon_node))
        .routes(routes!(nodes::uncordon_node))
        .routes(routes!(nodes::label_node))
        .routes(routes!(nodes::get_drain, nodes::drain_node))
        .routes(routes!(nodes::plan_changes))
        .routes(routes!(garbage::collect_garbage))
        .routes(routes!(usage::get_cluster_stats))
        .routes(routes!(usage::get_pod_stats))
        .routes(routes!(usage::get_node_stats))
        .routes(routes!(volumes::list_volumes))
        .routes(routes!(volumes::get_volume, volumes::remove_volume))
        .routes(routes!(volumes::bind_volume))
        .routes(routes!(queues::list_queues))
        .routes(routes!(queues::list_dead_letters))
        .routes(routes!(queues::peek_queue))
        .routes(routes!(queues::requeue_dead_letter))
        .routes(routes!(queues::discard_dead_letter))
        .routes(routes!(events::get_events))
        .routes(routes!(status::get_status))
        .routes(routes!(cluster::check_cluster))
        .routes(routes!(cluster::repair_cluster))
        .routes(routes!(cluster::recover_cluster))
        .routes(routes!(backup::get_backup))
        .merge(backup::restore_routes())
        .routes(routes!(health::get_health))
        .routes(routes!(health::get_readiness))
        .routes(routes!(health::get_metrics))
        .routes(routes!(index::list_routes))
        .routes(routes!(problems::list_problem_types))
        .routes(routes!(problems::get_problem_type))
        .routes(routes!(schema::get_service_schema))
}
