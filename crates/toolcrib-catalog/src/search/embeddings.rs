//! Optional semantic search with static word embeddings from a local model (`model.safetensors` and `tokenizer.json`,
//! as model2vec writes them). Finds tools whose description is similar in meaning to the query without sharing a word.
//! Callers read the files; this module does no I/O.
//!
//! Behind a feature, because it needs a model that Toolcrib does not ship. Vectors are normalised, so the dot product
//! is the cosine similarity. Measured, it helps small catalogues with vague queries and adds nothing above some
//! thousand tools.

mod model;

use std::sync::Arc;

use super::tokenize::{self, Word};
use crate::{View, ViewKey};

pub use model::EmbeddingModel;

/// Weight of one standard deviation of similarity relative to one standard deviation of the term scores. Terms stay the
/// stronger signal.
const SIMILARITY_WEIGHT: f32 = 0.6;
/// Minimum similarity, in standard deviations above the mean, for a tool without any term match.
const MIN_STANDARD_DEVIATIONS: f32 = 2.5;

/// Embeddings of all tools of one view.
#[derive(Debug)]
pub struct ToolEmbeddings {
    model: Arc<EmbeddingModel>,
    /// Key of the view that the embeddings belong to: its tools have the same numbers in every index of that key.
    view: ViewKey,
    /// By tool number in the search index; empty for tools that cannot be parsed.
    tools: Vec<Vec<f32>>,
}

impl ToolEmbeddings {
    /// Embeds every tool. Expensive: keep the result as long as the view.
    pub fn build(view: &View, model: Arc<EmbeddingModel>) -> ToolEmbeddings {
        let index = view.search_index();
        let tools = (0..index.len() as u32).map(|number| {
            let Some(tool) = index.tool(number) else { return Vec::new() };
            let description = tool.tool().map(|tool| tool.listing.description).unwrap_or_default();
            model.embed(&format!("{} {description}", split_name(tool.original_name())))
        });
        ToolEmbeddings { tools: tools.collect(), view: view.key(), model }
    }

    /// Whether the embeddings were built for a view of the same tools.
    pub(super) fn is_for(&self, view: &View) -> bool {
        self.view == view.key()
    }

    /// Adds similarity to the term scores, both scaled to standard deviations so that they are comparable.
    pub(super) fn add_similarity(&self, text: &str, scores: &mut [f32]) {
        let query = self.model.embed(text);
        let product = |tool: &Vec<f32>| tool.iter().zip(&query).map(|(a, b)| a * b).sum::<f32>();
        let similarity: Vec<f32> = self.tools.iter().map(product).collect();
        let (mean, deviation) = mean_and_deviation(&similarity);
        if deviation <= f32::EPSILON {
            return;
        }
        // Without any term match the deviation of the scores is 0; similarity alone then decides.
        let unit = Some(mean_and_deviation(scores).1).filter(|unit| *unit > f32::EPSILON).unwrap_or(1.0);
        for (score, similarity) in scores.iter_mut().zip(similarity) {
            let deviations = (similarity - mean) / deviation;
            if *score > 0.0 {
                // Stays positive, so that a dissimilar tool with a term match is not dropped.
                *score = (*score + SIMILARITY_WEIGHT * unit * deviations).max(f32::MIN_POSITIVE);
            } else if deviations > MIN_STANDARD_DEVIATIONS {
                *score = SIMILARITY_WEIGHT * unit * deviations;
            }
        }
    }
}

/// Splits an identifier into words separated by spaces.
fn split_name(name: &str) -> String {
    let mut text = String::new();
    tokenize::for_each_word(name, |Word { whole, parts }| {
        let parts = if parts.is_empty() { vec![whole] } else { parts };
        parts.iter().for_each(|part| text.push_str(&format!("{part} ")));
    });
    text
}

/// Returns mean and standard deviation.
fn mean_and_deviation(values: &[f32]) -> (f32, f32) {
    let count = values.len().max(1) as f32;
    let mean = values.iter().sum::<f32>() / count;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f32>() / count;
    (mean, variance.sqrt())
}
