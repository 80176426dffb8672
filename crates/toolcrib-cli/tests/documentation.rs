//! Runs the examples of README and guides, as they are in the files. `docs/testing.md` explains how an example is written
//! so that it can be run; [`examples`] reads them, [`sandbox`] runs them.
//!
//! Each document is one test with a directory of its own. Its examples run from top to bottom and build on each other,
//! like those of a reader who follows the page.

mod examples;
mod output;
mod sandbox;

use std::path::{Path, PathBuf};

use examples::{Example, read_examples};
use sandbox::Sandbox;

/// One test for each document with examples.
macro_rules! documents {
    ($($test:ident: $path:literal),* $(,)?) => {
        const DOCUMENTS: &[&str] = &[$($path),*];
        $(#[test] fn $test() { run_document($path) })*
    };
}

documents! {
    readme: "README.md",
    access: "docs/access.md",
    benchmarks: "docs/benchmarks.md",
    clients: "docs/clients.md",
    configuration: "docs/configuration.md",
    console: "docs/console.md",
    formats: "docs/formats.md",
    history: "docs/history.md",
    install: "docs/install.md",
    openapi: "docs/openapi.md",
    operations: "docs/operations.md",
    rest: "docs/rest.md",
    search: "docs/search.md",
    security: "docs/security.md",
    testing: "docs/testing.md",
    workflows: "docs/workflows.md",
}

#[track_caller]
fn run_document(path: &str) {
    let text = std::fs::read_to_string(repository().join(path)).unwrap();
    let examples = read_examples(&text).unwrap_or_else(|fault| panic!("{path}:{fault}"));
    let Some(mut sandbox) = Sandbox::create(path) else { return };
    for Example { line, content } in &examples {
        sandbox.run(content).unwrap_or_else(|fault| panic!("{path}:{line}: {fault}"));
    }
}

/// A page that is not listed above would have examples that nothing runs.
#[test]
fn every_document_with_examples_is_listed() {
    let mut pages = vec![PathBuf::from("README.md"), PathBuf::from("CONTRIBUTING.md")];
    let guides = std::fs::read_dir(repository().join("docs")).unwrap().map(|entry| entry.unwrap().path());
    pages.extend(guides.map(|path| Path::new("docs").join(path.file_name().unwrap())));
    pages.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    for page in pages {
        let text = std::fs::read_to_string(repository().join(&page)).unwrap();
        let page = page.display().to_string();
        let examples = read_examples(&text).unwrap_or_else(|fault| panic!("{page}:{fault}"));
        assert!(examples.is_empty() || DOCUMENTS.contains(&page.as_str()), "{page} has examples and is not listed");
    }
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}
