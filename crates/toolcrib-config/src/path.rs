//! Paths in a configuration file, which are relative to that file. Works on text alone, without file system access.
//!
//! ```text
//! in /home/ada/shop/toolcrib.yaml
//! ./api/../shop.yaml     /home/ada/shop/shop.yaml
//! ~/notes                ${env:HOME}/notes
//! ${env:DATA}/x          ${env:DATA}/x
//! npx (as a command)     npx
//! ```

use std::path::{Component, Path, PathBuf};

use super::reference::map_file_paths;

/// Makes a path absolute: a relative one is joined to `base` and normalised.
///
/// `~` becomes `${env:HOME}`. A path that starts with a reference stays as it is, since its value is known only at use.
pub(super) fn to_absolute(base: &Path, path: &str) -> String {
    if path == "~" {
        return "${env:HOME}".to_owned();
    }
    if let Some(rest) = path.strip_prefix("~/") {
        return format!("${{env:HOME}}/{rest}");
    }
    if path.starts_with("${") || Path::new(path).is_absolute() {
        return path.to_owned();
    }
    normalize(&base.join(path)).to_string_lossy().into_owned()
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
    let is_path = Path::new(command).components().count() > 1 || command.starts_with("~/");
    if is_path { to_absolute(base, command) } else { command.to_owned() }
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
            ("${env:DATA}/x", "${env:DATA}/x"),
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
            ("${env:NODE}/node", "${env:NODE}/node"),
        ] {
            assert_eq!(resolve_command(Path::new("/p"), name), expected, "{name}");
        }
    }
}
