//! Common arguments of the types' commands.

use clap::{Args, Subcommand};
use output::ListStyle;

use super::error::{CommandError, CommandResult};
use super::selector_args::SelectorArgs;

/// Arguments of a type's command: without a subcommand it lists.
#[derive(Debug, Args)]
pub(crate) struct TypeArgs<L: Args, C: Subcommand> {
    #[command(flatten)]
    pub(crate) list: L,
    #[command(subcommand)]
    pub(crate) command: Option<C>,
}

impl<L: Args + Default + PartialEq, C: Subcommand> TypeArgs<L, C> {
    /// Refuses options of the list before a subcommand, which would ignore them.
    pub(crate) fn or_list(self, list: impl FnOnce(L) -> C) -> CommandResult<C> {
        match self.command {
            None => Ok(list(self.list)),
            Some(command) if self.list == L::default() => Ok(command),
            Some(_) => Err(CommandError::Usage("write the options after the subcommand".to_owned())),
        }
    }
}

/// Arguments of lists that can be selected from by label.
#[derive(Debug, Default, PartialEq, Args)]
pub(crate) struct LabelledListArgs {
    #[command(flatten)]
    pub(crate) selector: SelectorArgs,
    #[command(flatten)]
    pub(crate) style: ListStyle,
}
