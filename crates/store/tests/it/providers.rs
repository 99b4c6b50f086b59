//! What is provided beside tools: who is listed, what changed, who wants to know.

use std::collections::{BTreeMap, BTreeSet};

use protocol::resources::Resource;
use store::{Forsaken, Introduction, ProviderSpec, Resources, WANTED_BYTES_MAX, WantedResource};
use tokio::task::JoinSet;

use crate::support::{HOUR, SECOND, World};

fn spec(name: &str, version: i32) -> ProviderSpec {
    ProviderSpec {
        version,
        resources: Some(Resources {
            list: vec![Resource::new(format!("a://{name}/{version}"), "a")],
            subscribe: true,
            ..Resources::default()
        }),
        ..ProviderSpec::new(name)
    }
}

fn wanted_of(provider: &str, place: u32, uri: &str) -> WantedResource {
    WantedResource {
        place,
        provider: provider.to_owned(),
        uri: uri.to_owned(),
    }
}

async fn register(world: &World, providers: &[(&str, i32)]) {
    let specs: Vec<_> = providers.iter().map(|(name, v)| spec(name, *v)).collect();
    world.store.register_providers(&specs).await.unwrap();
}

/// Name, version, and whether somebody serves it.
async fn listed(world: &World) -> Vec<(String, i32, bool)> {
    let providers = world.store.providers(&[]).await.unwrap();
    let shown = providers.into_iter().map(|entry| {
        let spec = entry.spec.expect("nothing is known yet");
        assert_eq!(spec.name, entry.name);
        (entry.name, spec.version, entry.alive)
    });
    shown.collect()
}

fn of(expected: &[(&str, i32, bool)]) -> Vec<(String, i32, bool)> {
    let expected = expected.iter();
    expected
        .map(|(name, version, alive)| ((*name).to_owned(), *version, *alive))
        .collect()
}

async fn dies(world: &World, name: &str, version: i32, hours: i32) {
    let sql = format!(
        "UPDATE providers SET last_seen_at = now() - interval '{hours} h'
         WHERE name = '{name}' AND version = {version}"
    );
    world.run(&sql).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_highest_version_that_is_served_is_listed() {
    let world = World::new().await;
    register(&world, &[("notes", 1), ("files", 1)]).await;
    register(&world, &[("notes", 2)]).await;
    register(&world, &[("notes", 1)]).await;
    let both = of(&[("files", 1, true), ("notes", 2, true)]);
    assert_eq!(listed(&world).await, both);
    dies(&world, "notes", 2, 3).await;
    assert_eq!(listed(&world).await[1], ("notes".to_owned(), 1, true));
    // Nobody serves any: the one seen last stays.
    dies(&world, "notes", 1, 2).await;
    assert_eq!(listed(&world).await[1], ("notes".to_owned(), 1, false));
    // What is known is not sent again.
    let read = world.store.providers(&[]).await.unwrap();
    let known: Vec<_> = read.iter().map(|entry| entry.digest.clone()).collect();
    let again = world.store.providers(&known).await.unwrap();
    assert!(again.len() == 2 && again.iter().all(|entry| entry.spec.is_none()));
    world.store.delist_provider("notes", 1).await.unwrap();
    world.store.delist_provider("notes", 2).await.unwrap();
    assert_eq!(listed(&world).await, of(&[("files", 1, true)]));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_nobody_serves_for_long_is_taken_off_the_list() {
    let world = World::new().await;
    register(&world, &[("notes", 1), ("files", 1)]).await;
    dies(&world, "notes", 1, 2).await;
    let swept = world.store.sweep_providers(HOUR).await.unwrap();
    assert_eq!(swept, [("notes".to_owned(), 1)]);
    assert_eq!(world.store.sweep_providers(HOUR).await.unwrap(), []);
    assert_eq!(listed(&world).await, of(&[("files", 1, true)]));
    register(&world, &[("notes", 1)]).await;
    assert_eq!(listed(&world).await.len(), 2, "it is back");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_leaves_takes_along_only_what_nobody_else_serves() {
    let world = World::new().await;
    register(&world, &[("notes", 1), ("files", 1)]).await;
    let alive = async |name: &str, served: &[&str]| {
        let tools: Vec<_> = served.iter().map(|job| ((*job).to_owned(), 1)).collect();
        let introduction = Introduction {
            name,
            host: "test",
            slots: 1,
            tools: &tools,
        };
        world.store.worker_alive(&introduction).await.unwrap();
    };
    alive("a", &["provider/notes", "provider/files"]).await;
    alive("b", &["provider/files"]).await;
    world.store.worker_gone("a").await.unwrap();
    let left = of(&[("files", 1, true), ("notes", 1, false)]);
    assert_eq!(listed(&world).await, left);
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_see_and_pause_them_like_tools() {
    let world = World::new().await;
    register(&world, &[("notes", 1), ("notes", 2)]).await;
    let states = world.store.tool_states().await.unwrap();
    let shown: Vec<_> = states
        .iter()
        .map(|state| (state.name.as_str(), state.version, state.current))
        .collect();
    let expected = [("provider/notes", 2, true), ("provider/notes", 1, false)];
    assert_eq!(shown, expected);
    let pause = |tool| store::Pause {
        tool,
        scope: store::PauseScope {
            calls: true,
            jobs: false,
        },
        reason: None,
        operator: "test",
    };
    let unknown = world.store.pause_tool(pause("provider/none")).await;
    assert!(unknown.unwrap().is_none());
    let paused = world.store.pause_tool(pause("provider/notes")).await;
    assert!(paused.unwrap().unwrap().calls);
    assert!(world.store.providers(&[]).await.unwrap()[0].paused);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeat_writes_no_definitions_again() {
    let world = World::new().await;
    register(&world, &[("notes", 1)]).await;
    let changed = world.value("SELECT changed_at FROM providers").await;
    register(&world, &[("notes", 1)]).await;
    let again = world.value("SELECT changed_at FROM providers").await;
    assert_eq!(again, changed);
    let mut other = spec("notes", 1);
    other.completes = true;
    world.store.register_providers(&[other]).await.unwrap();
    let read = world.store.providers(&[]).await.unwrap();
    assert!(read[0].spec.as_ref().unwrap().completes);
    assert_ne!(
        world.value("SELECT changed_at FROM providers").await,
        changed
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn every_change_of_a_resource_moves_its_mark() {
    let world = World::new().await;
    let uris = ["a://1".to_owned(), "a://2".to_owned()];
    let marks = async || world.store.resource_updates(&uris).await.unwrap();
    assert_eq!(marks().await, [None, None]);
    let mut seen = BTreeSet::new();
    for _ in 0..5 {
        let told = [uris[0].clone(), uris[0].clone()];
        world.store.record_resource_updates(&told).await.unwrap();
        let now = marks().await;
        assert!(seen.insert(now[0].unwrap()) && now[1].is_none());
    }
    // From many workers at once, in any order.
    let mut telling = JoinSet::new();
    for turn in 0..20 {
        let (store, mut told) = (world.store.clone(), uris.to_vec());
        if turn % 2 == 0 {
            told.reverse();
        }
        telling.spawn(async move { store.record_resource_updates(&told).await });
    }
    for told in telling.join_all().await {
        told.unwrap();
    }
    assert!(marks().await[0] > seen.last().copied());
}

#[tokio::test(flavor = "multi_thread")]
async fn who_provides_hears_what_is_listened_to() {
    let world = World::new().await;
    let notes = ["notes".to_owned()];
    let long = format!("a://{}", "x".repeat(8000));
    let first = [
        wanted_of("notes", 0, "a://1"),
        wanted_of("notes", 1, &long),
        wanted_of("notes", 0, "a://1"),
    ];
    let want = async |wanted: &[WantedResource]| {
        let wanted = world.store.want_resources(wanted, 60 * SECOND).await;
        let wanted = wanted.unwrap();
        assert!(wanted.counted.contains(&first[0].uri) || !wanted.fresh);
        wanted.fresh
    };
    assert!(want(&first).await);
    assert!(!want(&first).await, "it is known already");
    let more = wanted_of("notes", 1, "a://3");
    assert!(want(&[first[0].clone(), more]).await);
    let other = [wanted_of("files", 0, "a://2")];
    let other = world.store.want_resources(&other, 60 * SECOND).await;
    assert!(other.unwrap().fresh);
    let wanted = world.store.wanted_resources(&notes).await.unwrap();
    let uris = BTreeSet::from(["a://1".to_owned(), "a://3".to_owned(), long]);
    assert_eq!(wanted, BTreeMap::from([("notes".to_owned(), uris)]));
    // Nobody renews it: nobody listens any more; and then it is forgotten.
    world
        .run("UPDATE wanted_resources SET until = now() - interval '2 h'")
        .await;
    let wanted = world.store.wanted_resources(&notes).await.unwrap();
    assert!(wanted.is_empty());
    world
        .store
        .record_resource_updates(&["a://1".to_owned()])
        .await
        .unwrap();
    assert_eq!(world.store.forget_resources(HOUR, 100).await.unwrap(), 4);
    world
        .run("UPDATE resource_updates SET updated_at = now() - interval '2 h'")
        .await;
    assert_eq!(world.store.forget_resources(HOUR, 100).await.unwrap(), 1);
    assert!(want(&first).await);
}

/// Who listens to a thousand takes nobody's first place, whatever sorts first and whoever was there first.
#[tokio::test(flavor = "multi_thread")]
async fn everybodys_first_counts_before_anybodys_second() {
    let world = World::new().await;
    let want = async |wanted: &[WantedResource]| {
        let wanted = world.store.want_resources(wanted, 60 * SECOND).await;
        wanted.unwrap()
    };
    let told = async |provider: &str| {
        let telling = [provider.to_owned()];
        let mut wanted = world.store.wanted_resources(&telling).await.unwrap();
        wanted.remove(provider).unwrap_or_default()
    };
    let many: Vec<_> = (0..1_000)
        .map(|place| wanted_of("notes", place, &format!("a://{place:04}")))
        .collect();
    for some in many.chunks(250) {
        let wanted = want(some).await;
        assert_eq!((wanted.counted.len(), wanted.fresh), (250, true));
    }
    // One more of the same listener's finds no room, and leaves nothing behind.
    let beyond = want(&[wanted_of("notes", 1_000, "a://more")]).await;
    assert_eq!((beyond.counted.len(), beyond.fresh), (0, false));
    let rows = world.value("SELECT count(*) FROM wanted_resources").await;
    assert_eq!(rows.as_deref(), Some("1000"));
    // Unless it is listened to by somebody whose place counts.
    let shared = want(&[wanted_of("notes", 1_000, "a://0000")]).await;
    assert_eq!((shared.counted.len(), shared.fresh), (1, false));
    // Others' first ones do, and what is then beyond counts no longer.
    let first = |n: u32| wanted_of("notes", 0, &format!("z://{n}"));
    let others: Vec<_> = (0..10).map(first).collect();
    let wanted = want(&others).await;
    assert_eq!((wanted.counted.len(), wanted.fresh), (10, true));
    let now = told("notes").await;
    assert_eq!(now.len(), 1_000);
    assert!(others.iter().all(|one| now.contains(&one.uri)));
    assert_eq!(want(&many[750..]).await.counted.len(), 240);
    assert!(!want(&many[990..]).await.fresh);
    // Bytes count as well, in the same order; another provider has its own.
    let long = |n: u32| format!("a://{n:04}{}", "x".repeat(8_000));
    let long: Vec<_> = (0..150)
        .map(|place| wanted_of("files", place, &long(place)))
        .collect();
    let wanted = want(&long).await;
    let fit = usize::try_from(WANTED_BYTES_MAX).unwrap() / long[0].uri.len();
    assert_eq!(wanted.counted.len(), fit);
    assert_eq!(told("files").await.len(), fit);
    let other = [wanted_of("files", 0, "z://")];
    assert_eq!(want(&other).await.counted.len(), 1);
    assert!(told("files").await.contains("z://"));
    assert_eq!(told("notes").await.len(), 1_000);
    // When some are gone there is room.
    world
        .run("UPDATE wanted_resources SET until = now() - interval '1 s' WHERE uri LIKE 'a://0%'")
        .await;
    let forgotten = world.store.forget_resources(HOUR, 10_000).await.unwrap();
    assert_eq!(usize::try_from(forgotten).unwrap(), 1_000 + fit);
    let wanted = want(&[wanted_of("notes", 1_000, "a://more")]).await;
    assert_eq!((wanted.counted.len(), wanted.fresh), (1, true));
}

/// A job is bound to a version of its provider, and not forsaken while a worker serves that.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_waits_as_long_as_its_provider_lives() {
    let world = World::new().await;
    register(&world, &[("notes", 1)]).await;
    let old = "tool = 'provider/notes', journaled = true, run_at = now() - interval '2 hours'";
    let id = world.queued().await;
    world.set(id, old).await;
    let undoing = world.running().await.id();
    let undone = format!("{old}, phase = 'undoing', pending_status = 'failed', lease_until = NULL");
    world.set(undoing, &undone).await;
    let gone = world.store.version_gone(HOUR, 10).await.unwrap();
    assert_eq!(gone, Forsaken::default());
    dies(&world, "notes", 1, 2).await;
    // Another version is no help.
    register(&world, &[("notes", 2)]).await;
    let gone = world.store.version_gone(HOUR, 10).await.unwrap();
    assert_eq!(gone.stopped, [id]);
    let ended: Vec<_> = gone.ended.iter().map(|settled| settled.id).collect();
    assert_eq!(ended, [undoing]);
}
