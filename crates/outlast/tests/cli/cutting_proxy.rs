//! A proxy that forwards requests to a server and, on request, breaks the connection instead of forwarding an answer:
//! the request was executed and its client does not know.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// Forwards one request after the other. It is stopped by the end of the test process.
pub struct CuttingProxy {
    pub url: String,
    /// The next answer to a request whose first line contains this text is not forwarded.
    cut: Arc<Mutex<Option<String>>>,
}

impl CuttingProxy {
    /// `on_cut` runs before the connection breaks.
    pub fn start(server_url: &str, on_cut: impl Fn() + Send + Sync + 'static) -> Self {
        let server = server_url.trim_start_matches("http://").to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let cut = Arc::new(Mutex::new(None));
        let shared = cut.clone();
        let on_cut = Arc::new(on_cut);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (server, cut, on_cut) = (server.clone(), shared.clone(), on_cut.clone());
                thread::spawn(move || forward(stream.unwrap(), &server, &cut, &*on_cut));
            }
        });
        Self { url, cut }
    }

    pub fn cut_answer_to(&self, text: &str) {
        *self.cut.lock().unwrap() = Some(text.to_owned());
    }

    /// Whether no answer is to be cut any more.
    pub fn has_cut(&self) -> bool {
        self.cut.lock().unwrap().is_none()
    }
}

/// Ends the client's connection with the first failure, as that of the server would end.
fn forward(mut client: TcpStream, server: &str, cut: &Mutex<Option<String>>, on_cut: &dyn Fn()) -> Option<()> {
    let mut upstream = TcpStream::connect(server).ok()?;
    loop {
        let request = read_message(&mut client)?;
        upstream.write_all(&request).ok()?;
        let answer = read_message(&mut upstream)?;
        let line = String::from_utf8_lossy(&request).lines().next()?.to_owned();
        let is_cut = cut.lock().unwrap().take_if(|text| line.contains(text.as_str())).is_some();
        if is_cut {
            on_cut();
            return None;
        }
        client.write_all(&answer).ok()?;
    }
}

/// A request or response with a length, or without a body.
fn read_message(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
            if bytes.len() >= end + 4 + length.unwrap_or(0) {
                return Some(bytes);
            }
        }
        match stream.read(&mut buffer).ok()? {
            0 => return None,
            read => bytes.extend_from_slice(&buffer[..read]),
        }
    }
}
