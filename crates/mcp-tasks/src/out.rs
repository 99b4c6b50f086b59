//! Standard output of commands. Whoever reads it may have seen enough (`| head`): that is no failure.

use std::fmt::Arguments;
use std::io::{ErrorKind, Write, stdout};

/// Writes the text. What cannot be written is told on standard error, but for a reader that went.
pub fn write(text: Arguments<'_>) {
    match stdout().lock().write_fmt(text) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            eprintln!("mcp-tasks: standard output: {error}");
        }
        _ => {}
    }
}

/// `print!` for a reader that may go.
macro_rules! out {
    ($($text:tt)*) => {
        $crate::out::write(format_args!($($text)*))
    };
}
pub(crate) use out;

/// `println!` for a reader that may go.
macro_rules! outln {
    () => {
        $crate::out::write(format_args!("\n"))
    };
    ($($text:tt)*) => {
        $crate::out::write(format_args!("{}\n", format_args!($($text)*)))
    };
}
pub(crate) use outln;
