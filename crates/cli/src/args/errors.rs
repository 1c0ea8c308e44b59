//! Turns each of clap's errors into one line.

use std::error::Error as _;

use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::{Usage, flag};
use crate::command::command;
use crate::folder;

/// Returns a line that says what was wrong and what to write instead.
pub(super) fn usage(error: &clap::Error) -> Usage {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        Some(ContextValue::Strings(texts)) => texts.first().map(String::as_str),
        _ => None,
    };
    let (arg, value) = (text(ContextKind::InvalidArg), text(ContextKind::InvalidValue));
    let meant = |kind, instead: &str| match text(kind) {
        Some(known) => format!(", did you mean {known}?"),
        None => format!(" ({instead})"),
    };
    let line = match (error.kind(), arg) {
        (ErrorKind::UnknownArgument, Some(arg)) if !arg.starts_with('-') => {
            format!("unexpected argument {arg:?} (see weft help)")
        }
        (ErrorKind::UnknownArgument, Some(arg)) => match known(arg) {
            Some(option) => return useless(&option),
            None => format!("unknown option {arg}{}", meant(ContextKind::SuggestedArg, "see weft help")),
        },
        (ErrorKind::InvalidSubcommand, _) => {
            let name = text(ContextKind::InvalidSubcommand).unwrap_or_default();
            let commands: Vec<String> =
                command().get_subcommands().map(|it| it.get_name().to_owned()).collect();
            let all = format!("the commands: {}", commands.join(", "));
            format!("unknown command {name:?}{}", meant(ContextKind::SuggestedSubcommand, &all))
        }
        (ErrorKind::MissingRequiredArgument, Some("<DIR>")) => {
            "serve needs a directory: weft serve DIR".into()
        }
        (ErrorKind::MissingRequiredArgument, Some(arg)) => format!("{arg} is missing (see weft help)"),
        (ErrorKind::InvalidValue, Some(arg)) if value.is_none_or(str::is_empty) => {
            format!("{arg} needs a value")
        }
        (ErrorKind::InvalidValue, Some(arg)) => {
            let Some(ContextValue::Strings(known)) = error.get(ContextKind::ValidValue) else {
                return first_line(error);
            };
            format!("invalid {arg} {:?}: expected one of {}", value.unwrap_or_default(), known.join(", "))
        }
        (ErrorKind::ValueValidation, _) => match error.source() {
            Some(error) => error.to_string(),
            None => return first_line(error),
        },
        _ => return first_line(error),
    };
    Usage(line)
}

/// Returns the error for an option that has no effect on the command.
pub(super) fn useless(option: &str) -> Usage {
    let commands = match folder::IDS.contains(&option) {
        true => "weft serve DIR",
        false => "weft demo and weft serve DIR",
    };
    Usage(format!("--{option} works only with {commands}"))
}

/// Returns the name of the option, if another command has it.
fn known(arg: &str) -> Option<String> {
    let name = arg.strip_prefix("--")?;
    command().get_arguments().map(|arg| flag(arg.get_id().as_str())).find(|option| option == name)
}

/// Returns the first line of clap's message, for rare mistakes.
fn first_line(error: &clap::Error) -> Usage {
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default();
    Usage(line.strip_prefix("error: ").unwrap_or(line).to_owned())
}
