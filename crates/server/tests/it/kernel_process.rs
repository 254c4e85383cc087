//! A real policy kernel in a process of its own, and the port that stays its own while it is away.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::{TcpListener, TcpSocket};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::task::JoinHandle;

use crate::http::within;

/// A port for a kernel that comes and goes.
pub struct Port {
    pub address: SocketAddr,
    /// Bound, and never listened on: nobody else gets the port meanwhile, and whoever connects to it is refused.
    _reserved: TcpSocket,
}

impl Port {
    pub fn reserve() -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        // Both sides say so: then another socket may listen there.
        socket.set_reuseaddr(true).unwrap();
        socket.bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        Self { address: socket.local_addr().unwrap(), _reserved: socket }
    }

    /// A kernel that works.
    pub async fn kernel(&self) -> Kernel {
        self.kernel_with_version("first").await
    }

    pub async fn kernel_with_version(&self, version: &str) -> Kernel {
        let mut child = Command::new(program())
            .args(["--listen", &self.address.to_string(), "--policy-version", version])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let commands = child.stdin.take().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut kernel = Kernel { child, commands, lines };
        assert_eq!(kernel.line().await, format!("listening on {}", self.address));
        kernel
    }

    /// Somebody who is no kernel at all.
    pub async fn babbler(&self) -> Babbler {
        let listener = TcpListener::bind(self.address).await.unwrap();
        Babbler(tokio::spawn(async move {
            loop {
                let (mut connection, _) = listener.accept().await.unwrap();
                // Whoever hears this may hang up at once.
                let _ = connection.write_all(&b"220 this is no kernel\r\n\0\xff".repeat(100)).await;
            }
        }))
    }
}

/// The kernel that is built beside the tests.
fn program() -> PathBuf {
    let beside = std::env::current_exe().unwrap();
    let program = beside.parent().unwrap().parent().unwrap().join("example-kernel");
    assert!(program.exists(), "build it first: cargo build -p kernel --bin example-kernel");
    program
}

pub struct Kernel {
    child: Child,
    commands: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Kernel {
    /// From its next answer on.
    pub async fn behave(&mut self, word: &str) {
        self.commands.write_all(format!("{word}\n").as_bytes()).await.unwrap();
        assert_eq!(self.line().await, format!("now {word}"));
    }

    /// With SIGKILL; its port is free when this returns.
    pub async fn kill(mut self) {
        within("the end of the kernel", self.child.kill()).await.unwrap();
    }

    async fn line(&mut self) -> String {
        within("a word of the kernel", self.lines.next_line()).await.unwrap().expect("the kernel lives")
    }
}

/// Answers every connection with nonsense.
pub struct Babbler(JoinHandle<()>);

impl Babbler {
    /// The port is free when this returns.
    pub async fn stop(self) {
        self.0.abort();
        assert!(self.0.await.unwrap_err().is_cancelled(), "it has babbled until now");
    }
}
