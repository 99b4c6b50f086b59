//! Receivers that are told over TLS, by an address and a key that are in files.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use harness::hook::{Manner, Post};
use harness::temp::Temp;
use harness::wait;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::front::Authority;
use crate::receivers::{SECRET, SOON, fail, receiver, taken};
use crate::stack::Stack;

const NEXT: &str = "whsec_bmV4dG5leHRuZXh0bmV4dG5leHRuZXh0";

fn is_signed_with(post: &Post, secret: &str) -> bool {
    let key = STANDARD.decode(secret.strip_prefix("whsec_").unwrap());
    let mut mac = Hmac::<Sha256>::new_from_slice(&key.unwrap()).unwrap();
    let [id, timestamp, signature] =
        ["id", "timestamp", "signature"].map(|name| &post.headers[&format!("webhook-{name}")]);
    mac.update(format!("{id}.{timestamp}.{}", post.body).as_bytes());
    *signature == format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
}

/// Why a receiver was not told yet; every one of its messages waits.
async fn why_away(stack: &Stack, receiver: &str, part: &str) -> String {
    let sql = format!(
        "SELECT last_error FROM alert_deliveries
         WHERE receiver = '{receiver}' AND delivered_at IS NULL AND last_error LIKE '%{part}%'"
    );
    let told = wait::until("why it is away", SOON, async || {
        let rows = stack.database.rows(&sql).await.unwrap();
        rows.first().and_then(|row| row[0].clone())
    });
    told.await.unwrap()
}

async fn again(stack: &Stack) {
    let now = "UPDATE alert_deliveries SET next_at = now() WHERE next_at IS NOT NULL RETURNING 1";
    stack.database.rows(now).await.unwrap();
}

/// Who has a certificate of an authority of one's own is told where that authority is named, and nowhere
/// else; what signs is what its file holds at that moment.
#[tokio::test(flavor = "multi_thread")]
async fn receivers_behind_an_authority_of_ones_own_and_secrets_that_rotate() {
    let (hook, manager) = (receiver(Manner::Take).await, receiver(Manner::Take).await);
    let folder = Temp::new().unwrap();
    let (ours, others) = (
        Authority::new(folder.path(), "ours"),
        Authority::new(folder.path(), "others"),
    );
    let (front, managed) = (
        ours.before(&format!("{}/hook", hook.url)).await,
        ours.before(&manager.url).await,
    );
    let [url, key, address] = ["url", "key", "manager"].map(|name| folder.path().join(name));
    std::fs::write(&url, format!("{}\n", front.url)).unwrap();
    std::fs::write(&key, format!("{SECRET}\n")).unwrap();
    std::fs::write(&address, &managed.url).unwrap();
    let webhook = |name: &str, ca: &str| {
        format!(
            "[[alerts.receivers]]\nname = {name:?}\nkind = \"webhook\"\nurl_file = {url:?}\n\
             secret_file = {key:?}\n{ca}"
        )
    };
    let ca = |authority: &Authority| format!("ca_file = {:?}\n", authority.file);
    let settings = format!(
        "[alerts]\nunfetched_after = \"0s\"\n{}{}{}\
         [[alerts.receivers]]\nname = \"am\"\nkind = \"alertmanager\"\nurl_file = {address:?}\n{}",
        webhook("ours", &ca(&ours)),
        webhook("others", &ca(&others)),
        webhook("public", ""),
        ca(&ours),
    );
    let stack = Stack::of((1, 1), &settings).await;
    let alice = stack.cluster.client(0, "alice");
    let first = fail(&alice, "first").await;
    let posts = taken(&hook, "/hook", 1).await;
    assert!(is_signed_with(&posts[0], SECRET), "{:?}", posts[0]);
    assert!(posts[0].body.contains(&first));
    let of_manager = taken(&manager, "/api/v2/alerts", 1).await;
    assert!(of_manager[0].body.contains(&first));
    for untrusting in ["others", "public"] {
        why_away(&stack, untrusting, "UnknownIssuer").await;
    }

    std::fs::write(&key, NEXT).unwrap();
    let second = fail(&alice, "second").await;
    let posts = taken(&hook, "/hook", 2).await;
    assert!(is_signed_with(&posts[1], NEXT), "{:?}", posts[1]);
    assert!(posts[1].body.contains(&second));

    // Nothing is sent unsigned, and nothing is lost.
    std::fs::remove_file(&key).unwrap();
    let third = fail(&alice, "third").await;
    let why = why_away(&stack, "ours", "secret_file").await;
    let named = format!("secret_file: {}: No such file", key.display());
    assert!(why.starts_with(&named), "{why}");
    assert_eq!(hook.posts("/hook").len(), 2);
    let elsewhere = ours.before(&format!("{}/elsewhere", hook.url)).await;
    std::fs::write(&url, &elsewhere.url).unwrap();
    std::fs::write(&key, SECRET).unwrap();
    again(&stack).await;
    let posts = taken(&hook, "/elsewhere", 1).await;
    assert!(is_signed_with(&posts[0], SECRET), "{:?}", posts[0]);
    assert!(posts[0].body.contains(&third));

    // Another authority is believed as soon as the file says so, and the first one no more.
    let file = std::fs::read(&others.file).unwrap();
    std::fs::write(&ours.file, file).unwrap();
    fail(&alice, "fourth").await;
    why_away(&stack, "ours", "UnknownIssuer").await;
    assert_eq!(hook.posts("/elsewhere").len(), 1);
    let next = others.before(&format!("{}/next", hook.url)).await;
    std::fs::write(&url, &next.url).unwrap();
    again(&stack).await;
    let told = async || (!hook.taken("/next").is_empty()).then_some(());
    wait::until("the next authority's", SOON, told)
        .await
        .unwrap();

    let log = std::fs::read_to_string(stack.cluster.crons[0].log()).unwrap();
    for secret in [SECRET, NEXT, "/hook", "/elsewhere"] {
        assert!(!log.contains(secret), "{secret}: {log}");
    }
}
