//! Server-sent events of upstream servers, against a reader written by the letter of WHATWG HTML
//! §9.2.6.

pub(crate) fn run(data: &[u8]) {
    let (pieces, rest) = super::pieces(data);
    let bytes_max = 512;
    let cut = tools::fuzzed::events(pieces, bytes_max);
    let whole = tools::fuzzed::events([rest], bytes_max);
    if cut.2.is_ok() && whole.2.is_ok() {
        assert_eq!(cut, whole, "it matters how the network cuts");
        let (events, last_id) = reference(rest);
        assert_eq!((whole.0, whole.1), (events, last_id));
    }
}

fn reference(bytes: &[u8]) -> (Vec<String>, Option<String>) {
    let bytes = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(bytes);
    let (mut lines, mut line, mut at) = (Vec::new(), Vec::new(), 0);
    while at < bytes.len() {
        match bytes[at] {
            b'\r' | b'\n' => {
                let both = bytes[at] == b'\r' && bytes.get(at + 1) == Some(&b'\n');
                at += usize::from(both);
                lines.push(String::from_utf8_lossy(&line).into_owned());
                line.clear();
            }
            byte => line.push(byte),
        }
        at += 1;
    }
    let (mut events, mut data, mut id) = (Vec::new(), String::new(), None);
    for line in lines {
        if line.is_empty() {
            // What has no data is no message (priming events of MCP have none).
            let whole = data.strip_suffix('\n').unwrap_or_default().to_owned();
            if !whole.is_empty() {
                events.push(whole);
            }
            data.clear();
            continue;
        }
        let (field, value) = line.split_once(':').unwrap_or((&line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "data" => {
                data.push_str(value);
                data.push('\n');
            }
            "id" if value.len() <= 1024 && !value.contains('\0') => id = Some(value.to_owned()),
            _ => {}
        }
    }
    (events, id)
}
