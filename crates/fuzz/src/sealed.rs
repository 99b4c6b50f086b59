//! What callers carry for us: states, cursors, tickets. Nothing that we did not make opens, and what
//! we made opens for its own use only.

use std::sync::LazyLock;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use gateway::fuzzed::{Purpose, Sealer};
use protocol::TaskId;
use protocol::callback::{Keys, Report, Ticket};
use serde_json::Value;

const NOW: i64 = 1_790_000_000;
const KEY: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

struct Sealed {
    sealer: Sealer,
    keys: Keys,
    purpose: Purpose,
    id: TaskId,
    /// Base64 with a state, a cursor and a ticket within.
    texts: [String; 3],
}

static SEALED: LazyLock<Sealed> = LazyLock::new(|| {
    let keys = [KEY.to_owned()];
    let sealer = Sealer::new(&keys).expect("a key");
    let keys = Keys::read(&keys).expect("a key");
    let id = TaskId::new(0);
    let purpose = Purpose {
        method: "tools/call",
        principal: ("i".to_owned(), "alice".to_owned()),
        tool: "greet".to_owned(),
        digest: [7; 32],
    };
    let list = Purpose {
        method: "tools/list",
        ..purpose.clone()
    };
    let ticket = Ticket {
        task: id,
        key: "call".to_owned(),
        expires_ms: NOW,
    };
    let texts = [
        sealer.state((id, 3), NOW, &purpose),
        sealer.cursor("last", NOW, &list),
        keys.sign(&ticket, ""),
    ];
    Sealed {
        texts: texts.map(|text| text.expect("there is a key")),
        sealer,
        keys,
        purpose,
        id,
    }
});

/// Bytes: which text, where and how it is changed; and the text of a caller.
pub(crate) fn run(data: &[u8]) {
    let sealed = &*SEALED;
    // A text that is all the caller's.
    let own = String::from_utf8_lossy(data);
    if !sealed.texts.iter().any(|text| *text == own) {
        nothing_opens(sealed, &own);
        nothing_opens(sealed, &BASE64_URL_SAFE_NO_PAD.encode(data));
    }
    // One of ours, changed.
    let Some((&which, change)) = data.split_first() else {
        return;
    };
    let text = &sealed.texts[usize::from(which) % 3];
    let mut bytes = BASE64_URL_SAFE_NO_PAD.decode(text).expect("ours");
    let whole = bytes.clone();
    for pair in change.chunks_exact(2) {
        let at = usize::from(pair[0]) % bytes.len();
        bytes[at] ^= pair[1];
    }
    if change.len() % 2 == 1 {
        bytes.truncate(usize::from(change[change.len() - 1]));
    }
    let changed = BASE64_URL_SAFE_NO_PAD.encode(&bytes);
    if bytes == whole {
        opens_for_its_own_use(sealed);
    } else {
        nothing_opens(sealed, &changed);
    }
    round_trips(sealed, data);
}

fn opened(sealed: &Sealed, text: &str, purpose: &Purpose) -> [bool; 3] {
    [
        sealed.sealer.open_state(text, purpose).is_some(),
        sealed.sealer.open_cursor(text, NOW, purpose).is_some(),
        sealed.keys.verify(text).is_some(),
    ]
}

fn nothing_opens(sealed: &Sealed, text: &str) {
    for method in ["tools/call", "tools/list", "prompts/get"] {
        let purpose = Purpose {
            method,
            ..sealed.purpose.clone()
        };
        assert_eq!(opened(sealed, text, &purpose), [false; 3], "{text}");
    }
}

fn opens_for_its_own_use(sealed: &Sealed) {
    let [state, cursor, ticket] = &sealed.texts;
    let call = &sealed.purpose;
    let list = Purpose {
        method: "tools/list",
        ..call.clone()
    };
    assert_eq!(sealed.sealer.open_state(state, call), Some((sealed.id, 3)));
    assert_eq!(opened(sealed, state, call), [true, false, false]);
    assert_eq!(opened(sealed, state, &list), [false; 3]);
    assert_eq!(opened(sealed, cursor, &list), [false, true, false]);
    assert_eq!(opened(sealed, cursor, call), [false; 3]);
    assert_eq!(opened(sealed, ticket, call), [false, false, true]);
}

/// Whatever is sealed comes back.
fn round_trips(sealed: &Sealed, data: &[u8]) {
    let text = String::from_utf8_lossy(&data[..data.len().min(128)]).into_owned();
    let number = data.iter().fold(0_i64, |all, byte| {
        all.wrapping_mul(31).wrapping_add(i64::from(*byte))
    });
    let ticket = Ticket {
        task: sealed.id,
        key: text.clone(),
        expires_ms: number,
    };
    let token = sealed.keys.sign(&ticket, "").expect("there is a key");
    // Keys of journals are shorter than what no token holds.
    if token.len() <= 512 {
        assert_eq!(sealed.keys.verify(&token), Some(ticket));
    }
    let purpose = Purpose {
        method: "prompts/list",
        principal: (text.clone(), text.clone()),
        ..sealed.purpose.clone()
    };
    let cursor = sealed
        .sealer
        .cursor(&text, NOW, &purpose)
        .expect("there is a key");
    assert_eq!(
        sealed.sealer.open_cursor(&cursor, NOW, &purpose),
        Some(text)
    );
}

fn has_doubles(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.is_f64(),
        Value::Array(items) => items.iter().any(has_doubles),
        Value::Object(members) => members.values().any(has_doubles),
        Value::Null | Value::Bool(_) | Value::String(_) => false,
    }
}

/// What a service sends to an address: read, written, read again.
pub(crate) fn callback_body(data: &[u8]) {
    match Report::read(data) {
        Err(why) => assert!(!why.is_empty() && why.len() < 1500, "{why}"),
        Ok(Report::Progress(progress)) => {
            assert!(progress.progress.as_f64().is_some_and(f64::is_finite));
        }
        Ok(Report::Result(outcome)) => {
            let written = serde_json::to_vec(&outcome).expect("it prints");
            let again = Report::read(&written).expect("it was read before");
            let printed = |report: &Report| match report {
                Report::Result(outcome) => serde_json::to_value(outcome).ok(),
                Report::Progress(_) => None,
            };
            // Doubles may be read as their neighbours.
            let before = serde_json::to_value(&outcome).expect("it prints");
            if !has_doubles(&before) {
                assert_eq!(printed(&again), Some(before));
            }
            let result = outcome.into_result().to_json();
            let read: Value = serde_json::from_slice(&result).expect("a result is JSON");
            assert!(read["content"].is_array());
        }
    }
}
