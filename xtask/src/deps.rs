//! What the tests need and the repository does not hold: real MCP servers, the official SDKs, a current
//! Node.js, the conformance suite and a browser. Everything is fetched by package name with the ordinary clients,
//! pinned by the files in `xtask/deps`, into one folder; a second run finds it there.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::place::Place;
use crate::process::{answers, quiet_success};
use crate::report::{End, Report};

mod browser;
mod npm;
mod python;

/// Something to fetch as a whole.
struct Component {
    name: &'static str,
    /// The pins: when they change, it is fetched anew.
    pins: &'static [&'static str],
    /// Without this file it is not there, whatever the stamp says.
    proof: &'static str,
    fetch: fn(&Place) -> Result<(), String>,
}

const COMPONENTS: [Component; 3] = [
    Component { name: "npm packages", pins: &npm::PINS, proof: npm::PROOF, fetch: npm::fetch },
    Component { name: "python packages", pins: &python::PINS, proof: python::PROOF, fetch: python::fetch },
    Component { name: "browser", pins: &browser::PINS, proof: browser::PROOF, fetch: browser::fetch },
];

/// Long enough for a slow network, short enough for an evening.
const FETCH_DEADLINE: Duration = Duration::from_secs(600);

/// Fetches what is missing, one step a component.
pub(crate) fn fetch(place: &Place, report: &mut Report) {
    for component in &COMPONENTS {
        report.step(component.name, || match component.ensure(place) {
            Ok(text) => End::Passed(text.to_owned()),
            Err(reason) => missing(&format!("cannot be had: {reason}")),
        });
    }
    // Of Debian's package, the one program that reads metrics is used.
    report.step("promtool", || match need("promtool", "prometheus", &place.deps.join("apt.log")) {
        Ok(()) => End::Passed("there".to_owned()),
        Err(reason) => missing(&reason),
    });
}

/// A Python with the peer that `bench openapi` compares with. No test needs it.
pub(crate) fn fastmcp(place: &Place) -> Result<PathBuf, String> {
    python::fetch_peer(place, "fastmcp==3.4.10")
}

/// A component that cannot be had: a pity at home, a failure under CI.
pub(crate) fn missing(reason: &str) -> End {
    if std::env::var("CI").is_ok_and(|value| value == "true") {
        return End::Failed(reason.to_owned());
    }
    End::Skipped(reason.to_owned())
}

impl Component {
    fn ensure(&self, place: &Place) -> Result<&'static str, String> {
        let said = |error: std::io::Error| format!("prepare `{}`: {error}", place.deps.display());
        fs::create_dir_all(&place.deps).map_err(said)?;
        // Two runs at once share one folder.
        let lock = File::create(place.deps.join("lock")).map_err(said)?;
        lock.lock().map_err(said)?;

        // A virtual environment holds absolute paths, so a folder that moved counts as new.
        let wanted = format!("{}\n{}", place.deps.display(), self.pins.join("\n"));
        let stamp = place.deps.join(format!("{}.stamp", self.name.replace(' ', "-")));
        let is_there = place.deps.join(self.proof).exists();
        if is_there && fs::read_to_string(&stamp).is_ok_and(|found| found == wanted) {
            return Ok("there already");
        }
        (self.fetch)(place)?;
        fs::write(&stamp, wanted).map_err(said)?;
        Ok("fetched")
    }
}

/// Makes sure that a program is there, from Debian's packages where we may install them.
fn need(program: &str, package: &str, log: &Path) -> Result<(), String> {
    if answers(program, "--version") {
        return Ok(());
    }
    install(package, log).map_err(|error| format!("`{program}` is missing: {error}"))
}

fn install(package: &str, log: &Path) -> Result<(), String> {
    let id = Command::new("id").arg("-u").output();
    let root = id.is_ok_and(|output| output.stdout.trim_ascii() == b"0");
    if !root || !answers("apt-get", "--version") {
        return Err(format!("install `{package}` and run this again"));
    }
    println!("    apt-get install {package}");
    let apt = |arguments: &[&str]| {
        let mut command = Command::new("apt-get");
        quiet_success(command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive"), log, FETCH_DEADLINE)
    };
    let wanted = ["install", "-y", "--no-install-recommends", package];
    // A machine that was set up a while ago knows of packages that are gone by now.
    apt(&wanted).or_else(|_| apt(&["update"]).and_then(|()| apt(&wanted)))
}
