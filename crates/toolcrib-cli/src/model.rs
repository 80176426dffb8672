//! Search by meaning, for whoever names a model: static word vectors in a folder, as model2vec writes them. Compiled in
//! with the feature `embeddings`; without it the option says so.

use std::path::PathBuf;

use clap::Args;
use toolcrib::Result;
use toolcrib::core::catalog::View;
use toolcrib::core::search::{Found, Query};

#[cfg(feature = "embeddings")]
use toolcrib::core::search::meaning::{Meanings, Vectors};

#[derive(Debug, Args)]
pub(crate) struct ModelArguments {
    /// Search by meaning too, with a static embedding: a folder with `model.safetensors` and `tokenizer.json`
    #[arg(long, value_name = "DIR", hide = cfg!(not(feature = "embeddings")))]
    model: Option<PathBuf>,
}

/// How a catalogue will be searched.
pub(crate) enum Manner {
    Words,
    #[cfg(feature = "embeddings")]
    Meaning(Vectors),
}

/// Searches one catalogue.
pub(crate) enum Finder {
    Words(View),
    #[cfg(feature = "embeddings")]
    Meaning(View, Meanings),
}

impl ModelArguments {
    /// Reads the model that was named, before anything else is done.
    pub(crate) fn manner(&self) -> Result<Manner> {
        match &self.model {
            None => Ok(Manner::Words),
            Some(folder) => with_model(folder),
        }
    }
}

#[cfg(feature = "embeddings")]
fn with_model(folder: &std::path::Path) -> Result<Manner> {
    use toolcrib::{Code, Error};

    let unreadable = |path: &std::path::Path, error: std::io::Error| {
        Error::new(Code::BadRequest, format!("cannot read `{}`: {error}", path.display()))
    };
    let (model, tokenizer) = (folder.join("model.safetensors"), folder.join("tokenizer.json"));
    let bytes = std::fs::read(&model).map_err(|error| unreadable(&model, error))?;
    let text = std::fs::read_to_string(&tokenizer).map_err(|error| unreadable(&tokenizer, error))?;
    let vectors = Vectors::read(&bytes, &text).map_err(|mut error| {
        error.message = format!("`{}`: {}", folder.display(), error.message);
        error
    })?;
    Ok(Manner::Meaning(vectors))
}

#[cfg(not(feature = "embeddings"))]
fn with_model(_folder: &std::path::Path) -> Result<Manner> {
    let message = "this `toolcrib` cannot search by meaning; build it with `--features embeddings`";
    Err(toolcrib::Error::new(toolcrib::Code::BadRequest, message))
}

impl Manner {
    pub(crate) fn over(self, view: View) -> Finder {
        match self {
            Manner::Words => Finder::Words(view),
            #[cfg(feature = "embeddings")]
            Manner::Meaning(vectors) => {
                let meanings = Meanings::of(&view, vectors.into());
                Finder::Meaning(view, meanings)
            }
        }
    }
}

impl Finder {
    pub(crate) fn find(&self, query: &Query) -> Found {
        match self {
            Finder::Words(view) => view.search(query),
            #[cfg(feature = "embeddings")]
            Finder::Meaning(view, meanings) => view.search_by_meaning(query, meanings),
        }
    }
}
