//! Frames of HTTP/2, made by hand, since no library sends such as the tests need.

pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;
pub const END_HEADERS: u8 = 4;

pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = length[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// `POST http://127.0.0.1/mcp` and these headers in HPACK, without Huffman coding.
pub fn head(headers: &[(&str, &str)]) -> Vec<u8> {
    let mut head = vec![0x83, 0x86];
    for (index, text) in [(0x04, "/mcp"), (0x01, "127.0.0.1")] {
        head.push(index);
        string(&mut head, text);
    }
    for (name, value) in headers {
        head.push(0x00);
        string(&mut head, name);
        string(&mut head, value);
    }
    head
}

fn string(head: &mut Vec<u8>, text: &str) {
    assert!(text.len() < 127, "longer ones need more than a byte");
    head.push(u8::try_from(text.len()).unwrap());
    head.extend(text.bytes());
}

/// The kinds of the frames that came whole.
pub fn kinds(bytes: &[u8]) -> Vec<u8> {
    let (mut kinds, mut rest) = (Vec::new(), bytes);
    while let [a, b, c, kind, ..] = rest {
        let length = 9 + (usize::from(*a) << 16) + (usize::from(*b) << 8) + usize::from(*c);
        let Some(next) = rest.get(length..) else {
            break;
        };
        kinds.push(*kind);
        rest = next;
    }
    kinds
}
