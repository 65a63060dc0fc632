//! Problems of this node that do not stop its pods, across sessions: shown by `kubeleet status`.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

const MAX_PROBLEMS: usize = 8;
const MAX_CHARACTERS: usize = 600;

#[derive(Debug, Clone, Default)]
pub struct NodeProblems {
    problems: Arc<Mutex<BTreeMap<String, String>>>,
}

impl NodeProblems {
    pub fn set(&self, subject: &str, problem: Option<String>) {
        let mut problems = self.problems.lock();
        match problem {
            Some(problem) => drop(problems.insert(subject.to_owned(), problem)),
            None => drop(problems.remove(subject)),
        }
    }

    pub(crate) fn all(&self) -> Vec<String> {
        let problems = self.problems.lock();
        let cut = |problem: &String| problem.chars().take(MAX_CHARACTERS).collect();
        problems.values().take(MAX_PROBLEMS).map(cut).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_subject_has_one_problem_and_the_report_has_a_limit() {
        let problems = NodeProblems::default();
        problems.set("data", Some("full".to_owned()));
        problems.clone().set("data", Some("read-only".to_owned()));
        assert_eq!(problems.all(), ["read-only"]);
        problems.set("data", None);
        assert_eq!(problems.all(), Vec::<String>::new());
        for number in 0..20 {
            problems.set(&number.to_string(), Some("x".repeat(1000)));
        }
        let all = problems.all();
        assert!(all.len() == MAX_PROBLEMS && all.iter().all(|one| one.len() == MAX_CHARACTERS));
    }
}
