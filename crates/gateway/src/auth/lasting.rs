//! What lasts longer than one check of its token, such as a stream: it ends when the token does.

use std::time::Duration;

use futures::future::BoxFuture;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue};
use store::Principal;

use super::{Authenticator, How, Refused, clock, invalid};
use crate::caller::Caller;

/// A proof that is looked at again. The token stays in memory, because its issuer may have to be
/// asked about it again; it is shown nowhere.
pub(crate) struct Lasting {
    headers: HeaderMap,
    principal: Principal,
    scopes: Option<Vec<String>>,
    /// Seconds since 1970.
    until: Option<i64>,
}

impl Lasting {
    /// Of a caller who sent these headers.
    pub(crate) fn new(caller: &Caller, headers: &HeaderMap) -> Self {
        let mut kept = HeaderMap::new();
        // A copy: what came is a part of all that was read with it, and would keep that.
        let copy = |token: &HeaderValue| HeaderValue::from_bytes(token.as_bytes()).ok();
        if let Some(mut token) = headers.get(AUTHORIZATION).and_then(copy) {
            token.set_sensitive(true);
            kept.insert(AUTHORIZATION, token);
        }
        Self {
            headers: kept,
            principal: caller.principal.clone(),
            scopes: caller.scopes.clone(),
            until: caller.until,
        }
    }
}

impl Authenticator {
    /// Returns, with why, when the token no longer proves what it did: it has expired, or one of the looks
    /// that are taken `every` so often finds it refused, or worth something else. An issuer that
    /// is away ends nothing before the token expires.
    pub(crate) fn ended(&self, proof: Lasting, every: Duration) -> BoxFuture<'_, Refused> {
        // Apart, so that what waits for it stays small.
        Box::pin(self.until_ended(proof, every))
    }

    async fn until_ended(&self, mut proof: Lasting, every: Duration) -> Refused {
        if matches!(self.how, How::Dev) {
            return std::future::pending().await;
        }
        loop {
            let left = proof.until.map(|until| until.saturating_sub(clock::now()));
            let left = left.map(|left| Duration::from_secs(u64::try_from(left).unwrap_or(0)));
            if left.is_some_and(|left| left.is_zero()) {
                return expired();
            }
            tokio::time::sleep(left.map_or(every, |left| left.min(every))).await;
            if proof.until.is_some_and(|until| until <= clock::now()) {
                return expired();
            }
            match self.authenticate(&proof.headers).await {
                Ok(now) if now.principal == proof.principal && now.scopes == proof.scopes => {
                    proof.until = now.until;
                }
                Err(Refused::Unavailable { .. }) => {}
                Ok(_) => return invalid("the access token is worth something else by now"),
                Err(refused) => return refused,
            }
        }
    }
}

fn expired() -> Refused {
    invalid("the access token has expired")
}
