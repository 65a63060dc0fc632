//! Shell completion: the script from `completions` calls this program at each TAB, which knows the command
//! line and asks the API for names of objects.

mod answer;
mod bash;
mod candidates;
mod names;
mod script;
#[cfg(test)]
mod tests;

pub(crate) use answer::answer;
pub(crate) use script::script;
