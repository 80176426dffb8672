//! Static files of the console, embedded in the binary. Their names contain a hash of the content, so that browsers can
//! cache them for ever.

use std::sync::LazyLock;

use axum::extract::Path;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use toolcrib::core::fingerprint::Fingerprint;

/// One file under `/assets/`.
#[derive(Debug)]
pub(super) struct Asset {
    pub(super) path: String,
    content_type: &'static str,
    text: &'static str,
}

/// The style sheet of all pages.
pub(super) static STYLE: LazyLock<Asset> =
    LazyLock::new(|| Asset::new("console", "css", "text/css; charset=utf-8", include_str!("../../assets/console.css")));
/// The script of all pages. None depends on it.
pub(super) static SCRIPT: LazyLock<Asset> = LazyLock::new(|| {
    Asset::new("console", "js", "text/javascript; charset=utf-8", include_str!("../../assets/console.js"))
});
/// The logo, also used as icon of the page.
pub(super) static LOGO: LazyLock<Asset> =
    LazyLock::new(|| Asset::new("mark", "svg", "image/svg+xml", include_str!("../../assets/mark.svg")));

impl Asset {
    fn new(name: &str, extension: &str, content_type: &'static str, text: &'static str) -> Asset {
        // Six bytes are enough to tell versions apart; the hash is not a protection.
        let hash = Fingerprint::digest(text).short_hex(12);
        Asset { path: format!("/assets/{name}.{hash}.{extension}"), content_type, text }
    }
}

/// `GET /assets/{file}`.
pub(super) async fn serve_asset(Path(file): Path<String>) -> Response {
    let path = format!("/assets/{file}");
    match [&*STYLE, &*SCRIPT, &*LOGO].into_iter().find(|asset| asset.path == path) {
        Some(asset) => {
            let cache_control = (header::CACHE_CONTROL, "public, max-age=31536000, immutable");
            ([(header::CONTENT_TYPE, asset.content_type), cache_control], asset.text).into_response()
        }
        // A page of an older version asks for names with other hashes. It gets its assets when it is loaded again.
        None => StatusCode::NOT_FOUND.into_response(),
    }
}
