//! Settings, and keys that rotate.

use super::*;

fn settings(keys: &[(&str, u8)]) -> Encryption {
    let key = |(id, byte): &(&str, u8)| EncryptionKey {
        id: (*id).to_owned(),
        key: format!("{byte:02x}").repeat(32),
        key_file: None,
    };
    Encryption {
        keys: keys.iter().map(key).collect(),
        seal: true,
    }
}

#[test]
fn settings_name_what_is_wrong() {
    assert!(
        settings(&[("2026-11", 1), ("old", 2)])
            .validate()
            .is_empty()
    );
    let mut bad = settings(&[("a", 1), ("a", 2), ("b c", 3), ("", 4)]);
    bad.keys[0].key = "short".to_owned();
    bad.keys[1].key_file = Some("/nowhere".into());
    bad.keys[2].key.clear();
    bad.keys[3].key.clear();
    bad.keys[3].key_file = Some("/nowhere/at/all".into());
    let problems = bad.validate().join("\n");
    for part in [
        "encryption.keys[0].key: neither hex nor base64",
        "encryption.keys[1].id: \"a\" names another key already",
        "encryption.keys[1].key: there is a key_file as well",
        "encryption.keys[2].id: \"b c\" must be 1 to 64 letters",
        "encryption.keys[2].key: there is neither key nor key_file",
        "encryption.keys[3].id: \"\" must be",
        "encryption.keys[3].key_file: /nowhere/at/all: No such file",
    ] {
        assert!(problems.contains(part), "{part}: {problems}");
    }
    assert!(!format!("{:?}", settings(&[("a", 7)])).contains("0707"));
}

#[test]
fn keys_rotate() {
    let id = TaskId::new(1);
    let old = Keyring::new(&settings(&[("old", 1)]));
    let (_, wrapped) = old.make(id).unwrap().unwrap();
    let here = |ring: &Keyring, by: &str, bytes: &[u8]| {
        matches!(ring.unwrapped(id, by, bytes), RowKey::Here(_))
    };
    let both = Keyring::new(&settings(&[("new", 2), ("old", 1)]));
    assert!(here(&both, "old", &wrapped.bytes));
    let again = both.rewrap(id, "old", &wrapped.bytes).unwrap();
    let new = Keyring::new(&settings(&[("new", 2)]));
    assert!(here(&new, "new", &again) && !here(&new, "old", &wrapped.bytes));
    // Not for another task, not by another name, not by another key of the same name.
    assert!(matches!(
        new.unwrapped(TaskId::new(2), "new", &again),
        RowKey::Missing { .. }
    ));
    assert!(!here(&both, "new", &wrapped.bytes));
    assert!(!here(
        &Keyring::new(&settings(&[("old", 9)])),
        "old",
        &wrapped.bytes
    ));
    assert!(Keyring::empty().make(id).unwrap().is_none());
    let mut off = settings(&[("old", 1)]);
    off.seal = false;
    let off = Keyring::new(&off);
    assert!(off.make(id).unwrap().is_none() && here(&off, "old", &wrapped.bytes));
}
