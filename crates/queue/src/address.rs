//! Where Redis is, and what is shown to it: read anew for each connection, because passwords and
//! certificates that are mounted as files change while a process runs.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use redis::{
    Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion, TlsCertificates,
};

use crate::Config;

/// How to get a connection.
pub(crate) struct Address {
    /// One server; or, of a cluster, those to ask first where the others are.
    seeds: Vec<ConnectionInfo>,
    cluster: bool,
    password_file: Option<PathBuf>,
    ca_file: Option<PathBuf>,
    /// The secrets last read; for when a file cannot be read just now.
    last: Mutex<Option<Secrets>>,
}

/// Where one server of a cluster is: host and port.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Place {
    pub host: String,
    pub port: u16,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// What the files hold.
#[derive(Clone, Default)]
struct Secrets {
    password: Option<String>,
    authorities: Option<Vec<u8>>,
}

impl Address {
    /// # Errors
    /// Names the setting that cannot be used, and shows no password.
    pub(crate) fn new(config: &Config) -> Result<Address, String> {
        let urls = if config.cluster {
            each_host(&config.url)?
        } else {
            vec![config.url.clone()]
        };
        let seeds = urls.iter().map(|url| {
            let info = url.as_str().into_connection_info();
            let info = info.map_err(|error| format!("url: not a Redis address: {error}"));
            info.map_err(|told| several(config, told))
        });
        let seeds = seeds.collect::<Result<Vec<_>, _>>()?;
        let mut encrypted = false;
        for info in &seeds {
            encrypted |= check(config, info)?;
        }
        if config.ca_file.is_some() && !encrypted {
            return Err("ca_file: url is not encrypted: write rediss://…".to_owned());
        }
        if encrypted {
            // The library takes what the process agreed on; the first to say it wins.
            drop(rustls::crypto::ring::default_provider().install_default());
        }
        Ok(Address {
            seeds,
            cluster: config.cluster,
            password_file: config.password_file.clone(),
            ca_file: config.ca_file.clone(),
            last: Mutex::default(),
        })
    }

    /// Of a cluster, the servers that the settings name.
    pub(crate) fn seeds(&self) -> Vec<Place> {
        self.seeds.iter().filter_map(place).collect()
    }

    /// As anybody may see it. `None` where there is nothing of that kind to see.
    pub(crate) fn shown(&self) -> Option<String> {
        let first = self.seeds.first()?;
        let settings = first.redis_settings();
        let database = match settings.db() {
            0 => String::new(),
            number => number.to_string(),
        };
        let scheme = match first.addr() {
            ConnectionAddr::Tcp(..) => "redis",
            ConnectionAddr::TcpTls { .. } => "rediss",
            ConnectionAddr::Unix(path) if database.is_empty() => {
                return Some(format!("unix://{}", path.display()));
            }
            ConnectionAddr::Unix(path) => {
                return Some(format!("unix://{}?db={database}", path.display()));
            }
            _ => return None,
        };
        let odd = |user: &str| user.contains([':', '/', '?', '#', '@']);
        if settings.username().is_some_and(odd) {
            return None;
        }
        let user = match (settings.username(), settings.password()) {
            (None, None) => String::new(),
            (Some(user), None) => format!("{user}@"),
            (user, Some(_)) => format!("{}:(hidden)@", user.unwrap_or_default()),
        };
        let hosts: Vec<String> = self.seeds().iter().map(ToString::to_string).collect();
        let hosts = hosts.join(",");
        let database = match database.as_str() {
            "" => database,
            number => format!("/{number}"),
        };
        Some(format!("{scheme}://{user}{hosts}{database}"))
    }

    /// Whether the files can be used.
    ///
    /// # Errors
    /// Names the file that cannot.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.open(None, self.secrets()?).map(drop)
    }

    /// A client of this server, or of the only one, with what the files hold now; or what they held
    /// before, where they cannot be read just now.
    pub(crate) fn client(&self, at: Option<&Place>) -> redis::RedisResult<Client> {
        let secrets = {
            let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
            match (self.secrets(), last.as_ref()) {
                (Ok(secrets), _) => {
                    *last = Some(secrets.clone());
                    Ok(secrets)
                }
                (Err(problem), Some(secrets)) => {
                    tracing::warn!(problem, "going on with what the file held before");
                    Ok(secrets.clone())
                }
                (Err(problem), None) => Err(problem),
            }
        };
        let client = secrets.and_then(|secrets| self.open(at, secrets));
        client.map_err(|problem| std::io::Error::other(problem).into())
    }

    fn secrets(&self) -> Result<Secrets, String> {
        let mut secrets = Secrets::default();
        if let Some(file) = &self.password_file {
            let password = String::from_utf8(read("password_file", file)?)
                .map_err(|_| format!("password_file: {}: not UTF-8", file.display()))?;
            // Editors end files with a line break.
            secrets.password = Some(password.trim_end_matches(['\r', '\n']).to_owned());
        }
        if let Some(file) = &self.ca_file {
            secrets.authorities = Some(read("ca_file", file)?);
        }
        Ok(secrets)
    }

    fn open(&self, at: Option<&Place>, secrets: Secrets) -> Result<Client, String> {
        let mut info = self.seeds[0].clone();
        if let Some(place) = at {
            let addr = match info.addr() {
                ConnectionAddr::TcpTls { .. } => ConnectionAddr::TcpTls {
                    host: place.host.clone(),
                    port: place.port,
                    insecure: false,
                    tls_params: None,
                },
                _ => ConnectionAddr::Tcp(place.host.clone(), place.port),
            };
            info = info.set_addr(addr);
        }
        let mut settings = info.redis_settings().clone();
        if self.cluster {
            // Messages of shards are told in no other.
            settings = settings.set_protocol(ProtocolVersion::RESP3);
        }
        if let Some(password) = secrets.password {
            settings = settings.set_password(password);
        }
        info = info.set_redis_settings(settings);
        if let Some(authorities) = secrets.authorities {
            let certificates = TlsCertificates {
                client_tls: None,
                root_cert: Some(authorities),
            };
            let file = self.ca_file.as_deref().unwrap_or(Path::new("")).display();
            return Client::build_with_tls(info, certificates)
                .map_err(|error| format!("ca_file: {file}: {error}"));
        }
        Client::open(info).map_err(|error| format!("url: {error}"))
    }
}

/// The same URL for each of its hosts: `redis://user:password@a:1,b:2` is two.
fn each_host(url: &str) -> Result<Vec<String>, String> {
    let scheme = ["redis://", "rediss://", "valkey://", "valkeys://"]
        .into_iter()
        .find(|scheme| url.starts_with(scheme));
    let Some(scheme) = scheme else {
        return Err(
            "url: not the address of a Redis Cluster: write redis://host:port,host:port or rediss://…"
                .to_owned(),
        );
    };
    let rest = &url[scheme.len()..];
    if rest.contains("://") {
        return Err(
            "url: the scheme comes once, before all hosts: redis://host:port,host:port".to_owned(),
        );
    }
    let (authority, tail) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let (user, hosts) = match authority.rsplit_once('@') {
        Some((user, _)) if user.contains('@') => {
            return Err(
                "url: user and password come once, before the first host; an `@` in them is written %40"
                    .to_owned(),
            );
        }
        Some((user, hosts)) => (format!("{user}@"), hosts),
        None => (String::new(), authority),
    };
    let each = hosts.split(',').map(|host| match host.trim() {
        "" => Err("url: a host between commas is missing".to_owned()),
        host => Ok(format!("{scheme}{user}{host}{tail}")),
    });
    each.collect()
}

/// Says whether the way is encrypted.
fn check(config: &Config, info: &ConnectionInfo) -> Result<bool, String> {
    if config.cluster && info.redis_settings().db() != 0 {
        return Err("url: a Redis Cluster has no database but 0: leave it out".to_owned());
    }
    match info.addr() {
        ConnectionAddr::TcpTls { insecure: true, .. } => Err(
            "url: #insecure is not supported: name the server's authority in redis.ca_file"
                .to_owned(),
        ),
        ConnectionAddr::TcpTls { .. } => Ok(true),
        _ => Ok(false),
    }
}

/// Several hosts are a cluster's.
fn several(config: &Config, told: String) -> String {
    if !config.cluster && config.url.contains(',') {
        return format!("{told}; several hosts, for a Redis Cluster, need redis.cluster = true");
    }
    told
}

fn place(info: &ConnectionInfo) -> Option<Place> {
    match info.addr() {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
            Some(Place {
                host: host.clone(),
                port: *port,
            })
        }
        _ => None,
    }
}

fn read(setting: &str, file: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(file).map_err(|error| format!("{setting}: {}: {error}", file.display()))
}
