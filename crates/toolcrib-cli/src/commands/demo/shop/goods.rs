//! What the shop has and does. It is told only what fits its document.

use std::collections::BTreeMap;

use axum::http::StatusCode;
use serde_json::{Value, json};

use super::check::Fitting;

pub(super) struct Goods {
    stock: BTreeMap<&'static str, u64>,
    orders: BTreeMap<u64, Value>,
    reports: BTreeMap<u64, Report>,
    last: u64,
}

pub(super) struct Reply {
    pub(super) status: StatusCode,
    pub(super) location: Option<String>,
    pub(super) body: Option<Value>,
}

/// A report is ready once somebody has looked for it a few times.
struct Report {
    about: String,
    looks: u32,
}

const LOOKS: u32 = 2;
/// Of orders and reports, the oldest make room for new ones.
const MOST: usize = 1000;

struct Product {
    sku: &'static str,
    name: &'static str,
    category: &'static str,
    /// In hundredths.
    price: u64,
    stock: u64,
}

const fn product(sku: &'static str, name: &'static str, category: &'static str, price: u64, stock: u64) -> Product {
    Product { sku, name, category, price, stock }
}

const SHELVES: [Product; 12] = [
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

impl Goods {
    pub(super) fn new() -> Goods {
        let stock = SHELVES.iter().map(|product| (product.sku, product.stock)).collect();
        Goods { stock, orders: BTreeMap::new(), reports: BTreeMap::new(), last: 0 }
    }

    pub(super) fn answer(&mut self, operation: &str, asked: &Fitting) -> Reply {
        let values = &asked.values;
        let (path, query, body) = (&values["path"], &values["query"], &values["body"]);
        match operation {
            "list_products" => Reply::json(StatusCode::OK, self.page(query)),
            "get_product" => match find(path) {
                Some(product) => Reply::json(StatusCode::OK, self.shown(product)),
                None => missing("product"),
            },
            "add_picture" => picture(path, asked),
            "place_order" => self.order(body),
            "get_order" => match self.orders.get(&id(path)) {
                Some(order) => Reply::json(StatusCode::OK, order.clone()),
                None => missing("order"),
            },
            "cancel_order" => self.cancel(id(path)),
            "request_report" => self.begin_report(body),
            "get_report" => self.look_at_report(id(path)),
            _ => Reply::json(StatusCode::NOT_IMPLEMENTED, json!({ "message": "the shop does not do this yet" })),
        }
    }

    fn page(&self, query: &Value) -> Value {
        let filter = &query["filter"];
        let price = |key: &str| filter[key].as_f64().map(|price| price * 100.0);
        let part = filter["name"].as_str().unwrap_or_default().to_lowercase();
        let categories = query["category"].as_array();
        let mut products: Vec<&Product> = SHELVES
            .iter()
            .filter(|product| {
                categories.is_none_or(|wanted| wanted.iter().any(|wanted| wanted == product.category))
                    && product.name.to_lowercase().contains(&part)
                    && price("min_price").is_none_or(|least| product.price as f64 >= least)
                    && price("max_price").is_none_or(|most| product.price as f64 <= most)
                    && filter["in_stock"].as_bool().is_none_or(|wanted| wanted == (self.left(product) > 0))
            })
            .collect();
        match query["sort"].as_str() {
            Some("price") => products.sort_by_key(|product| product.price),
            Some(_) | None => products.sort_by_key(|product| product.name),
        }
        let at = |key: &str, usual: usize| query[key].as_f64().map_or(usual, |number| number as usize);
        let (begin, end) = (at("cursor", 0), at("cursor", 0) + at("limit", 5));
        let next = (end < products.len()).then_some(end);
        let items: Vec<Value> = products.iter().take(end).skip(begin).map(|product| self.shown(product)).collect();
        json!({ "items": items, "next": next })
    }

    fn shown(&self, product: &Product) -> Value {
        let Product { sku, name, category, price, .. } = product;
        json!({ "sku": sku, "name": name, "category": category, "price": money(*price), "stock": self.left(product) })
    }

    fn left(&self, product: &Product) -> u64 {
        self.stock.get(product.sku).copied().unwrap_or(0)
    }

    fn order(&mut self, body: &Value) -> Reply {
        let Some(product) = find(body) else { return missing("product") };
        let quantity = body["quantity"].as_f64().unwrap_or(1.0) as u64;
        let left = self.left(product);
        if quantity > left {
            let message = format!("there are {left} of `{}`, not {quantity}", product.sku);
            return Reply::json(StatusCode::CONFLICT, json!({ "message": message }));
        }
        self.stock.insert(product.sku, left - quantity);
        let number = self.next();
        let mut order = json!({
            "id": number,
            "sku": product.sku,
            "quantity": quantity,
            "note": body["note"],
            "total": money(product.price * quantity),
            "status": "placed",
        });
        if !body["gift"].is_null() {
            order["gift"] = body["gift"].clone();
        }
        self.orders.insert(number, order.clone());
        if self.orders.len() > MOST {
            self.orders.pop_first();
        }
        Reply { location: Some(format!("/orders/{number}")), ..Reply::json(StatusCode::CREATED, order) }
    }

    /// Doing it twice does it once.
    fn cancel(&mut self, number: u64) -> Reply {
        let Some(order) = self.orders.get_mut(&number) else { return missing("order") };
        if order["status"] == "placed" {
            order["status"] = json!("cancelled");
            let (product, quantity) = (find(order), order["quantity"].as_u64().unwrap_or(0));
            if let Some(product) = product {
                *self.stock.entry(product.sku).or_default() += quantity;
            }
        }
        Reply { status: StatusCode::NO_CONTENT, location: None, body: None }
    }

    fn begin_report(&mut self, body: &Value) -> Reply {
        let number = self.next();
        self.reports.insert(number, Report { about: body["about"].as_str().unwrap_or_default().to_owned(), looks: 0 });
        if self.reports.len() > MOST {
            self.reports.pop_first();
        }
        let begun = json!({ "id": number, "status": "pending" });
        Reply { location: Some(format!("/reports/{number}")), ..Reply::json(StatusCode::ACCEPTED, begun) }
    }

    fn look_at_report(&mut self, number: u64) -> Reply {
        let Some(report) = self.reports.get_mut(&number) else { return missing("report") };
        report.looks = report.looks.saturating_add(1);
        let (about, ready) = (report.about.clone(), report.looks > LOOKS);
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
        Reply::json(StatusCode::OK, report)
    }

    fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }
}

impl Reply {
    pub(super) fn json(status: StatusCode, body: Value) -> Reply {
        Reply { status, location: None, body: Some(body) }
    }
}

fn picture(path: &Value, asked: &Fitting) -> Reply {
    let Some(product) = find(path) else { return missing("product") };
    let Some(image) = asked.parts.iter().find(|part| part.name == "image") else { return missing("image") };
    let said = json!({
        "sku": product.sku,
        "file": image.file,
        "content_type": image.content_type,
        "bytes": image.bytes.len(),
        "caption": asked.values["body"]["caption"],
    });
    Reply::json(StatusCode::CREATED, said)
}

fn find(values: &Value) -> Option<&'static Product> {
    SHELVES.iter().find(|product| values["sku"] == product.sku)
}

fn id(path: &Value) -> u64 {
    path["id"].as_f64().map_or(0, |id| id as u64)
}

fn money(hundredths: u64) -> f64 {
    hundredths as f64 / 100.0
}

fn missing(what: &str) -> Reply {
    Reply::json(StatusCode::NOT_FOUND, json!({ "message": format!("there is no such {what}") }))
}
