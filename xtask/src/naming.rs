//! The naming rules of the code base, checked on its text: types and constants are named in the words of the field, a
//! type name has one meaning in the workspace, and comments have a technical noun as their subject.
//!
//! The check reads lines, not syntax trees. That is enough for `rustfmt`ed code and needs no parser. It can therefore
//! be deceived, for example by a definition inside a multi-line string; it is a reminder, not a proof.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::paths::WorkspacePaths;
use crate::report::StepStatus;

/// Folders with Rust code of this repository.
const CODE_FOLDERS: [&str; 3] = ["crates", "bench", "xtask"];

/// Names that say nothing about what a type is: metaphors and bare participles.
const REFUSED_TYPES: &[&str] = &[
    "Admitted",
    "Allowance",
    "Along",
    "Asked",
    "Asking",
    "At",
    "Backing",
    "Became",
    "Begun",
    "Bench",
    "Called",
    "Callers",
    "Calling",
    "Came",
    "Chosen",
    "Class",
    "Confided",
    "Desk",
    "Do",
    "Done",
    "Face",
    "Fault",
    "Feed",
    "First",
    "FirstWords",
    "Fit",
    "Form",
    "Found",
    "Given",
    "Goes",
    "Hand",
    "HangUp",
    "Heard",
    "Here",
    "Holder",
    "Holds",
    "House",
    "Journey",
    "Kept",
    "Known",
    "Lane",
    "LastWords",
    "Layers",
    "Leash",
    "Leave",
    "Library",
    "Line",
    "Lines",
    "Links",
    "Live",
    "Looked",
    "Made",
    "Mail",
    "Manner",
    "Mark",
    "Marks",
    "Meant",
    "Measures",
    "Minds",
    "Moment",
    "Named",
    "Needed",
    "Needs",
    "News",
    "Offer",
    "Order",
    "Outlet",
    "Overheard",
    "Pace",
    "Part",
    "PastTool",
    "Place",
    "Placed",
    "Plain",
    "Proof",
    "Pushed",
    "Reach",
    "Reached",
    "Refreshed",
    "Roll",
    "Rooms",
    "Runs",
    "Seat",
    "Seen",
    "ServerSays",
    "SetAside",
    "Settled",
    "Setup",
    "Shelf",
    "Side",
    "Sieve",
    "Sight",
    "Sights",
    "Slot",
    "Spread",
    "Standing",
    "Standings",
    "Stay",
    "Terms",
    "Territory",
    "Ticket",
    "Told",
    "Tries",
    "Turn",
    "Underway",
    "Unfit",
    "Upkeep",
    "Visitor",
    "Visitors",
    "Wanted",
    "Way",
    "Ways",
    "What",
    "Wish",
    "Witness",
    "Writer",
    "Written",
    "Wrong",
    "Zero",
];

/// Superlatives in the names of constants; `MAX_…`, `MIN_…`, `…_TIMEOUT` and `…_LIMIT` say the same and can be
/// searched.
const REFUSED_IN_CONSTANTS: [&str; 5] = ["MOST", "LONGEST", "DEEPEST", "LARGEST", "FAREWELL"];

/// Subjects that hide the component a comment is about.
const REFUSED_IN_COMMENTS: [&str; 3] = ["nobody", "somebody", "whoever"];

/// First words of a doc comment that begin a clause without a subject. A noun phrase ("Result of a call") or a verb
/// ("Returns the …") names the component instead.
const REFUSED_DOC_OPENINGS: [&str; 2] = ["What ", "Who "];

/// Type names that may be defined more than once: a command's own arguments, an alias of the standard type, and the
/// implementations of one type for several systems.
const REPEATED_TYPES: [&str; 3] = ["Arguments", "ProcessTree", "Result"];

/// Checks all Rust files of the repository and lists each violation with its file and line.
pub(crate) fn check(paths: &WorkspacePaths) -> StepStatus {
    let mut files = Vec::new();
    for folder in CODE_FOLDERS {
        if let Err(error) = collect_rust_files(&paths.root.join(folder), &mut files) {
            return StepStatus::Failed(format!("read `{folder}`: {error}"));
        }
    }
    let mut violations = Vec::new();
    let mut definitions: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in &files {
        let text = match fs::read_to_string(file) {
            Ok(text) => text,
            Err(error) => return StepStatus::Failed(format!("read `{}`: {error}", file.display())),
        };
        let name = file.strip_prefix(&paths.root).unwrap_or(file).display().to_string();
        // This file has to spell the words it refuses.
        if !name.ends_with("xtask/src/naming.rs") {
            check_file(&name, &text, &mut violations, &mut definitions);
        }
    }
    // Only known when all files were read.
    for (name, places) in definitions {
        if places.len() > 1 && !REPEATED_TYPES.contains(&name.as_str()) {
            violations.push(format!("type `{name}` has several definitions: {}", places.join(", ")));
        }
    }
    for violation in &violations {
        println!("    {violation}");
    }
    if violations.is_empty() {
        StepStatus::Passed(format!("{} files", files.len()))
    } else {
        StepStatus::Failed(format!("violations of the naming rules in CONTRIBUTING.md: {}", violations.len()))
    }
}

/// Checks one file line by line. Adds its violations, and the places of its type definitions, which only all files
/// together can judge.
fn check_file(file: &str, text: &str, violations: &mut Vec<String>, definitions: &mut BTreeMap<String, Vec<String>>) {
    for (index, line) in text.lines().enumerate() {
        let place = format!("{file}:{}", index + 1);
        if let Some(name) = defined_type(line) {
            if REFUSED_TYPES.contains(&name) {
                violations.push(format!("{place}: type `{name}` does not say what it is"));
            }
            definitions.entry(name.to_owned()).or_default().push(place.clone());
        }
        if let Some(name) = defined_constant(line)
            && REFUSED_IN_CONSTANTS.iter().any(|word| name.contains(word))
        {
            violations.push(format!("{place}: constant `{name}`; write `MAX_…`, `…_LIMIT` or `…_TIMEOUT`"));
        }
        if let Some(word) = comment(line).and_then(refused_word) {
            violations.push(format!("{place}: a comment about `{word}`; name the component instead"));
        }
        if let Some(opening) = refused_doc_opening(line) {
            violations.push(format!("{place}: a doc comment begins with `{opening}`; begin with a noun or a verb"));
        }
    }
}

/// Returns the name of the type that a line defines. Associated types, which are indented `type` lines, name a trait's
/// type and are left out.
fn defined_type(line: &str) -> Option<&str> {
    let code = without_visibility(line.trim_start());
    let keywords: &[&str] =
        if line.starts_with(' ') { &["struct ", "enum ", "trait "] } else { &["struct ", "enum ", "trait ", "type "] };
    let rest = keywords.iter().find_map(|keyword| code.strip_prefix(keyword))?;
    Some(identifier(rest)).filter(|name| !name.is_empty())
}

/// Returns the name of the constant or static that a line defines.
fn defined_constant(line: &str) -> Option<&str> {
    let code = without_visibility(line.trim_start());
    let rest = code.strip_prefix("const ").or_else(|| code.strip_prefix("static "))?;
    Some(identifier(rest)).filter(|name| !name.is_empty())
}

/// Strips `pub`, `pub(crate)` and the like.
fn without_visibility(code: &str) -> &str {
    let Some(rest) = code.strip_prefix("pub") else { return code };
    match rest.strip_prefix('(') {
        Some(scope) => scope.split_once(") ").map_or(code, |(_, after)| after),
        None => rest.strip_prefix(' ').unwrap_or(code),
    }
}

/// Returns the identifier that a text begins with; empty if there is none.
fn identifier(text: &str) -> &str {
    let end = text.find(|character: char| !character.is_alphanumeric() && character != '_').unwrap_or(text.len());
    text.get(..end).unwrap_or_default()
}

/// Returns the text of a comment: a line of its own, or one behind code. `://` is an address.
fn comment(line: &str) -> Option<&str> {
    let start = line.match_indices("//").map(|(at, _)| at).find(|at| !line[..*at].ends_with(':'))?;
    // Behind code only with a space before it; else it is part of a string, most likely.
    let before = line.get(..start)?;
    (before.trim().is_empty() || before.ends_with(' ')).then(|| &line[start..])
}

/// Returns the refused word in a comment, compared as a whole word and without case.
fn refused_word(comment: &str) -> Option<&'static str> {
    let lower = comment.to_lowercase();
    let mut words = lower.split(|character: char| !character.is_alphanumeric());
    words.find_map(|word| REFUSED_IN_COMMENTS.into_iter().find(|refused| *refused == word))
}

/// Returns the refused word that a line of a doc comment begins with. Lines inside a paragraph are checked as well: the
/// check does not know where a sentence begins, and a line break can be moved.
fn refused_doc_opening(line: &str) -> Option<&'static str> {
    let code = line.trim_start();
    let text = code.strip_prefix("/// ").or_else(|| code.strip_prefix("//! "))?;
    REFUSED_DOC_OPENINGS.into_iter().find(|opening| text.starts_with(opening)).map(str::trim_end)
}

/// Collects the Rust files below a folder in the order of their names, so that violations are listed in a stable order.
fn collect_rust_files(folder: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    let mut entries = fs::read_dir(folder)?.collect::<std::io::Result<Vec<_>>>()?;
    entries.sort_by_key(fs::DirEntry::path);
    for entry in entries {
        let path = entry.path();
        if path.is_dir() {
            // A crate that is built on its own leaves one behind.
            if path.file_name().is_some_and(|name| name != "target") {
                collect_rust_files(&path, files)?;
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn violations(text: &str) -> Vec<String> {
        let mut violations = Vec::new();
        check_file("f.rs", text, &mut violations, &mut BTreeMap::new());
        violations
    }

    #[test]
    fn refused_names_are_found_where_they_are_defined() {
        for line in ["struct Wish;", "pub(crate) enum Told {", "    pub struct Asked<'a> {", "pub type Shelf = u8;"] {
            assert_eq!(violations(line).len(), 1, "{line}");
        }
        for line in ["pub(crate) const MOST: usize = 1;", "static LONGEST_LINE: u8 = 1;", "    const FAREWELL: u8 = 1;"]
        {
            assert_eq!(violations(line).len(), 1, "{line}");
        }
        for line in
            ["struct CallRequest;", "let wish = Wish::new();", "    type Err = Told;", "const MAX_TOOLS: u8 = 1;"]
        {
            assert_eq!(violations(line), Vec::<String>::new(), "{line}");
        }
    }

    #[test]
    fn refused_words_are_found_in_comments_alone() {
        for line in ["// Nobody waits.", "/// For whoever asks.", "let a = 1; // somebody's"] {
            assert_eq!(violations(line).len(), 1, "{line}");
        }
        for line in ["let nobody = 1;", "let url = \"http://nobody\";", "// the client waits"] {
            assert_eq!(violations(line), Vec::<String>::new(), "{line}");
        }
    }

    #[test]
    fn a_doc_comment_begins_with_a_noun_or_a_verb() {
        for line in ["/// What is kept.", "//! Who waits longest.", "    /// What a source offers."] {
            assert_eq!(violations(line).len(), 1, "{line}");
        }
        for line in [
            "// What follows is not a doc comment.",
            "/// Whatever the source offers.",
            "/// Whole list of tools.",
            "/// Returns what is kept.",
            "let text = \"/// What\";",
        ] {
            assert_eq!(violations(line), Vec::<String>::new(), "{line}");
        }
    }

    #[test]
    fn visibility_is_no_part_of_a_definition() {
        assert_eq!(defined_type("pub(in crate::a) struct Name<T>(T);"), Some("Name"));
        assert_eq!(defined_type("public struct Name"), None);
        assert_eq!(defined_constant("pub const MAX_TOOLS: usize = 1;"), Some("MAX_TOOLS"));
    }
}
