//! The line protocol of programs: however the pipe cuts it, no whole line is lost.

pub(crate) fn run(data: &[u8]) {
    let (pieces, rest) = super::pieces(data);
    let cut = tools::fuzzed::lines(pieces);
    let whole = tools::fuzzed::lines([rest]);
    assert_eq!(cut, whole, "it matters how the pipe cuts");
    // Line by line, up to the first that is none.
    let (mut said, mut ended) = (Vec::new(), Ok(()));
    for line in rest.split(|byte| *byte == b'\n') {
        let (one, end) = tools::fuzzed::lines([line]);
        said.extend(one);
        if end.is_err() {
            ended = Err(());
            break;
        }
    }
    assert_eq!(whole.0, said);
    assert_eq!(whole.1.is_err(), ended.is_err());
    if let Err(why) = whole.1 {
        assert!(why.starts_with("line ") && why.len() < 1500, "{why}");
    }
}
