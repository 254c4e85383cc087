//! Validation of untrusted paths: inputs, outputs, bundles.

use std::path::Path;

use crate::Error;
use crate::limits::{PATH_BYTES_MAX, PATH_DEPTH_MAX, PATH_PART_BYTES_MAX};

/// Accepts a path that stays below the directory it is joined to: relative, normalised (no empty component, no `.`, no
/// `..`) and within the limits. Symbolic links on the way are not considered.
pub fn safe_relative(path: &str) -> Result<&Path, Error> {
    match problem(path) {
        None => Ok(Path::new(path)),
        Some(why) => Err(Error::bad_path(path, why)),
    }
}

fn problem(path: &str) -> Option<String> {
    if path.is_empty() {
        return Some("it is empty".to_owned());
    }
    if path.len() > PATH_BYTES_MAX {
        return Some(format!("it is longer than {PATH_BYTES_MAX} bytes"));
    }
    if path.starts_with('/') {
        return Some("it is absolute; write it relative to its directory".to_owned());
    }
    if path.contains('\0') {
        return Some("it contains a NUL byte".to_owned());
    }
    for part in path.split('/') {
        match part {
            "" => return Some("it has an empty component; use single slashes, and none at the end".to_owned()),
            "." => return Some("it has a `.` component; remove it".to_owned()),
            ".." => return Some("it has a `..` component, which could leave its directory".to_owned()),
            _ if part.len() > PATH_PART_BYTES_MAX => {
                return Some(format!("one of its names is longer than {PATH_PART_BYTES_MAX} bytes"));
            }
            _ => {}
        }
    }
    let depth = path.split('/').count();
    (depth > PATH_DEPTH_MAX).then(|| format!("it is {depth} levels deep; {PATH_DEPTH_MAX} are allowed"))
}

/// Checks that a symbolic link at `path` (already validated) stays in the bundle, whatever other links exist. `..` may
/// only come first, where it applies to real directories, and not more often than the link is deep. The rest of the
/// target leads downwards, possibly through other links, to which the same rule applies.
pub(crate) fn link_stays_inside(path: &str, target: &str) -> Result<(), Error> {
    let bad = |why: &str| Err(Error::bad_path(path, format!("it is a link to `{}`, which {why}", shortened(target))));
    if target.starts_with('/') {
        return bad("is absolute; make it relative, within the bundle");
    }
    let depth = path.split('/').count() - 1;
    let ups = target.split('/').take_while(|part| *part == "..").count();
    if ups > depth {
        return bad("points outside the bundle");
    }
    let mut rest = target.split('/').skip(ups).peekable();
    // `..` or `../..` alone is a directory of the bundle.
    if rest.peek().is_none() && ups > 0 {
        return Ok(());
    }
    let rest = rest.collect::<Vec<_>>().join("/");
    match problem(&rest) {
        None => Ok(()),
        Some(_) if rest.split('/').any(|part| part == "..") => bad("has a `..` after a name; normalise it"),
        Some(why) => bad(&format!("is not valid: {why}")),
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_outside_the_directory_are_refused_with_a_reason() {
        for (path, expected) in [
            ("", "empty"),
            ("/etc/passwd", "absolute"),
            ("/dev/null", "absolute"),
            ("../x", "`..`"),
            ("a/../../x", "`..`"),
            ("a/..", "`..`"),
            ("..", "`..`"),
            ("./a", "`.`"),
            ("a//b", "empty component"),
            ("a/", "empty component"),
            ("a\0b", "NUL byte"),
        ] {
            let error = safe_relative(path).unwrap_err().to_string();
            assert!(error.contains(expected), "{path:?}: {error}");
        }
    }

    #[test]
    fn ordinary_paths_are_accepted_unchanged() {
        for path in ["a", "a/b.txt", "..a", "a..", "...", "-rf", "ünï/côdé", "a b", ".hidden/x"] {
            assert_eq!(safe_relative(path).unwrap(), Path::new(path));
        }
    }

    #[test]
    fn paths_are_accepted_up_to_the_limits() {
        let part = "x".repeat(PATH_PART_BYTES_MAX);
        assert!(safe_relative(&part).is_ok());
        assert!(safe_relative(&format!("{part}x")).is_err());
        let deep = ["d"; PATH_DEPTH_MAX].join("/");
        assert!(safe_relative(&deep).is_ok());
        assert!(safe_relative(&format!("{deep}/d")).is_err());
        let long = ["y".repeat(127).as_str(); 8].join("/");
        assert_eq!(long.len(), PATH_BYTES_MAX - 1);
        assert!(safe_relative(&format!("{long}y")).is_ok());
        assert!(safe_relative(&format!("{long}yy")).is_err());
    }

    #[test]
    fn links_out_of_the_bundle_are_refused() {
        for (path, target) in
            [("a", "b"), ("a/b", "../c"), ("a/b", ".."), ("a/b/c", "../../d/e"), ("lib64", "lib"), ("a/b", "c/d")]
        {
            assert!(link_stays_inside(path, target).is_ok(), "{path} -> {target}");
        }
        for (path, target) in [
            ("a", ".."),
            ("a", "../b"),
            ("a/b", "../../c"),
            ("a", "/etc/passwd"),
            ("a", ""),
            // Leaves the bundle if `s` is a link to its root.
            ("t", "a/b/s/../x"),
            ("a/b", "../c/../../d"),
            ("a", "b\0"),
        ] {
            assert!(link_stays_inside(path, target).is_err(), "{path} -> {target}");
        }
    }

    proptest::proptest! {
        #[test]
        fn a_safe_path_stays_in_its_directory(path in "[a./\0-]{0,12}") {
            if let Ok(path) = safe_relative(&path) {
                proptest::prop_assert!(path.components().all(|part| matches!(part, std::path::Component::Normal(_))));
            }
        }
    }
}
