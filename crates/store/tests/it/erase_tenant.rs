//! Erasing a tenant: who belongs to it, and who is left alone because of what it has elsewhere.

use protocol::TaskId;
use serde_json::json;
use store::{Answer, AuditFilter, ParkedFor, Principal, Store, pseudonym};

use crate::erase::{ISSUER, completed, queued};
use crate::support::{HOUR, NO_WORK, World, YES, answers, claim_as, question, token};

fn of(subject: &str, tenant: Option<&str>) -> Principal {
    let tenant = tenant.map(str::to_owned);
    Principal::verified(ISSUER.to_owned(), subject.to_owned(), tenant)
}

async fn members(store: &Store, tenant: &str) -> Vec<(String, bool)> {
    let members = store.members_of(ISSUER, tenant).await.unwrap();
    // One at a time it is the same.
    for member in &members {
        let alone = store.elsewhere(ISSUER, tenant, &member.subject).await;
        assert_eq!(alone.unwrap(), member.elsewhere, "{member:?}");
    }
    let members = members.into_iter();
    members.map(|one| (one.subject, one.elsewhere)).collect()
}

fn named(members: &[(&str, bool)]) -> Vec<(String, bool)> {
    let members = members.iter();
    members
        .map(|(name, at)| ((*name).to_owned(), *at))
        .collect()
}

async fn purged(world: &World, owner: &Principal) -> TaskId {
    let id = completed(&world.store, owner, None).await;
    world
        .set(id, "expires_at = now(), first_fetched_at = now()")
        .await;
    assert_eq!(world.store.purge(10, HOUR).await.unwrap(), 1);
    id
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_came_to_have_tasks_elsewhere_is_known_when_asked_again() {
    let world = World::new().await;
    let store = &world.store;
    queued(store, &of("anna", Some("acme")), None).await;
    assert_eq!(members(store, "acme").await, named(&[("anna", false)]));
    let namesake = Principal::verified("https://other".to_owned(), "anna".to_owned(), None);
    queued(store, &namesake, None).await;
    assert!(!store.elsewhere(ISSUER, "acme", "anna").await.unwrap());
    queued(store, &of("anna", None), None).await;
    assert!(store.elsewhere(ISSUER, "acme", "anna").await.unwrap());
    assert_eq!(members(store, "acme").await, named(&[("anna", true)]));
    assert!(!store.elsewhere(ISSUER, "acme", "nobody").await.unwrap());
}

/// Releases before migration 0013 wrote no tenant: whose it was nobody knows, so it is not this one's to erase.
#[tokio::test(flavor = "multi_thread")]
async fn a_tombstone_of_no_tenant_may_be_anybodys() {
    let world = World::new().await;
    let store = &world.store;
    purged(&world, &of("anna", Some("acme"))).await;
    for owner in [of("ben", None), of("cleo", Some("other")), of("ivo", None)] {
        purged(&world, &owner).await;
    }
    for subject in ["ben", "cleo"] {
        queued(store, &of(subject, Some("acme")), None).await;
    }
    let expected = named(&[("anna", false), ("ben", true), ("cleo", true)]);
    assert_eq!(members(store, "acme").await, expected);
    world
        .run("UPDATE tombstones SET tenant = NULL WHERE subject = 'anna'")
        .await;
    queued(store, &of("anna", Some("acme")), None).await;
    let expected = named(&[("anna", true), ("ben", true), ("cleo", true)]);
    assert_eq!(members(store, "acme").await, expected);
}

/// The audit trail is all that there is of who only answered for others.
#[tokio::test(flavor = "multi_thread")]
async fn who_only_answered_for_others_belongs_to_their_tenant() {
    let world = World::new().await;
    let store = &world.store;
    let id = queued(store, &of("anna", Some("acme")), None).await;
    let claim = claim_as(store, id, token()).await.unwrap();
    let asked = [question("q")];
    let parked = store.park(&claim, ParkedFor::Task, &asked, NO_WORK).await;
    let _ = parked.unwrap();
    let given = answers(&[("q", YES)]);
    let colleague = of("ivo kay", Some("acme"));
    let answered = store.answer_for_tenant(&colleague, id, &given, None).await;
    assert!(matches!(answered.unwrap(), Answer::Resumed { .. }));
    let target = |tenant: &str| json!({ "keys": ["q"], "tenant": tenant });
    for (who, command, tenant) in [
        ("https://issuer jana", "tasks/update", "acme"),
        ("https://issuer jana", "tasks/update", "other"),
        // Of another issuer, and what no delegate did.
        ("https://issuer.example lea", "tasks/update", "acme"),
        ("https://issuer mia", "tasks cancel", "acme"),
    ] {
        let by = (who, command);
        store.audit(token(), by, &target(tenant)).await.unwrap();
    }
    let expected = named(&[("anna", false), ("ivo kay", false), ("jana", true)]);
    assert_eq!(members(store, "acme").await, expected);
    assert_eq!(members(store, "other").await, named(&[("jana", true)]));

    // Neither who it was, nor of which tenant, is left of the one; all is of the others.
    store.erase_traces(ISSUER, "ivo kay").await.unwrap();
    let expected = named(&[("anna", false), ("jana", true)]);
    assert_eq!(members(store, "acme").await, expected);
    let filter = AuditFilter {
        limit: 100,
        ..AuditFilter::default()
    };
    let audits = store.audits(filter).await.unwrap();
    let stands_for = pseudonym(ISSUER, "ivo kay");
    let line = audits.iter().find(|line| line.operator == stands_for);
    let line = line.unwrap();
    assert_eq!(line.target, json!({ "keys": ["q"] }));
    assert_eq!(line.tasks.len(), 1, "{:?}", line.tasks);
    let kept = audits.iter().filter(|line| line.target["tenant"] == "acme");
    assert_eq!(kept.count(), 3);
}
