//! Paths from outside: of inputs, outputs and bundles. They are text, relative, and lead downwards only.

use std::path::Path;

use crate::Error;
use crate::limits::{PATH_BYTES_MAX, PATH_DEPTH_MAX, PATH_PART_BYTES_MAX};

/// `path`, if joining it to a directory gives a place in that directory: relative, in its shortest form (no empty part,
/// no `.`, no `..`), and within the limits. It says nothing of links that may be on the way.
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
        return Some("it has a zero byte".to_owned());
    }
    for part in path.split('/') {
        match part {
            "" => return Some("it has an empty part; write single slashes, and none at the end".to_owned()),
            "." => return Some("it has a `.`; leave it out".to_owned()),
            ".." => return Some("it has a `..`, which could lead out of its directory".to_owned()),
            _ if part.len() > PATH_PART_BYTES_MAX => {
                return Some(format!("one of its names is longer than {PATH_PART_BYTES_MAX} bytes"));
            }
            _ => {}
        }
    }
    let depth = path.split('/').count();
    (depth > PATH_DEPTH_MAX).then(|| format!("it is {depth} levels deep; {PATH_DEPTH_MAX} are allowed"))
}

/// Whether a symbolic link at `path` (which is safe) with this target stays in the bundle, whatever other links there
/// are: `..` may only come first, where it is applied to real directories, and not more often than the link is deep.
/// What follows leads downwards, perhaps through other links, for which the same holds.
pub(crate) fn link_stays_inside(path: &str, target: &str) -> Result<(), Error> {
    let bad = |why: &str| Err(Error::bad_path(path, format!("it is a link to `{}`, which {why}", shortened(target))));
    if target.starts_with('/') {
        return bad("is absolute; make it relative, within the bundle");
    }
    let depth = path.split('/').count() - 1;
    let ups = target.split('/').take_while(|part| *part == "..").count();
    if ups > depth {
        return bad("points outside of the bundle");
    }
    let mut rest = target.split('/').skip(ups).peekable();
    // `..` or `../..` alone is a directory of the bundle.
    if rest.peek().is_none() && ups > 0 {
        return Ok(());
    }
    let rest = rest.collect::<Vec<_>>().join("/");
    match problem(&rest) {
        None => Ok(()),
        Some(_) if rest.split('/').any(|part| part == "..") => {
            bad("has a `..` after a name; write it in its shortest form")
        }
        Some(why) => bad(&format!("cannot be followed: {why}")),
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_lead_elsewhere_are_refused_with_a_reason() {
        for (path, word) in [
            ("", "empty"),
            ("/etc/passwd", "absolute"),
            ("/dev/null", "absolute"),
            ("../x", "`..`"),
            ("a/../../x", "`..`"),
            ("a/..", "`..`"),
            ("..", "`..`"),
            ("./a", "`.`"),
            ("a//b", "empty part"),
            ("a/", "empty part"),
            ("a\0b", "zero byte"),
        ] {
            let error = safe_relative(path).unwrap_err().to_string();
            assert!(error.contains(word), "{path:?}: {error}");
        }
    }

    #[test]
    fn ordinary_paths_are_taken_as_they_are() {
        for path in ["a", "a/b.txt", "..a", "a..", "...", "-rf", "ünï/côdé", "a b", ".hidden/x"] {
            assert_eq!(safe_relative(path).unwrap(), Path::new(path));
        }
    }

    #[test]
    fn paths_are_taken_up_to_the_limits_and_not_beyond() {
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
    fn links_stay_inside() {
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
            // `s` may be a link to the root of the bundle, and then this leads out.
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
