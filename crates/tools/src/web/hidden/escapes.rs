//! What a text says if it is JSON, and where in it that stands (RFC 8259 §7). Whatever is no escape
//! is taken as it is: the text may be anything.

use std::ops::Range;

/// Of `\u` and four digits.
const UNIT_BYTES: usize = 6;

/// A text without its escapes.
pub(super) struct Decoded {
    pub(super) text: Vec<u8>,
    /// In their order.
    escapes: Vec<Escape>,
}

struct Escape {
    /// Where it begins and ends in what was read.
    from: usize,
    to: usize,
    /// Where its letter ends in the text.
    after: usize,
}

impl Decoded {
    /// `None` where no escape is. Half an escape at the end of what was `cut` says nothing.
    pub(super) fn read(from: &[u8], cut: bool) -> Option<Self> {
        let mut text = Vec::new();
        let mut escapes = Vec::new();
        let mut rest = from;
        while let Some(before) = rest.iter().position(|byte| *byte == b'\\') {
            text.extend_from_slice(&rest[..before]);
            rest = &rest[before..];
            let length = match escape(rest) {
                Some((letter, length)) => {
                    text.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
                    length
                }
                None if cut && is_half(rest) => rest.len(),
                None => {
                    text.push(b'\\');
                    rest = &rest[1..];
                    continue;
                }
            };
            let at = from.len() - rest.len();
            escapes.push(Escape {
                from: at,
                to: at + length,
                after: text.len(),
            });
            rest = &rest[length..];
        }
        text.extend_from_slice(rest);
        (!escapes.is_empty()).then_some(Self { text, escapes })
    }

    /// Where a place of the text stands in what was read.
    pub(super) fn source(&self, place: &Range<usize>) -> Range<usize> {
        let source = |at: usize| {
            let before = self.escapes.partition_point(|escape| escape.after <= at);
            let last = self.escapes[..before].last();
            last.map_or(at, |escape| escape.to + (at - escape.after))
        };
        source(place.start)..source(place.end)
    }

    /// A place of what was read, with the whole of the escapes that it begins and ends in.
    pub(super) fn unbroken(&self, place: &Range<usize>) -> Range<usize> {
        let around = |at: usize| {
            let before = self.escapes.partition_point(|escape| escape.to <= at);
            self.escapes.get(before).filter(|escape| escape.from < at)
        };
        let start = around(place.start).map_or(place.start, |escape| escape.from);
        start..around(place.end).map_or(place.end, |escape| escape.to)
    }
}

/// The letter of the escape that a text begins with, and how long that is.
fn escape(text: &[u8]) -> Option<(char, usize)> {
    let letter = match *text.get(1)? {
        b'u' => return letter(text),
        b'b' => '\u{8}',
        b'f' => '\u{c}',
        b'n' => '\n',
        b'r' => '\r',
        b't' => '\t',
        same @ (b'"' | b'\\' | b'/') => char::from(same),
        _ => return None,
    };
    Some((letter, 2))
}

/// The letter of one unit, or of a pair.
fn letter(text: &[u8]) -> Option<(char, usize)> {
    let first = unit(text)?;
    if let Some(letter) = char::from_u32(first.into()) {
        return Some((letter, UNIT_BYTES));
    }
    let second = unit(&text[UNIT_BYTES..])?;
    let letter = char::decode_utf16([first, second]).next()?.ok()?;
    Some((letter, 2 * UNIT_BYTES))
}

/// The unit of UTF-16 that a text begins with.
fn unit(text: &[u8]) -> Option<u16> {
    let digits = text.get(..UNIT_BYTES)?.strip_prefix(b"\\u")?;
    digits.iter().try_fold(0, |unit, digit| {
        let digit = char::from(*digit).to_digit(16)?;
        Some((unit << 4) | u16::try_from(digit).ok()?)
    })
}

/// Whether more bytes could make an escape of it.
fn is_half(text: &[u8]) -> bool {
    let text = match unit(text) {
        Some(0xd800..=0xdbff) => &text[UNIT_BYTES..],
        _ => text,
    };
    let begins = |(at, byte): (usize, &u8)| match at {
        0 => *byte == b'\\',
        1 => *byte == b'u',
        _ => byte.is_ascii_hexdigit(),
    };
    text.len() < UNIT_BYTES && text.iter().enumerate().all(begins)
}
