use serde_json::{Value, json};

use super::*;

fn split_pages(result: &Value, limit: u64) -> Vec<Value> {
    split_with_shape(result, limit, PageShape::Free)
}

fn split_with_shape(result: &Value, limit: u64, shape: PageShape) -> Vec<Value> {
    let answer = ToolResult::parse(serde_json::value::to_raw_value(result).unwrap()).unwrap();
    let pages = split_into_pages(&answer, limit, shape, |number| format!("next-{number}"));
    pages.iter().map(|page| serde_json::from_str(page.raw.get()).unwrap()).collect()
}

fn page_note(page: &Value) -> &str {
    page["content"].as_array().unwrap().last().unwrap()["text"].as_str().unwrap()
}

/// Content of all pages without the notes, text joined.
fn joined_text(pages: &[Value]) -> String {
    let blocks = pages.iter().flat_map(|page| page["content"].as_array().unwrap().split_last().unwrap().1);
    blocks.map(|block| block["text"].as_str().map_or_else(|| block.to_string(), str::to_owned)).collect()
}

fn text_block(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

#[test]
fn text_is_split_between_characters_without_loss() {
    let lines: String = (0..400).map(|number| format!("line {number} ß € 𝄞 \"quoted\" \u{1}\n")).collect();
    for (name, words) in [("lines", lines), ("one long line", "€".repeat(9_000)), ("control", "\u{2}".repeat(5_000))]
    {
        for limit in [1_024, 2_000, 4_096] {
            let split = split_pages(&json!({"content": [text_block(&words)]}), limit);
            assert_eq!(joined_text(&split), words, "{name} {limit}");
            for page in &split {
                assert!(page.to_string().len() as u64 <= limit, "{name}: {} > {limit}", page.to_string().len());
            }
        }
    }
}

#[test]
fn a_split_prefers_the_end_of_a_line() {
    assert_eq!(find_split("one\ntwo\nthree", 10), 8);
    assert_eq!(find_split("one\ntwo and three", 12), 11, "the line ends too early");
    assert_eq!(find_split("one\ntwo", 8), 7, "all of it fits");
    assert_eq!(find_split("€€€", 4), 3);
    assert_eq!(find_split("€€€", 1), 3, "one character at least");
}

#[test]
fn notes_show_the_position_and_the_next_page() {
    let split = split_pages(&json!({"content": [text_block(&"word ".repeat(500))]}), 1_024);
    assert_eq!(split.len(), 5);
    assert_eq!(
        page_note(&split[0]),
        "[page 1 of 5, 2.5 KiB in total; repeat the call with `page: \"next-2\"` for the next]"
    );
    assert_eq!(page_note(&split[4]), "[page 5 of 5, 2.5 KiB in total; this is the last page]");
}

#[test]
fn blocks_other_than_text_are_never_split() {
    let image = json!({"type": "image", "data": "A".repeat(3_000), "mimeType": "image/png"});
    let link = json!({"type": "resource_link", "uri": "file:///a", "name": "a"});
    let split = split_pages(&json!({"content": [text_block("before"), image, link, {"type": "odd"}]}), 1_024);
    assert_eq!(split.len(), 3);
    assert_eq!(split[0]["content"][0], text_block("before"));
    assert!(
        page_note(&split[0]).contains("the next page has an image (image/png, 3.0 KiB)"),
        "{}",
        page_note(&split[0])
    );
    assert_eq!((&split[1]["content"][0], split[1]["content"].as_array().unwrap().len()), (&image, 2));
    assert_eq!((&split[2]["content"][0], &split[2]["content"][1]), (&link, &json!({"type": "odd"})));

    let alone = split_pages(&json!({"content": [image]}), 1_024);
    assert_eq!(alone.len(), 2, "the image is on a page of its own");
    assert_eq!(alone[0]["content"].as_array().unwrap().len(), 1);
    assert_eq!(alone[1]["content"][0], image);
}

#[test]
fn blocks_that_fit_stay_together_and_unchanged() {
    let blocks: Vec<Value> = (0..30).map(|number| json!({"type": "image", "data": format!("{number:0100}")})).collect();
    let split = split_pages(&json!({"content": blocks}), 1_024);
    assert!(split.len() < 10, "{}", split.len());
    let rejoined: Vec<&Value> =
        split.iter().flat_map(|page| page["content"].as_array().unwrap().split_last().unwrap().1).collect();
    assert_eq!(rejoined, blocks.iter().collect::<Vec<_>>());
}

#[test]
fn fields_are_on_the_first_page_or_on_every_page() {
    let result = json!({"content": [{"type": "text", "text": "x".repeat(2_000), "annotations": {"priority": 1}}],
        "isError": true, "_meta": {"a": 1}, "vendor": [2], "structuredContent": {"small": true}});
    let split = split_pages(&result, 1_024);
    for (page, of) in split.iter().zip(1..) {
        assert_eq!((&page["isError"], &page["content"][0]["annotations"]), (&json!(true), &json!({"priority": 1})));
        let first = of == 1;
        assert_eq!(page.get("_meta").is_some(), first);
        assert_eq!(page.get("vendor").is_some(), first);
        assert_eq!(page.get("structuredContent").is_some(), first);
    }
}

#[test]
fn structured_content_that_does_not_fit_is_omitted_or_added_as_text() {
    let data: Vec<u32> = (0..500).collect();
    let said = serde_json::to_string(&data).unwrap();
    let split = split_pages(&json!({"content": [text_block(&said)], "structuredContent": {"data": data}}), 1_500);
    assert_eq!(joined_text(&split), said);
    assert!(page_note(&split[0]).contains("its structured content (1.9 KiB) does not fit and is left out"));
    assert!(!page_note(&split[1]).contains("left out"));

    let split =
        split_pages(&json!({"content": [text_block("500 numbers")], "structuredContent": {"data": data}}), 1_024);
    assert_eq!(joined_text(&split), format!("500 numbers{}", json!({"data": data})));
    assert!(page_note(&split[0]).contains("its structured content follows as text"), "{}", page_note(&split[0]));

    let only = split_pages(&json!({"structuredContent": {"data": data}}), 1_024);
    assert_eq!(joined_text(&only), json!({"data": data}).to_string());

    let split = split_pages(&json!({"content": [text_block("hello")], "_meta": {"much": "x".repeat(2_000)}}), 1_024);
    assert_eq!((split.len(), joined_text(&split).as_str()), (1, "hello"));
    assert_eq!(page_note(&split[0]), "[2.0 KiB in total; its other fields (2.0 KiB) do not fit and are left out]");
}

#[test]
fn declared_structured_content_is_on_every_page_or_the_pages_are_errors() {
    let numbers = (0..100).collect::<Vec<u32>>();
    let long = "word ".repeat(500);
    let fits = json!({"content": [text_block(&long)], "structuredContent": {"data": numbers}});
    let split = split_with_shape(&fits, 1_024, PageShape::Declared);
    assert_eq!((joined_text(&split), split.len()), (long.clone(), 5), "structured content has its own limit");
    for page in &split {
        assert_eq!((&page["structuredContent"], page.get("isError")), (&fits["structuredContent"], None));
        assert!(page["content"].to_string().len() <= 1_024);
    }

    let large = json!({"content": [text_block(&long)], "structuredContent": {"data": long}, "isError": false});
    let split = split_with_shape(&large, 1_024, PageShape::Declared);
    assert_eq!(joined_text(&split), long);
    for page in &split {
        assert_eq!((page.get("structuredContent"), &page["isError"]), (None, &json!(true)));
        assert!(page_note(page).contains("; the call succeeded, but its structured content"), "{}", page_note(page));
        assert_eq!(page.to_string().matches("isError").count(), 1);
    }
    assert!(page_note(&split[0]).contains("its structured content (2.5 KiB) does not fit and is left out"));

    // Repeated on so many pages it would exceed the limit.
    let repeated =
        json!({"content": [text_block(&"word ".repeat(40_000))], "structuredContent": {"data": "x".repeat(60_000)}});
    let split = split_with_shape(&repeated, 64 * 1_024, PageShape::Declared);
    assert!(split.iter().all(|page| page.get("structuredContent").is_some()));
    let repeated =
        json!({"content": [text_block(&"word ".repeat(2_000_000))], "structuredContent": {"data": "x".repeat(60_000)}});
    let split = split_with_shape(&repeated, 64 * 1_024, PageShape::Declared);
    assert!(split.iter().all(|page| page.get("structuredContent").is_none() && page["isError"] == true));

    let failed = json!({"content": [text_block(&long)], "structuredContent": {"a": 1}, "isError": true});
    let split = split_with_shape(&failed, 1_024, PageShape::Declared);
    assert_eq!(
        (split, page_note(&split_with_shape(&failed, 1_024, PageShape::Declared)[0]).contains("no failure")),
        (split_pages(&failed, 1_024), false)
    );
}

#[test]
fn the_line_about_the_next_page_of_an_api_is_on_the_first_page_too() {
    let line = "next page: page=3 (of 120 items)";
    let result = json!({
        "content": [text_block(&"word ".repeat(500)), text_block(line)],
        "_meta": {"toolcrib/pagination": {"next": {"page": 3}}},
    });
    let split = split_pages(&result, 1_024);
    let texts = |page: &Value| -> Vec<String> {
        let blocks = page["content"].as_array().unwrap().iter();
        blocks.map(|block| block["text"].as_str().unwrap().to_owned()).collect()
    };
    let first = texts(&split[0]);
    assert_eq!(first[first.len() - 2], format!("about the whole result: {line}"));
    assert!(first.last().unwrap().starts_with("[page 1 of "));
    assert!(texts(split.last().unwrap()).contains(&line.to_owned()));
    assert!(split.iter().all(|page| page.to_string().len() <= 1_024), "{split:?}");
    // Other results have no such line.
    let others = split_pages(&json!({"content": result["content"]}), 1_024);
    assert!(!texts(&others[0]).iter().any(|text| text.contains("page=3")));
}
