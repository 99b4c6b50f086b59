//! Who runs on this machine, as `/proc` tells it.

use std::io;

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::{Pid, getpid};

use super::MARK;

/// One process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) pid: Pid,
    pub(super) parent: Pid,
    pub(super) group: Pid,
    pub(super) session: Pid,
    /// It has ended; only its parent has not asked yet.
    pub(super) zombie: bool,
    /// Clock ticks since boot: tells it from a later process of the same number.
    pub(super) started: u64,
}

impl Seen {
    /// Reads `/proc/PID/stat`. The name, in parentheses, may hold anything.
    fn parse(stat: &str) -> Option<Self> {
        let (pid, rest) = stat.split_once(" (")?;
        let (_, rest) = rest.rsplit_once(") ")?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        let pid_of = |text: &str| text.parse().ok().map(Pid::from_raw);
        Some(Self {
            pid: pid_of(pid)?,
            // Threads may go on after the first one has ended.
            zombie: matches!(*fields.first()?, "Z" | "X")
                && fields.get(17)?.parse::<u32>().ok()? <= 1,
            parent: pid_of(fields.get(1)?)?,
            group: pid_of(fields.get(2)?)?,
            session: pid_of(fields.get(3)?)?,
            started: fields.get(19)?.parse().ok()?,
        })
    }

    fn of(pid: Pid) -> Option<Self> {
        Self::parse(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// Sends it a signal, and all of its group if it leads one.
    pub(super) fn signal(&self, signal: Signal) {
        // ESRCH: it ended by itself. EPERM: not ours to end, and nobody here can.
        let _ = kill(self.pid, signal);
        if self.group == self.pid {
            let _ = killpg(self.group, signal);
        }
    }
}

/// All processes that can be seen.
///
/// # Errors
/// When there is no `/proc`.
pub(super) fn all() -> io::Result<Vec<Seen>> {
    let entries = std::fs::read_dir("/proc")?;
    let pids = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    Ok(pids.map(Pid::from_raw).filter_map(Seen::of).collect())
}

/// The children of this process. Nobody else can free their numbers.
pub(super) fn children() -> io::Result<Vec<Seen>> {
    let me = getpid();
    let mut all = all()?;
    all.retain(|seen| seen.parent == me);
    Ok(all)
}

/// Kills descendants faster than they fork: a look at all processes takes milliseconds, in which
/// one that forks and ends is another one. Numbers are given in their order, so new ones are found
/// by theirs.
pub(super) struct Hunt {
    last: i32,
}

impl Hunt {
    /// Kills all that are seen at first.
    pub(super) fn begin() -> Self {
        let last = last_pid();
        for seen in all().unwrap_or_default() {
            kill_descendant(&seen);
        }
        Self { last }
    }

    /// Kills those that came since, and says whether there were any. Some may be missed.
    pub(super) fn go_on(&mut self) -> bool {
        let (first, last) = (self.last + 1, last_pid());
        self.last = last;
        let new = (first..=last).map(Pid::from_raw).filter_map(Seen::of);
        new.filter(kill_descendant).count() > 0
    }
}

/// Who lives and descends from this process.
///
/// # Errors
/// When there is no `/proc`.
pub(super) fn descendants() -> io::Result<Vec<Seen>> {
    let mut all = all()?;
    all.retain(descends);
    Ok(all)
}

/// Whether it lives and descends from this process.
fn descends(seen: &Seen) -> bool {
    let mut parent = Some(seen.parent);
    let me = getpid();
    while let Some(pid) = parent.filter(|pid| pid.as_raw() > 1 && *pid != me) {
        parent = Seen::of(pid).map(|seen| seen.parent);
    }
    parent == Some(me) && !seen.zombie
}

/// Kills it if it descends from this process. Signalled as soon as it was seen, there is no time
/// for its number to become another's.
fn kill_descendant(seen: &Seen) -> bool {
    let descends = descends(seen);
    if descends {
        let _ = kill(seen.pid, Signal::SIGKILL);
    }
    descends
}

/// The number that was given last.
fn last_pid() -> i32 {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let last = load.split_ascii_whitespace().last();
    last.and_then(|last| last.parse().ok()).unwrap_or_default()
}

/// The mark of what this process starts: its namespace of process numbers, its number, its start.
///
/// # Errors
/// When there is no `/proc`.
pub(super) fn mark() -> io::Result<String> {
    let me = Seen::of(getpid()).ok_or_else(|| io::Error::other("/proc cannot be read"))?;
    Ok(format!("{}/{}/{}", namespace()?, me.pid, me.started))
}

/// Numbers mean something in their own namespace only.
fn namespace() -> io::Result<String> {
    let link = std::fs::read_link("/proc/self/ns/pid")?;
    Ok(link.to_string_lossy().into_owned())
}

/// The mark in the environment that the process began with. One whose environment cannot be read
/// is none of ours.
fn mark_of(pid: Pid) -> Option<String> {
    let environment = std::fs::read(format!("/proc/{pid}/environ")).ok()?;
    let value = environment
        .split(|byte| *byte == 0)
        .find_map(|pair| pair.strip_prefix(MARK.as_bytes())?.strip_prefix(b"="))?;
    String::from_utf8(value.to_vec()).ok()
}

/// What a dead supervisor left: its session, and whatever bears its mark. The session's number is
/// free for others only after the worker has asked how its supervisor ended.
pub(super) fn left_by(supervisor: Pid, mark: Option<&str>) -> io::Result<Vec<Seen>> {
    let mut all = all()?;
    all.retain(|seen| {
        let its_own = seen.session == supervisor
            || mark.is_some_and(|mark| mark_of(seen.pid).as_deref() == Some(mark));
        its_own && !seen.zombie && seen.pid != supervisor
    });
    Ok(all)
}

/// Kills what supervisors that are no more have left on this machine: their workers were killed
/// with them.
pub(super) fn kill_orphans() -> io::Result<()> {
    let (here, all) = (namespace()?, all()?);
    for seen in all.iter().filter(|seen| !seen.zombie) {
        let orphaned = mark_of(seen.pid).is_some_and(|mark| !is_alive(&mark, &here, Seen::of));
        if orphaned {
            let _ = kill(seen.pid, Signal::SIGKILL);
        }
    }
    Ok(())
}

/// Whether the supervisor of this mark runs, as far as we can know.
fn is_alive(mark: &str, here: &str, look: impl Fn(Pid) -> Option<Seen>) -> bool {
    let mut parts = mark.splitn(3, '/');
    let (Some(namespace), Some(Ok(pid)), Some(Ok(started))) = (
        parts.next(),
        parts.next().map(str::parse),
        parts.next().map(str::parse::<u64>),
    ) else {
        return true;
    };
    namespace != here
        || look(Pid::from_raw(pid)).is_some_and(|seen| seen.started == started && !seen.zombie)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_hold_anything() {
        let rest = "S 7 8 9 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 4711 1000 2";
        for name in ["sh", "a) b (c", ") S 1 1 1", ""] {
            let seen = Seen::parse(&format!("42 ({name}) {rest}")).unwrap();
            assert_eq!(seen.pid.as_raw(), 42);
            assert_eq!(seen.parent.as_raw(), 7);
            assert_eq!(seen.group.as_raw(), 8);
            assert_eq!(seen.session.as_raw(), 9);
            assert_eq!(seen.started, 4711);
            assert!(!seen.zombie);
        }
    }

    #[test]
    fn only_a_dead_supervisor_of_this_namespace_leaves_orphans() {
        let seen = Seen::of(getpid()).unwrap();
        let mark = format!("pid:[1]/{}/{}", seen.pid, seen.started);
        assert!(is_alive(&mark, "pid:[1]", |_| Some(seen)));
        assert!(is_alive(&mark, "pid:[2]", |_| None), "who knows");
        assert!(is_alive("made up", "pid:[1]", |_| None), "nothing of ours");
        assert!(!is_alive(&mark, "pid:[1]", |_| None));
        let later = Seen {
            started: seen.started + 1,
            ..seen
        };
        assert!(
            !is_alive(&mark, "pid:[1]", |_| Some(later)),
            "its number, used again"
        );
        let ended = Seen {
            zombie: true,
            ..seen
        };
        assert!(!is_alive(&mark, "pid:[1]", |_| Some(ended)));
    }

    #[test]
    fn we_can_be_seen() {
        let me = Seen::of(getpid()).unwrap();
        assert!(all().unwrap().contains(&me));
        assert!(
            mark()
                .unwrap()
                .ends_with(&format!("/{}/{}", me.pid, me.started))
        );
    }
}
