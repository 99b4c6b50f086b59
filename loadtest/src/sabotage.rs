//! Breaks one promise on purpose, in the running system, to see the checker find it.
