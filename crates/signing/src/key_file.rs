//! The key file: PKCS#8, readable by the server's user only.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use crate::Error;

const MODE: u32 = 0o600;

/// The content of the file. `None` if there is no file.
pub(crate) fn read(path: &Path) -> Result<Option<Vec<u8>>, Error> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::io("read", path)(error)),
    };
    let mode = fs::metadata(path).map_err(Error::io("read", path))?.permissions().mode();
    if mode & !MODE & 0o777 != 0 {
        tracing::warn!(path = %path.display(), "other users can read the signing key: run `chmod 600` on it");
    }
    Ok(Some(bytes))
}

/// Creates the file, durably and whole.
pub(crate) fn create(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let unfinished = path.with_extension("key.tmp");
    // Left by a crash. Its mode may be another one.
    match fs::remove_file(&unfinished) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(Error::io("create", &unfinished)(error)),
    }
    let write = || {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(MODE).open(&unfinished)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&unfinished, path)?;
        match path.parent() {
            Some(directory) => File::open(directory)?.sync_all(),
            None => Ok(()),
        }
    };
    write().map_err(Error::io("create", path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Key;

    #[test]
    fn a_key_is_created_once_and_readable_by_its_user_only() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.key");
        fs::write(directory.path().join("audit.key.tmp"), "left by a crash").unwrap();
        let created = Key::open(&path).unwrap().public();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, MODE);
        assert_eq!(Key::open(&path).unwrap().public(), created);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_damaged_key_is_not_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.key");
        fs::write(&path, "not a key").unwrap();
        assert!(matches!(Key::open(&path), Err(Error::Malformed { .. })));
        assert_eq!(fs::read(&path).unwrap(), b"not a key");
    }
}
