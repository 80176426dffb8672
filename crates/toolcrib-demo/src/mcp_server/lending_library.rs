//! State and tools of the demo's lending library: eight books, their loans and reservations, and the eight tools that
//! `tools.json` defines.
//!
//! Tools take and return plain JSON values; the protocol around them is in the parent module. An error text is for the
//! model that calls, so it names the tool that helps.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// One book of the fixed stock.
struct Book {
    id: &'static str,
    title: &'static str,
    author: &'static str,
    year: u16,
    genre: &'static str,
    shelf: &'static str,
}

/// Constructor for the constant list below.
const fn book(
    id: &'static str,
    title: &'static str,
    author: &'static str,
    year: u16,
    genre: &'static str,
    shelf: &'static str,
) -> Book {
    Book { id, title, author, year, genre, shelf }
}

/// All books.
const BOOKS: [Book; 8] = [
    book("dune", "Dune", "Frank Herbert", 1965, "science fiction", "A3"),
    book("emma", "Emma", "Jane Austen", 1815, "novel", "B1"),
    book("frankenstein", "Frankenstein", "Mary Shelley", 1818, "horror", "B4"),
    book("godel", "Gödel, Escher, Bach", "Douglas Hofstadter", 1979, "science", "D2"),
    book("hobbit", "The Hobbit", "J. R. R. Tolkien", 1937, "fantasy", "A1"),
    book("left_hand", "The Left Hand of Darkness", "Ursula K. Le Guin", 1969, "science fiction", "A3"),
    book("moby_dick", "Moby-Dick", "Herman Melville", 1851, "novel", "B2"),
    book("sicp", "Structure and Interpretation of Computer Programs", "Abelson and Sussman", 1985, "science", "D1"),
];

/// Loan period when `days` is not given, as `tools.json` says, and after a renewal.
const DEFAULT_LOAN_DAYS: u64 = 21;

/// The lending library; every start of the server begins with the same state.
pub(super) struct LendingLibrary {
    /// Borrower and remaining days, by book id.
    loans: BTreeMap<&'static str, (String, u64)>,
    /// Members waiting for a book, in order, by book id.
    reservations: BTreeMap<&'static str, Vec<String>>,
}

impl LendingLibrary {
    /// Starts with two loans, so that `list_loans` has something to list.
    pub(super) fn new() -> LendingLibrary {
        let loans = BTreeMap::from([("emma", ("grace".to_owned(), 4)), ("sicp", ("alan".to_owned(), 12))]);
        LendingLibrary { loans, reservations: BTreeMap::new() }
    }

    /// Runs a tool. Returns `None` for an unknown tool, and the reason when the tool fails.
    pub(super) fn call(&mut self, name: &str, arguments: &Value) -> Option<Result<Value, String>> {
        Some(match name {
            // The names are those of `tools.json`; a test calls each of them.
            "find_books" => self.find_books(arguments),
            "get_book" => find_book(arguments).map(|book| self.book_json(book)),
            "list_loans" => Ok(self.list_loans(arguments)),
            "borrow_book" => self.borrow_book(arguments),
            "return_book" => self.return_book(arguments),
            "renew_loan" => self.renew_loan(arguments),
            "reserve_book" => self.reserve_book(arguments),
            "opening_hours" => Ok(opening_hours(arguments)),
            _ => return None,
        })
    }

    /// `find_books`: filters by text, genre and availability.
    fn find_books(&self, arguments: &Value) -> Result<Value, String> {
        let text = |key: &str| arguments[key].as_str().unwrap_or_default().to_lowercase();
        let query = text("query");
        let genre = text("genre");
        let only_available = arguments["available"].as_bool().unwrap_or(false);
        let limit = arguments["limit"].as_u64().unwrap_or(5);
        let found: Vec<Value> = BOOKS
            .iter()
            .filter(|book| format!("{} {}", book.title, book.author).to_lowercase().contains(&query))
            .filter(|book| genre.is_empty() || book.genre == genre)
            .filter(|book| !only_available || !self.loans.contains_key(book.id))
            .take(usize::try_from(limit).unwrap_or(usize::MAX))
            .map(|book| self.book_json(book))
            .collect();
        Ok(json!({ "books": found }))
    }

    /// A book as the tools return it.
    fn book_json(&self, book: &Book) -> Value {
        let Book { id, title, author, year, genre, shelf } = book;
        let available = !self.loans.contains_key(id);
        json!({"id": id, "title": title, "author": author, "year": year, "genre": genre, "shelf": shelf, "available": available})
    }

    /// `list_loans`: all loans, or those of one member.
    fn list_loans(&self, arguments: &Value) -> Value {
        let member = arguments["member"].as_str();
        let loans = self.loans.iter().filter(|(_, (who, _))| member.is_none_or(|member| member == who));
        let loans: Vec<Value> =
            loans.map(|(book, (who, days))| json!({"book": book, "member": who, "due_in_days": days})).collect();
        json!({ "loans": loans })
    }

    /// `borrow_book`: fails if the book is lent.
    fn borrow_book(&mut self, arguments: &Value) -> Result<Value, String> {
        let book = find_book(arguments)?;
        let member = required_member(arguments)?;
        if let Some((who, _)) = self.loans.get(book.id) {
            return Err(format!("`{}` is lent to {who}; `reserve_book` puts you on the list", book.id));
        }
        // The schema has the same bounds; a client that does not validate is corrected, not refused.
        let days = arguments["days"].as_u64().unwrap_or(DEFAULT_LOAN_DAYS).clamp(1, 60);
        self.loans.insert(book.id, (member.clone(), days));
        Ok(json!({"book": book.id, "member": member, "title": book.title, "due_in_days": days}))
    }

    /// `return_book`: ends the loan and names the next waiting member.
    fn return_book(&mut self, arguments: &Value) -> Result<Value, String> {
        let book = find_book(arguments)?;
        let (member, _) = self.loans.remove(book.id).ok_or_else(|| format!("`{}` is not lent", book.id))?;
        let next =
            self.reservations.get_mut(book.id).filter(|waiting| !waiting.is_empty()).map(|waiting| waiting.remove(0));
        Ok(json!({"book": book.id, "returned_by": member, "next": next}))
    }

    /// `renew_loan`: gives the loan its full period again.
    fn renew_loan(&mut self, arguments: &Value) -> Result<Value, String> {
        let book = find_book(arguments)?;
        let (_, days) = self.loans.get_mut(book.id).ok_or_else(|| format!("`{}` is not lent", book.id))?;
        *days = DEFAULT_LOAN_DAYS;
        Ok(json!({"book": book.id, "due_in_days": days}))
    }

    /// `reserve_book`: idempotent, a member waits at most once for a book.
    fn reserve_book(&mut self, arguments: &Value) -> Result<Value, String> {
        let book = find_book(arguments)?;
        let member = required_member(arguments)?;
        let waiting = self.reservations.entry(book.id).or_default();
        if !waiting.contains(&member) {
            waiting.push(member.clone());
        }
        Ok(json!({"book": book.id, "waiting": waiting}))
    }
}

/// Resolves the argument `book`.
fn find_book(arguments: &Value) -> Result<&'static Book, String> {
    let id = arguments["book"].as_str().unwrap_or_default();
    let unknown = || format!("there is no book `{id}`; `find_books` gives the ids");
    BOOKS.iter().find(|book| book.id == id).ok_or_else(unknown)
}

/// Reads the argument `member`.
fn required_member(arguments: &Value) -> Result<String, String> {
    let member = arguments["member"].as_str().filter(|member| !member.is_empty());
    member.map(str::to_owned).ok_or_else(|| "say which member".to_owned())
}

/// `opening_hours`: of one day, or of weekdays.
fn opening_hours(arguments: &Value) -> Value {
    match arguments["day"].as_str() {
        Some("sunday") => json!({"day": "sunday", "open": false}),
        Some("saturday") => json!({"day": "saturday", "open": true, "from": "10:00", "to": "14:00"}),
        day => json!({"day": day.unwrap_or("weekdays"), "open": true, "from": "09:00", "to": "19:00"}),
    }
}
