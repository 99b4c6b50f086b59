//! What needs no authorization server: keys of machines, public metadata, and files that are not there.

use gateway::auth::{Config as Auth, Mode, Scopes};
use serde_json::{Value, json};

use super::{Doors, US, challenge, discover};
use crate::support::{SOON, World, config};

#[tokio::test]
async fn api_keys_are_for_machines() {
    use sha2::{Digest as _, Sha256};
    let files = tempfile::tempdir().unwrap();
    let file = files.path().join("keys.toml");
    let entry = |key: &str, more: &str| {
        let hash: String = Sha256::digest(key)
            .iter()
            .map(|b| format!("{b:02x}"))
            .collect();
        format!("[[key]]\nsha256 = \"{hash}\"\n{more}\n")
    };
    let good = entry(
        "mtk_ci",
        "subject = \"ci\"\ntenant = \"acme\"\nscopes = [\"call\"]",
    );
    let expired = entry(
        "mtk_old",
        "subject = \"ci\"\nexpires = 2020-01-01T00:00:00Z",
    );
    let unprefixed = entry("plain", "subject = \"ci\"");
    std::fs::write(&file, format!("{good}{expired}{unprefixed}")).unwrap();
    let auth = Auth {
        mode: Some(Mode::Tokens),
        api_keys_file: Some(file.clone()),
        scopes: Scopes {
            call: vec!["call".to_owned()],
            cancel: vec!["cancel".to_owned()],
            ..Scopes::default()
        },
        ..Auth::default()
    };
    let world = World::guarded(config(), auth).await;
    let status = async |token: &str| discover(&world.client(token)).await.status;
    let ci = world.client("mtk_ci");
    let task = ci.call("task", json!({})).await.unwrap();
    let rows = world
        .database
        .rows("SELECT issuer, subject, tenant FROM tasks")
        .await
        .unwrap();
    let row: Vec<_> = rows[0]
        .iter()
        .map(|cell| cell.as_deref().unwrap())
        .collect();
    assert_eq!(row, ["api-keys", "ci", "acme"]);
    let cancel = ci.request("tasks/cancel", json!({"taskId": task["taskId"]}));
    assert_eq!(cancel.send().await.unwrap().status, 403);
    for bad in ["mtk_old", "mtk_", "mtk_ci2", "MTK_CI", "plain"] {
        assert_eq!(status(bad).await, 401, "{bad}");
    }
    let answer = discover(&world.client("mtk_ci2")).await;
    assert_eq!(
        challenge(&answer),
        "Bearer error=\"invalid_token\", error_description=\"the API key is not known\", \
         scope=\"call cancel\"",
        "there is no authorization server to go to"
    );
    std::fs::write(&file, entry("mtk_new", "subject = \"ci\"")).unwrap();
    let read = async || (status("mtk_new").await == 200).then_some(());
    harness::wait::until("the new key is known", SOON, read)
        .await
        .unwrap();
    assert_eq!(status("mtk_ci").await, 401, "the old one is gone");
}

#[tokio::test]
async fn metadata_is_for_everybody() {
    let doors = Doors::with(|mut auth| {
        auth.scopes.call = vec!["call".to_owned()];
        auth
    })
    .await;
    let http = harness::http::Http::new(SOON);
    let root = format!("http://{}", doors.world.address);
    for path in ["", "/mcp"] {
        let url = format!("{root}/.well-known/oauth-protected-resource{path}");
        let page = http.get(&url).await.unwrap();
        assert_eq!(page.status, 200, "{url}");
        let document: Value = serde_json::from_slice(&page.body).unwrap();
        assert_eq!(
            document,
            json!({"resource": US, "authorization_servers": [doors.issuer.url],
                   "bearer_methods_supported": ["header"], "scopes_supported": ["call"]})
        );
        assert_eq!(page.headers["content-type"], "application/json");
        assert_eq!(page.headers["access-control-allow-origin"], "*");
    }
    let other = format!("{root}/.well-known/oauth-protected-resource/other");
    assert_eq!(http.get(&other).await.unwrap().status, 404);
    // In development there is no authorization server to be named.
    let world = World::new().await;
    let url = format!(
        "http://{}/.well-known/oauth-protected-resource",
        world.address
    );
    assert_eq!(http.get(&url).await.unwrap().status, 404);
}

#[tokio::test]
async fn files_that_cannot_be_used_end_the_start() {
    for auth in [
        Auth {
            mode: Some(Mode::Tokens),
            api_keys_file: Some("/does/not/exist".into()),
            ..Auth::default()
        },
        Auth {
            mode: Some(Mode::Tokens),
            ca_file: Some("/does/not/exist".into()),
            api_keys_file: Some("/does/not/exist".into()),
            ..Auth::default()
        },
    ] {
        let error = crate::support::refused_start(auth).await;
        assert!(error.to_string().contains("/does/not/exist"), "{error}");
    }
}
