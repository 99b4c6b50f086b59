//! The externally visible acts of the chaos tools.
