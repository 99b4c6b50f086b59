//! Secrets in every way that they may be written, and what must stay beside them.

use worker::callback::Outcome;

use super::*;

fn hidden() -> Hidden {
    Hidden::new(["sesame/1", "Basic c2VzYW1l", "sesame/10", "text"].map(str::to_owned))
}

fn one(secret: &str) -> Hidden {
    Hidden::new([secret.to_owned()])
}

#[test]
fn secrets_are_hidden_in_whatever_they_stand() {
    for (said, left) in [
        ("you are sesame/1!", "you are ***!"),
        ("sesame/10", "***"),
        (r#"{"a":"sesame\/1"}"#, r#"{"a":"***"}"#),
        ("Basic c2VzYW1l", "***"),
        ("<c2VzYW1l>", "<***>"),
        ("text, sesame and Basic", "text, sesame and Basic"),
    ] {
        assert_eq!(hidden().text(said), left);
        assert_eq!(hidden().bytes(said.to_owned().into()), left, "{said}");
    }
    let odd = hidden().bytes(Bytes::from_static(b"\xff sesame/1 \xff c2VzYW1l"));
    assert_eq!(odd.as_ref(), b"\xff *** \xff ***");
    let odd = hidden().bytes(Bytes::from_static(b"\xff sesame\\u002f1\\n"));
    assert_eq!(odd.as_ref(), b"\xff ***\\n");
    let odd = hidden().bytes(Bytes::from_static(b"\xff sesame"));
    assert_eq!(odd.as_ref(), b"\xff sesame");
}

/// What is short stands in the protocol itself.
#[test]
fn a_short_secret_breaks_no_message() {
    let said = r#"{"type":"text","text":"1234567","isError":true}"#;
    for secret in ["text", "true", "1234567", "Key text", "text \t\r\n", ""] {
        assert_eq!(one(secret).text(said), said, "{secret}");
    }
    let eight = one("\t12345678 \r\n").text("you are 12345678");
    assert_eq!(eight, "you are ***");
}

#[test]
fn each_letter_may_be_escaped_in_each_way() {
    for (secret, ways) in [
        (
            "a+b/c=d1",
            [
                "a+b/c=d1",
                r"a\u002Bb\/c\u003dd1",
                r"a\u002bb\u002Fc\u003Dd1",
                r"\u0061+\u0062/c=d\u0031",
            ],
        ),
        (
            "<\"q\\w\"&'",
            [
                "<\"q\\w\"&'",
                r#"<\"q\\w\"&'"#,
                r"\u003C\u0022q\u005Cw\u0022\u0026\u0027",
                r"\u003c\u0022q\u005cw\u0022\u0026'",
            ],
        ),
        (
            "né\u{1f511}\t12",
            [
                "né\u{1f511}\t12",
                r"n\u00e9\ud83d\udd11\t12",
                r"n\u00E9\uD83D\uDD11\u000912",
                "né\\uD83d\\uDd11\\t12",
            ],
        ),
        (
            "\u{8}\u{c}\n\r1234",
            [
                "\u{8}\u{c}\n\r1234",
                r"\b\f\n\r1234",
                r"\u0008\u000C\u000a\u000d1234",
                r"\b\u000c\n\r12\u00334",
            ],
        ),
    ] {
        let hidden = one(secret);
        for way in ways {
            let said = format!(r#"[1,"{way}","\u00e9\n{way}\\"]"#);
            let left = r#"[1,"***","\u00e9\n***\\"]"#;
            assert_eq!(hidden.text(&said), left, "{said}");
        }
    }
}

/// A result is often JSON in a text of JSON.
#[test]
fn json_in_json_is_looked_through() {
    let hidden = one("a+b/\"c=d");
    let inner = r#"{"k":"a\u002Bb\/\"c\u003Dd","n":"\n"}"#;
    for inner in [
        inner,
        "{\"k\":\"a\\u002Bb/\\u0022c=d\",\"n\":\"\\n\"}",
        r#"{"k":"a+b/\"c=d","n":"\n"}"#,
    ] {
        let said = serde_json::json!({ "text": inner }).to_string();
        let left = serde_json::json!({ "text": r#"{"k":"***","n":"\n"}"# }).to_string();
        assert_eq!(hidden.text(&said), left, "{said}");
    }
}

#[test]
fn overlapping_candidates_are_hidden_whole() {
    assert_eq!(one("abababab").text("xababababababx"), "x***x");
    assert_eq!(
        one("abababab").text(r"xabab\u0061babababx"),
        "x***x",
        "also in two ways"
    );
    let two = Hidden::new(["12345678", "56789abc"].map(str::to_owned));
    assert_eq!(two.text("0123456789abcd"), "0***d");
    assert_eq!(two.text("1234567812345678"), "******");
    // One begins within an escape of something else.
    let letters = one("n1234567");
    assert_eq!(letters.text(r#"["a\n1234567"]"#), r#"["a***"]"#);
    assert_eq!(letters.text(r#"["a\\n1234567"]"#), r#"["a***"]"#);
    assert_eq!(letters.text(r#"["a\\ n1234567"]"#), r#"["a\\ ***"]"#);
    assert_eq!(letters.text(r"C:\n1234567"), "C:***");
    assert_eq!(
        one("1234567\\").text(r#"["1234567\"","#),
        r#"["***","#,
        "half an escape is none"
    );
}

#[test]
fn what_is_no_secret_stays_as_it_is() {
    let hidden = one("a+b/c=d1");
    for said in [
        r"a+b/c=d",
        r"a\u002Bb\/c\u003d",
        r"\u002Bb/c=d1",
        r"a\u002Cb/c=d1",
        r"a\u02Bb/c=d1",
        r"a\u+02Bb/c=d1",
        r"a\\u002Bb/c=d",
        r"a\+b/c=d1",
        r"\ud83d \udd11 \ud83d\ud83d \u \u12 \x \",
        "",
    ] {
        assert_eq!(hidden.text(said), said);
        assert_eq!(hidden.bytes(said.to_owned().into()), said);
        assert_eq!(Hidden::default().cut(said.to_owned().into()), said);
    }
}

#[test]
fn half_a_secret_at_the_end_is_hidden_too() {
    for (said, left) in [
        ("you are sesame/", "you are ***"),
        ("you are sesa", "you are ***"),
        ("you are ses", "you are ses"),
        ("sesame/1", "***"),
        (r"sesame\/", "***"),
        (r"sesame\", "***"),
        (r"you are sesame\u00", "you are ***"),
        (r"you are \u0073es\u0061me\u002", "you are ***"),
        (r#"{"t":"{\"k\":\"sesame\\u00"#, r#"{"t":"{\"k\":\"***"#),
        (r#"{"t":"{\"k\":\"sesame\\"#, r#"{"t":"{\"k\":\"***"#),
        (r"you are ses\u00", r"you are ses\u00"),
        (r"sesame/1 and \u00", r"*** and \u00"),
        ("", ""),
    ] {
        assert_eq!(hidden().cut(said.to_owned().into()), left, "{said}");
    }
    let paired = one("abcd\u{1f511}");
    for cut in [r"abcd\ud83d", r"abcd\ud83d\", r"abcd\uD83D\uDD1"] {
        assert_eq!(paired.cut(cut.to_owned().into()), "***", "{cut}");
    }
    let middle = paired.cut(Bytes::from_static(b"x abcd\xf0\x9f"));
    assert_eq!(middle, "x ***");
}

/// Wherever a text is cut, no beginning of a secret is left that is worth anything.
#[test]
fn no_cut_shows_more_than_a_bit() {
    let whole = r#"{"t":"{\"k\":\"s\\u0065same\\u002F1\"}"}"#;
    for end in 0..=whole.len() {
        let left = hidden().cut(Bytes::copy_from_slice(&whole.as_bytes()[..end]));
        let left = String::from_utf8(left.to_vec()).unwrap();
        assert!(!left.contains("same"), "{left}");
    }
}

/// Results that come later are read already: texts, values, names of members, JSON in a text.
#[test]
fn what_a_service_calls_back_with_is_searched_too() {
    let said = serde_json::json!({
        "text": "you are sesame/1 \u{2603}",
        "structured": {"sesame/10": ["c2VzYW1l", {"n": 1.0}], "nested": "{\"a\":\"sesame\\/1\"}"},
        "isError": true,
    });
    let outcome: Outcome = serde_json::from_value(said).unwrap();
    let left = hidden().json(outcome.clone()).unwrap();
    assert_eq!(left.text.as_deref(), Some("you are *** \u{2603}"));
    let structured = serde_json::json!({"***": ["***", {"n": 1.0}], "nested": "{\"a\":\"***\"}"});
    assert_eq!(left.structured, Some(structured));
    assert!(left.is_error);
    let blocks = serde_json::json!({"content": [{"type": "text", "text": "sesame/1"}]});
    let blocks = hidden().json(serde_json::from_value::<Outcome>(blocks).unwrap());
    let content = blocks.unwrap().content.unwrap();
    assert_eq!(content[0].as_text(), Some("***"));
    assert_eq!(one("another-one").json(outcome.clone()), Some(outcome));

    // More than a part of a string: nothing is told.
    let number = serde_json::json!({"structured": {"n": 12_345_678}});
    let outcome: Outcome = serde_json::from_value(number).unwrap();
    assert_eq!(one("12345678").json(outcome), None);
}
