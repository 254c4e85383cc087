//! Minimal XML parser that checks well-formedness.

/// An element with its attributes and its direct text.
#[derive(Debug, Default, Clone)]
pub(super) struct Element {
    pub(super) name: String,
    pub(super) attributes: Vec<(String, String)>,
    pub(super) text: String,
}

impl Element {
    pub(super) fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// Returns all elements in the order of their end tags, or an error.
pub(super) fn read(text: &str) -> Result<Vec<Element>, String> {
    let mut open: Vec<Element> = Vec::new();
    let mut done = Vec::new();
    let mut rest = text.trim_end();
    while !rest.is_empty() {
        if !done.is_empty() && open.is_empty() {
            return Err(format!("content after the root: {rest:.40}"));
        }
        let Some(tag) = rest.strip_prefix('<') else {
            let end = rest.find('<').ok_or("text outside of elements")?;
            open.last_mut().ok_or("text before the root")?.text.push_str(&unescaped(&rest[..end])?);
            rest = &rest[end..];
            continue;
        };
        let end = end_of_tag(tag)?;
        let (inner, after) = (&tag[..end], &tag[end + 1..]);
        if let Some(name) = inner.strip_prefix('/') {
            let element = open.pop().ok_or(format!("{name} is closed but not open"))?;
            if element.name != name {
                return Err(format!("{} is closed by {name}", element.name));
            }
            done.push(element);
        } else if let Some(inner) = inner.strip_suffix('/') {
            done.push(element(inner)?);
        } else {
            open.push(element(inner)?);
        }
        rest = after;
    }
    if open.is_empty() { Ok(done) } else { Err(format!("{} is not closed", open[0].name)) }
}

fn end_of_tag(tag: &str) -> Result<usize, String> {
    let mut quoted = false;
    for (place, character) in tag.char_indices() {
        match character {
            '"' => quoted = !quoted,
            '>' if !quoted => return Ok(place),
            '<' => return Err(format!("`<` within a tag: {tag:.40}")),
            _ => {}
        }
    }
    Err("unterminated tag".to_owned())
}

fn element(tag: &str) -> Result<Element, String> {
    let (name, mut rest) = tag.split_once(' ').unwrap_or((tag, ""));
    let is_name =
        |name: &str| !name.is_empty() && name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '-');
    if !is_name(name) {
        return Err(format!("`{name}` is not a valid element name"));
    }
    let mut element = Element { name: name.to_owned(), ..Element::default() };
    while !rest.trim_start().is_empty() {
        let (key, value) = rest.trim_start().split_once("=\"").ok_or(format!("no value in {rest}"))?;
        let (value, after) = value.split_once('"').ok_or(format!("unterminated value in {rest}"))?;
        if !(is_name(key) || key == "viewBox") || element.attribute(key).is_some() {
            return Err(format!("`{key}` is not a valid attribute name, or is a duplicate"));
        }
        element.attributes.push((key.to_owned(), unescaped(value)?));
        rest = after;
    }
    Ok(element)
}

fn unescaped(text: &str) -> Result<String, String> {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, entity)) = rest.split_once('&') {
        plain.push_str(before);
        let (name, after) = entity.split_once(';').ok_or(format!("a bare `&` in {text}"))?;
        plain.push(match name {
            "amp" => '&',
            "lt" => '<',
            "gt" => '>',
            "quot" => '"',
            "#39" => '\'',
            other => return Err(format!("unknown entity: {other}")),
        });
        rest = after;
    }
    plain.push_str(rest);
    match plain.chars().find(|character| character.is_control() && *character != '\n') {
        Some(character) => Err(format!("forbidden character: {character:?}")),
        None => Ok(plain),
    }
}

#[test]
fn well_formed_and_malformed_text_are_distinguished() {
    let elements = read("<a b=\"1 &lt; 2\"><c/>x &amp; y</a>\n").unwrap();
    assert_eq!((elements[0].name.as_str(), elements[1].text.as_str()), ("c", "x & y"));
    assert_eq!(elements[1].attribute("b"), Some("1 < 2"));
    for bad in
        ["<a>", "<a></b>", "</a>", "<a b=1/>", "<a>&</a>", "<a>&x;</a>", "<a/><b/>", "<a b=\"<\"/>", "x", "<a\u{0}/>"]
    {
        assert!(read(bad).is_err(), "{bad:?}");
    }
}
