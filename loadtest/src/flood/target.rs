//! The gateway that is flooded: a real process over servers of its own.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use harness::cluster::{Cluster, Plan};
use harness::config::Common;
use harness::postgres::Postgres;
use harness::redis::Redis;
use harness::temp::Temp;
use harness::{Error, Result};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore};

use crate::bench::processors::resident;
use crate::bench::wire::Wire;
use crate::stack;

/// A gateway with the limits that it has by itself, but for what `settings` say (TOML).
#[derive(Debug)]
pub struct Target {
    cluster: Cluster,
    /// Its certificate, if it speaks TLS.
    certificate: Option<CertificateDer<'static>>,
    _postgres: Postgres,
    _redis: Redis,
}

impl Target {
    /// Starts it.
    ///
    /// # Errors
    /// If a server is not installed, or the binary is not there.
    pub async fn start(binary: &Path, settings: &str) -> Result<Target> {
        let found = binary.canonicalize();
        let binary = found.map_err(Error::io(format!("find {}", binary.display())))?;
        let temp = Temp::new()?;
        let postgres = Postgres::temporary().await?;
        let redis = Redis::temporary().await?;
        let url = postgres.create_database("flood").await?;
        let common = Common {
            postgres_url: url.clone(),
            redis_url: redis.url(),
            ..Common::default()
        };
        stack::migrate(&binary, temp.path(), &common).await?;
        let plan = Plan::new(&binary, &url, &redis.url()).of(1, 0, 0);
        let cluster = plan
            .settings("[logs]\nfilter = \"warn\"")
            .settings(settings)
            .start()
            .await?;
        Ok(Target {
            cluster,
            certificate: None,
            _postgres: postgres,
            _redis: redis,
        })
    }

    /// Starts one that speaks TLS.
    ///
    /// # Errors
    /// If the binary is not there.
    pub async fn encrypted(binary: &Path) -> Result<Target> {
        let files = Temp::new()?;
        let other = |error: rcgen::Error| Error::Other(format!("make a certificate: {error}"));
        let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]);
        let made = made.map_err(other)?;
        let write = |name: &str, pem: String| {
            let file = files.path().join(name);
            std::fs::write(&file, pem).map_err(Error::io("write a certificate"))?;
            Ok::<_, Error>(file)
        };
        let settings = format!(
            "[gateway.tls]\ncertificate_file = {:?}\nkey_file = {:?}",
            write("tls.crt", made.cert.pem())?,
            write("tls.key", made.signing_key.serialize_pem())?
        );
        // It has read them when it has started.
        let target = Self::start(binary, &settings).await?;
        Ok(Self {
            certificate: Some(made.cert.into()),
            ..target
        })
    }

    /// What believes its certificate.
    ///
    /// # Errors
    /// If there can be none.
    pub fn connector(&self) -> Result<TlsConnector> {
        let other = |error: rustls::Error| Error::Other(format!("speak TLS: {error}"));
        let mut roots = RootCertStore::empty();
        if let Some(certificate) = &self.certificate {
            roots.add(certificate.clone()).map_err(other)?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(other)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(TlsConnector::from(Arc::new(config)))
    }

    /// Where it listens.
    ///
    /// # Errors
    /// If its URL has no address.
    pub fn address(&self) -> Result<SocketAddr> {
        let url = self.cluster.gateways[0].url();
        let rest = url.trim_start_matches("http://");
        let host = rest.split('/').next().unwrap_or_default();
        host.parse()
            .map_err(|_| Error::Other(format!("{url} has no address")))
    }

    /// Requests of a principal.
    #[must_use]
    pub fn wire(&self, name: &str) -> Wire {
        Wire::new(&self.cluster.gateways[0].url(), name)
    }

    /// What one of its metrics is now, all series together.
    ///
    /// # Errors
    /// If it cannot be asked.
    pub async fn metric(&self, name: &str) -> Result<f64> {
        self.cluster.gateways[0].metric(name, "").await
    }

    /// Bytes that it has in memory now.
    #[must_use]
    pub fn resident(&self) -> u64 {
        let pid = self.cluster.gateways[0].pid();
        pid.and_then(resident).unwrap_or(0)
    }
}
