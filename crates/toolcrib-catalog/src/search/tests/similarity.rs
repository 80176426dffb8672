//! Search with a model of word vectors.

use super::*;

/// A model of four words in two dimensions: `drizzle` is near `forecast`.
fn tiny_model(tokenizer: &str) -> embeddings::EmbeddingModel {
    let values: [f32; 8] = [1.0, 0.0, 1.0, 0.1, 0.0, 1.0, 0.0, 1.0];
    let header = r#"{"embedding.weight":{"dtype":"F32","shape":[4,2],"data_offsets":[0,32]}}"#;
    let file = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &values.map(f32::to_le_bytes).concat()];
    embeddings::EmbeddingModel::parse(&file.concat(), tokenizer).unwrap()
}

#[test]
fn similar_meaning_is_found_without_a_common_word() {
    let word_piece = r#"{"model":{"type":"WordPiece","vocab":{"drizzle":0,"forecast":1,"mail":2,"issue":3}}}"#;
    let unigram =
        r#"{"model":{"type":"Unigram","vocab":[["▁drizzle",-1],["▁forecast",-1],["▁mail",-1],["▁issue",-1]]}}"#;
    let many: Vec<(String, String)> = (0..30).map(|number| (format!("mail_{number}"), "An issue".to_owned())).collect();
    let mut tools: Vec<(&str, &str)> = many.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    tools.push(("outlook", "A forecast"));
    let query = Query::new("drizzle");
    for tokenizer in [word_piece, unigram] {
        let view = build_view(vec![test_source("s", &tools)]);
        assert_eq!(view.search(&query).hits, []);
        let model = tiny_model(tokenizer);
        assert_eq!(view.search_with_model(&query, &model).hits[0].name.as_str(), "s__outlook");
        assert_eq!(view.search_with_model(&query, &model), view.search_with_model(&query, &model));
        // Another model does not use what was computed with the first one.
        assert_eq!(view.search_with_model(&query, &tiny_model(tokenizer)), view.search_with_model(&query, &model));
    }
    let loads = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counter = loads.clone();
    let lazy = embeddings::LazyModel::new("tiny", move || {
        counter.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Some(tiny_model(word_piece))
    });
    let source = build_source(test_source("s", &tools));
    let catalog = Catalog::build(1, vec![source.clone()]).with_search_model(Some(Arc::new(lazy)));
    let view = View::full(Arc::new(catalog));
    assert_ne!(view.key(), View::full(Arc::new(Catalog::build(1, vec![source.clone()]))).key());
    assert_eq!(loads.load(std::sync::atomic::Ordering::Relaxed), 0, "nothing is loaded before the first search");
    let restricted = view.restrict(|tool| tool.original_name() != "mail_0");
    for view in [&view, &view, &restricted] {
        assert_eq!(view.search(&query).hits[0].name.as_str(), "s__outlook");
    }
    assert_eq!(loads.load(std::sync::atomic::Ordering::Relaxed), 1);
    let broken =
        Catalog::build(1, vec![source]).with_search_model(Some(Arc::new(embeddings::LazyModel::new("x", || None))));
    assert_eq!(View::full(Arc::new(broken)).search(&query).hits, []);
}

#[test]
fn similarity_compares_names_and_first_sentences_and_supports_related_words() {
    let tokenizer = r#"{"model":{"type":"WordPiece","vocab":{"umbrella":0,"breeze":1,"mail":2,"issue":3}}}"#;
    let many: Vec<(String, String)> = (0..30).map(|number| (format!("mail_{number}"), "An issue".to_owned())).collect();
    let mut tools: Vec<(&str, &str)> = many.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    // `umbrella` is related to `weather`, and near `breeze` in the model.
    tools.push(("outlook", "Weather and breeze."));
    tools.push(("sheet", "An issue. A breeze, a breeze, a breeze."));
    let view = build_view(vec![test_source("s", &tools)]);
    let model = tiny_model(tokenizer);
    // Only what the first sentence says is compared.
    let results = view.search_with_model(&Query::new("umbrella"), &model);
    let names: Vec<&str> = results.hits.iter().map(|hit| hit.name.as_str()).collect();
    assert_eq!(names, ["s__outlook"]);
    // Behind the tools with a word of the query, unless it is similar.
    let query = Query::new("umbrella mail").with_limit(0);
    assert_eq!(found_names(&view, &query).last().map(String::as_str), Some("s__outlook"));
    assert_eq!(view.search_with_model(&query, &model).hits[0].name.as_str(), "s__outlook");
}
