//! One authorization server that is believed, and which opaque tokens it is shown.

use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::api_keys;
use super::bearer::is_token;
use super::fetch::fetchable;
use super::jwk::Algorithm;

/// One authorization server (`[[auth.issuers]]`).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Issuer {
    /// Its issuer identifier, exactly as in `iss` of its tokens.
    pub issuer: String,
    /// Where its keys are (JWKS). Empty: as its metadata says (RFC 8414, or OpenID Connect
    /// Discovery).
    pub jwks_url: String,
    /// A file with its keys (JWKS), for an issuer that is not asked at all.
    pub jwks_file: Option<PathBuf>,
    /// Algorithms that its tokens may be signed by; asymmetric ones only.
    pub algorithms: Vec<Algorithm>,
    /// Its access tokens say in their header that they are some (`typ` is `at+jwt`, RFC 9068), and no other
    /// JWT is believed.
    pub at_jwt_only: bool,
    /// Its access tokens have a claim `at_hash`, as Dex's do. Otherwise a token with one is taken for an ID token.
    pub access_tokens_have_at_hash: bool,
    /// Claims that hold scopes, as text with spaces or as a list.
    pub scope_claims: Vec<String>,
    /// The claim that names the caller's tenant; empty: none does.
    pub tenant_claim: String,
    /// Where its opaque tokens are introspected (RFC 7662); empty: it has none.
    pub introspection_url: String,
    /// What its opaque tokens begin with, such as `["ory_at_"]`: it is asked about these and about no
    /// others. Without it it is asked about all of them, which one issuer alone may be; `[]`: about its
    /// JWTs only.
    pub introspection_token_prefixes: Option<Vec<String>>,
    /// Who we are there.
    pub introspection_client_id: String,
    /// A file with our secret there. Read for every request, so it may change.
    pub introspection_secret_file: Option<PathBuf>,
    /// For how long an introspection is believed, at most. 0: every request asks.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub introspection_cache: Duration,
    /// Its JWTs are introspected as well, so that a revoked one is refused.
    pub introspect_jwts: bool,
}

impl Default for Issuer {
    fn default() -> Self {
        Self {
            issuer: String::new(),
            jwks_url: String::new(),
            jwks_file: None,
            algorithms: Algorithm::ALL.to_vec(),
            at_jwt_only: false,
            access_tokens_have_at_hash: false,
            scope_claims: vec!["scope".to_owned(), "scp".to_owned()],
            tenant_claim: String::new(),
            introspection_url: String::new(),
            introspection_token_prefixes: None,
            introspection_client_id: String::new(),
            introspection_secret_file: None,
            introspection_cache: Duration::from_secs(30),
            introspect_jwts: false,
        }
    }
}

impl Issuer {
    /// Adds what is wrong with it.
    pub(super) fn check(&self, at: &str, problems: &mut Vec<String>) {
        let mut wrong = |field: &str, problem: &str| {
            problems.push(format!("{at}.{field}: {problem}"));
        };
        match fetchable(&self.issuer) {
            Err(problem) => wrong("issuer", &problem),
            // RFC 8414 §2.
            Ok(uri) if uri.query().is_some() || self.issuer.contains('#') => {
                wrong("issuer", "has a query or a fragment");
            }
            Ok(_) => {}
        }
        for (field, url) in [
            ("jwks_url", &self.jwks_url),
            ("introspection_url", &self.introspection_url),
        ] {
            if !url.is_empty()
                && let Err(problem) = fetchable(url)
            {
                wrong(field, &problem);
            }
        }
        if !self.jwks_url.is_empty() && self.jwks_file.is_some() {
            wrong("jwks_file", "jwks_url is set, too");
        }
        if self.algorithms.is_empty() {
            wrong("algorithms", "must name at least one");
        }
        let introspects = !self.introspection_url.is_empty();
        if introspects && self.introspection_client_id.is_empty() {
            wrong(
                "introspection_client_id",
                "must be set: only clients may introspect",
            );
        }
        if introspects && self.introspection_secret_file.is_none() {
            wrong(
                "introspection_secret_file",
                "must be set: only clients may introspect",
            );
        }
        if self.introspect_jwts && !introspects {
            wrong("introspect_jwts", "introspection_url is not set");
        }
        if let Some(prefixes) = &self.introspection_token_prefixes {
            let mut wrong = |problem: &str| wrong("introspection_token_prefixes", problem);
            if !introspects {
                wrong("introspection_url is not set");
            } else if prefixes.is_empty() && !self.introspect_jwts {
                wrong("is empty, and introspect_jwts is not set: it would be asked about nothing");
            }
            for prefix in prefixes {
                if let Some(problem) = prefix_problem(prefix) {
                    wrong(&problem);
                }
            }
        }
    }

    /// What opaque tokens begin with that it is asked about.
    fn prefixes(&self) -> Vec<&str> {
        match &self.introspection_token_prefixes {
            _ if self.introspection_url.is_empty() => Vec::new(),
            None => vec![""],
            Some(prefixes) => prefixes.iter().map(String::as_str).collect(),
        }
    }

    /// Whether it is asked about an opaque token. Of all issuers one is at most, as their settings are
    /// checked ([`shared_prefixes`]).
    pub(super) fn is_asked_about(&self, token: &str) -> bool {
        let prefixes = self.prefixes();
        prefixes.iter().any(|prefix| token.starts_with(prefix))
    }
}

/// What is wrong with a beginning of opaque tokens.
fn prefix_problem(prefix: &str) -> Option<String> {
    if prefix.is_empty() {
        return Some(
            "\"\" begins all tokens: leave the setting out if it shall be asked about all"
                .to_owned(),
        );
    }
    if !is_token(prefix) {
        return Some(format!(
            "{prefix:?} begins no token: letters, digits and -._~+/=@: are allowed"
        ));
    }
    prefix.starts_with(api_keys::PREFIX).then(|| {
        format!(
            "{prefix:?} begins API keys ({}), which no issuer is asked about",
            api_keys::PREFIX
        )
    })
}

/// Where one opaque token could be of two issuers. A token says nothing of whose it is but how it
/// begins; an issuer that is asked about another's could call it dead, and could use it here itself.
pub(super) fn shared_prefixes(issuers: &[Issuer]) -> Vec<String> {
    let mut problems = Vec::new();
    for (place, one) in issuers.iter().enumerate() {
        let others = issuers.iter().enumerate().take(place);
        for (other_place, other) in others {
            let all = other.prefixes();
            let clash = one.prefixes().into_iter().find_map(|own| {
                let meets = |other: &&&str| own.starts_with(**other) || other.starts_with(own);
                Some((own, *all.iter().find(meets)?))
            });
            let Some((own, other)) = clash else { continue };
            let told = |prefix: &str| match prefix {
                "" => "any opaque token".to_owned(),
                prefix => format!("tokens that begin with {prefix:?}"),
            };
            problems.push(format!(
                "auth.issuers[{place}].introspection_token_prefixes: {} could be of \
                 auth.issuers[{other_place}] as well, which is asked about {}: an issuer must not be \
                 shown another's tokens. Say for both what theirs begin with, neither within the \
                 other, or [] for one that gives out none",
                told(own), told(other)
            ));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn issuer(prefixes: Option<&[&str]>) -> Issuer {
        Issuer {
            issuer: "https://id.example.com".to_owned(),
            introspection_url: "https://id.example.com/introspect".to_owned(),
            introspection_token_prefixes: prefixes
                .map(|prefixes| prefixes.iter().map(|&prefix| prefix.to_owned()).collect()),
            introspection_client_id: "us".to_owned(),
            introspection_secret_file: Some("secret".into()),
            introspect_jwts: prefixes == Some(&[]),
            ..Issuer::default()
        }
    }

    #[test]
    fn no_token_may_be_of_two_issuers() {
        let keys_only = Issuer::default();
        for apart in [
            &[issuer(None)][..],
            &[issuer(None), keys_only.clone(), keys_only],
            &[issuer(Some(&["a_"])), issuer(Some(&["b_"]))],
            &[
                issuer(Some(&["a_", "a_b"])),
                issuer(Some(&["b_", "A_"])),
                issuer(Some(&["c"])),
            ],
            &[issuer(None), issuer(Some(&[])), issuer(Some(&[]))],
        ] {
            assert_eq!(shared_prefixes(apart), Vec::<String>::new());
            for token in ["a_1", "a_b2", "b_1", "A_", "c", "zzz"] {
                let asked = apart.iter().filter(|issuer| issuer.is_asked_about(token));
                assert!(asked.count() <= 1, "{token}");
            }
        }
        for (shared, problems) in [
            (&[issuer(None), issuer(None)][..], 1),
            (&[issuer(None), issuer(None), issuer(None)], 3),
            (&[issuer(None), issuer(Some(&["a_"]))], 1),
            (&[issuer(Some(&["a_"])), issuer(None)], 1),
            (&[issuer(Some(&["a_"])), issuer(Some(&["x", "a_"]))], 1),
            (&[issuer(Some(&["a_b"])), issuer(Some(&["a_"]))], 1),
            (&[issuer(Some(&["a_"])), issuer(Some(&["a_b"]))], 1),
        ] {
            let told = shared_prefixes(shared);
            assert_eq!(told.len(), problems, "{told:#?}");
            assert!(told[0].starts_with("auth.issuers[1].introspection_token_prefixes: "));
            assert!(told[0].contains("auth.issuers[0]"), "{told:?}");
        }
    }

    #[test]
    fn prefixes_are_beginnings_of_tokens() {
        let problems = |issuer: &Issuer| {
            let mut problems = Vec::new();
            issuer.check("auth.issuers[0]", &mut problems);
            problems
        };
        assert_eq!(
            problems(&issuer(Some(&["ory_at_", "x.y~"]))),
            Vec::<String>::new()
        );
        assert_eq!(problems(&issuer(Some(&[]))), Vec::<String>::new());
        for wrong in ["", "a b", "a\"", "\u{e9}", "mtk_", "mtk_x"] {
            let told = problems(&issuer(Some(&[wrong])));
            assert_eq!(told.len(), 1, "{wrong:?}: {told:?}");
            assert!(told[0].starts_with("auth.issuers[0].introspection_token_prefixes: "));
        }
        let nothing = Issuer {
            introspect_jwts: false,
            ..issuer(Some(&[]))
        };
        assert_eq!(problems(&nothing).len(), 1);
        let nowhere = Issuer {
            introspection_url: String::new(),
            ..issuer(Some(&["a_"]))
        };
        assert!(problems(&nowhere)[0].ends_with("introspection_url is not set"));
    }
}
