//! Optional: what texts mean, by static word vectors from a local file (`model.safetensors` and `tokenizer.json`, as
//! model2vec writes them). A tool whose description means what the query means is found though they share no word.
//! The bytes are handed in; nothing here reads a file.

mod vectors;

use std::sync::Arc;

use super::words::{self, Word};
use crate::catalog::{Catalog, View};

pub use vectors::Vectors;

/// How much a standard deviation of likeness counts against one of words.
const WEIGHT: f32 = 0.6;
/// A tool that shares no word with the query must stand out so far, in standard deviations.
const OUTSTANDING: f32 = 2.5;

/// What every tool of one catalogue means.
#[derive(Debug)]
pub struct Meanings {
    vectors: Arc<Vectors>,
    catalog: Arc<Catalog>,
    /// By the number of the tool in the catalogue's directory.
    tools: Vec<Vec<f32>>,
}

impl Meanings {
    /// Reads every tool once; worth keeping for as long as the catalogue is.
    pub fn of(view: &View, vectors: Arc<Vectors>) -> Meanings {
        let directory = view.catalog.directory();
        let tools = (0..directory.len() as u32).map(|number| {
            let Some(tool) = directory.tool(number) else { return Vec::new() };
            let description = tool.tool().map(|tool| tool.face.description).unwrap_or_default();
            vectors.meaning(&format!("{} {description}", spaced(tool.original())))
        });
        Meanings { tools: tools.collect(), catalog: view.catalog.clone(), vectors }
    }

    pub(super) fn is_about(&self, catalog: &Arc<Catalog>) -> bool {
        Arc::ptr_eq(&self.catalog, catalog)
    }

    /// Adds likeness to scores by words, each in standard deviations of its own.
    pub(super) fn mix(&self, text: &str, scores: &mut [f32]) {
        let query = self.vectors.meaning(text);
        let product = |tool: &Vec<f32>| tool.iter().zip(&query).map(|(one, other)| one * other).sum::<f32>();
        let likeness: Vec<f32> = self.tools.iter().map(product).collect();
        let (mean, deviation) = spread(&likeness);
        if deviation <= f32::EPSILON {
            return;
        }
        // Without a single word in common, likeness alone decides.
        let unit = Some(spread(scores).1).filter(|unit| *unit > f32::EPSILON).unwrap_or(1.0);
        for (score, likeness) in scores.iter_mut().zip(likeness) {
            let standing = (likeness - mean) / deviation;
            if *score > 0.0 {
                *score = (*score + WEIGHT * unit * standing).max(f32::MIN_POSITIVE);
            } else if standing > OUTSTANDING {
                *score = WEIGHT * unit * standing;
            }
        }
    }
}

fn spaced(name: &str) -> String {
    let mut text = String::new();
    words::each(name, |Word { whole, parts }| {
        let parts = if parts.is_empty() { vec![whole] } else { parts };
        parts.iter().for_each(|part| text.push_str(&format!("{part} ")));
    });
    text
}

fn spread(values: &[f32]) -> (f32, f32) {
    let count = values.len().max(1) as f32;
    let mean = values.iter().sum::<f32>() / count;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f32>() / count;
    (mean, variance.sqrt())
}
