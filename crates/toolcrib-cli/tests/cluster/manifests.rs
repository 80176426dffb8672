//! The files for container engines and Kubernetes parse, and agree with Toolcrib and with each other. They are not run.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use serde_json::{Value, json};
use toolcrib::config::yaml_to_json;
use toolcrib_testkit::programs;

use super::example_dir;
use crate::support;

#[test]
fn compose_starts_three_nodes_a_database_and_the_balancer() {
    let compose = read_yaml("compose.yaml");
    let services: Vec<&String> = compose["services"].as_object().unwrap().keys().collect();
    assert_eq!(services, ["postgres", "node-a", "node-b", "node-c", "haproxy"]);
    let balancer = &compose["services"]["haproxy"];
    let config = read_text("haproxy.cfg");
    for label in ["a", "b", "c"] {
        let node = &compose["services"][format!("node-{label}")];
        let command = texts(&node["command"]);
        assert_eq!(command.first(), Some(&"serve"));
        assert!(command.windows(2).any(|pair| pair == ["--node", label]), "{command:?}");
        assert_known_flags(&command);
        assert_eq!(node["build"]["dockerfile"], json!("docs/examples/Containerfile"));
        assert_environment(node["environment"].as_object().unwrap().keys());
        // The balancer finds the node by the variable that its configuration reads.
        let variable = format!("NODE_{}", label.to_uppercase());
        assert_eq!(balancer["environment"][&variable], json!(format!("node-{label}:7450")));
        assert!(config.contains(&format!("server {label} \"${{{variable}}}\"")));
    }
    assert!(config.contains("bind \"${BALANCER_LISTEN}\"") && balancer["environment"]["BALANCER_LISTEN"].is_string());
    assert_eq!(balancer["ports"], json!(["127.0.0.1:7450:7450"]));
}

#[test]
fn kubernetes_manifests_agree_with_each_other() {
    let mut manifests = BTreeMap::new();
    for entry in fs::read_dir(example_dir().join("kubernetes")).unwrap() {
        let file = entry.unwrap().file_name().into_string().unwrap();
        manifests.insert(file.clone(), read_yaml(&format!("kubernetes/{file}")));
    }
    let kinds: Vec<(&str, &str, &str)> = manifests
        .values()
        .map(|manifest| {
            let text = |value: &'_ Value| value.as_str().unwrap().to_owned().leak() as &str;
            (text(&manifest["apiVersion"]), text(&manifest["kind"]), text(&manifest["metadata"]["name"]))
        })
        .collect();
    let expected = [
        ("v1", "ConfigMap", "toolcrib"),
        ("policy/v1", "PodDisruptionBudget", "toolcrib"),
        ("v1", "Service", "toolcrib-nodes"),
        ("v1", "Service", "toolcrib"),
        ("apps/v1", "StatefulSet", "toolcrib"),
    ];
    assert_eq!(kinds, expected);

    let nodes = &manifests["statefulset.yaml"]["spec"];
    let labels = &nodes["template"]["metadata"]["labels"];
    assert_eq!(&nodes["selector"]["matchLabels"], labels);
    assert_eq!(&manifests["service.yaml"]["spec"]["selector"], labels);
    assert_eq!(&manifests["poddisruptionbudget.yaml"]["spec"]["selector"]["matchLabels"], labels);
    assert_eq!(nodes["serviceName"], manifests["service-nodes.yaml"]["metadata"]["name"]);
    assert_eq!(manifests["service.yaml"]["spec"]["sessionAffinity"], json!("ClientIP"));

    let node = &nodes["template"]["spec"]["containers"][0];
    let arguments = texts(&node["args"]);
    assert_eq!(arguments.first(), Some(&"serve"));
    assert!(arguments.contains(&"--node=$(POD_NAME)") && arguments.contains(&"--listen=0.0.0.0:7450"), "{arguments:?}");
    assert_known_flags(&arguments);
    assert_eq!(node["ports"], json!([{ "name": "http", "containerPort": 7450 }]));
    assert_eq!(node["startupProbe"]["httpGet"], json!({ "path": "/healthz", "port": "http" }));
    let spread = &nodes["template"]["spec"]["topologySpreadConstraints"][0];
    assert_eq!(&spread["labelSelector"]["matchLabels"], labels);
    assert_eq!(node["livenessProbe"]["httpGet"], json!({ "path": "/healthz", "port": "http" }));
    assert_eq!(node["readinessProbe"]["httpGet"], json!({ "path": "/readyz", "port": "http" }));
    let variables = node["env"].as_array().unwrap();
    assert_environment(variables.iter().map(|variable| variable["name"].as_str().unwrap()));
    // What the reader of the page has to provide. Without a tag and a policy, a machine would pull the newest image at
    // each start.
    let readme = read_text("README.md");
    let image = node["image"].as_str().unwrap();
    assert!(image.rsplit('/').next().unwrap().contains(':') && readme.contains(image), "{image}");
    assert_eq!(node["imagePullPolicy"], json!("IfNotPresent"));
    let references: Vec<&Value> = variables.iter().map(|variable| &variable["valueFrom"]["secretKeyRef"]).collect();
    let secret_keys: Vec<&str> = references.iter().filter_map(|reference| reference["key"].as_str()).collect();
    assert_eq!(secret_keys, ["admin-token", "postgres-password"]);
    assert!(secret_keys.iter().all(|key| readme.contains(&format!("`{key}=…`"))));
    assert!(references.iter().all(|reference| reference.is_null() || reference["name"] == json!("toolcrib")));
    assert!(readme.contains("kubectl create secret generic toolcrib "));
}

/// Regression: each shell had another password, of which the database knows the first one only.
#[test]
fn the_secrets_of_compose_are_written_once_and_private() {
    let name = "the_secrets_of_compose_are_written_once_and_private";
    if Command::new("openssl").arg("version").output().is_err() {
        return programs::skip(name, "`openssl` is not installed");
    }
    let readme = read_text("README.md");
    let (_, commands) = readme.split_once("cd examples/cluster\n").unwrap();
    let (command, _) = commands.split_once("docker compose up").unwrap();
    let directory = tempfile::tempdir().unwrap();
    let secrets = || {
        let status = Command::new("sh").args(["-c", command]).current_dir(directory.path()).status().unwrap();
        assert!(status.success(), "{command}: {status}");
        fs::read_to_string(directory.path().join(".env")).unwrap()
    };
    let first = secrets();
    assert_eq!(secrets(), first);
    let variables: Vec<(&str, usize)> = first
        .lines()
        .map(|line| line.split_once('=').unwrap())
        .map(|(variable, value)| (variable, value.len()))
        .collect();
    assert_eq!(variables, [("TOOLCRIB_ADMIN_TOKEN", 48), ("POSTGRES_PASSWORD", 48)]);
    let mode = fs::metadata(directory.path().join(".env")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn the_configurations_load() {
    let home = support::Toolcrib::new();
    let manifest = read_yaml("kubernetes/configmap.yaml");
    let embedded = manifest["data"]["toolcrib.yaml"].as_str().unwrap().to_owned();
    for text in [embedded, read_text("cluster.yaml")] {
        let path = home.write("cluster.yaml", &text);
        home.run_ok(&["--config", path.to_str().unwrap(), "config"]).assert_stdout("core");
    }
}

#[track_caller]
fn read_yaml(name: &str) -> Value {
    yaml_to_json(&read_text(name), 1000).unwrap_or_else(|error| panic!("{name}: {error:?}"))
}

fn read_text(name: &str) -> String {
    fs::read_to_string(example_dir().join(name)).unwrap()
}

fn texts(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|value| value.as_str().unwrap()).collect()
}

/// Asserts that `toolcrib serve` knows all flags.
#[track_caller]
fn assert_known_flags(arguments: &[&str]) {
    let help = support::Toolcrib::new().run_ok(&["serve", "--help"]).stdout;
    let flags = arguments.iter().filter(|argument| argument.starts_with('-'));
    for flag in flags.map(|flag| flag.split('=').next().unwrap()) {
        let is_listed = help.split_whitespace().any(|word| word.trim_matches([',', '.']) == flag);
        assert!(is_listed, "`{flag}` is not in\n{help}");
    }
}

/// Asserts that a node has its secrets from the environment, and not in arguments.
#[track_caller]
fn assert_environment(names: impl Iterator<Item = impl AsRef<str>>) {
    let names: Vec<String> = names.map(|name| name.as_ref().to_owned()).collect();
    assert!(["TOOLCRIB_ADMIN_TOKEN", "PGPASSWORD"].iter().all(|name| names.iter().any(|own| own == name)), "{names:?}");
}
