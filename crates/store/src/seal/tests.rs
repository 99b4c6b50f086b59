//! What seals, and what opens.

use super::*;

const RESULT: Place<'_> = Place::task("tasks.result");

fn key(byte: u8) -> RowKey {
    RowKey::Here(Box::new(TaskKey::new(TaskId::new(0), &[byte; 32])))
}

#[test]
fn what_is_sealed_opens_at_its_place_only() {
    let id = TaskId::new(1);
    let here = RowKey::Here(Box::new(TaskKey::new(id, &[1; 32])));
    let other_task = RowKey::Here(Box::new(TaskKey::new(TaskId::new(2), &[1; 32])));
    let step = |key| Place {
        column: "steps.output",
        key,
    };
    let sealed = here.seal(step("a"), b"{\"n\":1}").unwrap().into_owned();
    assert_eq!(sealed.len(), 7 + OVERHEAD);
    assert_eq!(here.open(step("a"), &sealed).unwrap(), "{\"n\":1}");
    assert!(here.open(step("b"), &sealed).is_err());
    assert!(here.open(RESULT, &sealed).is_err());
    assert!(other_task.open(step("a"), &sealed).is_err());
    assert!(RowKey::Clear.open(step("a"), &sealed).is_err());
    // The same again is the same bytes; something else shares nothing with it.
    assert_eq!(here.seal(step("a"), b"{\"n\":1}").unwrap(), sealed);
    let other = here.seal(step("a"), b"{\"n\":2}").unwrap();
    assert_ne!(other[4..28], sealed[4..28]);
}

#[test]
fn every_damage_is_noticed() {
    let key = key(1);
    let sealed = key.seal(RESULT, b"{}").unwrap().into_owned();
    for at in MAGIC.len()..sealed.len() {
        let mut damaged = sealed.clone();
        damaged[at] ^= 1;
        assert!(matches!(
            key.open(RESULT, &damaged),
            Err(Error::Corrupt { .. })
        ));
    }
    for end in MAGIC.len()..sealed.len() {
        assert!(key.open(RESULT, &sealed[..end]).is_err());
    }
}

#[test]
fn texts_open_wherever_sql_put_them() {
    let key = key(1);
    let said = key.seal_text("tasks.last_error", "disk \"a\" is full\u{1}");
    assert!(!said.contains("disk"));
    let inside = format!("gave up after 3 tries: {said}");
    let opened = "gave up after 3 tries: disk \"a\" is full\u{1}";
    assert_eq!(key.open_text(inside.clone()), opened);
    let error = format!(r#"{{"code": -32603, "message": "{inside}"}}"#);
    let error = key.open_error(error.as_bytes()).unwrap();
    let error: serde_json::Value = serde_json::from_slice(&error).unwrap();
    assert_eq!(error["message"], opened);
    let missing = RowKey::Missing {
        id: TaskId::new(1),
        key: "k".to_owned(),
    };
    let unread = "gave up after 3 tries: (sealed)";
    assert_eq!(missing.open_text(inside.clone()), unread);
    // Cut off, as SQL may do.
    assert_eq!(key.open_text(inside[..60].to_owned()), unread);
    // Who says something that looks like it, is not believed.
    let forged = key.open_text("<sealed:tasks.last_error:AAAA>".to_owned());
    assert_eq!(forged, "(sealed)");
    let quoted = key.seal_text("tasks.status_message", "<sealed:tasks.last_error:x>");
    assert_eq!(
        key.open_text(quoted.into_owned()),
        "<sealed:tasks.last_error:x>"
    );
}

#[test]
fn an_error_tells_its_reason_and_keeps_its_bytes() {
    let key = key(1);
    let plain =
        br#"{"code":-32603,  "message":"secret","data":{"reason":"step_in_doubt","step":"x"}}"#;
    let sealed = key.seal_error(plain).unwrap().into_owned();
    let told: serde_json::Value = serde_json::from_slice(&sealed).unwrap();
    assert_eq!(told["data"]["reason"], "step_in_doubt");
    assert!(
        !String::from_utf8(sealed.clone())
            .unwrap()
            .contains("secret")
    );
    assert_eq!(key.open_error(&sealed).unwrap(), &plain[..]);
    let own = br#"{"code":1,"message":"m","data":{"reason":"password hunter2"}}"#;
    let sealed = key.seal_error(own).unwrap().into_owned();
    assert!(
        !String::from_utf8(sealed.clone())
            .unwrap()
            .contains("hunter2")
    );
    assert_eq!(key.open_error(&sealed).unwrap(), &own[..]);
}

#[test]
fn without_a_key_nothing_is_touched() {
    let clear = RowKey::Clear;
    assert_eq!(&*clear.seal(RESULT, b"{}").unwrap(), b"{}");
    assert_eq!(clear.open(RESULT, b"{}").unwrap(), "{}");
    let text = "<sealed:tasks.error:x>";
    assert_eq!(clear.open_text(text.to_owned()), text);
    assert_eq!(clear.digest(&[7; 32]).unwrap(), [7; 32]);
    assert_ne!(key(1).digest(&[7; 32]).unwrap(), [7; 32]);
    assert_ne!(
        key(1).digest(&[7; 32]).unwrap(),
        key(2).digest(&[7; 32]).unwrap()
    );
    // A row that was made clear stays readable where its task has a key, and the other way round.
    assert_eq!(key(1).open(RESULT, b"{}").unwrap(), "{}");
}
