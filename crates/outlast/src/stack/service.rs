//! A service of a stack: one node as a process with a data directory, a log and a record of its process.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result};
use model::id::{Incarnation, NodeId};
use store::DataDirectory;

use super::process::{Process, ProcessRecord};
use super::spawners::{self, Spawner};
use crate::paint::sanitize;

/// A larger log is set aside at the next start.
const LOG_BYTES_MAX: u64 = 16 << 20;
/// End of a log that is shown with an error.
const TAIL_BYTES: u64 = 8 << 10;
const TAIL_LINES: usize = 12;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Control,
    Runner,
}

/// A node of the stack.
#[derive(Debug)]
pub struct Service {
    name: String,
    /// Name of its entry, if that describes several nodes.
    group: Option<String>,
    role: Role,
    /// Its own directory in that of the stack.
    home: PathBuf,
    /// Current directory of its process.
    working_directory: PathBuf,
    arguments: Vec<OsString>,
}

/// A process that this command has started.
#[derive(Debug)]
pub struct Started {
    child: Child,
    /// Length of the log before the start.
    log_from: u64,
    /// Incarnation of the node before the start.
    before: Option<Incarnation>,
}

impl Service {
    pub fn new(name: &str, group: Option<String>, role: Role, stack: &Path, working_directory: &Path) -> Self {
        let home = stack.join(name);
        let command = match role {
            Role::Control => "up",
            Role::Runner => "join",
        };
        let arguments = vec![command.into(), "--data-dir".into(), home.join("data").into()];
        Self { name: name.to_owned(), group, role, home, working_directory: working_directory.to_owned(), arguments }
    }

    /// Adds an argument of its command.
    pub fn argument(&mut self, argument: impl AsRef<OsStr>) {
        self.arguments.push(argument.as_ref().to_owned());
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether `name` is its name or that of its group.
    pub fn is_named(&self, name: &str) -> bool {
        self.name == name || self.group.as_deref() == Some(name)
    }

    pub fn role(&self) -> Role {
        self.role
    }

    pub fn arguments(&self) -> impl Iterator<Item = &OsStr> {
        self.arguments.iter().map(OsString::as_os_str)
    }

    pub fn data_dir(&self) -> PathBuf {
        self.home.join("data")
    }

    pub fn log(&self) -> PathBuf {
        self.home.join("log")
    }

    fn record(&self) -> PathBuf {
        self.home.join("process")
    }

    /// Whether a directory has a service in it.
    pub fn has_record(home: &Path) -> bool {
        home.join("process").is_file()
    }

    /// Its process, if it runs.
    pub fn process(&self) -> Option<Process> {
        Process::find(&ProcessRecord::read(&self.record())?, &self.data_dir())
    }

    /// Its spawner, which may run without its process.
    pub fn spawner(&self) -> Option<Spawner> {
        spawners::find(&self.data_dir())
    }

    /// Whether its process was started with other arguments than it would be now.
    pub fn has_changed(&self, process: &Process) -> bool {
        let found = process.arguments();
        !found.is_empty() && !found.iter().skip(1).map(OsString::as_os_str).eq(self.arguments())
    }

    /// Whether it is a member of a cluster and needs no token.
    pub fn has_joined(&self) -> bool {
        self.data_dir().join("cluster/identity").exists()
    }

    /// Node and incarnation. `None` before its first start.
    pub fn identity(&self) -> Result<Option<(NodeId, Incarnation)>> {
        Ok(DataDirectory::identity(&self.data_dir())?)
    }

    /// Starts its process, detached from this one. `token` is for a node that has not joined.
    pub fn start(&self, token: Option<&str>) -> Result<Started> {
        let before = self.identity()?.map(|(_, incarnation)| incarnation);
        let program = std::env::current_exe().context("cannot find the program of this command")?;
        let data_dir = self.data_dir();
        fs::create_dir_all(&data_dir).with_context(|| format!("cannot create {}", data_dir.display()))?;
        let log = self.open_log().with_context(|| format!("cannot write {}", self.log().display()))?;
        let log_from = log.metadata().map_or(0, |metadata| metadata.len());
        let mut command = Command::new(&program);
        command.args(self.arguments()).current_dir(&self.working_directory);
        // Not as an argument, which everyone on the machine could read.
        match token {
            Some(token) => command.env("OUTLAST_JOIN_TOKEN", token),
            None => command.env_remove("OUTLAST_JOIN_TOKEN"),
        };
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        detach(&mut command);
        let mut child = command.spawn().with_context(|| format!("cannot start {}", program.display()))?;
        let recorded = ProcessRecord::of_new(&mut child, &data_dir).and_then(|record| record.write(&self.record()));
        if let Err(error) = recorded {
            // Without a record nothing could stop it later.
            let _ = child.kill();
            let _ = child.wait();
            let message = format!("{} was not started: cannot write {}", self.name, self.record().display());
            return Err(anyhow::Error::from(error).context(message));
        }
        Ok(Started { child, log_from, before })
    }

    fn open_log(&self) -> io::Result<File> {
        let path = self.log();
        if fs::metadata(&path).is_ok_and(|found| found.len() > LOG_BYTES_MAX) {
            fs::rename(&path, path.with_extension("old"))?;
        }
        OpenOptions::new().create(true).append(true).open(path)
    }

    /// The last lines of its log, indented; those since a start if it is given.
    pub fn log_tail(&self, since: Option<&Started>) -> String {
        let read = || -> io::Result<String> {
            let mut file = File::open(self.log())?;
            let end = file.metadata()?.len();
            let from = since.map_or(0, |started| started.log_from).max(end.saturating_sub(TAIL_BYTES));
            file.seek(SeekFrom::Start(from.min(end)))?;
            let mut bytes = Vec::new();
            file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        };
        let text = read().unwrap_or_default();
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        let skipped = lines.len().saturating_sub(TAIL_LINES);
        lines.iter().skip(skipped).map(|line| format!("\n  {}", sanitize(line))).collect()
    }
}

impl Started {
    /// How the process ended, if it has.
    pub fn ended(&mut self) -> Option<String> {
        let status = self.child.try_wait().ok()??;
        Some(status.code().map_or_else(|| status.to_string(), |code| format!("exit code {code}")))
    }

    /// Whether an incarnation is later than the one before the start.
    pub fn is_newer(&self, incarnation: Incarnation) -> bool {
        self.before.is_none_or(|before| incarnation > before)
    }
}

/// In a session of its own: it gets no signals of this terminal and outlives it.
#[expect(unsafe_code, reason = "a session can be created only between fork and exec; the code is async-signal-safe")]
fn detach(command: &mut Command) {
    let new_session = || {
        rustix::process::setsid()?;
        Ok(())
    };
    // SAFETY: `new_session` makes a system call and allocates nothing.
    unsafe {
        command.pre_exec(new_session);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(stack: &Path) -> Service {
        let service = Service::new("build-1", Some("build".to_owned()), Role::Runner, stack, stack);
        fs::create_dir_all(&service.home).unwrap();
        service
    }

    #[test]
    fn the_end_of_a_log_is_shown_without_control_characters() {
        let directory = tempfile::tempdir().unwrap();
        let service = service(directory.path());
        assert_eq!(service.log_tail(None), "");
        let lines: String = (1..=3000).map(|number| format!("line {number}\n")).collect();
        fs::write(service.log(), format!("{lines}\n\x1b[31mlast")).unwrap();
        let tail = service.log_tail(None);
        assert_eq!(tail.lines().count(), TAIL_LINES + 1);
        assert!(tail.starts_with("\n  line 2990\n") && tail.ends_with("\n  ·[31mlast"), "{tail}");
    }

    #[test]
    fn a_large_log_is_set_aside() {
        let directory = tempfile::tempdir().unwrap();
        let service = service(directory.path());
        File::create(service.log()).unwrap().set_len(LOG_BYTES_MAX + 1).unwrap();
        assert_eq!(service.open_log().unwrap().metadata().unwrap().len(), 0);
        assert!(service.home.join("log.old").exists());
    }

    #[test]
    fn a_service_without_a_record_does_not_run() {
        let directory = tempfile::tempdir().unwrap();
        let service = service(directory.path());
        assert!(service.process().is_none() && !service.has_joined() && !Service::has_record(&service.home));
        assert!(service.is_named("build") && service.is_named("build-1") && !service.is_named("build-2"));
        fs::create_dir(service.data_dir()).unwrap();
        ProcessRecord::of(std::process::id()).unwrap().write(&service.record()).unwrap();
        assert!(service.process().is_none(), "the pid belongs to another process");
    }
}
