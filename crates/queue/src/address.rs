//! Where Redis is, and what is shown to it: read anew for each connection, because passwords and
//! certificates that are mounted as files change while a process runs.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use redis::{Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, TlsCertificates};

use crate::Config;

/// How to get a connection.
pub(crate) struct Address {
    info: ConnectionInfo,
    password_file: Option<PathBuf>,
    ca_file: Option<PathBuf>,
    /// The last one that could be made; for when a file cannot be read just now.
    last: Mutex<Option<Client>>,
}

impl Address {
    /// # Errors
    /// Names the setting that cannot be used, and shows no password.
    pub(crate) fn new(config: &Config) -> Result<Address, String> {
        let info = config.url.as_str().into_connection_info();
        let info = info.map_err(|error| format!("url: not a Redis address: {error}"))?;
        let encrypted = match info.addr() {
            ConnectionAddr::TcpTls { insecure: true, .. } => {
                return Err(
                    "url: #insecure is not supported: name the server's authority in redis.ca_file"
                        .to_owned(),
                );
            }
            ConnectionAddr::TcpTls { .. } => true,
            _ => false,
        };
        if config.ca_file.is_some() && !encrypted {
            return Err("ca_file: url is not encrypted: write rediss://…".to_owned());
        }
        if encrypted {
            // The library takes what the process agreed on; the first to say it wins.
            drop(rustls::crypto::ring::default_provider().install_default());
        }
        Ok(Address {
            info,
            password_file: config.password_file.clone(),
            ca_file: config.ca_file.clone(),
            last: Mutex::default(),
        })
    }

    /// A client with what the files hold now.
    ///
    /// # Errors
    /// Names the file that cannot be used.
    pub(crate) fn client(&self) -> Result<Client, String> {
        let mut info = self.info.clone();
        if let Some(file) = &self.password_file {
            let password = read("password_file", file)?;
            let password = String::from_utf8(password)
                .map_err(|_| format!("password_file: {}: not UTF-8", file.display()))?;
            let settings = info.redis_settings().clone();
            // Editors end files with a line break.
            let password = password.trim_end_matches(['\r', '\n']);
            info = info.set_redis_settings(settings.set_password(password));
        }
        if let Some(file) = &self.ca_file {
            let certificates = TlsCertificates {
                client_tls: None,
                root_cert: Some(read("ca_file", file)?),
            };
            return Client::build_with_tls(info, certificates)
                .map_err(|error| format!("ca_file: {}: {error}", file.display()));
        }
        Client::open(info).map_err(|error| format!("url: {error}"))
    }

    /// The same; or what they held before, where they cannot be read just now.
    pub(crate) fn latest(&self) -> redis::RedisResult<Client> {
        let made = self.client();
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        match (made, last.as_ref()) {
            (Ok(client), _) => {
                *last = Some(client.clone());
                Ok(client)
            }
            (Err(problem), Some(client)) => {
                tracing::warn!(problem, "going on with what the file held before");
                Ok(client.clone())
            }
            (Err(problem), None) => Err(std::io::Error::other(problem).into()),
        }
    }
}

fn read(setting: &str, file: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(file).map_err(|error| format!("{setting}: {}: {error}", file.display()))
}
