//! `toolcrib trust`: accept the project's file, with what it runs and contacts now.

use clap::Args;
use serde_json::{Value, json};
use toolcrib::config_file::{self, Found};
use toolcrib::core::config::Declaration;
use toolcrib::core::config::show::show_keys;
use toolcrib::{Code, Error, Result};

use crate::arguments::Common;
use crate::exit::Done;
use crate::{desk, output, wording};

/// Accept the project's file, so that the sources it declares may be run and contacted
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  cd project && toolcrib trust

A file that is found by walking up from the working directory runs nothing before it is trusted. When what it runs or
contacts changes, it is asked about again. A file named by `--config` needs no trust.")]
pub(crate) struct Arguments {}

pub(crate) fn run(common: &Common, _: &Arguments) -> Result<Done> {
    let found = desk::find(common)?;
    let Some(file) = &found.file else {
        let message = "no project file from here upwards; `toolcrib init` writes one";
        return Err(Error::new(Code::NotFound, message));
    };
    let was_trusted = config_file::is_trusted(&found)?;
    if !was_trusted {
        config_file::trust(&found)?;
    }
    if common.json {
        let sources: Vec<Value> = declared(&found).map(shown).collect();
        output::json(&json!({ "file": file, "trusted": true, "changed": !was_trusted, "sources": sources }))?;
        return Ok(Done::Well);
    }
    let file = file.display();
    output::line(&match (was_trusted, found.walked) {
        (true, true) => format!("`{file}` is trusted already:"),
        (true, false) => format!("`{file}` was named, which counts as trust:"),
        (false, _) => format!("`{file}` is trusted now:"),
    })?;
    for line in lines(&found) {
        output::line(&line)?;
    }
    if found.declared.is_empty() {
        output::line("  it declares no sources")?;
    }
    Ok(Done::Well)
}

/// What each source of the project's file runs or contacts.
pub(crate) fn lines(found: &Found) -> Vec<String> {
    let line = |declaration: &Declaration| match &declaration.source {
        Ok(source) => format!("  {}: {}", source.id, wording::reached_by(source)),
        Err(_) => format!("  {}: not used, for it is stated wrongly; `toolcrib sources` says how", declaration.id),
    };
    let others = found.config.allow_commands.then(|| "  requests over HTTP may declare programs to run".to_owned());
    declared(found).map(line).chain(others).collect()
}

/// What the project's own file declares, without the user's.
fn declared(found: &Found) -> impl Iterator<Item = &Declaration> {
    found.config.sources.iter().filter(|declaration| found.declared.contains(&declaration.id))
}

fn shown(declaration: &Declaration) -> Value {
    match &declaration.source {
        Ok(source) => {
            let mut keys = show_keys(source);
            keys["id"] = json!(source.id);
            keys
        }
        Err(faults) => json!({ "id": declaration.id, "faults": faults }),
    }
}
