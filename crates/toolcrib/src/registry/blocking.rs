//! Reading every definition of a large list, or many long records, takes a while: not on a thread that others wait for.

use toolcrib_core::{Code, Result, ResultExt};

/// `failure` is what is said should the work not come to its end.
pub(super) async fn run_blocking<T: Send + 'static>(
    failure: &'static str,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(work).await.context(Code::Internal, failure)?
}
