//! Pods on Kubernetes that are deleted by `kubectl`, by their label.

use std::path::{Path, PathBuf};
use std::time::Duration;

use harness::{Error, Result};
use serde_json::Value;
use tokio::process::Command;
use tokio::time::{Instant, sleep};

use super::outside::BACK;
use super::scenario::{Break, How};

const LOOK: Duration = Duration::from_secs(1);

/// How pods are reached.
#[derive(Debug, Clone, Default)]
pub struct Kubectl {
    /// Of every `kubectl`, such as `--namespace=mcp`.
    pub arguments: Vec<String>,
    /// The program; `kubectl` of the path if none is named.
    pub program: Option<PathBuf>,
}

/// One pod.
#[derive(Debug)]
struct Pod {
    name: String,
    uid: String,
}

impl Kubectl {
    /// One pod with this label is deleted; whatever made it makes another, and it is over when as many are
    /// ready as were before.
    ///
    /// # Errors
    /// If `kubectl` refuses, none is ready, or they do not come back.
    pub async fn break_one(&self, label: &str, planned: &Break) -> Result<()> {
        let before = self.ready(label).await?;
        let victim = before.first();
        let victim = victim.ok_or_else(|| Error::Other(format!("no pod is ready with {label}")))?;
        let name = format!("pod/{}", victim.name);
        let mut delete = vec!["delete", &name, "--wait=false"];
        if planned.how == How::Killed {
            delete.extend(["--grace-period=0", "--force"]);
        }
        self.run(&delete).await?;
        sleep(planned.lasts).await;
        let deadline = Instant::now() + BACK;
        loop {
            let now = self.ready(label).await?;
            // One of a StatefulSet comes back with its name, and is another all the same.
            let gone = now.iter().all(|pod| pod.uid != victim.uid);
            if gone && now.len() >= before.len() {
                return Ok(());
            }
            if Instant::now() > deadline {
                let what = format!("{} pods ready with {label} again", before.len());
                return Err(Error::Timeout {
                    what,
                    after: BACK,
                    log: None,
                });
            }
            sleep(LOOK).await;
        }
    }

    /// The pods with this label that are ready and stay.
    async fn ready(&self, label: &str) -> Result<Vec<Pod>> {
        let list = ["get", "pods", "--selector", label, "--output", "json"];
        let text = self.run(&list).await?;
        let pods: Value = serde_json::from_str(&text)
            .map_err(|error| Error::Other(format!("kubectl get pods: no JSON: {error}")))?;
        let items = pods["items"].as_array().into_iter().flatten();
        let ready = items.filter(|pod| {
            let conditions = pod["status"]["conditions"].as_array();
            let is_ready =
                |condition: &Value| condition["type"] == "Ready" && condition["status"] == "True";
            pod["metadata"]["deletionTimestamp"].is_null()
                && conditions.is_some_and(|all| all.iter().any(is_ready))
        });
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Ok(ready
            .map(|pod| Pod {
                name: text(&pod["metadata"]["name"]),
                uid: text(&pod["metadata"]["uid"]),
            })
            .collect())
    }

    async fn run(&self, args: &[&str]) -> Result<String> {
        let program = self.program.as_deref();
        let mut command = Command::new(program.unwrap_or(Path::new("kubectl")));
        command.args(&self.arguments).args(args).kill_on_drop(true);
        let output = command.output().await.map_err(Error::io("run kubectl"))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let told = String::from_utf8_lossy(&output.stderr);
        Err(Error::Other(format!(
            "kubectl {}: {}",
            args.join(" "),
            told.trim()
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::super::outside::Outside;
    use super::*;

    fn planned(target: &str, how: How) -> Break {
        Break {
            at: Duration::ZERO,
            target: target.to_owned(),
            how,
            lasts: Duration::ZERO,
            line: None,
        }
    }

    /// A `kubectl` that notes what it is told, and knows of one pod, which is another after a delete.
    fn noting_kubectl(dir: &Path) -> PathBuf {
        use std::os::unix::fs::PermissionsExt as _;
        let file = dir.join("kubectl");
        let script = format!(
            r#"#!/bin/sh
cd '{}'
echo "$*" >> told
case "$*" in
    *absent*) echo '{{"items": []}}' ;;
    *odd*) echo 'No resources found' ;;
    *refused*) echo 'forbidden' >&2; exit 1 ;;
    *' delete '*) echo gone >> deletes ;;
    *' get pods '*)
        printf '{{"items": [{{"metadata": {{"name": "gateway-a", "uid": "%s"}},' "$(cat deletes 2>/dev/null | wc -l)"
        echo '"status": {{"conditions": [{{"type": "Ready", "status": "True"}}]}}}},'
        echo '{{"metadata": {{"name": "gateway-b", "uid": "b", "deletionTimestamp": "2026-11-30T12:00:00Z"}},'
        echo '"status": {{"conditions": [{{"type": "Ready", "status": "True"}}]}}}}]}}' ;;
esac
"#,
            dir.display()
        );
        std::fs::write(&file, script).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
        file
    }

    #[tokio::test]
    async fn pods_are_deleted_and_waited_for() {
        let temp = harness::temp::Temp::new().unwrap();
        let outside = Outside {
            kubectl: Kubectl {
                arguments: vec!["--namespace=mcp".to_owned()],
                program: Some(noting_kubectl(temp.path())),
            },
            ..Outside::default()
        };
        let breaks = [
            planned("pods:part=gateway", How::Killed),
            planned("pods:part=gateway", How::Drained),
            planned("pods:part=absent", How::Killed),
            planned("pods:part=refused", How::Drained),
            planned("pods:part=odd", How::Drained),
        ];
        outside.check(&breaks).unwrap();
        let broken = std::cell::RefCell::new(Vec::new());
        // One after the other, so that it is known in which order kubectl is run.
        for planned in &breaks {
            outside
                .break_all(std::slice::from_ref(planned), |done| {
                    broken.borrow_mut().push(done.trouble);
                })
                .await;
        }
        let broken = broken.into_inner();
        assert_eq!(broken[..2], [None, None]);
        let told = |at: usize| broken[at].as_deref().unwrap_or_default();
        assert!(
            told(2).contains("no pod is ready with part=absent"),
            "{broken:?}"
        );
        assert!(told(3).contains("forbidden"), "{broken:?}");
        assert!(told(4).contains("no JSON"), "{broken:?}");
        let log = std::fs::read_to_string(temp.path().join("told")).unwrap();
        let lines: Vec<&str> = log.lines().collect();
        assert_eq!(
            lines[..6],
            [
                "--namespace=mcp get pods --selector part=gateway --output json",
                "--namespace=mcp delete pod/gateway-a --wait=false --grace-period=0 --force",
                "--namespace=mcp get pods --selector part=gateway --output json",
                "--namespace=mcp get pods --selector part=gateway --output json",
                "--namespace=mcp delete pod/gateway-a --wait=false",
                "--namespace=mcp get pods --selector part=gateway --output json",
            ]
        );
    }
}
