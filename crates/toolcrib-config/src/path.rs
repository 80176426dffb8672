//! Paths in a configuration file, which are relative to that file. Works on text alone, without file system access.
//!
//! ```text
//! in /home/ada/shop/toolcrib.yaml
//! ./api/../shop.yaml     /home/ada/shop/shop.yaml
//! ~/notes                ${env:HOME}/notes
//! ${env:DATA}/x          /home/ada/shop/./${env:DATA}/x
//! npx (as a command)     npx
//! ```
//!
//! Whether a path that begins with a reference is relative is known only when the reference is resolved. Until then
//! `/./` before the reference separates the directory that a relative value is joined to. The text is absolute, so it
//! means the same in a store or an exported file.

use std::path::{Component, Path, PathBuf};

use toolcrib_core::source::TextRole;

use super::reference::map_file_paths;
use super::url_check::has_scheme;

/// The home directory, which is absolute.
pub(super) const HOME_REFERENCE: &str = "${env:HOME}";
/// Separates a base directory from a path that begins with a reference.
const BASE_SEPARATOR: &str = "/./";

/// Makes a path absolute: a relative one is joined to `base` and normalised, and one that begins with a reference keeps
/// `base` until it is resolved ([`join_to_base`]). `~` becomes `${env:HOME}`.
pub(super) fn to_absolute(base: &Path, path: &str) -> String {
    if path == "~" {
        return HOME_REFERENCE.to_owned();
    }
    if let Some(rest) = path.strip_prefix("~/") {
        return format!("{HOME_REFERENCE}/{rest}");
    }
    if path.starts_with(HOME_REFERENCE) || Path::new(path).is_absolute() {
        return path.to_owned();
    }
    if path.starts_with("${") {
        return format!("{}{BASE_SEPARATOR}{path}", base.display());
    }
    normalize(&base.join(path)).to_string_lossy().into_owned()
}

/// Splits a path that begins with a reference into the directory that [`to_absolute`] has kept, and the path as it was
/// written. `None` for any other text.
pub(super) fn split_base(text: &str) -> Option<(&Path, &str)> {
    let start = text.find("/./${")?;
    let base = Path::new(&text[..start]);
    base.is_absolute().then_some((base, &text[start + BASE_SEPARATOR.len()..]))
}

/// Makes the value of a path that began with a reference absolute, as [`to_absolute`] and [`resolve_command`] do for a
/// literal path. A URL stays.
pub(super) fn join_to_base(base: &Path, role: TextRole, value: &str) -> String {
    let is_used_as_is = match role {
        TextRole::Plain => true,
        TextRole::Path => Path::new(value).is_absolute() || has_scheme(value),
        TextRole::Program => Path::new(value).is_absolute() || is_bare_name(value),
    };
    if is_used_as_is { value.to_owned() } else { normalize(&base.join(value)).to_string_lossy().into_owned() }
}

/// Makes the paths of `${file:…}` references absolute; like all paths they are relative to the configuration file.
pub(super) fn resolve_file_references(base: &Path, text: &str) -> String {
    // `~` stays: it is resolved when the file is read.
    let absolute = |path: &str| if path.starts_with('~') { path.to_owned() } else { to_absolute(base, path) };
    if text.contains("${file:") { map_file_paths(text, absolute) } else { text.to_owned() }
}

/// Makes the path of a program absolute. A bare name such as `npx` stays, to be found in `PATH`.
/// A name with a directory in it is a path, as in a shell.
pub(super) fn resolve_command(base: &Path, command: &str) -> String {
    let is_program_name = is_bare_name(command) && !command.starts_with("${");
    if is_program_name { command.to_owned() } else { to_absolute(base, command) }
}

/// Whether a command is the name of a program without a directory.
fn is_bare_name(command: &str) -> bool {
    Path::new(command).components().count() <= 1 && !command.starts_with("~/")
}

/// Removes `.` and resolves `..` without following symbolic links.
/// `a/..` is the base itself even if `a` is a link. Two spellings of one path become the same definition.
fn normalize(path: &Path) -> PathBuf {
    let mut normalized = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            // The parent of the root is the root; `..` at the start of a relative path is kept.
            Component::ParentDir if matches!(normalized.components().next_back(), Some(Component::Normal(_))) => {
                normalized.pop();
            }
            Component::ParentDir if normalized.has_root() => {}
            Component::ParentDir | Component::Normal(_) | Component::RootDir | Component::Prefix(_) => {
                normalized.push(component);
            }
        }
    }
    normalized
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_relative_to_the_file() {
        for (path, expected) in [
            (".", "/home/me/project"),
            ("./src/", "/home/me/project/src"),
            ("../other", "/home/me/other"),
            ("../../../../..", "/"),
            ("/etc/../x", "/etc/../x"),
            ("~/notes", "${env:HOME}/notes"),
            ("${env:HOME}/notes", "${env:HOME}/notes"),
            ("${env:DATA}/x", "/home/me/project/./${env:DATA}/x"),
            ("/home/me/project/./${env:DATA}/x", "/home/me/project/./${env:DATA}/x"),
        ] {
            assert_eq!(to_absolute(Path::new("/home/me/project"), path), expected, "{path}");
        }
    }

    #[test]
    fn a_command_with_a_directory_is_a_path() {
        for (name, expected) in [
            ("npx", "npx"),
            ("./server", "/p/server"),
            ("bin/server", "/p/bin/server"),
            ("/usr/bin/env", "/usr/bin/env"),
            ("${env:NODE}/node", "/p/./${env:NODE}/node"),
            ("${env:NODE}", "/p/./${env:NODE}"),
        ] {
            assert_eq!(resolve_command(Path::new("/p"), name), expected, "{name}");
        }
    }
}
