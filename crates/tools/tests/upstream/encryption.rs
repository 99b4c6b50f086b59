//! Servers of an authority of their own.

use serde_json::json;
use tools::upstream::UpstreamConfig;

use crate::front::Authority;
use crate::server::{Reply, Seen, legacy, tool};
use crate::world::{World, config};

#[tokio::test]
async fn the_authority_is_checked_before_anything_is_sent() {
    let dir = tempfile::tempdir().unwrap();
    let server = legacy(json!([tool("t", json!({}))]), |seen: &Seen| {
        Reply::json(seen.result(json!({ "content": [] })))
    })
    .await;
    let ours = Authority::new(dir.path(), "ours");
    let front = ours.before(&server.url).await;
    let other = Authority::new(dir.path(), "other").file;
    let start = |ca_file| {
        World::start(vec![UpstreamConfig {
            ca_file,
            ..config(&front.url)
        }])
    };
    // Somebody else's, and the public ones, which do not know ours.
    for ca_file in [Some(other), None] {
        let world = start(ca_file);
        let parts = ["cannot be reached", "invalid peer certificate", "`ca_file`"];
        world
            .until(|_, told| {
                matches!(told, Some(Err(why)) if parts.iter().all(|part| why.contains(part)))
            })
            .await;
        assert!(world.names().is_empty());
        assert!(server.seen().is_empty(), "{:#?}", server.seen());
        world.end().await;
    }
    let world = start(Some(ours.file.clone()));
    world.until(|_, told| told == Some(&Ok(()))).await;
    world.kit("up_t").run().await.result().unwrap();
    assert_eq!(server.of("tools/call").len(), 1);
}
