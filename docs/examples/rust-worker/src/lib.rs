//! Tools of an invented company that rents out machines.

mod provision;

pub use provision::{Machines, Provision};
