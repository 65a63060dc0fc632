//! Containers that the fence stops without the engine's list, which can take a minute or fail while single
//! calls still work.

use std::collections::HashMap;
use std::time::Instant;

use engine::Container;
use model::spec::OnDisconnect;
use parking_lot::Mutex;

#[derive(Default)]
pub(crate) struct KnownContainers {
    containers: Mutex<HashMap<String, (Container, Instant)>>,
}

impl KnownContainers {
    /// Containers started since `asked` stay.
    pub(crate) fn replace(&self, listed: &[Container], asked: Instant) {
        let mut known = self.containers.lock();
        known.retain(|_, (_, seen)| *seen >= asked);
        for container in listed.iter().filter(|container| must_stop(container)) {
            known.insert(container.handle.clone(), (container.clone(), asked));
        }
    }

    pub(crate) fn insert(&self, started: &Container) {
        if must_stop(started) {
            self.containers.lock().insert(started.handle.clone(), (started.clone(), Instant::now()));
        }
    }

    pub(crate) fn remove(&self, handle: &str) {
        self.containers.lock().remove(handle);
    }

    pub(crate) fn all(&self) -> Vec<Container> {
        self.containers.lock().values().map(|(container, _)| container.clone()).collect()
    }
}

pub(crate) fn must_stop(container: &Container) -> bool {
    container.on_disconnect == OnDisconnect::Stop && container.state.may_run()
}
