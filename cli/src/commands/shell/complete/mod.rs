//! Shell completion: the script from `completions` calls this program at each TAB.

mod answer;
mod bash;
mod candidates;
mod names;
mod script;
#[cfg(test)]
mod tests;

pub(crate) use answer::answer;
pub(crate) use script::script;
