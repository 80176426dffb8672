//! `toolcrib init`: writes a commented configuration file that explains every key.
//!
//! The template is a valid configuration without sources. A test removes the `#:` marks and checks that all samples
//! are valid, too. The new file is a project file, so it has no effect before `toolcrib trust`.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;
use toolcrib::config_file::working_directory;
use toolcrib::{Code, Error, Result};

use crate::arguments::CommonArguments;

/// Name of the file that is written.
const CONFIG_FILE_NAME: &str = "toolcrib.yaml";
/// Other configuration files that the new one would hide, or that would be read instead of it.
const OTHER_CONFIG_NAMES: [&str; 3] = ["toolcrib.yml", "toolcrib.toml", "toolcrib.json"];
/// A valid configuration; samples are commented out with `#:`.
const CONFIG_TEMPLATE: &str = include_str!("init/toolcrib.yaml");

/// Write a commented `toolcrib.yaml` into the working directory
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  toolcrib init && $EDITOR toolcrib.yaml && toolcrib trust && toolcrib tools
  toolcrib init --force")]
pub(crate) struct Arguments {
    /// Overwrite an existing configuration
    #[arg(long)]
    force: bool,
}

/// Writes the template, unless there is a configuration.
pub(crate) fn run(common: &CommonArguments, arguments: &Arguments) -> Result<()> {
    let directory = working_directory()?;
    if !arguments.force
        && let Some(file) = find_existing_config(&directory)
    {
        let message = format!("`{}` already exists; edit it, or replace it with `--force`", file.display());
        return Err(Error::new(Code::Conflict, message).with_retryable(false));
    }
    // With `--force` a `toolcrib.yaml` is overwritten; a file in another format stays.
    let file = directory.join(CONFIG_FILE_NAME);
    std::fs::write(&file, CONFIG_TEMPLATE)
        .map_err(|error| Error::new(Code::ConfigInvalid, format!("cannot write `{}`: {error}", file.display())))?;
    common.print(&json!({ "file": file }), || {
        format!(
            "wrote `{}`\nnext: declare a source in it and run `toolcrib trust`, or run `toolcrib add NAME -- COMMAND`",
            file.display()
        )
    })?;
    // Both formats can coexist, but only one is read.
    if directory.join(".mcp.json").is_file() {
        common.hint(
            "hint: `.mcp.json` here works with Toolcrib as it is, but `toolcrib.yaml` now takes precedence; \
             `toolcrib import .mcp.json` imports its sources",
        );
    }
    Ok(())
}

/// Returns a configuration file that exists in the directory.
fn find_existing_config(directory: &Path) -> Option<PathBuf> {
    std::iter::once(CONFIG_FILE_NAME)
        .chain(OTHER_CONFIG_NAMES)
        .map(|name| directory.join(name))
        .find(|file| file.exists())
}

#[cfg(test)]
mod tests {
    use toolcrib::config::Config;

    use super::*;

    #[test]
    fn the_template_and_every_sample_in_it_are_valid() {
        let read = |text: &str| Config::read(text, CONFIG_FILE_NAME, Path::new("/p")).unwrap();
        assert_eq!(read(CONFIG_TEMPLATE), Config { replaces_rules: true, ..Config::default() });
        let uncommented: Vec<String> = CONFIG_TEMPLATE
            .lines()
            .filter(|line| *line != "sources: {}")
            .map(|line| line.strip_prefix("#: ").unwrap_or(line).to_owned())
            .collect();
        let config = read(&uncommented.join("\n"));
        assert_eq!(config.valid_sources().count(), config.sources.len(), "{config:?}");
        assert_eq!((config.sources.len(), config.origins.len(), config.warnings.len()), (5, 15, 0));
    }
}
