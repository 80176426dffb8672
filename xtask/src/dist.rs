//! `cargo xtask dist`: the files of a release, in `target/artefacts`. An archive with the binary, shell completions,
//! man pages and licence; a Debian package with the same; the context of a container image; their checksums.
//!
//! The archive is tried before this succeeds: it is unpacked into an empty directory, and the demo runs from there. The
//! same steps run in `cargo xtask test` with the binary of the tests, so that packaging cannot break unnoticed.
//!
//! ```text
//! target/artefacts/toolcrib-0.2.0-x86_64-linux.tar.gz
//!                  toolcrib_0.2.0_amd64.deb
//!                  container/Containerfile, container/toolcrib
//!                  SHA256SUMS
//! ```

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use crate::paths::WorkspacePaths;
use crate::process::{cargo, is_available, run_logged_checked, run_visible};
use crate::report::{StepReport, StepStatus};

/// Version of the workspace, which all crates share.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Time for one packaging command, and for the demo of a debug build on a busy machine.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(300);
/// File names of the completions as each shell looks for them, with the name that `toolcrib completions` has for it.
const COMPLETIONS: [(&str, &str); 3] = [("bash", "toolcrib.bash"), ("zsh", "_toolcrib"), ("fish", "toolcrib.fish")];

/// Builds with the profile `dist` and makes all artefacts from that binary.
pub(crate) fn run(paths: &WorkspacePaths) -> ExitCode {
    let mut report = StepReport::default();
    report.run_step("build with profile `dist`", || {
        run_visible(cargo(paths, &["build", "--profile", "dist", "--package", "toolcrib-cli"]))
    });
    if report.has_last_failed() {
        report.skip_step("artefacts", "the build failed");
    } else {
        let target = paths.target_dir.with_file_name("dist");
        let out_dir = paths.target_dir.with_file_name("artefacts");
        package_and_verify(paths, &target.join("toolcrib"), &out_dir, &mut report);
    }
    if report.print_summary() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Makes all artefacts from a binary that was built before, and tries the archive. Without an archive the other steps
/// are left out, because the Debian package is made of the same staging directory.
pub(crate) fn package_and_verify(paths: &WorkspacePaths, binary: &Path, out_dir: &Path, report: &mut StepReport) {
    let mut archive = None;
    report.run_step("archive", || match Packager::prepare(paths, binary, out_dir).and_then(|it| it.make_archive()) {
        Ok(path) => {
            let text = describe_file(&path);
            archive = Some(path);
            StepStatus::Passed(text)
        }
        Err(reason) => StepStatus::Failed(reason),
    });
    let Some(archive) = archive else { return };
    report.run_step("archive unpacked, demo run", || status(verify_archive(&archive, out_dir)));
    let packager = Packager::new(paths, binary, out_dir);
    report.run_step("debian package", || {
        if is_available("dpkg-deb", "--version") {
            packager
                .make_debian_package()
                .map_or_else(StepStatus::Failed, |path| StepStatus::Passed(describe_file(&path)))
        } else {
            StepStatus::Skipped("`dpkg-deb` is not installed".to_owned())
        }
    });
    report.run_step("container context", || status(packager.make_container_context()));
    report.run_step("checksums", || status(write_checksums(out_dir)));
}

/// Paths that all artefacts share.
struct Packager<'a> {
    paths: &'a WorkspacePaths,
    binary: &'a Path,
    out_dir: &'a Path,
    /// Binary, completions, man pages and licence; the archive is this directory.
    staging: PathBuf,
}

impl<'a> Packager<'a> {
    /// Names the paths without touching them.
    fn new(paths: &'a WorkspacePaths, binary: &'a Path, out_dir: &'a Path) -> Packager<'a> {
        let staging = out_dir.join(format!("toolcrib-{VERSION}-{}", platform()));
        Packager { paths, binary, out_dir, staging }
    }

    /// Empties the output directory and fills the staging directory.
    fn prepare(paths: &'a WorkspacePaths, binary: &'a Path, out_dir: &'a Path) -> Result<Packager<'a>, String> {
        let packager = Packager::new(paths, binary, out_dir);
        if out_dir.exists() {
            fs::remove_dir_all(out_dir).map_err(|error| format!("empty `{}`: {error}", out_dir.display()))?;
        }
        let staging = &packager.staging;
        create_dir(&staging.join("completions"))?;
        create_dir(&staging.join("man"))?;
        copy(binary, &staging.join("toolcrib"))?;
        for file in ["LICENSE", "CHANGELOG.md"] {
            copy(&paths.root.join(file), &staging.join(file))?;
        }
        // Written by the binary itself, so that they cannot differ from its arguments.
        for (shell, file) in COMPLETIONS {
            let output = Command::new(binary).args(["completions", shell]).output();
            let output = output.map_err(|error| format!("start `toolcrib completions {shell}`: {error}"))?;
            if !output.status.success() || output.stdout.is_empty() {
                return Err(format!("`toolcrib completions {shell}` ended with {}", output.status));
            }
            write(&staging.join("completions").join(file), &output.stdout)?;
        }
        packager.run_logged(Command::new(binary).arg("man").arg(staging.join("man")))?;
        Ok(packager)
    }

    /// Packs the staging directory and returns the path of the archive.
    fn make_archive(&self) -> Result<PathBuf, String> {
        let archive = self.out_dir.join(format!("toolcrib-{VERSION}-{}.tar.gz", platform()));
        let folder = self.staging.file_name().ok_or("the staging directory has no name")?;
        // Owner, order and time do not depend on the machine, so that the same binary makes the same archive.
        let mut command = Command::new("tar");
        command.args(["--create", "--gzip", "--owner=0", "--group=0", "--sort=name", "--mtime=@0", "--file"]);
        command.arg(&archive).arg("--directory").arg(self.out_dir).arg(folder).env("GZIP", "-n");
        self.run_logged(&mut command)?;
        Ok(archive)
    }

    /// Builds the package from a directory tree that is removed afterwards, and returns its path.
    fn make_debian_package(&self) -> Result<PathBuf, String> {
        let output = Command::new("dpkg").arg("--print-architecture").output();
        let output = output.map_err(|error| format!("start `dpkg`: {error}"))?;
        let architecture = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        let tree = self.out_dir.join("deb");
        let installed = [
            ("toolcrib", "usr/bin/toolcrib"),
            ("LICENSE", "usr/share/doc/toolcrib/copyright"),
            ("CHANGELOG.md", "usr/share/doc/toolcrib/CHANGELOG.md"),
            ("completions/toolcrib.bash", "usr/share/bash-completion/completions/toolcrib"),
            ("completions/_toolcrib", "usr/share/zsh/vendor-completions/_toolcrib"),
            ("completions/toolcrib.fish", "usr/share/fish/vendor_completions.d/toolcrib.fish"),
        ];
        for (from, to) in installed {
            copy(&self.staging.join(from), &tree.join(to))?;
        }
        // A unit to copy, not one that is enabled: which user it runs as is for the administrator to decide.
        let unit = self.paths.root.join("docs/examples/toolcrib.service");
        copy(&unit, &tree.join("usr/share/doc/toolcrib/examples/toolcrib.service"))?;
        for page in read_entries(&self.staging.join("man"))? {
            let name = page.file_name();
            copy(&page.path(), &tree.join("usr/share/man/man1").join(name))?;
        }
        let control = format!(
            "Package: toolcrib\nVersion: {VERSION}\nArchitecture: {architecture}\nMaintainer: Toolcrib developers\n\
             Depends: libc6\nSection: utils\nPriority: optional\n\
             Description: one catalogue of every tool an AI agent may use\n \
             Discovers the tools of MCP servers and OpenAPI documents, keeps them in an\n \
             inventory on disk, and serves them to agents over MCP and REST.\n"
        );
        write(&tree.join("DEBIAN/control"), control.as_bytes())?;
        let package = self.out_dir.join(format!("toolcrib_{VERSION}_{architecture}.deb"));
        let mut command = Command::new("dpkg-deb");
        self.run_logged(command.args(["--root-owner-group", "--build"]).arg(&tree).arg(&package))?;
        fs::remove_dir_all(&tree).map_err(|error| format!("remove `{}`: {error}", tree.display()))?;
        Ok(package)
    }

    /// A directory that `docker build` or `podman build` takes as it is.
    fn make_container_context(&self) -> Result<String, String> {
        let context = self.out_dir.join("container");
        copy(self.binary, &context.join("toolcrib"))?;
        let path = self.paths.root.join("docs/examples/Containerfile");
        let text = fs::read_to_string(&path).map_err(|error| format!("read `{}`: {error}", path.display()))?;
        let text = runtime_stage(&text).ok_or("`docs/examples/Containerfile` has no runtime stage")?;
        write(&context.join("Containerfile"), text.as_bytes())?;
        Ok(format!("docker build --file {0}/Containerfile {0}", context.display()))
    }

    /// Runs a packaging command; its output is shown only if it fails.
    fn run_logged(&self, command: &mut Command) -> Result<(), String> {
        let log = self.paths.target_dir.join("dist.log");
        run_logged_checked(command, &log, COMMAND_TIMEOUT)
    }
}

/// The stage of the Containerfile that runs, with the binary from the context instead of the stage that builds it.
fn runtime_stage(containerfile: &str) -> Option<String> {
    let (_, after_build) = containerfile.split_once("\nFROM debian")?;
    let stage = format!("FROM debian{after_build}");
    let binary = "COPY --from=build /usr/local/bin/toolcrib ";
    stage.contains(binary).then(|| stage.replace(binary, "COPY toolcrib "))
}

/// Unpacks the archive where nothing else is and runs the demo from it, as a new user would.
fn verify_archive(archive: &Path, out_dir: &Path) -> Result<String, String> {
    let scratch = out_dir.join("unpacked");
    create_dir(&scratch)?;
    let log = out_dir.join("verify.log");
    let mut unpack = Command::new("tar");
    unpack.arg("--extract").arg("--file").arg(archive).args(["--strip-components", "1"]);
    run_logged_checked(unpack.arg("--directory").arg(&scratch), &log, COMMAND_TIMEOUT)?;
    // One file of each kind.
    for file in ["toolcrib", "LICENSE", "completions/_toolcrib", "man/toolcrib.1", "man/toolcrib-serve.1"] {
        if !scratch.join(file).is_file() {
            return Err(format!("the archive has no `{file}`"));
        }
    }
    let mut demo = Command::new(scratch.join("toolcrib"));
    // Neither configuration nor data of the user may help it.
    demo.arg("demo").current_dir(&scratch).env("HOME", &scratch).env("XDG_DATA_HOME", scratch.join("data"));
    demo.env_remove("TOOLCRIB_CONFIG").env_remove("TOOLCRIB_DATA").env_remove("XDG_CONFIG_HOME");
    run_logged_checked(&mut demo, &log, COMMAND_TIMEOUT)?;
    let lines = fs::read_to_string(&log).map_err(|error| format!("read `{}`: {error}", log.display()))?.lines().count();
    for leftover in [&scratch, &log] {
        let removed = if leftover.is_dir() { fs::remove_dir_all(leftover) } else { fs::remove_file(leftover) };
        removed.map_err(|error| format!("remove `{}`: {error}", leftover.display()))?;
    }
    if lines == 0 { Err("the demo printed nothing".to_owned()) } else { Ok(format!("the demo printed {lines} lines")) }
}

/// Writes `SHA256SUMS` over the files that are downloaded: those directly in the output directory, not the directories.
fn write_checksums(out_dir: &Path) -> Result<String, String> {
    let mut files: Vec<String> = read_entries(out_dir)?
        .into_iter()
        .filter(|entry| entry.path().is_file())
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    files.sort();
    let output = Command::new("sha256sum").args(&files).current_dir(out_dir).output();
    let output = output.map_err(|error| format!("start `sha256sum`: {error}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
    }
    write(&out_dir.join("SHA256SUMS"), &output.stdout)?;
    Ok(format!("{} files in `{}`", files.len(), out_dir.display()))
}

/// Architecture and operating system that this program was built for, as in names of artefacts: `x86_64-linux`.
fn platform() -> String {
    format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS)
}

/// Maps the result of a step to its status.
fn status(result: Result<String, String>) -> StepStatus {
    result.map_or_else(StepStatus::Failed, StepStatus::Passed)
}

/// Formats a path with its size in megabytes, or 0.0 if it cannot be read.
fn describe_file(path: &Path) -> String {
    let megabytes = fs::metadata(path).map(|metadata| metadata.len() as f64 / 1e6).unwrap_or_default();
    format!("{} ({megabytes:.1} MB)", path.display())
}

/// Returns the entries of a directory. Fails if one of them cannot be read, so that no file is missing unnoticed.
fn read_entries(path: &Path) -> Result<Vec<fs::DirEntry>, String> {
    let entries = fs::read_dir(path).and_then(Iterator::collect);
    entries.map_err(|error| format!("read `{}`: {error}", path.display()))
}

/// Creates a directory and its parents; an existing one is no error.
fn create_dir(path: &Path) -> Result<(), String> {
    fs::create_dir_all(path).map_err(|error| format!("create `{}`: {error}", path.display()))
}

/// Copies a file with its permissions, and creates the directory for it.
fn copy(from: &Path, to: &Path) -> Result<(), String> {
    create_dir(to.parent().unwrap_or(to))?;
    fs::copy(from, to).map_err(|error| format!("copy `{}`: {error}", from.display()))?;
    Ok(())
}

/// Writes a file, and creates the directory for it.
fn write(path: &Path, bytes: &[u8]) -> Result<(), String> {
    create_dir(path.parent().unwrap_or(path))?;
    fs::write(path, bytes).map_err(|error| format!("write `{}`: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_container_of_an_artefact_builds_nothing() {
        let stage = runtime_stage(include_str!("../../docs/examples/Containerfile")).unwrap();
        assert!(stage.starts_with("FROM debian") && stage.contains("COPY toolcrib /usr/local/bin/toolcrib"));
        assert!(!stage.contains("cargo") && !stage.contains("--from="));
        assert_eq!(runtime_stage("FROM scratch\n"), None);
    }
}
