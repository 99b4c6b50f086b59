//! One key from four places.

use protocol::ErrorObject;
use protocol::idempotency::{KeyError, Sources, argument, extract};

use crate::raw;

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
