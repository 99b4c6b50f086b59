//! Keys as settings write them: 32 random bytes in hex or base64.

use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};

/// Reads one key.
///
/// # Errors
/// With why it is none; nothing of the text is repeated.
pub fn read_key(text: &str) -> Result<[u8; 32], String> {
    let text = text.trim();
    let bytes = match from_hex(text) {
        Some(bytes) => bytes,
        None => BASE64_STANDARD
            .decode(text)
            .or_else(|_| BASE64_URL_SAFE_NO_PAD.decode(text))
            .map_err(|_| "neither hex nor base64".to_owned())?,
    };
    let length = bytes.len();
    bytes
        .try_into()
        .map_err(|_| format!("{length} bytes long; it must be 32 random bytes"))
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    (0..32)
        .map(|at| u8::from_str_radix(text.get(at * 2..at * 2 + 2)?, 16).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_32_bytes_in_hex_or_base64() {
        assert_eq!(read_key(&"0f".repeat(32)), Ok([15; 32]));
        assert_eq!(read_key(&BASE64_STANDARD.encode([200; 32])), Ok([200; 32]));
        for bad in ["", "short", &"0f".repeat(31), &"zz".repeat(32)] {
            assert!(read_key(bad).is_err(), "{bad}");
        }
    }
}
