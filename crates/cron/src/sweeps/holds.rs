//! Tasks that nobody has an id of and nobody waits for are stopped.

use crate::{Parts, Swept};

pub(crate) async fn run(parts: Parts) -> Swept {
    super::batches(&parts, async || {
        let ended = parts.store.end_holds(parts.config.batch_rows()).await?;
        super::settle(&parts, &ended).await?;
        Ok(ended.len() as u64)
    })
    .await
}
