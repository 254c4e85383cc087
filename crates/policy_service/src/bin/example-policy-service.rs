//! A small policy service, for study and tests.
//!
//! It prints its address (`listening on 127.0.0.1:7080`) and answers by the rules in [`check_job`] and
//! [`check_result`]. A service of your own replaces these two functions.
//!
//! For tests of clients it misbehaves on command. Commands are lines on standard input: `work`, `hang`, `fail`,
//! `refuse`, `garble`, `bloat`, `no-explain`. It confirms each with `now <command>`.

use std::error::Error;
use std::future::pending;
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Parser;
use parking_lot::Mutex;
use policy_service::proto::policy_kernel_server::{PolicyKernel, PolicyKernelServer};
use policy_service::proto::{
    CheckOutputRequest, CheckOutputResponse, CheckRequest, CheckResponse, Constraints, Decision, ExplainResponse,
    FindingKind, OutputDecision,
};
use tokio::net::TcpListener;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Certificate, Identity, Server, ServerTlsConfig};
use tonic::{Request, Response, Status};

/// A small policy service, for study and tests.
#[derive(Debug, Parser)]
struct Arguments {
    /// Listen address; port 0 selects a free port.
    #[arg(long, default_value = "127.0.0.1:7080")]
    listen: SocketAddr,
    /// Version of the rules, sent with every answer.
    #[arg(long, default_value = "example-1")]
    policy_version: String,
    /// PEM file with the server certificate; enables TLS.
    #[arg(long, requires = "tls_key")]
    tls_certificate: Option<PathBuf>,
    /// PEM file with the key of the certificate.
    #[arg(long, requires = "tls_certificate")]
    tls_key: Option<PathBuf>,
    /// PEM file with a CA; requires a client certificate of this CA.
    #[arg(long, requires = "tls_certificate")]
    client_ca: Option<PathBuf>,
}

/// Decides whether a job may be scheduled.
fn check_job(job: &CheckRequest) -> CheckResponse {
    let respond = |decision: Decision, rule: &str, reason: &str| CheckResponse {
        decision: decision.into(),
        rule: rule.into(),
        reason: reason.into(),
        ..CheckResponse::default()
    };
    if job.topic == "forbidden" {
        return respond(Decision::Deny, "forbidden-topic", "the topic `forbidden` is not allowed");
    }
    if job.labels.contains_key("needs_approval") {
        return respond(Decision::RequireApproval, "approval-label", "the label `needs_approval` requires an approval");
    }
    if job.labels.contains_key("slow_down") {
        let answer = respond(Decision::Throttle, "slow-down-label", "the label `slow_down` throttles the job");
        return CheckResponse { throttle_for_ms: 1_000, ..answer };
    }
    if job.topic == "limited" {
        let answer = respond(Decision::AllowWithConstraints, "limited-topic", "a minute, one retry, no network");
        let constraints = Constraints {
            max_runtime_ms: Some(60_000),
            max_retries: Some(1),
            network: Some(false),
            ..Constraints::default()
        };
        return CheckResponse { constraints: Some(constraints), ..answer };
    }
    respond(Decision::Allow, "allow-the-rest", "")
}

/// Decides whether a result may be shown.
fn check_result(result: &CheckOutputRequest) -> CheckOutputResponse {
    let secret = result.findings.iter().find(|finding| finding.kind() == FindingKind::Secret);
    let (decision, rule, reason) = match secret {
        Some(secret) => {
            let reason = format!("{} of pattern {} in {}", secret.count, secret.pattern, secret.place);
            (OutputDecision::Quarantine, "secret-found", reason)
        }
        None => (OutputDecision::Allow, "allow-the-rest", String::new()),
    };
    CheckOutputResponse { decision: decision.into(), rule: rule.into(), reason, ..CheckOutputResponse::default() }
}

struct ExampleService {
    policy_version: String,
    behaviour: Arc<Mutex<Behaviour>>,
}

#[tonic::async_trait]
impl PolicyKernel for ExampleService {
    async fn check(&self, request: Request<CheckRequest>) -> Result<Response<CheckResponse>, Status> {
        let mut answer = check_job(request.get_ref());
        answer.policy_version = self.policy_version.clone();
        match self.misbehave().await? {
            Behaviour::Garble => answer.decision = 4711,
            Behaviour::Bloat => answer.reason = "very ".repeat(1_000_000),
            Behaviour::Work | Behaviour::Hang | Behaviour::Fail | Behaviour::Refuse | Behaviour::NoExplain => {}
        }
        Ok(Response::new(answer))
    }

    async fn check_output(
        &self,
        request: Request<CheckOutputRequest>,
    ) -> Result<Response<CheckOutputResponse>, Status> {
        let mut answer = check_result(request.get_ref());
        answer.policy_version = self.policy_version.clone();
        match self.misbehave().await? {
            Behaviour::Garble => answer.decision = 4711,
            Behaviour::Bloat => answer.reason = "very ".repeat(1_000_000),
            Behaviour::Work | Behaviour::Hang | Behaviour::Fail | Behaviour::Refuse | Behaviour::NoExplain => {}
        }
        Ok(Response::new(answer))
    }

    async fn explain(&self, request: Request<CheckRequest>) -> Result<Response<ExplainResponse>, Status> {
        if *self.behaviour.lock() == Behaviour::NoExplain {
            return Err(Status::unimplemented("Explain is not implemented"));
        }
        let job = request.get_ref();
        let labels: Vec<&str> = job.labels.keys().map(String::as_str).collect();
        let trace = vec![
            format!("the topic is `{}`; `forbidden` is denied, `limited` has constraints", job.topic),
            format!(
                "the labels are [{}]; `needs_approval` requires an approval, `slow_down` throttles",
                labels.join(", ")
            ),
        ];
        let answer = self.check(request).await?.into_inner();
        Ok(Response::new(ExplainResponse { answer: Some(answer), trace }))
    }
}

/// Behaviour, as set by the last command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Behaviour {
    Work,
    /// Never answers.
    Hang,
    /// Answers with an error status.
    Fail,
    /// Answers INVALID_ARGUMENT.
    Refuse,
    /// Answers with an unknown decision.
    Garble,
    /// Answers with five megabytes.
    Bloat,
    /// Works, but does not implement Explain.
    NoExplain,
}

impl Behaviour {
    const ALL: [(&'static str, Self); 7] = [
        ("work", Self::Work),
        ("hang", Self::Hang),
        ("fail", Self::Fail),
        ("refuse", Self::Refuse),
        ("garble", Self::Garble),
        ("bloat", Self::Bloat),
        ("no-explain", Self::NoExplain),
    ];
}

impl ExampleService {
    /// Hangs or fails if so commanded. Otherwise returns how to alter the answer.
    async fn misbehave(&self) -> Result<Behaviour, Status> {
        let behaviour = *self.behaviour.lock();
        match behaviour {
            Behaviour::Hang => pending().await,
            Behaviour::Fail => Err(Status::internal("commanded to fail")),
            Behaviour::Refuse => Err(Status::invalid_argument("commanded to refuse")),
            Behaviour::Work | Behaviour::Garble | Behaviour::Bloat | Behaviour::NoExplain => Ok(behaviour),
        }
    }
}

/// Reads commands until standard input ends. The service continues without.
fn read_commands(behaviour: &Mutex<Behaviour>) {
    for line in std::io::stdin().lines().map_while(Result::ok) {
        match Behaviour::ALL.into_iter().find(|(command, _)| *command == line.trim()) {
            Some((command, requested)) => {
                *behaviour.lock() = requested;
                print(&format!("now {command}"));
            }
            None => print("unknown command; commands: work, hang, fail, refuse, garble, bloat, no-explain"),
        }
    }
}

/// Prints a line. A closed standard output is ignored.
fn print(line: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

async fn tls(arguments: &Arguments) -> Result<Option<ServerTlsConfig>, Box<dyn Error>> {
    let (Some(certificate), Some(key)) = (&arguments.tls_certificate, &arguments.tls_key) else { return Ok(None) };
    let identity = Identity::from_pem(tokio::fs::read(certificate).await?, tokio::fs::read(key).await?);
    let mut config = ServerTlsConfig::new().identity(identity);
    if let Some(path) = &arguments.client_ca {
        config = config.client_ca_root(Certificate::from_pem(tokio::fs::read(path).await?));
    }
    Ok(Some(config))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::parse();
    let mut server = Server::builder();
    if let Some(config) = tls(&arguments).await? {
        server = server.tls_config(config)?;
    }
    let listener = TcpListener::bind(arguments.listen).await?;
    print(&format!("listening on {}", listener.local_addr()?));
    let behaviour = Arc::new(Mutex::new(Behaviour::Work));
    std::thread::spawn({
        let behaviour = Arc::clone(&behaviour);
        move || read_commands(&behaviour)
    });
    let example = ExampleService { policy_version: arguments.policy_version, behaviour };
    let service = PolicyKernelServer::new(example);
    server.add_service(service).serve_with_incoming(TcpIncoming::from(listener).with_nodelay(Some(true))).await?;
    Ok(())
}
