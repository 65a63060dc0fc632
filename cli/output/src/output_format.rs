//! Output options of commands.

/// Values of `-o`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum OutputFormat {
    /// A table.
    #[default]
    Table,
    /// A table with more columns.
    Wide,
    /// JSON, in the API's own shape.
    Json,
    /// The same as YAML.
    Yaml,
    /// Names only: service/web, pod/web-0. Commands accept them.
    Name,
}

/// How a list is printed.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, clap::Args)]
pub struct ListStyle {
    /// Print no line with the titles of the columns.
    #[arg(long)]
    pub(crate) no_headers: bool,
    /// Print only names; of pods, the uuids.
    #[arg(long, short)]
    pub quiet: bool,
    /// Print a row for each change, until Ctrl-C.
    #[arg(long, short)]
    pub watch: bool,
}
