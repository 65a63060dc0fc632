//! Translation of a line of another program.

pub(crate) const NO_NAMESPACES: &str = "there are no namespaces: leave that out. The names of an app's services begin with \
                             the name of the app, and labels select: `kubeleet get svc -l team=a`";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Habit {
    Line(Vec<String>),
    Advice(String),
}
