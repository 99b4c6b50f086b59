//! I11: finished tasks past their TTL become tombstones; tombstones past theirs, nothing; and so does
//! what operators did long ago.

use crate::{Parts, Swept};

pub(crate) async fn run(parts: Parts) -> Swept {
    let rows = parts.config.batch_rows();
    let purged = super::batches(&parts, async || {
        Ok(parts.store.purge(rows, parts.config.tombstone_keep).await?)
    })
    .await?;
    let forgotten = super::batches(&parts, async || {
        Ok(parts.store.purge_tombstones(rows).await?)
    })
    .await?;
    let audits = super::batches(&parts, async || {
        Ok(parts
            .store
            .purge_audit(rows, parts.config.audit_keep)
            .await?)
    })
    .await?;
    Ok(purged + forgotten + audits)
}
