//! Workspace of an attempt: its directory with inputs, outputs and worker.

use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use blobs::workers::{Bundle, Program};
use blobs::{Blobs, Pinned, copy_into, link_into};
use model::blob::BlobId;
use model::job::{End, Outcome};
use model::message::AttemptRef;
use model::spec::{ProcessRun, Sandbox, Task};

/// Directory of an attempt, with the pins that keep its content in the cache.
#[derive(Debug, Default)]
pub(crate) struct Workspace {
    pub path: Option<PathBuf>,
    /// Name of the worker's directory in the workers directory.
    pub worker: Option<String>,
    pub bundle: Option<Bundle>,
    _pins: Vec<Pinned>,
}

/// Name of an attempt's directory.
pub(crate) fn directory_name(attempt_ref: AttemptRef) -> String {
    format!("{}.{}", attempt_ref.job, attempt_ref.attempt)
}

/// Outcome of an attempt whose blobs could not be read or stored.
pub(crate) fn blob_failure(error: &blobs::Error) -> Outcome {
    let end = match error {
        // A retry would fail in the same way.
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
    // The node's own disk. Everything else may be the fault of the blob store or the control node.
    let node_at_fault = matches!(error, blobs::Error::Io { .. } | blobs::Error::Full { .. });
    Outcome { node_at_fault: node_at_fault && end == End::Infrastructure, ..failure(end, error.to_string()) }
}

pub(crate) fn failure(end: End, message: String) -> Outcome {
    Outcome { message: Some(message), ..Outcome::of(end) }
}

/// Creates and fills an attempt's directory, if it needs one. On failure, [`remove`] deletes a partial directory.
pub(crate) async fn create(
    blobs: &Blobs,
    scratch: &Path,
    attempt_ref: AttemptRef,
    task: &Task,
) -> Result<Workspace, Outcome> {
    let process = match &task.run {
        model::spec::Run::Process(process) => Some(process),
        model::spec::Run::Wasm(_) | model::spec::Run::Echo(_) => None,
    };
    let worker = process.and_then(|process| process.worker);
    // Without a sandbox there is no private /tmp as working directory.
    let unsandboxed = task.sandbox == Sandbox::None && process.is_some();
    if task.inputs.is_empty() && task.outputs.is_empty() && worker.is_none() && !unsandboxed {
        return Ok(Workspace::default());
    }
    let path = scratch.join(directory_name(attempt_ref));
    create_directories(&path).map_err(|error| {
        Outcome::of_node_failure(format!("the attempt could not be set up: create `{}`: {error}", path.display()))
    })?;
    let mut workspace = Workspace::default();
    for (name, blob) in &task.inputs {
        let pin = add_input(blobs, *blob, &path.join("inputs").join(name), unsandboxed).await;
        workspace._pins.push(pin.map_err(|error| input_failure(name, &error))?);
    }
    if let Some(id) = worker {
        let bundle = blobs.materialise_worker(id).await.map_err(|error| blob_failure(&error))?;
        let directory = bundle.path().file_name().map(|name| name.to_string_lossy().into_owned());
        if unsandboxed {
            // A link suffices: without a sandbox the worker could not be protected from the program anyway.
            let link = path.join("worker");
            let linked = std::fs::remove_dir(&link).and_then(|()| std::os::unix::fs::symlink(bundle.path(), &link));
            linked.map_err(|error| {
                Outcome::of_node_failure(format!("the attempt could not be set up: link the worker: {error}"))
            })?;
        }
        workspace.worker = directory;
        workspace.bundle = Some(bundle);
    }
    workspace.path = Some(path);
    Ok(workspace)
}

fn input_failure(name: &str, error: &blobs::Error) -> Outcome {
    let outcome = blob_failure(error);
    Outcome { message: Some(format!("input `{name}`: {error}")), ..outcome }
}

fn create_directories(path: &Path) -> io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.mode(0o755).recursive(true);
    for directory in ["inputs", "outputs", "worker"] {
        builder.create(path.join(directory))?;
    }
    Ok(())
}

async fn add_input(blobs: &Blobs, blob: BlobId, destination: &Path, own_copy: bool) -> Result<Pinned, blobs::Error> {
    let pinned = blobs.materialise(blob).await?;
    if let Some(parent) = destination.parent() {
        std::fs::create_dir_all(parent).map_err(|source| blobs::Error::Io {
            action: "make",
            path: parent.to_owned(),
            source,
        })?;
    }
    // In a sandbox inputs are mounted read-only, so jobs may share a file. Without one, a job could change it.
    match own_copy {
        true => copy_into(&pinned, destination).await?,
        false => link_into(&pinned, destination).await?,
    }
    Ok(pinned)
}

/// Command of a process: its own, or that of its worker function followed by its own as arguments.
pub(crate) fn command(process: &ProcessRun, bundle: Option<&Bundle>) -> Result<Vec<String>, Box<Outcome>> {
    let Some(name) = &process.function else { return Ok(process.command.clone()) };
    let fatal = |message: String| Box::new(failure(End::Fatal, message));
    let bundle = bundle.ok_or_else(|| fatal(format!("the function `{name}` needs a worker")))?;
    let function = bundle.manifest().resolve_function(name).ok_or_else(|| {
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

/// Removes an attempt's directory, if it exists. May take long.
pub(crate) fn remove(scratch: &Path, attempt_ref: AttemptRef) {
    remove_directory(&scratch.join(directory_name(attempt_ref)));
}

fn remove_directory(path: &Path) {
    if let Err(error) = force_remove(path)
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(directory = %path.display(), %error, "cannot remove the workspace of an attempt");
    }
}

/// Removes a directory even if the program has removed write permissions in it.
fn force_remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            make_writable(path);
            std::fs::remove_dir_all(path)
        }
        done => done,
    }
}

fn make_writable(directory: &Path) {
    use std::os::unix::fs::PermissionsExt;
    let _ = std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o700));
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            make_writable(&entry.path());
        }
    }
}

/// Directories of attempts not in use, left over from a crash.
pub(crate) fn stale_directories(scratch: &Path, in_use: &[String]) -> Vec<PathBuf> {
    let is_in_use = |entry: &std::fs::DirEntry| {
        entry.file_name().to_str().is_some_and(|name| in_use.iter().any(|other| other == name))
    };
    let entries = std::fs::read_dir(scratch).into_iter().flatten().flatten();
    entries.filter(|entry| !is_in_use(entry)).map(|entry| entry.path()).collect()
}

pub(crate) fn remove_all(paths: &[PathBuf]) {
    paths.iter().for_each(|path| remove_directory(path));
}
