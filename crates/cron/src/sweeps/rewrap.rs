//! After a rotation of `encryption.keys`: the keys of tasks are wrapped by the new one, in batches, so
//! that the old one can go. Nothing that is sealed changes.

use crate::{Parts, Swept};

pub(crate) async fn run(parts: Parts) -> Swept {
    let rows = parts.config.batch_rows();
    super::batches(&parts, async || Ok(parts.store.rewrap(rows).await?)).await
}
