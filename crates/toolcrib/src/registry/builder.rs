//! The registry builder: `Registry::builder()`, configuration and store, `open().await`.

use std::path::Path;

use toolcrib_config::{Config, ConfigDiagnostic};
use toolcrib_core::Result;

use super::{NamedStore, Registry, RegistryOptions};
use crate::config_file::{check_rules, read_config, resolve_store, working_directory};
use crate::store;

/// Collects configuration, store and options of a registry; see [`Registry::builder`].
#[derive(Debug, Default)]
#[must_use = "a registry is opened by `open`"]
pub struct RegistryBuilder {
    config: Config,
    /// Location of the store; `None` for the one in `options`.
    store: Option<String>,
    options: RegistryOptions,
}

impl Registry {
    /// Starts a builder. Without a configuration the registry has no sources; without a store, in it or set here, it is
    /// in memory.
    ///
    /// ```no_run
    /// # async fn example() -> toolcrib::Result<()> {
    /// let registry = toolcrib::Registry::builder().config_file("toolcrib.yaml")?.store("./data").open().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn builder() -> RegistryBuilder {
        RegistryBuilder::default()
    }
}

impl RegistryBuilder {
    /// Reads a configuration file, which is trusted: its commands run and its servers are contacted. Sources with errors
    /// are listed with them. Fails with `CONFIG_INVALID` if the file cannot be read or has other errors.
    pub fn config_file(self, path: impl AsRef<Path>) -> Result<RegistryBuilder> {
        Ok(self.config(check_rules(read_config(path.as_ref(), &crate::secret::resolve_variables)?)?))
    }

    /// Parses a configuration in YAML. Relative paths in it are resolved against the working directory.
    pub fn config_text(self, yaml: &str) -> Result<RegistryBuilder> {
        let config =
            Config::read_resolved(yaml, "configuration", &working_directory()?, &crate::secret::resolve_variables);
        Ok(self.config(check_rules(config.map_err(|faults| ConfigDiagnostic::combined_error(&faults))?)?))
    }

    /// Sets the configuration.
    pub fn config(self, config: Config) -> RegistryBuilder {
        RegistryBuilder { config, ..self }
    }

    /// Sets the location of the store: a directory, `sqlite:FILE`, `postgres://…`, or `memory:`. Takes precedence over
    /// the one in the configuration.
    pub fn store(self, location: impl Into<String>) -> RegistryBuilder {
        RegistryBuilder { store: Some(location.into()), ..self }
    }

    /// Sets all other options.
    pub fn options(self, options: RegistryOptions) -> RegistryBuilder {
        RegistryBuilder { options, ..self }
    }

    /// Opens the registry; see [`Registry::open`].
    pub async fn open(self) -> Result<Registry> {
        let RegistryBuilder { config, store, mut options } = self;
        if store.is_some() || options.store.is_none() {
            options.named_store = NamedStore::select(store.as_deref(), &config);
        }
        let location = match &config.store {
            Some(configured) if store.is_none() && options.store.is_none() => Some(resolve_store(configured, &config)?),
            Some(_) | None => store,
        };
        if let Some(location) = location {
            options.store = Some(store::open(&location).await?);
        }
        Registry::open(config, options).await
    }
}
