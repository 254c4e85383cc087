//! Incremental parser of server-sent events.

/// Default limit of the size of a line and of an event.
pub const EVENT_BYTES_MAX: usize = 1024 * 1024;

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The `event` field; empty for the default type.
    pub kind: String,
    pub data: String,
    /// Stream position: the event's own id, else the last id seen.
    pub id: Option<String>,
}

/// An event or line exceeds the limit. The parser must not be used further.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an event is larger than the limit of {bytes_max} bytes")]
pub struct TooLarge {
    pub bytes_max: usize,
}

/// Parser state, including the incomplete event.
#[derive(Debug)]
pub struct Parser {
    bytes_max: usize,
    line: Vec<u8>,
    /// The last line ended with a carriage return; a line feed right after it is part of the same line ending.
    after_carriage_return: bool,
    past_first_line: bool,
    kind: String,
    data: String,
    has_data: bool,
    id: Option<String>,
    last_id: Option<String>,
}

impl Default for Parser {
    fn default() -> Self {
        Self::with_limit(EVENT_BYTES_MAX)
    }
}

impl Parser {
    /// A parser with a limit of `bytes_max` per event and per line.
    pub fn with_limit(bytes_max: usize) -> Self {
        Self {
            bytes_max,
            line: Vec::new(),
            after_carriage_return: false,
            past_first_line: false,
            kind: String::new(),
            data: String::new(),
            has_data: false,
            id: None,
            last_id: None,
        }
    }

    /// Parses the next bytes and appends the completed events to `events`.
    pub fn push(&mut self, bytes: &[u8], events: &mut Vec<Event>) -> Result<(), TooLarge> {
        for &byte in bytes {
            let is_rest_of_crlf = std::mem::take(&mut self.after_carriage_return) && byte == b'\n';
            match byte {
                _ if is_rest_of_crlf => {}
                b'\n' | b'\r' => {
                    self.after_carriage_return = byte == b'\r';
                    self.end_line(events)?;
                }
                _ if self.line.len() == self.bytes_max => return Err(self.too_large()),
                _ => self.line.push(byte),
            }
        }
        Ok(())
    }

    /// Id of the last complete event, including events without data.
    pub fn last_id(&self) -> Option<&str> {
        self.last_id.as_deref()
    }

    fn too_large(&self) -> TooLarge {
        TooLarge { bytes_max: self.bytes_max }
    }

    fn end_line(&mut self, events: &mut Vec<Event>) -> Result<(), TooLarge> {
        let bytes = std::mem::take(&mut self.line);
        let text = String::from_utf8_lossy(&bytes);
        let is_first = !std::mem::replace(&mut self.past_first_line, true);
        let line = if is_first { text.trim_start_matches('\u{feff}') } else { &text };
        if line.is_empty() {
            self.end_event(events);
        } else {
            self.parse_field(line)?;
        }
        // Reuses the allocation for the next line.
        self.line = bytes;
        self.line.clear();
        Ok(())
    }

    fn parse_field(&mut self, line: &str) -> Result<(), TooLarge> {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "event" => value.clone_into(&mut self.kind),
            "data" => {
                if self.data.len() + value.len() >= self.bytes_max {
                    return Err(self.too_large());
                }
                if self.has_data {
                    self.data.push('\n');
                }
                self.has_data = true;
                self.data.push_str(value);
            }
            "id" if !value.contains('\0') => self.id = Some(value.to_owned()),
            // Comments (an empty name), `retry` and unknown fields.
            _ => {}
        }
        Ok(())
    }

    fn end_event(&mut self, events: &mut Vec<Event>) {
        if let Some(id) = self.id.take() {
            self.last_id = Some(id);
        }
        let kind = std::mem::take(&mut self.kind);
        let data = std::mem::take(&mut self.data);
        if std::mem::take(&mut self.has_data) {
            events.push(Event { kind, data, id: self.last_id.clone() });
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Outcome = (Vec<Event>, Option<String>, Result<(), TooLarge>);

    fn parse<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> Outcome {
        let mut parser = Parser::default();
        let mut events = Vec::new();
        let outcome = chunks.into_iter().try_for_each(|chunk| parser.push(chunk, &mut events));
        (events, parser.last_id().map(str::to_owned), outcome)
    }

    fn event(kind: &str, data: &str, id: &str) -> Event {
        Event { kind: kind.to_owned(), data: data.to_owned(), id: Some(id.to_owned()) }
    }

    const TOO_LARGE: Result<(), TooLarge> = Err(TooLarge { bytes_max: EVENT_BYTES_MAX });

    #[test]
    fn events_are_parsed_according_to_the_standard() {
        let text =
            b"\xef\xbb\xbf: hello\nid: 7\nevent: job\ndata: {\"a\":1}\ndata:more\r\n\r\ndata\rretry: 5\r\rignored\n\n";
        let (events, last_id, outcome) = parse([&text[..]]);
        assert_eq!(events, [event("job", "{\"a\":1}\nmore", "7"), event("", "", "7")]);
        assert_eq!(last_id.as_deref(), Some("7"));
        assert_eq!(outcome, Ok(()));
    }

    #[test]
    fn an_id_without_data_moves_the_cursor_without_an_event() {
        let (events, last_id, _) = parse([&b"id: start\n\nid: unfinished\n"[..]]);
        assert_eq!(events, []);
        assert_eq!(last_id.as_deref(), Some("start"));
    }

    #[test]
    fn events_above_the_limit_are_rejected() {
        let line = |length: usize| [&b"data:"[..], &vec![b'x'; length - 5], b"\n\n"].concat();
        assert_eq!(parse([&line(EVENT_BYTES_MAX)[..]]).0.len(), 1);
        assert_eq!(parse([&line(EVENT_BYTES_MAX + 1)[..]]).2, TOO_LARGE);
        let many_lines = b"data: 0123456789\n".repeat(EVENT_BYTES_MAX / 10);
        assert_eq!(parse([&many_lines[..]]).2, TOO_LARGE);
        let mut larger = Parser::with_limit(2 * EVENT_BYTES_MAX);
        assert_eq!(larger.push(&line(EVENT_BYTES_MAX + 1), &mut Vec::new()), Ok(()));
    }

    proptest! {
        #[test]
        fn chunk_boundaries_do_not_matter(
            fields in proptest::collection::vec("(data|id|event|:|)(: ?[a-zé\u{0}\u{feff}]{0,4})?(\n|\r|\r\n|\n\n)", 0..12),
            noise in proptest::collection::vec(any::<u8>(), 0..40),
            cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..10),
        ) {
            let mut bytes = fields.concat().into_bytes();
            bytes.extend(noise);
            bytes.extend(b"\n\n");
            let mut offsets: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len())).collect();
            offsets.extend([0, bytes.len()]);
            offsets.sort_unstable();
            let chunks = offsets.windows(2).map(|pair| &bytes[pair[0]..pair[1]]);
            prop_assert_eq!(parse(chunks), parse([&bytes[..]]));
            prop_assert_eq!(parse(bytes.chunks(1)), parse([&bytes[..]]));
        }
    }
}
