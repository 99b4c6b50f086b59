//! One key from four places.

use protocol::ErrorObject;
use protocol::idempotency::{self, KEY_BYTES_MAX, KeyError, Sources, argument};

use crate::raw;

fn extract(sources: &Sources<'_>) -> Result<Option<String>, KeyError> {
    idempotency::extract(sources, KEY_BYTES_MAX)
}

#[test]
fn any_source_will_do_and_equal_ones_agree() {
    assert_eq!(extract(&Sources::default()), Ok(None));
    let key = Some("k-1");
    let none = Sources::default();
    for sources in [
        Sources { meta: key, ..none },
        Sources {
            params: key,
            ..none
        },
        Sources {
            header: key,
            ..none
        },
        Sources {
            header: Some(" \"k-1\" "),
            ..none
        },
        Sources {
            argument: key,
            ..none
        },
        Sources {
            meta: key,
            params: key,
            header: Some("\"k-1\""),
            argument: key,
        },
    ] {
        assert_eq!(extract(&sources), Ok(Some("k-1".to_owned())), "{sources:?}");
    }
    let escaped = Sources {
        header: Some(r#""a\\\"b""#),
        ..none
    };
    assert_eq!(extract(&escaped), Ok(Some("a\\\"b".to_owned())));
    let lone = Sources {
        header: Some("\""),
        ..none
    };
    assert_eq!(extract(&lone), Ok(Some("\"".to_owned())));
}

#[test]
fn sources_that_differ_are_named() {
    let sources = Sources {
        params: Some("a"),
        argument: Some("b"),
        ..Sources::default()
    };
    let error = extract(&sources).unwrap_err();
    assert_eq!(
        error,
        KeyError::Conflict {
            first: "params.idempotencyKey",
            second: "the tool's argument"
        }
    );
    let error = ErrorObject::from(&error);
    assert_eq!(error.code, -32602);
    assert!(error.message.contains("conflict"), "{}", error.message);
}

#[test]
fn keys_have_bounds() {
    let long = "k".repeat(256);
    for bad in ["", &long, "a\nb", "a\u{7f}", "\"\""] {
        let sources = Sources {
            header: Some(bad),
            ..Sources::default()
        };
        assert!(
            matches!(extract(&sources), Err(KeyError::Invalid { .. })),
            "{bad:.20}"
        );
    }
    let longest = "k".repeat(255);
    assert!(
        extract(&Sources {
            meta: Some(&longest),
            ..Sources::default()
        })
        .is_ok()
    );
}

#[test]
fn the_bound_may_be_lower() {
    for (length, fits) in [(39, true), (40, true), (41, false)] {
        let key = "k".repeat(length);
        let sources = Sources {
            meta: Some(&key),
            ..Sources::default()
        };
        let refused = KeyError::Invalid {
            source_name: "params._meta",
            bytes_max: 40,
        };
        assert!(refused.to_string().contains("1 to 40 bytes"));
        let expected = if fits {
            Ok(Some(key.clone()))
        } else {
            Err(refused)
        };
        assert_eq!(idempotency::extract(&sources, 40), expected, "{length}");
    }
}

#[test]
fn the_argument_must_be_a_string() {
    let arguments = raw(r#"{"order":"o-1","n":1,"nothing":null}"#);
    assert_eq!(
        argument(Some(&arguments), "order"),
        Ok(Some("o-1".to_owned()))
    );
    assert_eq!(argument(Some(&arguments), "nothing"), Ok(None));
    assert_eq!(argument(Some(&arguments), "other"), Ok(None));
    assert_eq!(argument(None, "order"), Ok(None));
    assert!(argument(Some(&arguments), "n").is_err());
}
