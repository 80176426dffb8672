//! Semantic search with a local model: `--model` of `search` and `eval`. Without the option, `search` uses the model of
//! the configuration (`search.model`), if there is one.

use std::path::PathBuf;

use clap::Args;
use toolcrib::Result;
use toolcrib::catalog::View;
use toolcrib::catalog::search::embeddings::EmbeddingModel;
use toolcrib::catalog::search::{Query, SearchResults};
use toolcrib::search_model::read_model;

// The option that selects semantic search.
#[derive(Debug, Args)]
pub(crate) struct ModelArguments {
    /// Semantic search with static word vectors: a folder with `model.safetensors` and `tokenizer.json`
    #[arg(long, value_name = "DIR")]
    model: Option<PathBuf>,
}

/// Searches with the model of `--model`, if there is one.
#[derive(Debug)]
pub(crate) struct Searcher(Option<EmbeddingModel>);

impl ModelArguments {
    /// Loads the model named by `--model`. Called before the store is opened, so that a wrong path changes nothing.
    pub(crate) fn load(&self) -> Result<Searcher> {
        Ok(Searcher(self.model.as_deref().map(read_model).transpose()?))
    }
}

impl Searcher {
    /// Returns the best hits for the query.
    pub(crate) fn search(&self, view: &View, query: &Query) -> SearchResults {
        match &self.0 {
            None => view.search(query),
            Some(model) => view.search_with_model(query, model),
        }
    }
}
