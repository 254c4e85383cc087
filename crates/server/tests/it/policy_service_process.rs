//! The example policy service in its own process, and a port reserved for it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::{TcpListener, TcpSocket};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::task::JoinHandle;

use crate::http::within;

/// A reserved port for a policy service that is started and killed.
pub struct Port {
    pub address: SocketAddr,
    /// Bound, but never listening: no other program gets the port, and connections are refused.
    _reserved: TcpSocket,
}

impl Port {
    pub fn reserve() -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        // The service sets it too, so that it may listen on the same port.
        socket.set_reuseaddr(true).unwrap();
        socket.bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        Self { address: socket.local_addr().unwrap(), _reserved: socket }
    }

    pub async fn start_service(&self) -> ServiceProcess {
        self.start_service_with_version("first").await
    }

    pub async fn start_service_with_version(&self, version: &str) -> ServiceProcess {
        let mut child = Command::new(program())
            .args(["--listen", &self.address.to_string(), "--policy-version", version])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let commands = child.stdin.take().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut service = ServiceProcess { child, commands, lines };
        assert_eq!(service.line().await, format!("listening on {}", self.address));
        service
    }

    /// A server on the port that does not speak gRPC.
    pub async fn start_other_server(&self) -> OtherServer {
        let listener = TcpListener::bind(self.address).await.unwrap();
        OtherServer(tokio::spawn(async move {
            loop {
                let (mut connection, _) = listener.accept().await.unwrap();
                // The client may close the connection at once.
                let _ = connection.write_all(&b"220 this is no policy service\r\n\0\xff".repeat(100)).await;
            }
        }))
    }
}

/// The example policy service, built with the tests.
fn program() -> PathBuf {
    let beside = std::env::current_exe().unwrap();
    let program = beside.parent().unwrap().parent().unwrap().join("example-policy-service");
    assert!(program.exists(), "build it first: cargo build -p policy_service --bin example-policy-service");
    program
}

pub struct ServiceProcess {
    child: Child,
    commands: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl ServiceProcess {
    /// Takes effect with its next answer.
    pub async fn command(&mut self, command: &str) {
        self.commands.write_all(format!("{command}\n").as_bytes()).await.unwrap();
        assert_eq!(self.line().await, format!("now {command}"));
    }

    /// Sends SIGKILL. The port is free when this returns.
    pub async fn kill(mut self) {
        within("the end of the policy service", self.child.kill()).await.unwrap();
    }

    async fn line(&mut self) -> String {
        within("output of the policy service", self.lines.next_line())
            .await
            .unwrap()
            .expect("the policy service is running")
    }
}

/// Sends every client bytes that are not gRPC.
pub struct OtherServer(JoinHandle<()>);

impl OtherServer {
    /// The port is free when this returns.
    pub async fn stop(self) {
        self.0.abort();
        assert!(self.0.await.unwrap_err().is_cancelled(), "the server ran until now");
    }
}
