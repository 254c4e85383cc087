//! Where an attempt runs: its directory with inputs, outputs and worker, and how that goes away again.

use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use blobs::workers::{Bundle, Program};
use blobs::{Blobs, Pinned, copy_into, link_into};
use model::blob::BlobId;
use model::job::{End, Outcome};
use model::message::Ticket;
use model::spec::{ProcessRun, Sandbox, Task};

/// An attempt's directory, with what keeps its content where it is.
#[derive(Debug, Default)]
pub(crate) struct Place {
    pub path: Option<PathBuf>,
    /// The worker's directory, by its name among the workers.
    pub worker: Option<String>,
    pub bundle: Option<Bundle>,
    _pins: Vec<Pinned>,
}

/// The name of an attempt's directory.
pub(crate) fn name(ticket: Ticket) -> String {
    format!("{}.{}", ticket.job, ticket.attempt)
}

/// Why an attempt has no place, and what that means for its job.
pub(crate) fn refuse(error: &blobs::Error) -> Outcome {
    let end = match error {
        // Asking again gives the same answer.
        blobs::Error::NotFound { .. }
        | blobs::Error::WorkerNotFound { .. }
        | blobs::Error::Damaged { .. }
        | blobs::Error::BlobsMissing { .. }
        | blobs::Error::TooLarge { .. }
        | blobs::Error::TooMany { .. }
        | blobs::Error::BadPath { .. }
        | blobs::Error::BadGlob { .. }
        | blobs::Error::BadManifest { .. } => End::Fatal,
        _ => End::Infrastructure,
    };
    failure(end, error.to_string())
}

pub(crate) fn failure(end: End, message: String) -> Outcome {
    Outcome { message: Some(message), ..Outcome::of(end) }
}

/// Makes an attempt's directory, if it needs one, and fills it. What was made of one that fails is left to [`remove`].
pub(crate) async fn make(blobs: &Blobs, scratch: &Path, ticket: Ticket, task: &Task) -> Result<Place, Outcome> {
    let process = match &task.run {
        model::spec::Run::Process(process) => Some(process),
        model::spec::Run::Wasm(_) | model::spec::Run::Echo(_) => None,
    };
    let worker = process.and_then(|process| process.worker);
    // Without a sandbox there is no private /tmp to be in.
    let bare = task.sandbox == Sandbox::None && process.is_some();
    if task.inputs.is_empty() && task.outputs.is_empty() && worker.is_none() && !bare {
        return Ok(Place::default());
    }
    let path = scratch.join(name(ticket));
    directories(&path).map_err(|error| {
        failure(End::Infrastructure, format!("no place to run in: cannot make `{}`: {error}", path.display()))
    })?;
    let mut place = Place::default();
    for (name, blob) in &task.inputs {
        let pin = input(blobs, *blob, &path.join("inputs").join(name), bare).await;
        place._pins.push(pin.map_err(|error| about_input(name, &error))?);
    }
    if let Some(id) = worker {
        let bundle = blobs.materialise_worker(id).await.map_err(|error| refuse(&error))?;
        let directory = bundle.path().file_name().map(|name| name.to_string_lossy().into_owned());
        if bare {
            // Its own copy of the name only: without a sandbox nothing keeps a program from anything anyway.
            let link = path.join("worker");
            let made = std::fs::remove_dir(&link).and_then(|()| std::os::unix::fs::symlink(bundle.path(), &link));
            made.map_err(|error| failure(End::Infrastructure, format!("the worker cannot be placed: {error}")))?;
        }
        place.worker = directory;
        place.bundle = Some(bundle);
    }
    place.path = Some(path);
    Ok(place)
}

fn about_input(name: &str, error: &blobs::Error) -> Outcome {
    let outcome = refuse(error);
    Outcome { message: Some(format!("input `{name}`: {error}")), ..outcome }
}

fn directories(path: &Path) -> io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.mode(0o755).recursive(true);
    for directory in ["inputs", "outputs", "worker"] {
        builder.create(path.join(directory))?;
    }
    Ok(())
}

async fn input(blobs: &Blobs, blob: BlobId, destination: &Path, own_copy: bool) -> Result<Pinned, blobs::Error> {
    let pinned = blobs.materialise(blob).await?;
    if let Some(parent) = destination.parent() {
        std::fs::create_dir_all(parent).map_err(|source| blobs::Error::Io {
            action: "make",
            path: parent.to_owned(),
            source,
        })?;
    }
    // In a sandbox inputs are mounted read-only, so one file may serve many jobs. Without one a job could change it.
    match own_copy {
        true => copy_into(&pinned, destination).await?,
        false => link_into(&pinned, destination).await?,
    }
    Ok(pinned)
}

/// The command of a process: its own, or that of the function it names with its own as arguments.
pub(crate) fn command(process: &ProcessRun, bundle: Option<&Bundle>) -> Result<Vec<String>, Box<Outcome>> {
    let Some(name) = &process.function else { return Ok(process.command.clone()) };
    let fatal = |message: String| Box::new(failure(End::Fatal, message));
    let bundle = bundle.ok_or_else(|| fatal(format!("the function `{name}` needs a worker")))?;
    let function = bundle.manifest().function_called(name).ok_or_else(|| {
        let offered: Vec<&str> = bundle.manifest().functions.iter().map(|function| function.name.as_str()).collect();
        fatal(format!("the worker has no function `{name}`; it has: {}", offered.join(", ")))
    })?;
    let program = match function.program() {
        Some(Program::Bundled(path)) => format!("worker/{path}"),
        Some(Program::InPath(name)) => name.to_owned(),
        None => return Err(fatal(format!("the function `{name}` has no command"))),
    };
    let rest = function.command.iter().skip(1).chain(&process.command).cloned();
    Ok([program].into_iter().chain(rest).collect())
}

/// Removes an attempt's directory, if it had one. It may be large.
pub(crate) fn remove(scratch: &Path, ticket: Ticket) {
    remove_now(&scratch.join(name(ticket)));
}

fn remove_now(path: &Path) {
    if let Err(error) = force_remove(path)
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(directory = %path.display(), %error, "a working directory cannot be removed");
    }
}

/// A program may have taken the right to remove from its own directories; they are ours all the same.
fn force_remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            open_up(path);
            std::fs::remove_dir_all(path)
        }
        done => done,
    }
}

fn open_up(directory: &Path) {
    use std::os::unix::fs::PermissionsExt;
    let _ = std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o700));
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            open_up(&entry.path());
        }
    }
}

/// The directories of all attempts but these: what a crash has left.
pub(crate) fn all_but(scratch: &Path, kept: &[String]) -> Vec<PathBuf> {
    let is_kept =
        |entry: &std::fs::DirEntry| entry.file_name().to_str().is_some_and(|name| kept.iter().any(|kept| kept == name));
    let entries = std::fs::read_dir(scratch).into_iter().flatten().flatten();
    entries.filter(|entry| !is_kept(entry)).map(|entry| entry.path()).collect()
}

/// Removes directories that nothing is in any more.
pub(crate) fn remove_all(paths: &[PathBuf]) {
    paths.iter().for_each(|path| remove_now(path));
}
