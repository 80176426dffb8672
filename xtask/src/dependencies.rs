//! Licences and origins of all dependencies, from `cargo tree`. Stands in for `cargo deny check licenses sources bans`,
//! which would have to be built first; `deny.toml` is the configuration of both.
//!
//! ```text
//! serde v1.0.228<TAB>MIT OR Apache-2.0
//! toolcrib v0.2.0 (/repo/crates/toolcrib)<TAB>Apache-2.0
//! ```
//!
//! A package with an origin behind its version comes from this repository or is refused; any other must have an
//! accepted licence. Dependencies of tests are not shipped and not checked.

use std::collections::BTreeSet;
use std::fs;

use crate::paths::WorkspacePaths;
use crate::process::cargo;
use crate::report::StepStatus;

/// Format of a package in the output of `cargo tree`: name and version, licence expression. A package that does not
/// come from the registry has its path or repository behind the version.
const FORMAT: &str = "{p}\t{l}";

/// Checks that each package of the tree, on all platforms, has an accepted licence and comes from the registry or from
/// this repository.
pub(crate) fn check(paths: &WorkspacePaths) -> StepStatus {
    match find_violations(paths) {
        Ok((count, violations)) if violations.is_empty() => StepStatus::Passed(format!("{count} packages")),
        Ok((_, violations)) => {
            for violation in &violations {
                println!("    {violation}");
            }
            StepStatus::Failed(format!("packages that `deny.toml` does not accept: {}", violations.len()))
        }
        Err(reason) => StepStatus::Failed(reason),
    }
}

/// Returns the number of packages and the violations. Fails if the rules cannot be read or `cargo tree` fails.
fn find_violations(paths: &WorkspacePaths) -> Result<(usize, Vec<String>), String> {
    let rules =
        fs::read_to_string(paths.root.join("deny.toml")).map_err(|error| format!("read `deny.toml`: {error}"))?;
    let allowed = allowed_licences(&rules)?;
    let arguments = ["tree", "--workspace", "--locked", "--target", "all", "--edges", "normal,build"];
    let mut command = cargo(paths, &arguments);
    command.args(["--prefix", "none", "--no-dedupe", "--format", FORMAT]);
    let output = command.output().map_err(|error| format!("start `cargo tree`: {error}"))?;
    if !output.status.success() {
        return Err(format!("`cargo tree`: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    // A package occurs once per place in the tree; the set removes the repetitions.
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let packages: BTreeSet<&str> = text.lines().filter(|line| !line.is_empty()).collect();
    let root = paths.root.display().to_string();
    let violations = packages.iter().filter_map(|line| violation(line, &allowed, &root)).collect();
    Ok((packages.len(), violations))
}

/// Reads `allow = ["…", …]` of the section `[licenses]`.
fn allowed_licences(rules: &str) -> Result<BTreeSet<String>, String> {
    let section = rules.split_once("[licenses]").map(|(_, after)| after).unwrap_or_default();
    let list = section.split_once("allow = [").and_then(|(_, after)| after.split_once(']'));
    let (names, _) = list.ok_or("`deny.toml` has no `allow` under `[licenses]`")?;
    Ok(names.split('"').skip(1).step_by(2).map(str::to_owned).collect())
}

/// Returns why a package is refused, `None` if it is accepted.
fn violation(line: &str, allowed: &BTreeSet<String>, root: &str) -> Option<String> {
    let (package, licence) = line.split_once('\t').unwrap_or((line, ""));
    // `name v1.2.3 (…)`; `(proc-macro)` is no origin.
    let origin = package.split_once(" (").map(|(_, rest)| rest.trim_end_matches(')')).filter(|it| *it != "proc-macro");
    // The licence of a package with an origin does not matter: it is this repository's own, or refused.
    if let Some(origin) = origin {
        let is_ours = origin.starts_with(root);
        return (!is_ours).then(|| format!("{package}: comes neither from the registry nor from this repository"));
    }
    (!is_allowed(licence, allowed)).then(|| format!("{package}: licence `{licence}`"))
}

/// Evaluates an SPDX expression: one side of `OR` (old manifests write `/`) or both of `AND`, with parentheses. `WITH`
/// only adds permissions.
fn is_allowed(expression: &str, allowed: &BTreeSet<String>) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let mut tokens = spaced.split_whitespace().peekable();
    let accepted = any_of(&mut tokens, allowed);
    accepted && tokens.next().is_none()
}

/// Tokens of an SPDX expression: names, operators and parentheses.
type Tokens<'a> = std::iter::Peekable<std::str::SplitWhitespace<'a>>;

/// Parses `A OR B …`; `AND` binds more tightly.
fn any_of(tokens: &mut Tokens<'_>, allowed: &BTreeSet<String>) -> bool {
    let mut accepted = all_of(tokens, allowed);
    while tokens.next_if_eq(&"OR").is_some() {
        // Both sides are read, or tokens of the second would be left over.
        accepted |= all_of(tokens, allowed);
    }
    accepted
}

/// Parses `A AND B …`.
fn all_of(tokens: &mut Tokens<'_>, allowed: &BTreeSet<String>) -> bool {
    let mut accepted = parse_licence(tokens, allowed);
    while tokens.next_if_eq(&"AND").is_some() {
        accepted &= parse_licence(tokens, allowed);
    }
    accepted
}

/// Parses one licence, with its exception if it has one, or an expression in parentheses.
fn parse_licence(tokens: &mut Tokens<'_>, allowed: &BTreeSet<String>) -> bool {
    if tokens.next_if_eq(&"(").is_some() {
        let accepted = any_of(tokens, allowed);
        return accepted && tokens.next() == Some(")");
    }
    let accepted = tokens.next().is_some_and(|name| allowed.contains(name));
    if tokens.next_if_eq(&"WITH").is_some() {
        tokens.next();
    }
    accepted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed() -> BTreeSet<String> {
        allowed_licences("[licenses]\nallow = [\"MIT\", \"Apache-2.0\", \"ISC\"]\n").unwrap()
    }

    #[test]
    fn an_expression_is_allowed_by_one_alternative_or_all_parts() {
        for expression in [
            "MIT",
            "GPL-3.0 OR MIT",
            "MIT/GPL-3.0",
            "MIT AND Apache-2.0",
            "(GPL-3.0 OR MIT) AND ISC",
            "Apache-2.0 WITH LLVM-exception OR GPL-3.0",
        ] {
            assert!(is_allowed(expression, &allowed()), "{expression}");
        }
        for expression in ["", "GPL-3.0", "MIT AND GPL-3.0", "GPL-3.0 OR AGPL-3.0", "(MIT", "MIT MIT", "MIT)"] {
            assert!(!is_allowed(expression, &allowed()), "{expression}");
        }
    }

    #[test]
    fn packages_come_from_the_registry_or_from_this_repository() {
        let check = |line: &str| violation(line, &allowed(), "/repo").is_none();
        assert!(check("a v1.0.0\tMIT"));
        assert!(check("a v1.0.0 (proc-macro)\tMIT"));
        assert!(check("ours v1.0.0 (/repo/crates/ours)\t"));
        assert!(!check("a v1.0.0 (https://example.com/a.git#1234)\tMIT"));
        assert!(!check("a v1.0.0 (/elsewhere/a)\tMIT"));
        assert!(!check("a v1.0.0\tGPL-3.0"));
        assert!(!check("a v1.0.0\t"));
    }
}
