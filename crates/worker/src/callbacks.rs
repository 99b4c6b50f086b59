//! Where services say later what came of their work: addresses at the gateways, signed by keys that
//! gateways and workers share.

use protocol::callback::{Keys, PATH, Ticket};

/// What makes addresses.
#[derive(Clone, Debug)]
pub struct Callbacks {
    keys: Keys,
    /// Without a slash at its end.
    url: String,
}

impl Callbacks {
    /// Addresses below this URL, at which services reach the gateways. `None` without a key or a URL:
    /// then tools cannot be called back.
    #[must_use]
    pub fn new(keys: Keys, public_url: &str) -> Option<Self> {
        let url = public_url.trim_end_matches('/').to_owned();
        (!keys.is_empty() && !url.is_empty()).then_some(Self { keys, url })
    }

    /// Fingerprint of the key that signs.
    pub(crate) fn signing(&self) -> &str {
        self.keys.signing().unwrap_or_default()
    }

    /// The address of a ticket, signed by the key of this fingerprint if it is still known.
    pub(crate) fn url(&self, ticket: &Ticket, by: &str) -> String {
        let token = self.keys.sign(ticket, by).unwrap_or_default();
        format!("{}{PATH}{token}", self.url)
    }
}
