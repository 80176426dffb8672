//! Runs CPU-heavy reads (definitions of a large list, many long records) on blocking threads, so that they do not delay
//! async tasks.

use toolcrib_core::{Code, Result, ResultExt};

/// Runs `work` on a blocking thread. `failure` is the error message if it panics.
pub(super) async fn run_blocking<T: Send + 'static>(
    failure: &'static str,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(work).await.context(Code::Internal, failure)?
}
