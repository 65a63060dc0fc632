//! Reads the endpoints of a service as a proxy does, without its pauses.

use model::ids::ServiceName;
use model::network::endpoint::Endpoint;
use store::{EndpointVersion, FollowedEndpoints, ReadingStep, Store, StoreError};

const MAX_ATTEMPTS: usize = 5;

/// Unless the caller knows them.
pub async fn read_endpoints(
    store: &Store,
    service: &ServiceName,
    known: Option<&EndpointVersion>,
) -> Result<Option<(EndpointVersion, Vec<Endpoint>)>, StoreError> {
    for _ in 0..MAX_ATTEMPTS {
        let mut reading = match store.follow_endpoints(service, known).await? {
            FollowedEndpoints::Same => return Ok(None),
            FollowedEndpoints::BeingMade => panic!("nothing else reads here"),
            FollowedEndpoints::Changed(reading) => reading,
        };
        loop {
            match reading.step().await? {
                ReadingStep::Made | ReadingStep::Read => {}
                ReadingStep::Again => break,
                ReadingStep::Done(version, endpoints) => return Ok(Some((version, endpoints))),
            }
        }
    }
    panic!("the set is made anew each time");
}
