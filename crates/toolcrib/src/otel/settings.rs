//! The `OTEL_*` environment variables that control trace export. The exporter reads endpoint and headers itself.
//!
//! | variable                                         | effect here                |
//! |--------------------------------------------------|----------------------------|
//! | `OTEL_EXPORTER_OTLP_[TRACES_]ENDPOINT`           | enables the export         |
//! | `OTEL_SDK_DISABLED`, `OTEL_TRACES_EXPORTER=none` | disable it                 |
//! | `OTEL_EXPORTER_OTLP_[TRACES_]PROTOCOL`           | must be `http/protobuf`    |
//! | `OTEL_EXPORTER_OTLP_[TRACES_]TIMEOUT`            | milliseconds for one batch |
//! | `OTEL_TRACES_SAMPLER`, `…_SAMPLER_ARG`           | which traces are exported  |
//!
//! A setting that is not supported disables the export with a warning; it never fails a command. The functions take
//! the lookup as an argument, so that tests need not change the environment of the process.

use std::time::Duration;

use crate::spans::Sampler;

/// Returns which traces to export. Export is opt-in: `None` without an endpoint. The error is the reason why the settings
/// are not supported.
pub(super) fn read_trace_export(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Sampler>, String> {
    // OpenTelemetry treats an empty variable as unset, and a signal-specific one overrides the general one.
    let read = |name: &str| variable(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty());
    let for_traces = |name: &str| read(&format!("OTEL_EXPORTER_OTLP_TRACES_{name}"));
    let otlp_setting = |name: &str| for_traces(name).or_else(|| read(&format!("OTEL_EXPORTER_OTLP_{name}")));
    let disabled = read("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"));
    let exporters = read("OTEL_TRACES_EXPORTER").unwrap_or_else(|| "otlp".into());
    if disabled || exporters == "none" || otlp_setting("ENDPOINT").is_none() {
        return Ok(None);
    }
    if !exporters.split(',').any(|exporter| exporter.trim() == "otlp") {
        return Err(format!("`OTEL_TRACES_EXPORTER` is `{exporters}`; only `otlp` is supported"));
    }
    match otlp_setting("PROTOCOL").as_deref() {
        None | Some("http/protobuf") => {}
        Some(other) => {
            // A setup for gRPC names port 4317 of the collector, which does not accept HTTP.
            let port = if other == "grpc" { ", usually on port 4318 instead of 4317" } else { "" };
            return Err(format!("`OTEL_EXPORTER_OTLP_PROTOCOL` is `{other}`; only `http/protobuf` is supported{port}"));
        }
    }
    parse_sampler(read("OTEL_TRACES_SAMPLER").as_deref(), read("OTEL_TRACES_SAMPLER_ARG").as_deref()).map(Some)
}

/// Returns the export timeout for one batch, given in milliseconds. A value that is no positive number counts as unset.
pub(super) fn read_export_timeout(variable: impl Fn(&str) -> Option<String>) -> Option<Duration> {
    let read = |name: &str| variable(name)?.trim().parse().ok().filter(|milliseconds| *milliseconds > 0);
    let milliseconds = read("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT").or_else(|| read("OTEL_EXPORTER_OTLP_TIMEOUT"));
    milliseconds.map(Duration::from_millis)
}

/// Parses the sampler names of the OpenTelemetry specification. Without a name every trace is exported, unless the
/// parent was not sampled.
fn parse_sampler(name: Option<&str>, argument: Option<&str>) -> Result<Sampler, String> {
    let name = name.unwrap_or("parentbased_always_on");
    let parent_based = name.starts_with("parentbased_");
    let ratio = match name.trim_start_matches("parentbased_") {
        "always_on" => 1.0,
        "always_off" => 0.0,
        "traceidratio" => {
            let ratio = argument.unwrap_or("1").parse::<f64>().ok().filter(|ratio| (0.0..=1.0).contains(ratio));
            ratio.ok_or("`OTEL_TRACES_SAMPLER_ARG` must be a number between 0 and 1")?
        }
        _ => return Err(format!("unsupported `OTEL_TRACES_SAMPLER` `{name}`")),
    };
    Ok(Sampler { ratio, parent_based })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_export_timeout() {
        let set = |pairs: &'static [(&str, &str)]| {
            read_export_timeout(|name| {
                pairs.iter().find(|(variable, _)| *variable == name).map(|(_, value)| (*value).to_owned())
            })
        };
        assert_eq!(set(&[("OTEL_EXPORTER_OTLP_TIMEOUT", "30000")]), Some(Duration::from_secs(30)));
        let both = &[("OTEL_EXPORTER_OTLP_TIMEOUT", "30000"), ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "1")];
        assert_eq!(set(both), Some(Duration::from_millis(1)));
        assert_eq!(set(&[("OTEL_EXPORTER_OTLP_TIMEOUT", "soon")]), None);
    }

    type ExportSettings = Result<Option<Sampler>, String>;

    fn check(variables: &[(&str, &str)], expected: impl Fn(&ExportSettings) -> bool) {
        let found = read_trace_export(|name| {
            variables.iter().find(|(variable, _)| *variable == name).map(|(_, value)| (*value).to_owned())
        });
        assert!(expected(&found), "{variables:?}: {found:?}");
    }

    #[test]
    fn the_environment_controls_the_export() {
        const ENDPOINT: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318");
        let sampled = |ratio, by_parent| {
            move |found: &ExportSettings| *found == Ok(Some(Sampler { ratio, parent_based: by_parent }))
        };
        let off = |found: &ExportSettings| *found == Ok(None);
        let impossible = |found: &ExportSettings| found.is_err();
        check(&[], off);
        check(&[("OTEL_EXPORTER_OTLP_ENDPOINT", " ")], off);
        check(&[ENDPOINT], sampled(1.0, true));
        check(&[("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://127.0.0.1:1/x")], sampled(1.0, true));
        check(&[ENDPOINT, ("OTEL_SDK_DISABLED", "true")], off);
        check(&[ENDPOINT, ("OTEL_TRACES_EXPORTER", "none")], off);
        check(&[ENDPOINT, ("OTEL_TRACES_EXPORTER", "zipkin")], impossible);
        check(&[ENDPOINT, ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")], sampled(1.0, true));
        check(&[ENDPOINT, ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")], impossible);
        check(&[ENDPOINT, ("OTEL_TRACES_SAMPLER", "always_off")], sampled(0.0, false));
        check(
            &[ENDPOINT, ("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"), ("OTEL_TRACES_SAMPLER_ARG", "0.25")],
            sampled(0.25, true),
        );
        check(&[ENDPOINT, ("OTEL_TRACES_SAMPLER", "traceidratio"), ("OTEL_TRACES_SAMPLER_ARG", "7")], impossible);
        check(&[ENDPOINT, ("OTEL_TRACES_SAMPLER", "jaeger_remote")], impossible);
    }
}
