//! I2, I5: stopped tasks whose worker is gone, and tasks whose tries are used up, end.

use crate::{Parts, Swept};

pub(crate) async fn run(parts: Parts) -> Swept {
    super::batches(&parts, async || {
        let stoppable = parts.store.stoppable(parts.config.batch_rows()).await?;
        super::settle(&parts, &stoppable).await
    })
    .await
}
