//! Services of an authority of their own.

use serde_json::json;

use crate::front::Authority;
use crate::world::{Folder, Reply, Server, error, run, text};

#[tokio::test]
async fn the_authority_is_checked_before_anything_is_sent() {
    let server = Server::start(|_, _| Reply::of(200, "text/plain", "done")).await;
    let folder = Folder::new();
    let ours = Authority::new(folder.path(), "ours");
    let front = ours.before(&server.url).await;
    Authority::new(folder.path(), "other");
    // Somebody else's, and the public ones, which do not know ours.
    for more in ["ca_file = \"other.pem\"", ""] {
        let tool = folder.tool(&front.url, &format!("effects = \"once\"\n{more}"));
        let run = run(tool, json!({ "x": "for the service" })).await;
        let told = error(&run);
        for part in ["cannot be reached", "invalid peer certificate", "`ca_file`"] {
            assert!(told.contains(part), "{more}: {told}");
        }
        // Not in doubt, although it must not be repeated: nothing was sent.
        assert!(run.result().unwrap_err().is_retryable(), "{more}: {told}");
        assert_eq!(server.seen().len(), 0, "{more}");
    }
    let tool = folder.tool(&front.url, &format!("ca_file = {:?}", ours.file));
    assert_eq!(text(&run(tool, json!({})).await), "done");
    assert_eq!(server.seen().len(), 1);
}
