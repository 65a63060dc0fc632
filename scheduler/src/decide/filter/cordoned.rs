//! A cordoned node keeps what it has and gets nothing new.

use super::{Filter, Reason};

pub(super) const CORDONED: Filter = Filter {
    reason: Reason::Cordoned,
    passes: |candidate, _, _| !candidate.cordoned,
    explain: |_, _, _, _| "gets nothing new until a person lifts the cordon".to_owned(),
};
