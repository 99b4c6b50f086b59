//! TLS before a plain server: what comes through it was encrypted, for an authority of the test's own.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::PrivatePkcs8KeyDer;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

/// An authority, and the file with its certificate.
pub struct Authority {
    pub file: PathBuf,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub fn new(folder: &Path, name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let file = folder.join(format!("{name}.pem"));
        std::fs::write(&file, params.self_signed(&key).unwrap().pem()).unwrap();
        let issuer = Issuer::new(params, key);
        Self { file, issuer }
    }

    /// Takes connections for the server at this URL (`http://…`), until dropped.
    pub async fn before(&self, url: &str) -> Front {
        let key = KeyPair::generate().unwrap();
        let server = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        let certificate = server.signed_by(&key, &self.issuer).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![certificate.der().clone()],
                PrivatePkcs8KeyDer::from(key.serialize_der()).into(),
            )
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let rest = url.strip_prefix("http://").unwrap();
        let (to, path) = rest.split_once('/').unwrap_or((rest, ""));
        let to = to.to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}/{path}", listener.local_addr().unwrap());
        let mut running = JoinSet::new();
        running.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, to) = (acceptor.clone(), to.clone());
                connections.spawn(async move {
                    let mut outer = acceptor.accept(stream).await?;
                    let mut inner = TcpStream::connect(to).await?;
                    tokio::io::copy_bidirectional(&mut outer, &mut inner).await
                });
            }
        });
        Front {
            url,
            _running: running,
        }
    }
}

/// The encrypted way to a server.
pub struct Front {
    pub url: String,
    _running: JoinSet<()>,
}
