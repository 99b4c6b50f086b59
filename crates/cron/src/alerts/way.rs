//! The way to a receiver: where it is, what signs, and whose certificates count. What is in files is read for
//! each sending, which is rare, so that whoever rotates it need not restart cron.

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use super::config::{Kind, Receiver, is_encrypted, is_web};
use super::http::Client;
use super::webhook;

/// A receiver, and connections to it.
pub(crate) struct Way {
    pub(crate) receiver: Receiver,
    last: Mutex<Option<Trusting>>,
}

/// A client, and what `ca_file` held when it was made.
struct Trusting {
    authorities: Option<Vec<u8>>,
    client: Client,
}

/// What a sending needs.
pub(crate) struct Open {
    pub(crate) client: Client,
    pub(crate) url: String,
    /// Signs; empty where the kind signs nothing.
    pub(crate) key: Vec<u8>,
}

impl Way {
    pub(crate) fn new(receiver: Receiver) -> Self {
        Self {
            receiver,
            last: Mutex::default(),
        }
    }

    /// The way as the files have it now.
    ///
    /// # Errors
    /// Names the field and its file, and nothing of what is in it.
    pub(crate) async fn open(&self) -> Result<Open, String> {
        Ok(Open {
            client: self.client().await?,
            url: self.url().await?,
            key: self.key().await?,
        })
    }

    /// Everything wrong with the files, each naming its field.
    pub(crate) async fn problems(&self) -> Vec<String> {
        if self.receiver.kind == Kind::Log {
            return Vec::new();
        }
        let problems = [
            self.url().await.err(),
            self.key().await.err(),
            self.client().await.err(),
        ];
        problems.into_iter().flatten().collect()
    }

    async fn url(&self) -> Result<String, String> {
        let Some(file) = &self.receiver.url_file else {
            return Ok(self.receiver.url.clone());
        };
        let url = text("url_file", file).await?;
        if !is_web(&url) {
            return Err(problem("url_file", file, "not http://… or https://…"));
        }
        if self.receiver.ca_file.is_some() && !is_encrypted(&url) {
            let why = "ca_file is set, and this is not https://…";
            return Err(problem("url_file", file, why));
        }
        Ok(url)
    }

    async fn key(&self) -> Result<Vec<u8>, String> {
        if self.receiver.kind != Kind::Webhook {
            return Ok(Vec::new());
        }
        let Some(file) = &self.receiver.secret_file else {
            return webhook::key(&self.receiver.secret).map_err(|why| format!("secret: {why}"));
        };
        let secret = text("secret_file", file).await?;
        webhook::key(&secret).map_err(|why| problem("secret_file", file, &why))
    }

    /// The same as long as the authorities are: its connections are used again.
    async fn client(&self) -> Result<Client, String> {
        let file = self.receiver.ca_file.as_deref();
        let authorities = match file {
            None => None,
            Some(file) => {
                let read = tokio::fs::read(file).await;
                Some(read.map_err(|error| problem("ca_file", file, &error.to_string()))?)
            }
        };
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = &*last
            && last.authorities == authorities
        {
            return Ok(last.client.clone());
        }
        let client = Client::new(authorities.as_deref())
            .map_err(|why| problem("ca_file", file.unwrap_or(Path::new("")), &why))?;
        *last = Some(Trusting {
            authorities,
            client: client.clone(),
        });
        Ok(client)
    }
}

async fn text(field: &str, file: &Path) -> Result<String, String> {
    let read = tokio::fs::read_to_string(file).await;
    let text = read.map_err(|error| problem(field, file, &error.to_string()))?;
    // Editors end files with a line break.
    match text.trim_end_matches(['\r', '\n']) {
        "" => Err(problem(field, file, "empty")),
        text => Ok(text.to_owned()),
    }
}

fn problem(field: &str, file: &Path, what: &str) -> String {
    format!("{field}: {}: {what}", file.display())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use tempfile::TempDir;

    use super::*;
    use crate::alerts::config::Config;

    const SECRETS: [&str; 2] = [
        "whsec_c2VzYW1lc2VzYW1lc2VzYW1lc2VzYW1l",
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
    ];

    /// A webhook that is told by files, and these.
    struct Files {
        folder: TempDir,
        way: Way,
    }

    impl Files {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let at = |name: &str| Some(folder.path().join(name));
            let mut receiver = Config::default().receivers.remove(0);
            receiver.kind = Kind::Webhook;
            receiver.url_file = at("url");
            receiver.secret_file = at("secret");
            receiver.ca_file = at("ca");
            let files = Self {
                way: Way::new(receiver),
                folder,
            };
            files.write("url", "https://h/sesame-1\n");
            files.write("secret", &format!("{}\r\n", SECRETS[0]));
            files.write("ca", &authority());
            files
        }

        fn at(&self, name: &str) -> PathBuf {
            self.folder.path().join(name)
        }

        fn write(&self, name: &str, text: &str) {
            fs::write(self.at(name), text).unwrap();
        }
    }

    fn authority() -> String {
        let made = rcgen::generate_simple_self_signed(vec!["h".to_owned()]);
        made.unwrap().cert.pem()
    }

    #[tokio::test]
    async fn what_is_in_files_is_read_each_time() {
        let files = Files::new();
        let open = files.way.open().await.unwrap();
        assert_eq!(open.url, "https://h/sesame-1");
        assert_eq!(open.key, webhook::key(SECRETS[0]).unwrap());
        files.write("url", "https://h/sesame-2");
        files.write("secret", SECRETS[1]);
        let open = files.way.open().await.unwrap();
        assert_eq!(open.url, "https://h/sesame-2");
        assert_eq!(open.key, webhook::key(SECRETS[1]).unwrap());
    }

    /// No more than line breaks are taken off: what else is there too much is no part of a secret's file.
    #[tokio::test]
    async fn only_line_breaks_at_the_end_do_not_count() {
        let files = Files::new();
        files.write("url", "https://h/ \n");
        files.write("secret", &format!(" {}", SECRETS[0]));
        let problems = files.way.problems().await;
        assert_eq!(problems.len(), 2, "{problems:?}");
    }

    #[tokio::test]
    async fn problems_name_the_file_and_nothing_of_what_it_holds() {
        let files = Files::new();
        assert_eq!(files.way.problems().await, Vec::<String>::new());
        let told = async |contents: [&str; 3], whats: [&str; 3]| {
            let names = ["url", "secret", "ca"];
            for (name, text) in names.into_iter().zip(contents) {
                files.write(name, text);
            }
            let problems = files.way.problems().await;
            assert_eq!(problems.len(), 3, "{problems:?}");
            for ((problem, name), what) in problems.iter().zip(names).zip(whats) {
                let place = format!("{name}_file: {}: ", files.at(name).display());
                assert!(problem.starts_with(&place), "{problem}");
                assert!(problem.contains(what), "{what}: {problem}");
                assert!(!problem.contains("sesame"), "{problem}");
            }
            assert!(
                files
                    .way
                    .open()
                    .await
                    .is_err_and(|why| problems.contains(&why))
            );
        };
        told(
            ["\n", "\n", "\n"],
            ["empty", "empty", "holds no certificate"],
        )
        .await;
        let broken = "-----BEGIN CERTIFICATE-----\nsesame!\n-----END CERTIFICATE-----\n";
        told(
            ["sesame", "sesame sesame", broken],
            ["not http://", "not base64", ""],
        )
        .await;
        told(
            ["http://sesame", "whsec_c2VzYW1l", "sesame"],
            [
                "this is not https://",
                "6 bytes long",
                "holds no certificate",
            ],
        )
        .await;
        for name in ["url", "secret", "ca"] {
            fs::remove_file(files.at(name)).unwrap();
        }
        for problem in files.way.problems().await {
            assert!(problem.contains("No such file"), "{problem}");
        }
    }

    #[tokio::test]
    async fn what_is_kept_in_settings_needs_no_file() {
        let mut receiver = Config::default().receivers.remove(0);
        receiver.kind = Kind::Webhook;
        receiver.url = "http://h/".to_owned();
        SECRETS[0].clone_into(&mut receiver.secret);
        let open = Way::new(receiver).open().await.unwrap();
        assert_eq!(open.url, "http://h/");
        assert_eq!(open.key, webhook::key(SECRETS[0]).unwrap());
    }
}
