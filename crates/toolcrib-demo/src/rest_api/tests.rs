//! Tests of the shop's API over raw HTTP, without a client library that would correct a request.

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::*;

async fn start_shop() -> ShopApi {
    ShopApi::start("127.0.0.1:0".parse().unwrap()).await.unwrap()
}

/// Sends a request; returns status, headers in lower case and JSON body of the response.
async fn send(shop: &ShopApi, request: &str, headers: &str, body: &str) -> (u16, String, Value) {
    let mut stream = TcpStream::connect(shop.url().trim_start_matches("http://")).await.unwrap();
    let length = body.len();
    let text = format!(
        "{request} HTTP/1.1\r\nHost: shop\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n{body}"
    );
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, head.to_ascii_lowercase(), serde_json::from_str(body).unwrap_or_default())
}

const JSON_HEADER: &str = "Content-Type: application/json\r\n";

#[tokio::test]
async fn products_are_filtered_and_paged() {
    let shop = start_shop().await;
    for (query, expected, next) in [
        ("", "apple-2 apple-1 butter-1 bun-1 milk-1", Some(5)),
        ("?category=fruit&category=bakery&sort=price", "apple-1 apple-2 pear-1 bun-1 bread-2", Some(5)),
        ("?category=fruit&category=bakery&sort=price&cursor=5", "bread-1", None),
        ("?filter%5Bname%5D=loaf&filter[in_stock]=true", "bread-1", None),
        ("?filter[min_price]=8.5&filter[max_price]=30", "cheese-1 lamp-1", None),
        ("?filter[name]=olive+soap", "soap-1", None),
        ("?cursor=500", "", None),
    ] {
        let (status, _, page) = send(&shop, &format!("GET /products{query}"), "", "").await;
        assert_eq!(status, 200, "{query}: {page}");
        let found: Vec<&str> =
            page["items"].as_array().unwrap().iter().map(|item| item["sku"].as_str().unwrap()).collect();
        assert_eq!((found.join(" ").as_str(), page["next"].as_u64()), (expected, next), "{query}");
    }
    shop.close().await;
}

#[tokio::test]
async fn an_invalid_request_is_rejected_with_the_path_of_the_violation() {
    let shop = start_shop().await;
    let order = |body: &str| ("POST /orders", JSON_HEADER, body.to_owned());
    let plain = |request| (request, "", String::new());
    for ((request, headers, body), path) in [
        (plain("GET /products?colour=red"), "/query/colour"),
        (plain("GET /products?limit=0"), "/query/limit"),
        (plain("GET /products?limit=ten"), "/query/limit"),
        (plain("GET /products?limit=1&limit=2"), "/query/limit"),
        (plain("GET /products?category=fruit,bakery"), "/query/category/0"),
        (plain("GET /products?filter=name"), "/query/filter"),
        (plain("GET /products?filter[weight]=1"), "/query/filter/weight"),
        (plain("GET /products?filter[in_stock]=yes"), "/query/filter/in_stock"),
        (plain("GET /products?sort[x]=name"), "/query/sort[x]"),
        (plain("GET /orders/one"), "/path/id"),
        (("GET /orders/1", "", "{}".to_owned()), "/body"),
        (("POST /orders", "", "{}".to_owned()), "/body"),
        (order("{"), "/body"),
        (order(r#"{"sku":"bread-1"}"#), "/body/quantity"),
        (order(r#"{"sku":"bread-1","quantity":"1"}"#), "/body/quantity"),
        (order(r#"{"sku":"bread-1","quantity":1,"gift":{"from":"me"}}"#), "/body/gift/from"),
        (order(r#"{"sku":"bread-1","quantity":1,"id":7}"#), "/body/id"),
    ] {
        let (status, _, refused) = send(&shop, request, headers, &body).await;
        assert_eq!((status, refused["faults"][0]["path"].as_str()), (400, Some(path)), "{request} {body}: {refused}");
    }
    let (status, ..) = send(&shop, "PUT /orders/1", "", "").await;
    assert_eq!(status, 405);
    let (status, _, nothing) = send(&shop, "GET /products//picture", "", "").await;
    assert_eq!(status, 404, "{nothing}");
    shop.close().await;
}

#[tokio::test]
async fn an_order_is_placed_and_cancelled_with_the_staff_token() {
    let shop = start_shop().await;
    let new_order = r#"{"sku":"cheese-1","quantity":2,"gift":{"to":"Ada"}}"#;
    let (status, head, order) = send(&shop, "POST /orders", JSON_HEADER, new_order).await;
    assert_eq!((status, head.contains("location: /orders/1")), (201, true), "{head}");
    let expected = json!({
        "id": 1, "sku": "cheese-1", "quantity": 2, "note": null, "total": 17.8, "status": "placed", "gift": { "to": "Ada" },
    });
    assert_eq!(order, expected);
    let (status, _, refused) = send(&shop, "POST /orders", JSON_HEADER, r#"{"sku":"cheese-1","quantity":5}"#).await;
    assert_eq!((status, &refused["message"]), (409, &json!("there are 4 of `cheese-1`, not 5")));
    let (status, head, _) = send(&shop, "DELETE /orders/1", "Authorization: Bearer x\r\n", "").await;
    assert_eq!((status, head.contains("www-authenticate: bearer")), (401, true));
    for _ in 0..2 {
        assert_eq!(send(&shop, "DELETE /orders/1", "Authorization: Bearer corner-shop\r\n", "").await.0, 204);
    }
    assert_eq!(send(&shop, "GET /orders/1", "", "").await.2["status"], "cancelled");
    assert_eq!(send(&shop, "GET /products/cheese-1", "", "").await.2["stock"], 6);
    assert_eq!(send(&shop, "GET /products/caviar%2D1", "", "").await.0, 404);
    shop.close().await;
}

#[tokio::test]
async fn a_picture_is_uploaded_as_a_form_part() {
    let shop = start_shop().await;
    let form = |kind: &str| {
        format!(
            "--b\r\nContent-Disposition: form-data; name=\"image\"; filename=\"loaf.png\"\r\nContent-Type: {kind}\r\n\r\n\
             12345\r\n--b\r\nContent-Disposition: form-data; name=\"caption\"\r\n\r\nFresh\r\n--b--\r\n"
        )
    };
    let headers = "Content-Type: multipart/form-data; boundary=b\r\n";
    let (status, _, picture) = send(&shop, "POST /products/bread-1/picture", headers, &form("image/png")).await;
    let expected =
        json!({ "sku": "bread-1", "file": "loaf.png", "content_type": "image/png", "bytes": 5, "caption": "Fresh" });
    assert_eq!((status, picture), (201, expected));
    let (status, _, refused) = send(&shop, "POST /products/bread-1/picture", headers, &form("text/html")).await;
    assert_eq!((status, &refused["faults"][0]["path"]), (400, &json!("/body/image")));
    shop.close().await;
}

#[tokio::test]
async fn a_report_is_ready_after_some_polls() {
    let shop = start_shop().await;
    for (about, end) in [("stock", "ready"), ("weather", "failed")] {
        let (status, head, _) = send(&shop, "POST /reports", JSON_HEADER, &json!({ "about": about }).to_string()).await;
        let location = head.split("location: ").nth(1).unwrap().split("\r\n").next().unwrap();
        assert_eq!(status, 202);
        let mut seen = Vec::new();
        for _ in 0..3 {
            let (_, _, report) = send(&shop, &format!("GET {location}"), "", "").await;
            seen.push(report["status"].as_str().unwrap().to_owned());
        }
        assert_eq!(seen, ["pending", "pending", end]);
    }
    shop.close().await;
}

#[tokio::test]
async fn an_unchanged_document_is_not_sent_again() {
    let shop = start_shop().await;
    let (status, head, document) = send(&shop, "GET /openapi.json", "", "").await;
    assert_eq!((status, &document["info"]["title"]), (200, &json!("Corner shop")));
    let etag = head.split("etag: ").nth(1).unwrap().split("\r\n").next().unwrap();
    let (status, _, again) = send(&shop, "GET /openapi.json", &format!("If-None-Match: {etag}\r\n"), "").await;
    assert_eq!((status, again), (304, Value::Null));
    shop.close().await;
}
