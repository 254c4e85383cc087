//! Finds broken links in Markdown: the file is not in the repository, or the heading is not in the file.

use std::path::Path;

use super::{Finding, Rule, is_markdown};
use crate::repo::Repo;
use crate::rust::tree::normalise;

pub fn check(file: &Path, text: &str, repo: &Repo) -> Vec<Finding> {
    if !is_markdown(file) {
        return Vec::new();
    }
    let broken = |(line, target): (usize, String)| {
        let problem = problem(file, text, &target, repo)?;
        Some(Finding::new(Rule::BrokenLink, file, line, format!("{target}: {problem}")))
    };
    links(text).into_iter().filter_map(broken).collect()
}

fn problem(file: &Path, text: &str, target: &str, repo: &Repo) -> Option<&'static str> {
    let (path, heading) = target.split_once('#').unwrap_or((target, ""));
    let directory = file.parent().unwrap_or(Path::new(""));
    let path = path.replace("%20", " ");
    let target_file = if path.is_empty() { file.to_path_buf() } else { normalise(&directory.join(&path)) };
    if !repo.files.iter().any(|known| known.starts_with(&target_file)) {
        return Some("the file is not in the repository");
    }
    let other = (!path.is_empty()).then(|| repo.read(&target_file).unwrap_or_default());
    let target_text = other.as_deref().unwrap_or(text);
    let known =
        heading.is_empty() || !is_markdown(&target_file) || anchors(target_text).iter().any(|anchor| anchor == heading);
    (!known).then_some("the heading does not exist")
}

/// All relative links with their lines: `[text](target)`, `[name]: target` and HTML attributes.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (line, content) in prose(text) {
        let mut starts: Vec<&str> = Vec::new();
        for opening in ["](", "src=\"", "href=\""] {
            starts.extend(content.match_indices(opening).map(|(at, _)| &content[at + opening.len()..]));
        }
        if let Some((name, target)) = content.trim_start().split_once("]: ")
            && name.starts_with('[')
            && !name.starts_with("[^")
        {
            starts.push(target.trim_start());
        }
        let targets =
            starts.into_iter().filter_map(|start| start.split([')', '"', ' ', '>']).find(|part| !part.is_empty()));
        let relative = targets.map(|target| target.trim_start_matches('<')).filter(|target| !is_external(target));
        found.extend(relative.map(|target| (line, target.to_owned())));
    }
    found
}

/// Whether the target is outside the repository: it has a scheme or is an absolute path.
fn is_external(target: &str) -> bool {
    let scheme =
        target.split_once(':').is_some_and(|(scheme, _)| scheme.chars().all(|c| c.is_ascii_alphanumeric() || c == '+'));
    scheme || target.starts_with('/')
}

/// The lines outside fenced code, with inline code replaced.
fn prose(text: &str) -> Vec<(usize, String)> {
    let mut fenced = false;
    let mut lines = Vec::new();
    for (line, content) in (1..).zip(text.lines()) {
        let trimmed = content.trim_start();
        if trimmed.starts_with("```") || trimmed.starts_with("~~~") {
            fenced = !fenced;
        } else if !fenced {
            let outside = content.split('`').enumerate().filter(|(index, _)| index % 2 == 0).map(|(_, part)| part);
            lines.push((line, outside.collect::<Vec<_>>().join("code")));
        }
    }
    lines
}

/// Anchors of headings and HTML elements, as GitHub derives them.
fn anchors(text: &str) -> Vec<String> {
    let mut anchors: Vec<String> = Vec::new();
    let mut fenced = false;
    for line in text.lines() {
        fenced ^= line.trim_start().starts_with("```");
        if fenced {
            continue;
        }
        for opening in ["id=\"", "name=\""] {
            anchors.extend(line.split(opening).skip(1).filter_map(|rest| rest.split('"').next()).map(str::to_owned));
        }
        let title = line.trim_start_matches('#');
        if title.len() == line.len() || !title.starts_with(' ') {
            continue;
        }
        let slug_chars = title.trim().chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        let slug: String = slug_chars.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect();
        let suffixed = (1..).map(|number| format!("{slug}-{number}")).find(|suffixed| !anchors.contains(suffixed));
        anchors.push(if anchors.contains(&slug) { suffixed.unwrap_or_default() } else { slug });
    }
    anchors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_links_are_found_in_prose_only() {
        let text = "[a](b.md#x \"title\") ![i](<p.png>) [w](https://x.y) `[c](d)`\n```\n[e](f)\n```\n[g]: h.md\n<img src=\"k.svg\">";
        let found = links(text);
        let wanted = [(1, "b.md#x"), (1, "p.png"), (5, "h.md"), (6, "k.svg")];
        assert_eq!(found, wanted.map(|(line, target)| (line, target.to_owned())));
    }

    #[test]
    fn broken_links_are_found() {
        let files = ["docs/a.md", "README.md", "docs/img/x.png"].iter().map(Into::into).collect();
        let repo = Repo { root: "/nowhere".into(), files };
        let text = "# Two words!\n[1](#two-words) [2](../README.md) [3](img) [4](img/y.png) [5](#three)\n";
        let found = check(Path::new("docs/a.md"), text, &repo);
        let messages: Vec<_> = found.iter().map(|finding| finding.message.as_str()).collect();
        assert_eq!(messages, ["img/y.png: the file is not in the repository", "#three: the heading does not exist"]);
    }

    #[test]
    fn anchors_match_those_of_github() {
        assert_eq!(anchors("# A `b` C?\n## Same\n## Same\n<a id=\"x\">"), ["a-b-c", "same", "same-1", "x"]);
    }
}
