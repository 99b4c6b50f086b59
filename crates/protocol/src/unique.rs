//! JSON in which no object has a name twice, at any depth (RFC 8259 §4). What was judged here is then
//! what every reader behind us reads, whichever of two members of one name it takes.
//!
//! serde_json's own [`Value`] takes the last of two, and with raw values an object of one private name
//! for the JSON in its text: here it is an object like any other.

use std::cell::RefCell;
use std::fmt;

use serde::de::{DeserializeSeed, Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserializer, de};
use serde_json::{Map, Number, Value};

use crate::raw::shorten;

/// Why a text is not taken.
#[derive(Debug)]
pub enum Problem {
    /// A name occurs twice in one object.
    Twice {
        /// It.
        name: String,
        /// Where the object is, as a JSON pointer (RFC 6901); empty for the whole.
        at: String,
    },
    /// It is no JSON, or says what no reader holds: a number beyond a double.
    Unreadable(serde_json::Error),
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Twice { name, at } => {
                write!(f, "the key `{}` occurs twice", shorten(name))?;
                if at.is_empty() {
                    return Ok(());
                }
                write!(f, " at {}", shorten(at))
            }
            Self::Unreadable(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Problem {}

/// Reads a JSON text.
///
/// # Errors
/// With the first name that occurs twice, or with what else is wrong.
pub fn read(json: &str) -> Result<Value, Problem> {
    let found = RefCell::new(None);
    let mut reader = serde_json::Deserializer::from_str(json);
    let read = Unique(&found).deserialize(&mut reader);
    let read = read.and_then(|value| reader.end().map(|()| value));
    read.map_err(|error| match found.take() {
        Some(Found { name, steps }) => Problem::Twice {
            name,
            at: steps.iter().rev().map(|step| format!("/{step}")).collect(),
        },
        None => Problem::Unreadable(error),
    })
}

/// A name that was there before, and the way to its object, from the inside.
struct Found {
    name: String,
    steps: Vec<String>,
}

#[derive(Clone, Copy)]
struct Unique<'a>(&'a RefCell<Option<Found>>);

impl Unique<'_> {
    /// On its way out an error passes every level: each says where it came from.
    fn passes(self, step: impl FnOnce() -> String) {
        if let Some(found) = &mut *self.0.borrow_mut() {
            found.steps.push(step());
        }
    }
}

impl<'de> DeserializeSeed<'de> for Unique<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Unique<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E: de::Error>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut all = Vec::new();
        loop {
            match items.next_element_seed(self) {
                Ok(Some(item)) => all.push(item),
                Ok(None) => return Ok(Value::Array(all)),
                Err(error) => {
                    self.passes(|| all.len().to_string());
                    return Err(error);
                }
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut all = Map::new();
        while let Some(name) = members.next_key::<String>()? {
            if all.contains_key(&name) {
                *self.0.borrow_mut() = Some(Found {
                    name,
                    steps: Vec::new(),
                });
                return Err(A::Error::custom("a name occurs twice"));
            }
            match members.next_value_seed(self) {
                Ok(value) => drop(all.insert(name, value)),
                Err(error) => {
                    self.passes(|| name.replace('~', "~0").replace('/', "~1"));
                    return Err(error);
                }
            }
        }
        Ok(Value::Object(all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn twice(json: &str) -> String {
        match read(json) {
            Err(problem @ Problem::Twice { .. }) => problem.to_string(),
            other => panic!("{json}: {other:?}"),
        }
    }

    #[test]
    fn a_name_that_occurs_twice_is_told_with_its_place() {
        assert_eq!(twice(r#"{"a":1,"a":1}"#), "the key `a` occurs twice");
        assert_eq!(
            twice(r#"{"x":[{},{"b/c~":{"a":1,"b":2,"\u0061":3}}]}"#),
            "the key `a` occurs twice at /x/1/b~1c~0"
        );
        assert_eq!(
            twice(r#"[[[{"":0,"":{}}]]]"#),
            "the key `` occurs twice at /0/0/0"
        );
        let deep = format!("{}{{\"a\":1,\"a\":2}}{}", "[".repeat(100), "]".repeat(100));
        assert!(twice(&deep).contains(" at /0/0/0"));
    }

    #[test]
    fn names_may_occur_again_in_other_objects() {
        let json = r#"{"a":{"a":[{"a":1},{"a":2}]},"A":{"a":null}}"#;
        let plain: Value = serde_json::from_str(json).unwrap();
        assert_eq!(read(json).unwrap(), plain);
    }

    /// Numbers to the last digit included.
    #[test]
    fn all_else_is_as_serde_json_reads_it() {
        for json in [
            "null",
            " [ true , false ] ",
            "-0",
            "-0.0",
            "1e3",
            "0.1",
            "18446744073709551615",
            "-9223372036854775808",
            "123456789012345678901234567890",
            "2.2250738585072011e-308",
            r#""\ud83d\ude00\u0000é""#,
        ] {
            let plain: Value = serde_json::from_str(json).unwrap();
            assert_eq!(read(json).unwrap().to_string(), plain.to_string(), "{json}");
        }
        for json in ["", "1e999", "{} {}", "{\"a\":1,}", "\"\\ud800\"", "[1 2]"] {
            let plain = serde_json::from_str::<Value>(json).unwrap_err().to_string();
            let Err(Problem::Unreadable(error)) = read(json) else {
                panic!("{json}");
            };
            assert_eq!(error.to_string(), plain, "{json}");
        }
    }

    #[test]
    fn no_name_that_the_library_keeps_hides_an_object() {
        let json = r#"{"$serde_json::private::RawValue":"5"}"#;
        let Value::Object(members) = read(json).unwrap() else {
            panic!("it is an object");
        };
        assert_eq!(members["$serde_json::private::RawValue"], "5");
        assert_eq!(serde_json::from_str::<Value>(json).unwrap(), 5);
    }
}
