//! Completion in the shell: the script that `completions` prints calls this program for each TAB, which knows
//! the command line and asks the API for the names of objects.

mod answer;
mod bash;
mod candidates;
mod names;
mod script;
#[cfg(test)]
mod tests;

pub(crate) use answer::answer;
pub(crate) use script::script;
