//! Optional: what texts mean, by static word vectors from a local file (`model.safetensors` and `tokenizer.json`, as
//! model2vec writes them). A tool whose description means what the query means is found though they share no word.
//! The bytes are handed in; nothing here reads a file.

mod model;

use std::sync::Arc;

use super::tokenize::{self, Word};
use crate::catalog::{Catalog, View};

pub use model::EmbeddingModel;

/// How much a standard deviation of likeness counts against one of words.
const SIMILARITY_WEIGHT: f32 = 0.6;
/// A tool that shares no word with the query must stand out so far, in standard deviations.
const MIN_STANDARD_DEVIATIONS: f32 = 2.5;

/// What every tool of one catalogue means.
#[derive(Debug)]
pub struct ToolEmbeddings {
    model: Arc<EmbeddingModel>,
    catalog: Arc<Catalog>,
    /// By the number of the tool in the catalogue's directory.
    tools: Vec<Vec<f32>>,
}

impl ToolEmbeddings {
    /// Reads every tool once; worth keeping for as long as the catalogue is.
    pub fn build(view: &View, vectors: Arc<EmbeddingModel>) -> ToolEmbeddings {
        let directory = view.catalog.search_index();
        let tools = (0..directory.len() as u32).map(|number| {
            let Some(tool) = directory.tool(number) else { return Vec::new() };
            let description = tool.tool().map(|tool| tool.listing.description).unwrap_or_default();
            vectors.embed(&format!("{} {description}", split_name(tool.original_name())))
        });
        ToolEmbeddings { tools: tools.collect(), catalog: view.catalog.clone(), model: vectors }
    }

    pub(super) fn is_for(&self, catalog: &Arc<Catalog>) -> bool {
        Arc::ptr_eq(&self.catalog, catalog)
    }

    /// Adds likeness to scores by words, each in standard deviations of its own.
    pub(super) fn add_similarity(&self, text: &str, scores: &mut [f32]) {
        let query = self.model.embed(text);
        let product = |tool: &Vec<f32>| tool.iter().zip(&query).map(|(one, other)| one * other).sum::<f32>();
        let likeness: Vec<f32> = self.tools.iter().map(product).collect();
        let (mean, deviation) = mean_and_deviation(&likeness);
        if deviation <= f32::EPSILON {
            return;
        }
        // Without a single word in common, likeness alone decides.
        let unit = Some(mean_and_deviation(scores).1).filter(|unit| *unit > f32::EPSILON).unwrap_or(1.0);
        for (score, likeness) in scores.iter_mut().zip(likeness) {
            let standing = (likeness - mean) / deviation;
            if *score > 0.0 {
                *score = (*score + SIMILARITY_WEIGHT * unit * standing).max(f32::MIN_POSITIVE);
            } else if standing > MIN_STANDARD_DEVIATIONS {
                *score = SIMILARITY_WEIGHT * unit * standing;
            }
        }
    }
}

fn split_name(name: &str) -> String {
    let mut text = String::new();
    tokenize::for_each_word(name, |Word { whole, parts }| {
        let parts = if parts.is_empty() { vec![whole] } else { parts };
        parts.iter().for_each(|part| text.push_str(&format!("{part} ")));
    });
    text
}

fn mean_and_deviation(values: &[f32]) -> (f32, f32) {
    let count = values.len().max(1) as f32;
    let mean = values.iter().sum::<f32>() / count;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f32>() / count;
    (mean, variance.sqrt())
}
