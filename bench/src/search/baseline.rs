//! Baseline of the search benchmark: a plain BM25F with weighted fields, split names, stemming, character pairs for
//! scripts without spaces, a stop word list, and each query term counted once.
//!
//! It shares no code with Toolcrib's search and has neither related words nor corrections of spelling.

use std::collections::{HashMap, HashSet};

use rust_stemmers::{Algorithm, Stemmer};
use serde_json::Value;

use crate::Result;

/// Weight of each field, by the index constants below.
const WEIGHTS: [f32; 7] = [2.5, 1.0, 1.2, 0.3, 0.4, 0.25, 0.25];
const NAME: usize = 0;
const DESCRIPTION: usize = 1;
const SERVER: usize = 2;
const ABOUT: usize = 3;
const ARGUMENT: usize = 4;
const ARGUMENT_TEXT: usize = 5;
const CHOICE: usize = 6;
/// Saturation of term frequency.
const K1: f32 = 1.2;
/// Strength of length normalisation.
const B: f32 = 0.75;
/// English stop words, ignored in queries.
const FUNCTION_WORDS: &str = "a an the and or but if then than that this these those there here i me my we us our you your \
    he him his she her they them their it its is am are was were be been being do does did have has had will would shall \
    should can could may might must of to in on at by for from with about into over under between through during before \
    after above below up down out off again as what which who whom when where why how not no any some each all both more \
    most other such only own same too very just also s t please";

/// Number of occurrences of a term in each field of a tool.
type FieldCounts = [u16; WEIGHTS.len()];

/// Inverted index with BM25F scoring.
pub(super) struct Baseline {
    /// Number of tools; a tool is identified by its position in the file.
    tools: usize,
    /// Tools that contain a term, with the counts per field.
    postings: HashMap<String, Vec<(usize, FieldCounts)>>,
    /// Number of terms in each field of each tool.
    lengths: Vec<[f32; WEIGHTS.len()]>,
    /// Mean of `lengths` over all tools; never zero, because lengths are divided by it.
    averages: [f32; WEIGHTS.len()],
    function_words: HashSet<&'static str>,
}

impl Baseline {
    /// Builds the index from tools as JSON lines.
    pub(super) fn read(tools: &str) -> Result<Baseline> {
        let mut baseline = Baseline {
            tools: 0,
            postings: HashMap::new(),
            lengths: Vec::new(),
            averages: [0.0; WEIGHTS.len()],
            function_words: FUNCTION_WORDS.split_whitespace().collect(),
        };
        for line in tools.lines().filter(|line| !line.trim().is_empty()) {
            baseline.add(&serde_json::from_str(line)?);
        }
        for (field, average) in baseline.averages.iter_mut().enumerate() {
            let sum: f32 = baseline.lengths.iter().map(|lengths| lengths[field]).sum();
            *average = (sum / baseline.tools.max(1) as f32).max(1e-6);
        }
        Ok(baseline)
    }

    /// Adds one tool to the index.
    fn add(&mut self, tool: &Value) {
        let text = |key: &str| tool[key].as_str().unwrap_or_default();
        let mut fields: [Vec<String>; WEIGHTS.len()] = Default::default();
        for (field, key) in
            [(NAME, "name"), (DESCRIPTION, "description"), (SERVER, "server"), (ABOUT, "server_description")]
        {
            fields[field] = tokenize(text(key));
        }
        read_schema(&tool["input_schema"], true, &mut fields);
        let mut counts: HashMap<&str, FieldCounts> = HashMap::new();
        for (field, terms) in fields.iter().enumerate() {
            terms.iter().for_each(|term| counts.entry(term).or_default()[field] += 1);
        }
        for (term, counts) in counts {
            self.postings.entry(term.to_owned()).or_default().push((self.tools, counts));
        }
        self.lengths.push(fields.map(|terms| terms.len() as f32));
        self.tools += 1;
    }

    /// Returns the positions of the best tools, best first.
    pub(super) fn search(&self, query: &str, limit: usize) -> Vec<Option<usize>> {
        let mut scores = vec![0.0_f32; self.tools];
        let words: HashSet<String> =
            tokenize(query).into_iter().filter(|term| !self.function_words.contains(term.as_str())).collect();
        for postings in words.iter().filter_map(|term| self.postings.get(term)) {
            let document_frequency = postings.len() as f32;
            // Rare terms weigh more. The form with `1 +` is never negative.
            let idf = (1.0 + (self.tools as f32 - document_frequency + 0.5) / (document_frequency + 0.5)).ln();
            for (tool, counts) in postings {
                let weighted = (0..WEIGHTS.len()).filter(|field| counts[*field] > 0).map(|field| {
                    let length = self.lengths[*tool][field] / self.averages[field];
                    WEIGHTS[field] * f32::from(counts[field]) / (1.0 - B + B * length)
                });
                let weighted: f32 = weighted.sum();
                scores[*tool] += idf * weighted / (K1 + weighted);
            }
        }
        let mut best: Vec<usize> = (0..self.tools).filter(|tool| scores[*tool] > 0.0).collect();
        // Equal scores keep the order of the file, so that runs are reproducible.
        best.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]).then(a.cmp(b)));
        best.into_iter().take(limit).map(Some).collect()
    }
}

/// Collects names, descriptions and enum values of arguments at all levels. The description at the root is skipped,
/// since it belongs to the tool and not to an argument.
fn read_schema(schema: &Value, outermost: bool, fields: &mut [Vec<String>; WEIGHTS.len()]) {
    match schema {
        Value::Object(keywords) => {
            for (keyword, value) in keywords {
                match (keyword.as_str(), value) {
                    ("properties", Value::Object(properties)) => {
                        for (name, property) in properties {
                            fields[ARGUMENT].extend(tokenize(name));
                            read_schema(property, false, fields);
                        }
                    }
                    ("description", Value::String(text)) if !outermost => fields[ARGUMENT_TEXT].extend(tokenize(text)),
                    ("enum", Value::Array(choices)) => {
                        choices
                            .iter()
                            .filter_map(Value::as_str)
                            .for_each(|choice| fields[CHOICE].extend(tokenize(choice)));
                    }
                    (_, value) => read_schema(value, false, fields),
                }
            }
        }
        Value::Array(schemas) => schemas.iter().for_each(|schema| read_schema(schema, false, fields)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Splits a text into stemmed terms in lower case, at changes of case, digits and other characters.
fn tokenize(text: &str) -> Vec<String> {
    let stemmer = Stemmer::create(Algorithm::English);
    let mut terms: Vec<String> = Vec::new();
    let mut word = String::new();
    let mut before = ' ';
    let end = |word: &mut String, terms: &mut Vec<String>| {
        if !word.is_empty() {
            terms.push(stemmer.stem(&word.to_lowercase()).into_owned());
            word.clear();
        }
    };
    for character in text.chars() {
        // Scripts without spaces are indexed by pairs of characters.
        let ideograph = matches!(character, '\u{3040}'..='\u{9fff}' | '\u{ac00}'..='\u{d7af}');
        let joint = character.is_uppercase() && before.is_lowercase() || character.is_numeric() != before.is_numeric();
        if ideograph || joint || !character.is_alphanumeric() {
            end(&mut word, &mut terms);
        }
        match (ideograph, character.is_alphanumeric()) {
            (true, _) if matches!(before, '\u{3040}'..='\u{9fff}' | '\u{ac00}'..='\u{d7af}') => {
                terms.push(format!("{before}{character}"));
            }
            (false, true) => word.push(character),
            (true, _) | (false, false) => {}
        }
        before = character;
    }
    end(&mut word, &mut terms);
    terms
}
