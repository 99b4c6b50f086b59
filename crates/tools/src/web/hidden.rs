//! Secrets that we have shown to a server, and that are not to be seen in what it says: neither by
//! callers nor in logs, whether it repeats them by mistake or on purpose.

use bytes::Bytes;

/// So many bytes are worth hiding.
const SECRET_BYTES_MIN: usize = 4;
/// The same for what stands behind a scheme, `Basic` for one.
const PART_BYTES_MIN: usize = 8;
/// What stands in their place.
const MASK: &str = "***";

/// The secrets of one request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hidden(Vec<String>);

impl Hidden {
    pub(crate) fn new(secrets: impl IntoIterator<Item = String>) -> Self {
        let mut all = Vec::new();
        for secret in secrets {
            let part = secret.rsplit_once(' ').map(|(_, part)| part.to_owned());
            all.extend(part.filter(|part| part.len() >= PART_BYTES_MIN));
            all.push(secret);
        }
        // As some libraries write them in JSON.
        let escaped: Vec<String> = all
            .iter()
            .filter(|secret| secret.contains('/'))
            .map(|secret| secret.replace('/', "\\/"))
            .collect();
        all.extend(escaped);
        all.retain(|secret| secret.len() >= SECRET_BYTES_MIN);
        // One may be a part of another.
        all.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        Self(all)
    }

    /// A text without them.
    pub(crate) fn text(&self, text: &str) -> String {
        let secrets = self.0.iter();
        secrets.fold(text.to_owned(), |text, secret| text.replace(secret, MASK))
    }

    /// The same, without a copy where none is there.
    pub(crate) fn string(&self, text: String) -> String {
        match self.0.iter().any(|secret| text.contains(secret)) {
            true => self.text(&text),
            false => text,
        }
    }

    /// Bytes of whatever kind without them.
    pub(crate) fn bytes(&self, bytes: Bytes) -> Bytes {
        match std::str::from_utf8(&bytes) {
            Ok(text) if self.0.iter().any(|secret| text.contains(secret)) => self.text(text).into(),
            Ok(_) => bytes,
            Err(_) => {
                let secrets = self.0.iter();
                secrets.fold(bytes, |bytes, secret| replaced(bytes, secret.as_bytes()))
            }
        }
    }

    /// The same for bytes that were cut off, in the middle of a secret for all we know.
    pub(crate) fn cut(&self, bytes: Bytes) -> Bytes {
        let bytes = self.bytes(bytes);
        let begun = |secret: &String| {
            let secret = secret.as_bytes();
            let mut lengths = (SECRET_BYTES_MIN..secret.len()).rev();
            lengths.find(|length| bytes.ends_with(&secret[..*length]))
        };
        match self.0.iter().filter_map(begun).max() {
            None => bytes,
            Some(length) => {
                let mut kept = bytes[..bytes.len() - length].to_vec();
                kept.extend_from_slice(MASK.as_bytes());
                kept.into()
            }
        }
    }
}

fn replaced(bytes: Bytes, secret: &[u8]) -> Bytes {
    let is_there = |from: usize| bytes[from..].starts_with(secret);
    if !(0..bytes.len()).any(is_there) {
        return bytes;
    }
    let mut kept = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        if is_there(at) {
            kept.extend_from_slice(MASK.as_bytes());
            at += secret.len();
        } else {
            kept.push(bytes[at]);
            at += 1;
        }
    }
    kept.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hidden() -> Hidden {
        Hidden::new(["sesame/1", "Basic c2VzYW1l", "sesame/10", "abc"].map(str::to_owned))
    }

    #[test]
    fn secrets_are_hidden_in_whatever_they_stand() {
        for (said, left) in [
            ("you are sesame/1!", "you are ***!"),
            ("sesame/10", "***"),
            (r#"{"a":"sesame\/1"}"#, r#"{"a":"***"}"#),
            ("Basic c2VzYW1l", "***"),
            ("<c2VzYW1l>", "<***>"),
            ("abc, sesame and Basic", "abc, sesame and Basic"),
        ] {
            assert_eq!(hidden().text(said), left);
            assert_eq!(hidden().bytes(said.to_owned().into()), left, "{said}");
        }
        let odd = hidden().bytes(Bytes::from_static(b"\xff sesame/1 \xff c2VzYW1l"));
        assert_eq!(odd.as_ref(), b"\xff *** \xff ***");
        let odd = hidden().bytes(Bytes::from_static(b"\xff sesame"));
        assert_eq!(odd.as_ref(), b"\xff sesame");
    }

    #[test]
    fn half_a_secret_at_the_end_is_hidden_too() {
        for (said, left) in [
            ("you are sesame/", "you are ***"),
            ("you are sesa", "you are ***"),
            ("you are ses", "you are ses"),
            ("sesame/1", "***"),
            ("", ""),
        ] {
            assert_eq!(hidden().cut(said.to_owned().into()), left, "{said}");
        }
    }
}
