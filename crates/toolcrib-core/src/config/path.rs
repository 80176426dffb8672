//! Paths in a file are relative to that file. Nothing here looks at a disk.

use std::path::{Component, Path, PathBuf};

/// An absolute path as it is; a relative one against `base`, without `.` and `..`. `~` becomes the home directory's
/// reference, and a path that begins with a reference is left alone: what it stands for is known at use.
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

/// A bare program name is looked up by the system; one with a directory in it is a path.
pub(super) fn resolve_command(base: &Path, command: &str) -> String {
    let is_path = Path::new(command).components().count() > 1 || command.starts_with("~/");
    if is_path { to_absolute(base, command) } else { command.to_owned() }
}

fn normalize(path: &Path) -> PathBuf {
    let mut clean = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            // Above the root is the root; above a relative beginning, the step stays.
            Component::ParentDir if matches!(clean.components().next_back(), Some(Component::Normal(_))) => {
                clean.pop();
            }
            Component::ParentDir if clean.has_root() => {}
            Component::ParentDir | Component::Normal(_) | Component::RootDir | Component::Prefix(_) => {
                clean.push(component);
            }
        }
    }
    clean
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
