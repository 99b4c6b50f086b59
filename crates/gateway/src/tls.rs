//! TLS at the door: a certificate and its key from files, which may be replaced while the process runs.
//!
//! New connections get the new certificate, open ones keep theirs. A pair that does not fit changes
//! nothing and is told of once: who replaces two files is between them for a moment.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

/// The files are looked at so often.
const REFRESH: Duration = Duration::from_secs(2);
/// A pair that does not fit is told of when it stays so: two files are replaced one by one.
const LOOKS_UNTIL_TOLD: u32 = 2;

/// `[gateway.tls]`: encryption at the door. Without it something in front of us must encrypt, or
/// nobody but this machine may reach us.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Our certificate and those between it and its authority (PEM). Read again when it changes.
    pub certificate_file: Option<PathBuf>,
    /// Its private key (PEM).
    pub key_file: Option<PathBuf>,
}

impl Config {
    pub(crate) fn validate(&self, problems: &mut Vec<String>) {
        let (set, lacking) = match (&self.certificate_file, &self.key_file) {
            (Some(_), None) => ("certificate_file", "key_file"),
            (None, Some(_)) => ("key_file", "certificate_file"),
            (Some(_), Some(_)) | (None, None) => return,
        };
        problems.push(format!(
            "gateway.tls.{lacking}: must be set, since gateway.tls.{set} is"
        ));
    }

    /// Reads the files, if some are named.
    ///
    /// # Errors
    /// Why they cannot be used.
    pub fn check_files(&self) -> Result<(), String> {
        Tls::new(self).map(|_| ())
    }
}

/// Our certificate, as it is now.
pub(crate) struct Tls {
    certificate_file: PathBuf,
    key_file: PathBuf,
    current: RwLock<Arc<ServerConfig>>,
}

impl Tls {
    /// `None` if the settings name no certificate.
    ///
    /// # Errors
    /// If the files cannot be used.
    pub(crate) fn new(config: &Config) -> Result<Option<Self>, String> {
        let (Some(certificate_file), Some(key_file)) = (&config.certificate_file, &config.key_file)
        else {
            return Ok(None);
        };
        let text = Texts::read(certificate_file, key_file)?;
        Ok(Some(Self {
            certificate_file: certificate_file.clone(),
            key_file: key_file.clone(),
            current: RwLock::new(text.config()?),
        }))
    }

    /// For the next connection.
    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        TlsAcceptor::from(Arc::clone(&current))
    }

    /// Takes new certificates until `end`.
    pub(crate) async fn keep(&self, end: &CancellationToken) {
        let mut seen = None;
        let mut failed: u32 = 0;
        loop {
            let texts = Texts::read(&self.certificate_file, &self.key_file);
            match texts.and_then(|texts| {
                let is_new = seen.as_ref() != Some(&texts);
                let config = is_new.then(|| texts.config()).transpose()?;
                Ok((texts, config))
            }) {
                Ok((texts, config)) => {
                    if let Some(config) = config {
                        let mut current =
                            self.current.write().unwrap_or_else(PoisonError::into_inner);
                        *current = config;
                        if seen.is_some() {
                            tracing::info!("certificate read");
                        }
                    }
                    seen = Some(texts);
                    failed = 0;
                }
                Err(error) => {
                    failed = failed.saturating_add(1);
                    if failed == LOOKS_UNTIL_TOLD {
                        tracing::warn!(error, "the certificate cannot be read; the last one stays");
                    }
                }
            }
            tokio::select! {
                () = tokio::time::sleep(REFRESH) => {}
                () = end.cancelled() => return,
            }
        }
    }
}

/// Both files.
#[derive(PartialEq, Eq)]
struct Texts {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

impl Texts {
    fn read(certificate: &Path, key: &Path) -> Result<Self, String> {
        let read = |field: &str, file: &Path| {
            let read = std::fs::read(file);
            read.map_err(|error| format!("gateway.tls.{field}: {}: {error}", file.display()))
        };
        Ok(Self {
            certificate: read("certificate_file", certificate)?,
            key: read("key_file", key)?,
        })
    }

    fn config(&self) -> Result<Arc<ServerConfig>, String> {
        let chain: Result<Vec<CertificateDer<'static>>, _> =
            CertificateDer::pem_slice_iter(&self.certificate).collect();
        let chain = chain.map_err(|error| format!("gateway.tls.certificate_file: {error}"))?;
        if chain.is_empty() {
            return Err("gateway.tls.certificate_file: holds no certificate".to_owned());
        }
        let key = PrivateKeyDer::from_pem_slice(&self.key)
            .map_err(|error| format!("gateway.tls.key_file: {error}"))?;
        let provider = rustls::crypto::ring::default_provider();
        let mut config = ServerConfig::builder_with_provider(provider.into())
            .with_safe_default_protocol_versions()
            .expect("ring serves the default versions of TLS")
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(|error| format!("gateway.tls.key_file: does not fit: {error}"))?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}
