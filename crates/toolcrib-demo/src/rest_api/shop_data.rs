//! State and operations of the demo shop. Requests are validated before they get here.
//!
//! Each operation is a method that returns the response. The range covers what OpenAPI clients have to handle: filters and cursors, a conflict, an upload, an operation with a token, and a report
//! that is polled.

use std::collections::BTreeMap;

use axum::Json;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::validation::ValidatedRequest;

/// Stock, orders and reports, in memory.
pub(super) struct ShopData {
    /// Pieces left, by SKU.
    stock: BTreeMap<&'static str, u64>,
    orders: BTreeMap<u64, Value>,
    reports: BTreeMap<u64, ShopReport>,
    /// Last id given to an order or a report.
    last_id: u64,
}

/// A report that becomes ready after a few polls, so that the demo can show asynchronous operations.
struct ShopReport {
    about: String,
    polls: u32,
}

/// Number of polls for which a report stays pending.
const PENDING_POLLS: u32 = 2;
/// Maximum number of orders, and of reports; the oldest entry is dropped for a new one.
const MAX_STORED_ENTRIES: usize = 1000;

/// A product of the fixed range.
struct Product {
    sku: &'static str,
    name: &'static str,
    category: &'static str,
    /// In hundredths of the currency unit.
    price: u64,
    stock: u64,
}

/// Constructor for the constant list below.
const fn product(sku: &'static str, name: &'static str, category: &'static str, price: u64, stock: u64) -> Product {
    Product { sku, name, category, price, stock }
}

/// All products; the stock is that of a new shop.
const PRODUCTS: [Product; 12] = [
    product("apple-1", "Apple, red", "fruit", 45, 120),
    product("apple-2", "Apple, green", "fruit", 50, 80),
    product("bread-1", "Sourdough loaf", "bakery", 420, 12),
    product("bread-2", "Rye loaf", "bakery", 390, 0),
    product("bun-1", "Cinnamon bun", "bakery", 180, 30),
    product("butter-1", "Butter, salted", "dairy", 310, 25),
    product("cheese-1", "Mountain cheese", "dairy", 890, 6),
    product("lamp-1", "Reading lamp", "household", 2450, 3),
    product("milk-1", "Milk, one litre", "dairy", 140, 60),
    product("pear-1", "Pear", "fruit", 60, 40),
    product("soap-1", "Olive soap", "household", 250, 18),
    product("tea-1", "Tea towel", "household", 700, 9),
];

impl ShopData {
    /// A shop with full stock and no orders.
    pub(super) fn new() -> ShopData {
        let stock = PRODUCTS.iter().map(|product| (product.sku, product.stock)).collect();
        ShopData { stock, orders: BTreeMap::new(), reports: BTreeMap::new(), last_id: 0 }
    }

    /// Runs the operation with this `operationId`.
    pub(super) fn handle(&mut self, operation: &str, request: &ValidatedRequest) -> Response {
        let values = &request.values;
        let path = &values["path"];
        let query = &values["query"];
        let body = &values["body"];
        match operation {
            "list_products" => json_response(StatusCode::OK, self.list_products(query)),
            "get_product" => match find_product(path) {
                Some(product) => json_response(StatusCode::OK, self.product_json(product)),
                None => not_found("product"),
            },
            "add_picture" => add_picture(path, request),
            "place_order" => self.place_order(body),
            "get_order" => match self.orders.get(&path_id(path)) {
                Some(order) => json_response(StatusCode::OK, order.clone()),
                None => not_found("order"),
            },
            "cancel_order" => self.cancel_order(path_id(path)),
            "request_report" => self.request_report(body),
            "get_report" => self.poll_report(path_id(path)),
            _ => json_response(StatusCode::NOT_IMPLEMENTED, json!({ "message": "this operation is not implemented" })),
        }
    }

    /// `list_products`: filters, sorts and pages; `next` is the cursor of the next page.
    fn list_products(&self, query: &Value) -> Value {
        let filter = &query["filter"];
        // Prices are compared in hundredths.
        let price = |key: &str| filter[key].as_f64().map(|price| price * 100.0);
        let name_part = filter["name"].as_str().unwrap_or_default().to_lowercase();
        let categories = query["category"].as_array();
        let mut products: Vec<&Product> = PRODUCTS
            .iter()
            .filter(|product| {
                categories.is_none_or(|categories| categories.iter().any(|category| category == product.category))
                    && product.name.to_lowercase().contains(&name_part)
                    && price("min_price").is_none_or(|minimum| product.price as f64 >= minimum)
                    && price("max_price").is_none_or(|maximum| product.price as f64 <= maximum)
                    && filter["in_stock"].as_bool().is_none_or(|in_stock| in_stock == (self.stock_left(product) > 0))
            })
            .collect();
        match query["sort"].as_str() {
            Some("price") => products.sort_by_key(|product| product.price),
            Some(_) | None => products.sort_by_key(|product| product.name),
        }
        // The cursor is simply the index of the first product.
        let number = |key: &str, default: usize| query[key].as_f64().map_or(default, |number| number as usize);
        let begin = number("cursor", 0);
        let end = begin + number("limit", 5);
        let next = (end < products.len()).then_some(end);
        let items: Vec<Value> =
            products.iter().take(end).skip(begin).map(|product| self.product_json(product)).collect();
        json!({ "items": items, "next": next })
    }

    /// A product as the API returns it.
    fn product_json(&self, product: &Product) -> Value {
        let Product { sku, name, category, price, .. } = product;
        json!({ "sku": sku, "name": name, "category": category, "price": price_in_units(*price), "stock": self.stock_left(product) })
    }

    /// Pieces left of a product.
    fn stock_left(&self, product: &Product) -> u64 {
        self.stock.get(product.sku).copied().unwrap_or(0)
    }

    /// `place_order`: takes the pieces from stock, or responds 409 if there are too few.
    fn place_order(&mut self, body: &Value) -> Response {
        let Some(product) = find_product(body) else { return not_found("product") };
        let quantity = body["quantity"].as_f64().unwrap_or(1.0) as u64;
        let left = self.stock_left(product);
        if quantity > left {
            let message = format!("there are {left} of `{}`, not {quantity}", product.sku);
            return json_response(StatusCode::CONFLICT, json!({ "message": message }));
        }
        self.stock.insert(product.sku, left - quantity);
        let number = self.next_id();
        let mut order = json!({
            "id": number,
            "sku": product.sku,
            "quantity": quantity,
            "note": body["note"],
            "total": price_in_units(product.price * quantity),
            "status": "placed",
        });
        if !body["gift"].is_null() {
            order["gift"] = body["gift"].clone();
        }
        self.orders.insert(number, order.clone());
        if self.orders.len() > MAX_STORED_ENTRIES {
            self.orders.pop_first();
        }
        created_response(StatusCode::CREATED, format!("/orders/{number}"), order)
    }

    /// Idempotent: cancelling a cancelled order changes nothing.
    fn cancel_order(&mut self, number: u64) -> Response {
        let Some(order) = self.orders.get_mut(&number) else { return not_found("order") };
        if order["status"] == "placed" {
            order["status"] = json!("cancelled");
            let product = find_product(order);
            let quantity = order["quantity"].as_u64().unwrap_or(0);
            if let Some(product) = product {
                *self.stock.entry(product.sku).or_default() += quantity;
            }
        }
        StatusCode::NO_CONTENT.into_response()
    }

    /// `request_report`: starts a report and responds 202 with its location.
    fn request_report(&mut self, body: &Value) -> Response {
        let number = self.next_id();
        self.reports
            .insert(number, ShopReport { about: body["about"].as_str().unwrap_or_default().to_owned(), polls: 0 });
        if self.reports.len() > MAX_STORED_ENTRIES {
            self.reports.pop_first();
        }
        let begun = json!({ "id": number, "status": "pending" });
        created_response(StatusCode::ACCEPTED, format!("/reports/{number}"), begun)
    }

    /// `get_report`: pending for the first polls, then ready; a report about the weather fails.
    fn poll_report(&mut self, number: u64) -> Response {
        let Some(report) = self.reports.get_mut(&number) else { return not_found("report") };
        report.polls = report.polls.saturating_add(1);
        let about = report.about.clone();
        let ready = report.polls > PENDING_POLLS;
        let report = match (about.as_str(), ready) {
            (_, false) => json!({ "id": number, "status": "pending" }),
            ("weather", true) => {
                json!({ "id": number, "status": "failed", "message": "nobody looked out of the window" })
            }
            ("stock", true) => json!({ "id": number, "status": "ready", "result": { "stock": self.stock } }),
            (_, true) => {
                let total: f64 = self.orders.values().filter_map(|order| order["total"].as_f64()).sum();
                let result = json!({ "orders": self.orders.len(), "total": total });
                json!({ "id": number, "status": "ready", "result": result })
            }
        };
        json_response(StatusCode::OK, report)
    }

    /// Ids of orders and reports share one counter.
    fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }
}

/// A response with a JSON body.
pub(super) fn json_response(status: StatusCode, body: Value) -> Response {
    (status, Json(body)).into_response()
}

/// A response for a resource that was created at this path.
fn created_response(status: StatusCode, path: String, body: Value) -> Response {
    (status, [(header::LOCATION, path)], Json(body)).into_response()
}

/// `add_picture`: describes the uploaded file without storing it.
fn add_picture(path: &Value, request: &ValidatedRequest) -> Response {
    let Some(product) = find_product(path) else { return not_found("product") };
    let Some(image) = request.parts.iter().find(|part| part.name == "image") else { return not_found("image") };
    let description = json!({
        "sku": product.sku,
        "file": image.file_name,
        "content_type": image.content_type,
        "bytes": image.bytes.len(),
        "caption": request.values["body"]["caption"],
    });
    json_response(StatusCode::CREATED, description)
}

/// Finds the product of the field `sku`.
fn find_product(values: &Value) -> Option<&'static Product> {
    PRODUCTS.iter().find(|product| values["sku"] == product.sku)
}

/// Reads the path parameter `id`; validation guarantees an integer.
fn path_id(path: &Value) -> u64 {
    path["id"].as_f64().map_or(0, |id| id as u64)
}

/// Converts hundredths to the currency unit of the API.
fn price_in_units(hundredths: u64) -> f64 {
    hundredths as f64 / 100.0
}

/// A 404 response.
fn not_found(what: &str) -> Response {
    json_response(StatusCode::NOT_FOUND, json!({ "message": format!("there is no such {what}") }))
}
