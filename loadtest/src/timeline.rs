//! The few events that show a violation.
