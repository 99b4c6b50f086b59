//! What cannot work in the settings of an upstream.

use std::time::Duration;

use super::UpstreamConfig;

impl UpstreamConfig {
    /// Everything wrong with these settings, each naming its key; empty when they work.
    #[must_use]
    pub fn validate(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
        if self.name.is_empty() {
            problems.push("name: must not be empty".to_owned());
        }
        if self.prefix.len() > 64 || !self.prefix.bytes().all(is_plain) {
            problems.push("prefix: at most 64 of A-Z a-z 0-9 _ . -".to_owned());
        }
        let scheme = self.uri_prefix.bytes().enumerate().all(|(at, byte)| {
            byte.is_ascii_alphabetic()
                || at > 0 && (byte.is_ascii_digit() || b"+.-".contains(&byte))
        });
        if self.uri_prefix.len() > 64 || !scheme {
            problems.push(
                "uri_prefix: at most 64 of A-Z a-z 0-9 + . - that begin with a letter: what may \
                 stand before a scheme, `docs+` for one"
                    .to_owned(),
            );
        }
        match (&self.url, &self.command) {
            (Some(url), None) => self.validate_url(url, &mut problems),
            (None, Some(command)) => {
                if command.first().is_none_or(String::is_empty) {
                    problems.push("command: the program is missing".to_owned());
                }
                for (key, said) in [
                    ("headers", !self.headers.is_empty()),
                    ("secret_headers", !self.secret_headers.is_empty()),
                    ("bearer_file", self.bearer_file.is_some()),
                    ("bearer_env", self.bearer_env.is_some()),
                    ("oauth", self.oauth.is_some()),
                    ("ca_file", self.ca_file.is_some()),
                ] {
                    if said {
                        problems.push(format!("{key}: only a server with a url is sent headers"));
                    }
                }
            }
            (Some(_), Some(_)) | (None, None) => {
                problems.push("url, command: exactly one of them must be given".to_owned());
            }
        }
        for (key, duration) in [
            ("refresh", self.refresh),
            ("timeout", self.timeout),
            ("hold", self.hold),
        ] {
            if duration < Duration::from_millis(100) {
                problems.push(format!("{key}: {duration:?} is shorter than 100ms"));
            }
        }
        if self.message_bytes_max < 1024 {
            problems.push("message_bytes_max: must be at least 1024".to_owned());
        }
        problems
    }

    fn validate_url(&self, url: &str, problems: &mut Vec<String>) {
        if names_user(url) {
            problems.push(
                "url: holds a user's name: use secret_headers, bearer_file or oauth".to_owned(),
            );
            return;
        }
        if self
            .oauth
            .as_ref()
            .is_some_and(|oauth| names_user(&oauth.token_url))
        {
            problems.push(
                "oauth.token_url: holds a user's name: use client_id and client_secret_file"
                    .to_owned(),
            );
            return;
        }
        let parsed = url.parse::<http::Uri>().ok().filter(|uri| {
            let fits = matches!(uri.scheme_str(), Some("http" | "https"));
            fits && uri.host().is_some() && has_port(uri)
        });
        if parsed.is_none() {
            problems.push("url: is not http://… or https://…".to_owned());
        }
        for (key, said) in [
            ("env", !self.env.is_empty()),
            ("env_pass", !self.env_pass.is_empty()),
            ("dir", self.dir.is_some()),
        ] {
            if said {
                problems.push(format!("{key}: only a command has it"));
            }
        }
        let bearers = [
            self.bearer_file.is_some(),
            self.bearer_env.is_some(),
            self.oauth.is_some(),
        ];
        if bearers.iter().filter(|said| **said).count() > 1 {
            problems.push("bearer_file, bearer_env, oauth: at most one of them".to_owned());
        }
        if let Some(oauth) = &self.oauth {
            let fits = oauth.token_url.parse::<http::Uri>().is_ok_and(|uri| {
                let host = uri.host().unwrap_or_default();
                let here = ["localhost", "127.0.0.1", "[::1]"].contains(&host);
                let scheme = uri.scheme_str();
                has_port(&uri) && (scheme == Some("https") || scheme == Some("http") && here)
            });
            if !fits {
                problems
                    .push("oauth.token_url: is not https://…: our secret goes there".to_owned());
            }
            if oauth.client_id.is_empty() {
                problems.push("oauth.client_id: must not be empty".to_owned());
            }
        }
        let plain = self.headers.iter();
        let plain = plain.map(|(name, value)| ("headers", name, Some(value)));
        let secret = self.secret_headers.keys();
        let secret = secret.map(|name| ("secret_headers", name, None));
        for (key, name, value) in plain.chain(secret) {
            let name_fits = name.parse::<http::HeaderName>().is_ok();
            if !name_fits || value.is_some_and(|value| value.parse::<http::HeaderValue>().is_err())
            {
                problems.push(format!("{key}.{name}: not a header"));
            }
            let mut plain = self.headers.keys();
            if value.is_none() && plain.any(|plain| plain.eq_ignore_ascii_case(name)) {
                problems.push(format!("{key}.{name}: stands among headers, too"));
            }
            if ["authorization", "mcp-session-id", "content-type", "accept"]
                .contains(&name.to_ascii_lowercase().as_str())
                && (bearers.contains(&true) || !name.eq_ignore_ascii_case("authorization"))
            {
                problems.push(format!(
                    "{key}.{name}: is set by the protocol or by bearer_…"
                ));
            }
        }
    }
}

/// Whether what stands behind the host is a port, if anything does: it may be a password with a `/`.
fn has_port(uri: &http::Uri) -> bool {
    uri.authority()
        .is_some_and(|at| at.port_u16().is_some() || at.as_str().trim_end_matches(':') == at.host())
}

/// Whether a URL names a user, be it one at all or not. No problem repeats a URL: what is wrong with
/// it may be a letter of a password.
fn names_user(url: &str) -> bool {
    let Some((_, rest)) = url.split_once("://") else {
        return false;
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    rest[..end].contains('@')
}
