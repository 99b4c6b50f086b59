//! The command line of the chaos harness.

fn main() {}
