//! Encryption of the way to Postgres: what `sslmode` and `sslrootcert` of the URL ask for.
//!
//! As in libpq, but for this: wherever an authority is named, host names are checked too, unless
//! `verify-ca` says that they shall not be.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
};
use tokio_postgres::config::SslMode;
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::Config;

/// What libpq calls the authorities of this machine.
const SYSTEM: &str = "system";

/// What of the server's certificate is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Check {
    /// Nothing: the way is encrypted, and who is at its end is believed.
    Nothing,
    /// Who signed it.
    Authority,
    /// Who signed it, and for which host.
    Host,
}

/// Which authorities may sign it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Authorities {
    /// Those of this machine.
    System,
    /// Those in a file.
    File(PathBuf),
}

/// Settings of the connection and of its encryption; `None` = it is never encrypted.
pub(crate) fn read(
    config: &Config,
) -> Result<(tokio_postgres::Config, Option<MakeRustlsConnect>), String> {
    let asked = Asked::of(&config.url)?;
    let field = |problem: &str| format!("postgres.url: {problem}");
    let mut postgres = asked.address()?;
    // The name that a certificate would be for.
    if postgres.get_hosts().is_empty() {
        for address in postgres.get_hostaddrs().to_vec() {
            postgres.host(address.to_string());
        }
    }
    let mode = postgres.get_ssl_mode();
    let named = match (&asked.authorities, &config.ca_file) {
        (Some(_), Some(_)) => {
            return Err("postgres.ca_file: sslrootcert of postgres.url is set, too".to_owned());
        }
        (Some(authorities), None) => Some(authorities.clone()),
        (None, Some(file)) => Some(Authorities::File(file.clone())),
        (None, None) => None,
    };
    let check = match (asked.check, &named) {
        (Some(check), _) => check,
        (None, None) => Check::Nothing,
        (None, Some(_)) if mode == SslMode::Require => Check::Host,
        (None, Some(_)) => {
            return Err(field(
                "an authority is named, but without sslmode=require or verify-full the way may \
                 stay unencrypted",
            ));
        }
    };
    if mode == SslMode::Disable {
        return Ok((postgres, None));
    }
    let authorities = named.unwrap_or(Authorities::System);
    let tls = client(check, &authorities)?;
    Ok((postgres, Some(MakeRustlsConnect::new(tls))))
}

/// What the URL says of where Postgres is, and for whom; `None` if it cannot be read.
pub(crate) fn address(url: &str) -> Option<tokio_postgres::Config> {
    Asked::of(url).ok()?.address().ok()
}

/// What the URL asks for, and the rest of it, as `tokio_postgres` reads it.
struct Asked {
    url: String,
    check: Option<Check>,
    authorities: Option<Authorities>,
}

impl Asked {
    fn of(url: &str) -> Result<Asked, String> {
        let mut asked = Asked {
            url: url.to_owned(),
            check: None,
            authorities: None,
        };
        let is_url = ["postgres://", "postgresql://"]
            .iter()
            .any(|prefix| url.starts_with(prefix));
        if !is_url {
            if url.contains("sslmode=verify") || url.contains("sslrootcert") {
                return Err(
                    "postgres.url: write it as postgres://…: only there verify-full, verify-ca and \
                     sslrootcert are known"
                        .to_owned(),
                );
            }
            return Ok(asked);
        }
        let Some((address, query)) = url.split_once('?') else {
            return Ok(asked);
        };
        let mut rest = Vec::new();
        for parameter in query.split('&') {
            match parameter.split_once('=') {
                Some(("sslmode", "verify-full")) => asked.check = Some(Check::Host),
                Some(("sslmode", "verify-ca")) => asked.check = Some(Check::Authority),
                Some(("sslmode", mode)) if !["disable", "prefer", "require"].contains(&mode) => {
                    return Err(format!(
                        "postgres.url: sslmode={mode} is not one of disable, prefer, require, \
                         verify-ca, verify-full"
                    ));
                }
                Some(("sslrootcert", SYSTEM)) => asked.authorities = Some(Authorities::System),
                Some(("sslrootcert", file)) => {
                    asked.authorities = Some(Authorities::File(decode(file).into()));
                }
                Some((name @ ("sslcert" | "sslkey" | "sslcrl" | "sslpassword"), _)) => {
                    return Err(format!("postgres.url: {name} is not supported"));
                }
                _ => rest.push(parameter),
            }
        }
        if asked.check.is_some() {
            rest.push("sslmode=require");
        }
        asked.url = format!("{address}?{}", rest.join("&"));
        Ok(asked)
    }

    fn address(&self) -> Result<tokio_postgres::Config, String> {
        let read = self.url.parse::<tokio_postgres::Config>();
        read.map_err(|error| {
            let why = chain(&error);
            // Both may show a piece of a password: with a blank in it, what follows is read as a parameter.
            let why = match why.split_once("unknown option") {
                Some((before, _)) => format!("{before}unknown parameter; there are: {PARAMETERS}"),
                None => why.split(" but got").next().unwrap_or_default().to_owned(),
            };
            format!("postgres.url: not a Postgres URL: {why}")
        })
    }
}

/// Those of `tokio-postgres`, and of ours.
const PARAMETERS: &str = "application_name, channel_binding, connect_timeout, dbname, host, hostaddr, keepalives, \
                          keepalives_idle, keepalives_interval, keepalives_retries, load_balance_hosts, options, \
                          password, port, sslmode, sslnegotiation, sslrootcert, target_session_attrs, \
                          tcp_user_timeout, user";

/// Percent-encoding undone.
fn decode(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let digits = after.get(..2).filter(|_| *first == b'%');
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The other side of the handshake.
fn client(check: Check, authorities: &Authorities) -> Result<ClientConfig, String> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .expect("ring has the suites of all versions");
    let verifier: Arc<dyn ServerCertVerifier> = match check {
        Check::Nothing => Arc::new(Unchecked(provider)),
        Check::Authority | Check::Host => {
            let roots = Arc::new(roots(authorities)?);
            let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider)
                .build()
                .map_err(|error| format!("postgres.url: {}", chain(&error)))?;
            if check == Check::Host {
                verifier
            } else {
                Arc::new(AnyHost(verifier))
            }
        }
    };
    Ok(builder
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth())
}

fn roots(authorities: &Authorities) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    match authorities {
        Authorities::System => {
            let found = rustls_native_certs::load_native_certs();
            roots.add_parsable_certificates(found.certs);
            if roots.is_empty() {
                return Err(
                    "postgres.url: this machine has no certificate authorities (ca-certificates is \
                     not installed?): name a file in postgres.ca_file"
                        .to_owned(),
                );
            }
        }
        Authorities::File(file) => {
            let found = in_file(file).map_err(|problem| {
                format!(
                    "postgres.ca_file (or sslrootcert): {}: {problem}",
                    file.display()
                )
            })?;
            for certificate in found {
                let added = roots.add(certificate);
                added.map_err(|error| {
                    format!(
                        "postgres.ca_file (or sslrootcert): {}: {error}",
                        file.display()
                    )
                })?;
            }
        }
    }
    Ok(roots)
}

fn in_file(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let text = std::fs::read(file).map_err(|error| error.to_string())?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let found = found.map_err(|error| format!("not a PEM file: {error}"))?;
    if found.is_empty() {
        return Err("holds no certificate (PEM)".to_owned());
    }
    Ok(found)
}

/// An error with its causes, in one line.
fn chain(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {}", chain(source)),
        None => error.to_string(),
    }
}

/// Believes whatever certificate is shown. That its owner shows it is checked.
#[derive(Debug)]
struct Unchecked(Arc<CryptoProvider>);

impl ServerCertVerifier for Unchecked {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(
            message,
            cert,
            dss,
            &self.0.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(
            message,
            cert,
            dss,
            &self.0.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// Checks who signed a certificate, and not for which host. (The host is what is checked last.)
#[derive(Debug)]
struct AnyHost(Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for AnyHost {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let checked = self
            .0
            .verify_server_cert(end_entity, intermediates, server_name, ocsp, now);
        match checked {
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(url: &str) -> Config {
        Config {
            url: url.to_owned(),
            ..Config::default()
        }
    }

    #[test]
    fn what_the_url_asks_for_is_taken_out_of_it() {
        let asked = Asked::of("postgres://u@h/d?sslmode=verify-full&sslrootcert=%2Fa%20b&x=y");
        let asked = asked.unwrap();
        assert_eq!(asked.url, "postgres://u@h/d?x=y&sslmode=require");
        assert_eq!(asked.check, Some(Check::Host));
        assert_eq!(asked.authorities, Some(Authorities::File("/a b".into())));
        let plain = Asked::of("postgres://u@h/d?sslmode=prefer").unwrap();
        assert_eq!((plain.check, plain.authorities), (None, None));
        assert_eq!(plain.url, "postgres://u@h/d?sslmode=prefer");
    }

    #[test]
    fn encryption_is_where_it_is_asked_for() {
        let encrypted = |url| read(&config(url)).map(|(_, tls)| tls.is_some());
        assert_eq!(encrypted("postgres://h/d?sslmode=disable"), Ok(false));
        assert_eq!(encrypted("host=h sslmode=disable"), Ok(false));
        for url in ["postgres://h/d", "postgres://h/d?sslmode=require", "host=h"] {
            assert_eq!(encrypted(url), Ok(true), "{url}");
        }
    }

    #[test]
    fn what_cannot_be_kept_is_refused() {
        for (url, told) in [
            ("postgres://h/d?sslmode=verify", "verify-full"),
            ("postgres://h/d?sslmode=require&sslcert=x", "sslcert"),
            ("host=h sslmode=verify-full", "postgres://"),
            ("postgres://h/d?sslrootcert=/none", "sslmode=require"),
            ("postgres://h/d?sslmode=require&sslrootcert=/none", "/none"),
            ("postgres://h/d?sslmod=require", "sslmode"),
        ] {
            let problem = read(&config(url)).map(drop).unwrap_err();
            assert!(problem.contains(told), "{url}: {problem}");
        }
        let mut twice = config("postgres://h/d?sslmode=require&sslrootcert=/none");
        twice.ca_file = Some("/none".into());
        let problem = read(&twice).map(drop).unwrap_err();
        assert!(problem.contains("sslrootcert"), "{problem}");
    }
}
