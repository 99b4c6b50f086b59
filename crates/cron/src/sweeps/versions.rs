//! Tasks bound to a version that nobody serves any more fail by name instead of waiting for ever.

use crate::{Parts, Swept};

/// The sweep's name: it looks on over time.
pub(crate) const NAME: &str = "versions";

pub(crate) async fn run(parts: Parts) -> Swept {
    let wait = parts.config.version_wait;
    // Whoever could not be heard is not gone: an installation that was stopped over the weekend
    // must not lose its tasks because cron starts before its workers. So only the time counts in
    // which this process has reached Postgres without a break.
    if parts.watching_since.elapsed() < wait {
        return Ok(0);
    }
    super::batches(&parts, async || {
        let gone = parts
            .store
            .version_gone(wait, parts.config.batch_rows())
            .await?;
        super::tell(&parts, &gone.ended).await;
        super::settle(&parts, &gone.stopped).await?;
        Ok((gone.stopped.len() + gone.ended.len()) as u64)
    })
    .await
}
