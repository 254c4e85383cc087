//! Secret files: readable by the node's user only, replaced whole and durably.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::limits::SECRET_FILE_BYTES_MAX;

const MODE: u32 = 0o600;

/// The content of the file. `None` if there is no file.
pub(crate) fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    if file.metadata()?.permissions().mode() & !MODE & 0o777 != 0 {
        tracing::warn!(path = %path.display(), "other users can read this secret file: run `chmod 600` on it");
    }
    let mut bytes = Vec::new();
    file.take(SECRET_FILE_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

/// Creates or replaces the file. After a crash it holds either the old or the new content.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let unfinished = unfinished(path);
    // Left by a crash. Its mode may be another one.
    match fs::remove_file(&unfinished) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(MODE).open(&unfinished)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&unfinished, path)?;
    match path.parent() {
        Some(directory) => File::open(directory)?.sync_all(),
        None => Ok(()),
    }
}

fn unfinished(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".tmp");
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_whole_and_readable_by_its_user_only() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("identity");
        assert_eq!(read(&path).unwrap(), None);
        fs::write(directory.path().join("identity.tmp"), "left by a crash").unwrap();
        for content in ["a long first content", "second"] {
            write(&path, content.as_bytes()).unwrap();
            assert_eq!(read(&path).unwrap().unwrap(), content.as_bytes());
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, MODE);
        }
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }
}
