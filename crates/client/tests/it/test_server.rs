//! Minimal HTTP server that responds with raw bytes chosen by the test.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A received request.
#[derive(Debug, Clone)]
pub struct Request {
    /// Method and path, such as `GET /v1/jobs`.
    pub line: String,
    /// The lower-cased head.
    pub head: String,
    pub body: String,
}

impl Request {
    /// Value of a header. Name and value are in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }
}

/// Reaction to a request.
pub enum Reaction {
    Send(String),
    /// Closes the connection without a response.
    Break,
    /// Sends the text and closes the connection.
    SendAndBreak(String),
    /// Keeps the connection open without a response.
    Hang,
}

pub struct TestServer {
    pub url: String,
    requests: Arc<Mutex<Vec<Request>>>,
    connections: Arc<AtomicUsize>,
}

impl TestServer {
    /// `respond` receives the number of the request, from 0, and the request.
    pub async fn start(respond: impl Fn(usize, &Request) -> Reaction + Send + Sync + 'static) -> Self {
        Self::start_at("127.0.0.1:0", 0, respond).await
    }

    /// Closes the first `unread` connections before it reads from them.
    pub async fn start_at(
        address: &str,
        unread: usize,
        respond: impl Fn(usize, &Request) -> Reaction + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let connections = Arc::new(AtomicUsize::new(0));
        let respond = Arc::new(respond);
        let server = Self { url, requests: Arc::clone(&requests), connections: Arc::clone(&connections) };
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                if connections.fetch_add(1, Ordering::SeqCst) < unread {
                    continue;
                }
                tokio::spawn(serve(stream, Arc::clone(&respond), Arc::clone(&requests)));
            }
        });
        server
    }

    pub fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }

    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

async fn serve(
    mut stream: TcpStream,
    respond: Arc<impl Fn(usize, &Request) -> Reaction>,
    requests: Arc<Mutex<Vec<Request>>>,
) {
    while let Some(request) = read_request(&mut stream).await {
        let number = {
            let mut requests = requests.lock().unwrap();
            requests.push(request.clone());
            requests.len() - 1
        };
        match respond(number, &request) {
            Reaction::Send(text) => stream.write_all(text.as_bytes()).await.unwrap(),
            Reaction::SendAndBreak(text) => {
                stream.write_all(text.as_bytes()).await.unwrap();
                return;
            }
            Reaction::Break => return,
            Reaction::Hang => std::future::pending::<()>().await,
        }
    }
}

async fn read_request(stream: &mut TcpStream) -> Option<Request> {
    let mut bytes = Vec::new();
    let head_end = loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break end + 4;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let text = String::from_utf8(bytes[..head_end].to_vec()).unwrap();
    let line = text.lines().next().unwrap().trim_end_matches(" HTTP/1.1").to_owned();
    let head = text.to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).map_or(0, |n| n.parse().unwrap());
    while bytes.len() < head_end + length {
        stream.read_buf(&mut bytes).await.unwrap();
    }
    Some(Request { line, head, body: String::from_utf8(bytes[head_end..].to_vec()).unwrap() })
}

/// A complete response with a JSON body.
pub fn json(status: &str, body: &str) -> Reaction {
    Reaction::Send(format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    ))
}

/// Head of an endless response.
pub const STREAM_HEAD: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";

pub fn chunk(text: &str) -> String {
    format!("{:x}\r\n{text}\r\n", text.len())
}
