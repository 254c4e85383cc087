//! Raw HTTP client for tests. It can also send malformed requests.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Time limit of every wait. Nothing here takes this long, even on a busy machine; a longer wait is a hang.
pub const DEADLINE: Duration = Duration::from_secs(30);

/// Awaits a future; panics after the deadline.
pub async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(DEADLINE, future).await {
        Ok(value) => value,
        Err(_) => panic!("timed out waiting for {what}"),
    }
}

/// A request. Headers and body are sent unchecked.
#[derive(Debug, Clone)]
pub struct Request {
    method: String,
    path: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Request {
    pub fn new(method: &str, path: impl Into<String>) -> Self {
        Self { method: method.to_owned(), path: path.into(), headers: Vec::new(), body: Vec::new() }
    }

    pub fn get(path: impl Into<String>) -> Self {
        Self::new("GET", path)
    }

    pub fn post(path: impl Into<String>) -> Self {
        Self::new("POST", path)
    }

    pub fn delete(path: impl Into<String>) -> Self {
        Self::new("DELETE", path)
    }

    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sets the body without a content type.
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    pub fn json(self, body: &Value) -> Self {
        self.header("content-type", "application/json").body(body.to_string())
    }

    fn bytes(&self, host: SocketAddr) -> Vec<u8> {
        let mut head = format!("{} {} HTTP/1.1\r\nconnection: close\r\n", self.method, self.path);
        if !self.headers.iter().any(|(name, _)| name == "host") {
            head += &format!("host: {host}\r\n");
        }
        if !self.body.is_empty() || self.method == "POST" {
            head += &format!("content-length: {}\r\n", self.body.len());
        }
        for (name, value) in &self.headers {
            head += &format!("{name}: {value}\r\n");
        }
        let mut bytes = (head + "\r\n").into_bytes();
        bytes.extend_from_slice(&self.body);
        bytes
    }

    /// Sends the request and reads the head of the response.
    pub async fn open(&self, to: SocketAddr) -> Answer {
        let mut connection = TcpStream::connect(to).await.unwrap();
        // The server may refuse a large body before reading all of it. Only its response counts.
        let _ = connection.write_all(&self.bytes(to)).await;
        within("the response head", Answer::read_head(connection)).await
    }

    /// Sends the request and reads the whole response.
    pub async fn send(&self, to: SocketAddr) -> Reply {
        let mut answer = self.open(to).await;
        let mut body = Vec::new();
        while let Some(chunk) = within("the response body", answer.next()).await {
            body.extend_from_slice(&chunk);
        }
        Reply { status: answer.status, headers: answer.headers, body }
    }
}

/// A response with its head read and its body streaming.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    headers: Vec<(String, String)>,
    connection: TcpStream,
    unread: Vec<u8>,
    chunked: bool,
    finished: bool,
}

impl Answer {
    async fn read_head(mut connection: TcpStream) -> Self {
        let mut unread = Vec::new();
        let end = loop {
            if let Some(end) = unread.windows(4).position(|window| window == b"\r\n\r\n") {
                break end;
            }
            assert!(connection.read_buf(&mut unread).await.unwrap() > 0, "the connection closed without a response");
        };
        let head = String::from_utf8(unread[..end].to_vec()).unwrap();
        unread.drain(..end + 4);
        let mut lines = head.lines();
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let headers: Vec<(String, String)> = lines
            .map(|line| line.split_once(':').unwrap())
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
            .collect();
        let chunked = headers.iter().any(|(name, value)| name == "transfer-encoding" && value == "chunked");
        Self { status, headers, connection, unread, chunked, finished: false }
    }

    /// The next chunk of the body, `None` at its end.
    pub async fn next(&mut self) -> Option<Vec<u8>> {
        loop {
            if self.finished {
                return None;
            }
            if let Some(chunk) = self.take_chunk() {
                if chunk.is_empty() {
                    continue;
                }
                return Some(chunk);
            }
            if self.connection.read_buf(&mut self.unread).await.unwrap_or(0) == 0 {
                self.finished = true;
            }
        }
    }

    fn take_chunk(&mut self) -> Option<Vec<u8>> {
        if !self.chunked {
            return (!self.unread.is_empty()).then(|| std::mem::take(&mut self.unread));
        }
        let line = self.unread.windows(2).position(|window| window == b"\r\n")?;
        let size = usize::from_str_radix(std::str::from_utf8(&self.unread[..line]).unwrap(), 16).unwrap();
        let (start, end) = (line + 2, line + 2 + size);
        if self.unread.len() < end + 2 {
            return None;
        }
        let chunk = self.unread[start..end].to_vec();
        self.unread.drain(..end + 2);
        self.finished = size == 0;
        Some(chunk)
    }
}

/// A complete response.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Reply {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Asserts the status and returns the body.
    #[track_caller]
    pub fn expect(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text());
        if self.body.is_empty() { Value::Null } else { serde_json::from_slice(&self.body).unwrap() }
    }

    /// Asserts an error response with this status and code, and returns its problem document.
    #[track_caller]
    pub fn refused(&self, status: u16, code: &str) -> Value {
        let problem = self.expect(status);
        assert_eq!(problem["code"], code, "{problem}");
        assert_eq!(problem["status"], status, "{problem}");
        assert_eq!(problem["type"], format!("/docs#{code}"), "{problem}");
        assert_eq!(self.header("content-type"), Some("application/problem+json"));
        assert!(problem["detail"].as_str().is_some_and(|detail| !detail.is_empty()), "{problem}");
        problem
    }
}
