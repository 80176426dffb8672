//! Key `store`: location of the store, as `--store` takes it. References in it are resolved when the store is opened,
//! and a password is never shown.
//!
//! ```text
//! store: sqlite:./data/toolcrib.db
//! store: "postgres://toolcrib:${env:PGPASSWORD}@db.example.com/toolcrib"
//! ```

use std::fmt;
use std::path::PathBuf;

use toolcrib_core::source::TextRole;

use super::path;
use super::reader::{ConfigReader, ReferenceLookup, Section, format_alternatives};
use super::reference::find_unknown_kind;
use super::secret_mask::mask_login_url;

/// Location of the store in a configuration file.
#[derive(Clone, PartialEq, Eq)]
pub struct ConfiguredStore {
    /// The location with its references. A literal path is absolute.
    location: String,
    /// Directory of the file, for a path that begins with a reference.
    base_dir: PathBuf,
}

/// Kinds of stores, by the scheme of their locations. A location without a scheme is a data directory.
const STORE_SCHEMES: [&str; 4] = ["sqlite", "memory", "postgres", "postgresql"];
/// Prefix of the location of a store in a file.
const SQLITE_PREFIX: &str = "sqlite:";

impl ConfiguredStore {
    /// Returns the location with its references resolved. A relative path is relative to the file. The error names a
    /// reference and never a value.
    pub fn resolve(&self, lookup: ReferenceLookup<'_>) -> Result<String, String> {
        let location = lookup(&self.location)?;
        let (prefix, value) = split_path(&location);
        let Some(value) = value else { return Ok(location) };
        let value = match value.strip_prefix("~/") {
            Some(rest) => format!("{}/{rest}", lookup(path::HOME_REFERENCE)?),
            None => path::join_to_base(&self.base_dir, TextRole::Path, value),
        };
        Ok(format!("{prefix}{value}"))
    }

    /// Returns the location with its references unresolved and without the user name and password of a URL.
    pub fn mask_password(&self) -> String {
        mask_store_location(&self.location)
    }

    /// Returns the location with its references unresolved. May contain a password.
    pub fn unresolved(&self) -> &str {
        &self.location
    }
}

/// Returns the location of a store without the user name and password of a URL.
pub fn mask_store_location(location: &str) -> String {
    mask_login_url(location)
}

/// Returns the kind of a store by the scheme of its location. A data directory has a SQLite file.
pub fn store_kind(location: &str) -> &str {
    let scheme = location.split_once(':').map(|(scheme, _)| scheme);
    scheme.filter(|scheme| STORE_SCHEMES.contains(scheme)).unwrap_or("sqlite")
}

/// Without a password.
impl fmt::Debug for ConfiguredStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ConfiguredStore").field(&self.mask_password()).finish()
    }
}

/// Reads `store`. Messages do not quote it, since it may contain a password.
pub(super) fn read_store(reader: &mut ConfigReader<'_>, section: &Section<'_>) -> Option<ConfiguredStore> {
    let node = section.get("store")?;
    let text = reader.read_text(section, "store")?;
    if let Some(kind) = find_unknown_kind(&text) {
        let message =
            format!("`{kind}` is no kind of reference; the known ones are `${{env:NAME}}` and `${{file:PATH}}`");
        reader.error(node.line, "store", message);
        return None;
    }
    if let Some(scheme) = find_scheme(&text).filter(|scheme| !STORE_SCHEMES.contains(scheme)) {
        let known = format_alternatives(&["postgres://…", "sqlite:FILE", "memory:"]);
        reader.error(node.line, "store", format!("unknown kind of store `{scheme}:`; write {known}, or a directory"));
        return None;
    }
    let text = path::resolve_file_references(reader.base_dir, &text);
    let (prefix, value) = split_path(&text);
    let location = match value {
        Some(value) if !value.is_empty() && !value.starts_with("${") => {
            format!("{prefix}{}", path::to_absolute(reader.base_dir, value))
        }
        // A URL, or a path that is known when its reference is resolved.
        Some(_) | None => text,
    };
    Some(ConfiguredStore { location, base_dir: reader.base_dir.to_owned() })
}

/// Splits a location into a prefix and the path of a file or directory; `None` for a store without one.
fn split_path(location: &str) -> (&str, Option<&str>) {
    if let Some(rest) = location.strip_prefix(SQLITE_PREFIX) {
        let slashes = if rest.starts_with("//") { 2 } else { 0 };
        let (prefix, path) = location.split_at(SQLITE_PREFIX.len() + slashes);
        return (prefix, Some(path));
    }
    match find_scheme(location) {
        Some(_) => (location, None),
        None => ("", Some(location)),
    }
}

/// Returns the scheme of a URL. A single letter is a Windows drive.
fn find_scheme(location: &str) -> Option<&str> {
    let (scheme, _) = location.split_once(':')?;
    let is_scheme = scheme.len() > 1
        && scheme.chars().all(|character| character.is_ascii_alphanumeric() || "+-.".contains(character));
    is_scheme.then_some(scheme)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::{Config, ConfigDialect, Syntax};

    use super::*;

    fn parse(location: &str) -> Result<ConfiguredStore, String> {
        let text = serde_json::json!({ "store": location }).to_string();
        let config = Config::parse(&text, "toolcrib.json", Path::new("/p"), Syntax::Json, ConfigDialect::Toolcrib);
        config.map(|config| config.store.unwrap()).map_err(|errors| errors[0].to_string())
    }

    #[test]
    fn references_are_resolved_and_relative_paths_are_relative_to_the_file() {
        let check = |location: &str, value: &str, expected: &str| {
            let lookup = |text: &str| Ok(text.replace("${env:HOME}", "/home/me").replace("${env:X}", value));
            assert_eq!(parse(location).unwrap().resolve(&lookup).unwrap(), expected, "{location} {value}");
        };
        check("postgres://a:${env:X}@db/b", "pw", "postgres://a:pw@db/b");
        check("memory:", "", "memory:");
        check("data", "", "/p/data");
        check("sqlite:data/../x.db", "", "sqlite:/p/x.db");
        check("sqlite://x.db", "", "sqlite:///p/x.db");
        check("sqlite:///x.db", "", "sqlite:///x.db");
        check("sqlite:~/x.db", "", "sqlite:/home/me/x.db");
        check("sqlite:${env:X}/x.db", "data", "sqlite:/p/data/x.db");
        check("sqlite:${env:X}/x.db", "/data", "sqlite:/data/x.db");
        check("${env:X}", "sqlite:x.db", "sqlite:/p/x.db");
        check("${env:X}", "postgres://db/x", "postgres://db/x");
        check("${env:X}", "~/x", "/home/me/x");
        check("${env:X}", "memory:", "memory:");
    }

    #[test]
    fn a_password_is_masked_and_references_are_shown() {
        let check = |location: &str, expected: &str| assert_eq!(parse(location).unwrap().mask_password(), expected);
        check("postgres://db/x", "postgres://db/x");
        check("postgres://me:hunter2@db:5432/x", "postgres://***@db:5432/x");
        check("postgres://me:${env:PW}@db/x", "postgres://***:${env:PW}@db/x");
        check("postgres://me:${env:PW:-hunter2}@db/x", "postgres://***:${env:PW:-***}@db/x");
        check("postgres://db/x?password=hunter2&sslmode=require", "postgres://db/x?password=***&sslmode=***");
        // A password whose special characters should have been escaped.
        check("postgres://me:hun/t@er?2@db/x", "postgres://***@db/x");
        check("${env:DB:-postgres://me:hunter2@db/x}", "${env:DB:-***}");
        check("sqlite:x.db", "sqlite:/p/x.db");
        assert!(!format!("{:?}", parse("postgres://me:hunter2@db/x").unwrap()).contains("hunter2"));
    }

    #[test]
    fn a_wrong_location_is_an_error_that_does_not_quote_it() {
        let check = |location: &str, message: &str| {
            assert_eq!(parse(location).unwrap_err(), format!("toolcrib.json:1: store: {message}"));
        };
        check(
            "mongo://me:hunter2@db",
            "unknown kind of store `mongo:`; write `postgres://…`, `sqlite:FILE` or `memory:`, or a directory",
        );
        check("", "expected text, found an empty string");
        check(
            "postgres://me:${vault:KEY}@db",
            "`vault` is no kind of reference; the known ones are `${env:NAME}` and `${file:PATH}`",
        );
    }
}
