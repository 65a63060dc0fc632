//! The simulated engine.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
use super::*;
use crate::testing::{identity, no_logins};
use model::spec::ContainerSpec;
use model::spec::PullPolicy;

fn request(node: &str, pod: &str, image: &str) -> ContainerRequest {
    ContainerRequest::new(identity(node, pod, "a"), ContainerSpec::from_image(image))
}

fn node(name: &str) -> NodeName {
    NodeName::new(name).unwrap()
}

#[tokio::test]
async fn containers_outlive_the_worker_and_belong_to_one_node() {
    let sim = SimRuntime::new(SimOptions::default());
    let request = request("one", "pod", "nginx");
    let container = sim.run(&request).await.unwrap();
    let after_restart = sim.clone();
    drop(sim);
    assert_eq!(after_restart.run(&request).await.unwrap(), container);
    assert_eq!(after_restart.list(&node("one")).await.unwrap(), std::slice::from_ref(&container));
    assert_eq!(after_restart.list(&node("two")).await.unwrap(), []);
    assert_eq!((after_restart.running(), after_restart.running_on(&container.pod)), (1, vec![node("one")]));
    after_restart.stop(&container.handle, Duration::ZERO).await.unwrap();
    after_restart.stop(&container.handle, Duration::ZERO).await.unwrap();
    assert_eq!(after_restart.running(), 0);
}

#[tokio::test]
async fn the_image_name_selects_the_failure() {
    let sim = SimRuntime::new(SimOptions::default());
    assert!(matches!(
        sim.ensure_image("missing/x:1", PullPolicy::Missing, &no_logins()).await,
        Err(RuntimeError::Image(_))
    ));
    let refused = sim.run(&request("n", "p", "broken")).await;
    assert!(matches!(refused, Err(RuntimeError::Refused(_))));
    let crash = sim.run(&request("n", "p", "crash:1")).await.unwrap();
    let exited = ContainerState::Exited { code: 1, out_of_memory: false };
    for _ in 0..2 {
        assert_eq!(sim.list(&node("n")).await.unwrap()[0].state, exited);
        sim.restart(&crash.handle).await.unwrap();
    }
    let lines: Vec<_> = sim.logs(&crash.handle, 2, false).await.unwrap().collect().await;
    assert_eq!(lines, [Ok("simulated start 2\n".into()), Ok("simulated start 3\n".into())]);
}

#[tokio::test]
async fn injected_exits_and_losses_are_listed_and_hinted() {
    let sim = SimRuntime::new(SimOptions::default());
    let container = sim.run(&request("n", "p", "nginx")).await.unwrap();
    let mut hints = sim.hints(&node("n")).await.unwrap();
    assert!(sim.exit(&container.pod, 7) && !sim.exit(&container.pod, 7));
    assert_eq!(hints.next().await.unwrap().pod.as_ref(), Some(&container.pod));
    let exited = ContainerState::Exited { code: 7, out_of_memory: false };
    assert_eq!(sim.list(&node("n")).await.unwrap()[0].state, exited);
    assert!(sim.lose(&container.pod) && !sim.lose(&container.pod));
    assert!(matches!(sim.restart(&container.handle).await, Err(RuntimeError::NotFound(_))));
}

#[tokio::test]
async fn a_hanging_engine_answers_at_the_deadline_or_when_released() {
    let sim = SimRuntime::new(SimOptions { deadline: Duration::from_millis(50), ..Default::default() });
    sim.hang(true);
    assert!(matches!(sim.ping().await, Err(RuntimeError::Engine(_))));
    let sim = SimRuntime { options: SimOptions::default(), ..sim };
    let release = async { sim.hang(false) };
    let (ping, ()) = tokio::join!(sim.ping(), release);
    assert_eq!(ping.unwrap().runtime, "sim");
}

#[tokio::test]
async fn a_call_whose_reply_is_lost_has_been_carried_out() {
    let sim = SimRuntime::new(SimOptions::default());
    sim.lose_replies(true);
    let request = request("n", "p", "nginx");
    assert!(matches!(sim.run(&request).await, Err(RuntimeError::Engine(_))));
    assert_eq!(sim.running(), 1);
    sim.lose_replies(false);
    sim.run(&request).await.unwrap();
    assert_eq!(sim.running(), 1);
}

#[tokio::test]
async fn commands_end_as_the_test_says_and_only_in_a_running_container() {
    let sim = SimRuntime::new(SimOptions::default());
    let container = sim.run(&request("n", "p", "unhealthy:1")).await.unwrap();
    let exec = || async { sim.exec(&container.handle, &["x".to_owned()], Duration::from_millis(10)).await };
    assert_eq!(exec().await.unwrap().exit_code, Some(1));
    for exit_code in [Some(0), Some(9), None] {
        assert!(sim.set_exec_exit_code(&container.pod, exit_code));
        assert_eq!(exec().await.unwrap().exit_code, exit_code);
    }
    assert!(sim.exit(&container.pod, 0));
    assert!(matches!(exec().await, Err(RuntimeError::NotFound(_))));
}
