//! `cargo xtask test`: everything that CI runs. Each step runs even after a failed one, and the summary lists them all;
//! only a failed build skips the steps that need its programs.
//!
//! With filters, the static checks are left out and only the matching tests and conformance scenarios run. Order:
//! fetch, static checks (which include single features and `cargo package`), build, tests, conformance, artefacts.

use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};

use crate::deps::missing_component;
use crate::paths::WorkspacePaths;
use crate::postgres::SharedPostgres;
use crate::process::{cargo, is_available, run_visible};
use crate::report::{StepReport, StepStatus};
use crate::{check, conformance, dependencies, deps, dist};

/// The same selection for every cargo command, so that no crate is compiled twice with other features.
const WORKSPACE_ARGS: [&str; 3] = ["--workspace", "--features", "toolcrib-testkit/rmcp-server"];
/// Features of the library that are checked alone. `testkit` is checked by other steps.
const LIBRARY_FEATURES: [&str; 8] = ["mcp", "sqlite", "postgres", "openapi", "workflow", "builtins", "tokens", "otel"];

/// Part of the names of the tests that also run on the newer version of PostgreSQL: the contract of stores, and what
/// only this store has.
const POSTGRES_TESTS: &str = "store::postgres";

/// Exit code of nextest when its filters match no test. That is an error only if no conformance scenario matches
/// either.
const NEXTEST_NO_TESTS_EXIT_CODE: i32 = 4;

/// Runs the steps that the filters select. A filter is a part of the name of a test or scenario.
pub(crate) fn run(paths: &WorkspacePaths, filters: &[&str]) -> ExitCode {
    let mut report = StepReport::default();
    // First, because the tests look for these programs when they start. Also with filters: any test may need them.
    deps::fetch(paths, &mut report);
    if filters.is_empty() {
        check::run_static_checks(paths, &mut report);
        report.run_step("dependencies", || dependencies::check(paths));
        report.run_step("documentation", || build_documentation(paths));
        report.run_step("features", || check_features(paths));
        report.run_step("package", || package_crates(paths));
    }
    report.run_step("build", || run_visible(workspace_command(paths, &["build", "--all-targets"], &[])));
    if report.has_last_failed() {
        report.skip_step("tests", "the build failed");
    } else {
        run_tests(paths, filters, &mut report);
    }
    if report.print_summary() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Builds the documentation of all crates; broken links are errors.
fn build_documentation(paths: &WorkspacePaths) -> StepStatus {
    // The command and the library are both called `toolcrib`, and so are their pages: one after the other.
    for selection in [["--workspace", "--exclude", "toolcrib-cli"].as_slice(), &["--package", "toolcrib-cli"]] {
        let mut command = cargo(paths, &[&["doc", "--no-deps"], selection].concat());
        command.env("RUSTDOCFLAGS", "-D warnings");
        if let StepStatus::Failed(reason) = run_visible(command) {
            return StepStatus::Failed(reason);
        }
    }
    StepStatus::Passed(String::new())
}

/// Checks the library without features and with each one alone; warnings are errors. Through clippy, because its flags
/// apply to this crate only, while `RUSTFLAGS` would compile every dependency again.
fn check_features(paths: &WorkspacePaths) -> StepStatus {
    let library = std::iter::once("").chain(LIBRARY_FEATURES).map(|feature| ("toolcrib", feature));
    let selections: Vec<(&str, &str)> = library.chain([("toolcrib-openapi", ""), ("toolcrib-cli", "")]).collect();
    for (package, features) in &selections {
        println!("    {package} with {}", if features.is_empty() { "no features" } else { features });
        let selection = ["clippy", "--package", package, "--no-deps", "--no-default-features"];
        let lints = ["--features", features, "--", "-D", "warnings"];
        if let StepStatus::Failed(reason) = run_visible(cargo(paths, &[&selection[..], &lints].concat())) {
            return StepStatus::Failed(format!("`{package}` with feature `{features}`: {reason}"));
        }
    }
    StepStatus::Passed(format!("{} selections", selections.len()))
}

/// Packages every crate that is published. Without building the packages: that would compile the workspace once more.
fn package_crates(paths: &WorkspacePaths) -> StepStatus {
    let unpublished = ["--exclude", "xtask", "--exclude", "toolcrib-bench"];
    // Also with uncommitted changes: a developer runs the tests before the commit.
    let options = ["--no-verify", "--allow-dirty", "--quiet"];
    run_visible(cargo(paths, &[&["package", "--workspace"], &unpublished[..], &options].concat()))
}

/// Runs all steps that need the built programs.
fn run_tests(paths: &WorkspacePaths, filters: &[&str], report: &mut StepReport) {
    println!("    packages: {}\n    data:     {}\n", paths.deps_dir.display(), describe_dir(&paths.data_dir));
    let skip_file = paths.target_dir.join("skipped-tests.txt");
    // Tests append to it; lines of an earlier run would be reported again.
    let _ = fs::remove_file(&skip_file);

    report.run_step("tests", || {
        // Without it, each test process starts a server of its own, or skips its tests.
        let postgres = SharedPostgres::start(paths);
        run_test_binaries(paths, filters, &skip_file, postgres.as_ref())
    });
    if filters.is_empty() {
        report.run_step("tests on PostgreSQL 18", || match SharedPostgres::start_fetched(paths) {
            Some(postgres) => run_test_binaries(paths, &[POSTGRES_TESTS], &skip_file, Some(&postgres)),
            None => missing_component("PostgreSQL 18 does not start"),
        });
        report.run_step("doc tests", || {
            run_visible(with_test_env(workspace_command(paths, &["test", "--doc"], &[]), paths, &skip_file))
        });
    }
    conformance::run(paths, filters, report);
    if filters.is_empty() {
        // From the binary of the tests: how artefacts are made is what is tried here, and `cargo xtask dist` tries the
        // optimised ones.
        let out_dir = paths.target_dir.join("artefacts");
        dist::package_and_verify(paths, &paths.target_dir.join("toolcrib"), &out_dir, report);
    }
    let skipped = fs::read_to_string(&skip_file).unwrap_or_default();
    report.set_skipped_tests(skipped.lines().map(str::to_owned).collect());
}

/// Runs the tests with nextest, or with `cargo test` where nextest is not installed.
fn run_test_binaries(
    paths: &WorkspacePaths,
    filters: &[&str],
    skip_file: &Path,
    postgres: Option<&SharedPostgres>,
) -> StepStatus {
    let prepare = |command: Command| {
        let mut command = with_filters(with_test_env(command, paths, skip_file), filters);
        if let Some(postgres) = postgres {
            postgres.set_test_env(&mut command);
        }
        command
    };
    if !is_available("cargo-nextest", "--version") {
        let command = workspace_command(paths, &["test", "--all-targets", "--no-fail-fast"], &["--"]);
        return run_visible(prepare(command));
    }
    // A person watches each test pass; the log of CI lists only failures and slow tests.
    let level = if std::env::var_os("CI").is_some() { "slow" } else { "pass" };
    let run = ["nextest", "run", "--no-fail-fast", "--status-level", level, "--final-status-level", "slow"];
    match prepare(workspace_command(paths, &run, &[])).status() {
        Ok(status) if status.success() => StepStatus::Passed(String::new()),
        Ok(status) if status.code() == Some(NEXTEST_NO_TESTS_EXIT_CODE) => no_tests_status(filters),
        Ok(status) => StepStatus::Failed(status.to_string()),
        Err(error) => StepStatus::Failed(format!("start nextest: {error}")),
    }
}

/// Status of a run without tests: a typing error in the filter, unless it selects a conformance scenario.
fn no_tests_status(filters: &[&str]) -> StepStatus {
    if !filters.is_empty() && conformance::count_matching(filters) > 0 {
        return StepStatus::Skipped("no test matches".to_owned());
    }
    StepStatus::Failed(format!("nothing matches `{}`", filters.join(" ")))
}

/// Cargo with the features that all steps share.
pub(crate) fn workspace_command(paths: &WorkspacePaths, before: &[&str], after: &[&str]) -> Command {
    cargo(paths, &[before, &WORKSPACE_ARGS, after].concat())
}

/// Appends the filters; both test runners take them as positional arguments.
fn with_filters(mut command: Command, filters: &[&str]) -> Command {
    command.args(filters);
    command
}

/// Sets the variables that `toolcrib_testkit::programs` reads.
fn with_test_env(mut command: Command, paths: &WorkspacePaths, skip_file: &Path) -> Command {
    command.env("TOOLCRIB_TEST_DEPS", &paths.deps_dir).env("TOOLCRIB_TEST_DATA", &paths.data_dir);
    command.env("TOOLCRIB_TEST_SKIPS", skip_file);
    command
}

/// Formats a path, with a note if it does not exist.
fn describe_dir(path: &Path) -> String {
    let note = if path.is_dir() { "" } else { " (absent: tests that need it are skipped)" };
    format!("{}{note}", path.display())
}
