//! Flags of the scripted stdio server.

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process;

use serde_json::json;
use toolcrib_testkit::programs;

use crate::check_tools;
use crate::client::JsonLinesClient;

#[test]
fn three_tools_by_default() {
    check_tools(Some((programs::scripted_server(), vec![])), &["echo", "add", "fail"]);
}

#[test]
fn faulty_tools_are_listed_between_valid_ones() {
    let names = start_scripted(&["--no-schema", "--deep", "50"]).tool_names(json!({}));
    assert_eq!(names, ["echo", "no_schema", "deep", "add", "fail"]);
}

#[test]
fn pages_add_up_to_the_whole_list() {
    let mut server = start_scripted(&["--tools", "5", "--pages", "2"]);
    assert_eq!(server.tool_names(json!({})), ["echo", "add", "fail"]);
    assert_eq!(server.tool_names(json!({"cursor": "page-2"})), ["tool_0001", "tool_0002"]);
}

#[test]
fn a_list_from_a_file_is_served_byte_for_byte() {
    let odd = r#"{ "name":"odd" , "z":1e2, "a":123456789012345678901234567890, "a":"\u00e9" }"#;
    let file = temporary_path("verbatim");
    fs::write(&file, format!("{{\"server\":\"x\",\n\"tools\":[{odd}]}}")).unwrap();
    let line = start_scripted(&["--tools-file", file.to_str().unwrap()]).request_line("tools/list", json!({})).unwrap();
    fs::remove_file(file).unwrap();
    assert!(line.contains(odd), "{line}");
}

#[test]
fn a_list_has_the_requested_size() {
    let line = start_scripted(&["--big", "1000000"]).request_line("tools/list", json!({})).unwrap();
    assert!((1_000_000..1_000_200).contains(&line.len()), "{}", line.len());
}

#[test]
fn it_crashes_once_and_counts_its_starts() {
    let crash_marker = temporary_path("crashed");
    let starts = temporary_path("starts");
    let flags = ["--die-once", crash_marker.to_str().unwrap(), "--count-file", starts.to_str().unwrap()];
    let call = json!({"name": "add", "arguments": {"a": 2, "b": 3}});
    assert_eq!(start_scripted(&flags).request_line("tools/call", call.clone()), None);
    assert_eq!(start_scripted(&flags).request("tools/call", call)["content"][0]["text"], "5");
    assert_eq!(fs::read_to_string(&starts).unwrap().lines().count(), 2);
    fs::remove_file(crash_marker).and_then(|()| fs::remove_file(starts)).unwrap();
}

fn start_scripted(flags: &[&str]) -> JsonLinesClient {
    let flags: Vec<String> = flags.iter().map(|flag| (*flag).to_owned()).collect();
    JsonLinesClient::start(&programs::scripted_server(), &flags)
}

fn temporary_path(name: &str) -> PathBuf {
    env::temp_dir().join(format!("toolcrib-testkit-{name}-{}", process::id()))
}
