//! I11: live tasks past their TTL are stopped.

use crate::{Parts, Swept};

pub(crate) async fn run(parts: Parts) -> Swept {
    super::batches(&parts, async || {
        let expired = parts.store.expire(parts.config.batch_rows()).await?;
        let ids: Vec<_> = expired.iter().map(|task| task.id).collect();
        super::settle(&parts, &ids).await?;
        Ok(expired.len() as u64)
    })
    .await
}
