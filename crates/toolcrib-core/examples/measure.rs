use std::time::Instant;
use toolcrib_core::manifest::*;
use toolcrib_core::openapi::*;
use toolcrib_core::source::{OpenApi, SourceId};
fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let mut total = (0usize, 0usize, 0usize);
    for file in &args {
        let text = std::fs::read_to_string(file).unwrap();
        let began = Instant::now();
        let value = match parse(&text) {
            Ok(v) => v,
            Err(e) => {
                println!("{file}: {}", e.message);
                continue;
            }
        };
        let parsed = began.elapsed();
        let library = Library::new(url::Url::from_file_path(std::fs::canonicalize(file).unwrap()).unwrap(), value);
        let source = SourceId::parse("github").unwrap();
        let openapi = OpenApi::default();
        let converted = match convert(&library, Conversion { source: &source, openapi: &openapi }) {
            Ok(v) => v,
            Err(e) => {
                println!("{file}: {}", e.message);
                continue;
            }
        };
        let took = began.elapsed();
        drop(library);
        let manifest = Manifest::new(&source, &converted.tools, converted.set_aside.clone(), &Bounds::default());
        let packed = Packed::new(&manifest).unwrap();
        let all = began.elapsed();
        let name = file.rsplit('/').next().unwrap();
        let hidden: usize = manifest.tools.iter().map(|(t, _)| t.backing.as_ref().map_or(0, |b| b.get().len())).sum();
        let (mut bad, mut whole) = (0, 0);
        let mut tokens = 0;
        let mut out = 0;
        let check = std::env::var("CHECK").is_ok();
        for (tool, _) in &manifest.tools {
            let b = tool.backing().unwrap();
            if b.input_schema.is_some() {
                whole += 1;
            }
            if let Some(o) = &b.output_schema {
                out += o.get().len();
                if check {
                    let v: serde_json::Value = serde_json::from_str(o.get()).unwrap();
                    if let Err(e) = jsonschema::options().build(&v) {
                        bad += 1;
                        if bad < 4 {
                            println!("   OUT {} {e}", tool.name)
                        }
                    }
                }
            }
            if check {
                for s in [Some(&tool.face.input_schema), b.input_schema.as_ref()].into_iter().flatten() {
                    let v: serde_json::Value = serde_json::from_str(s.get()).unwrap();
                    if let Err(e) = jsonschema::options().build(&v) {
                        bad += 1;
                        if bad < 4 {
                            println!("   {} {e}", tool.name)
                        }
                    }
                }
            }
            if std::env::var("TOKENS").is_ok() {
                let mut text = String::new();
                toolcrib_core::render::mcp::push(&format!("github__{}", tool.name), tool, &mut text);
                let n = toolcrib_core::tokens::count(&text);
                tokens += n;
                if std::env::var("DUMP").is_ok() {
                    println!("{n} {text}");
                }
            }
        }
        if std::env::var("SHOW").is_ok() {
            for s in manifest.set_aside.iter().take(6) {
                println!("   {} :: {}", s.name, s.reason);
            }
        }
        println!(
            "{name}: {} tools, {} aside, {} whole, bad {bad}, body {} KB, backing {} KB, out {} KB, tokens {tokens}, parse {parsed:?} convert {took:?} all {all:?}",
            manifest.tools.len(),
            manifest.set_aside.len(),
            whole,
            packed.body.len() / 1024,
            hidden / 1024,
            out / 1024
        );
        total.0 += manifest.tools.len();
        total.1 += manifest.set_aside.len();
        total.2 += bad;
    }
    println!("{total:?}");
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    println!("{}", status.lines().find(|l| l.starts_with("VmHWM")).unwrap());
}
