//! What becomes of a line of another program.

/// The advice to those who look for namespaces.
pub(crate) const NO_NAMESPACES: &str = "there are no namespaces: leave that out. The names of an app's services begin with \
                             the name of the app, and labels select: `kubeleet get svc -l team=a`";

/// What a row of a table says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Habit {
    /// The line with the words of this program.
    Line(Vec<String>),
    /// What to type instead.
    Advice(String),
}
