//! A small policy kernel, to learn from and to test with.
//!
//! It listens, prints where (`listening on 127.0.0.1:7080`), and answers by the rules below: [`judge_job`] and
//! [`judge_result`] are what a kernel of your own would do differently.
//!
//! So that others can be tested against a kernel that misbehaves, it takes commands on standard input, one word a line,
//! and answers each with `now <word>`: `work`, `hang`, `fail`, `refuse`, `garble`, `bloat`,
//! `keep-mum`.

use std::error::Error;
use std::future::pending;
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Parser;
use kernel::proto::policy_kernel_server::{PolicyKernel, PolicyKernelServer};
use kernel::proto::{
    CheckOutputRequest, CheckOutputResponse, CheckRequest, CheckResponse, Constraints, Decision, ExplainResponse,
    FindingKind, OutputDecision,
};
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Certificate, Identity, Server, ServerTlsConfig};
use tonic::{Request, Response, Status};

/// A small policy kernel, to learn from and to test with.
#[derive(Debug, Parser)]
struct Arguments {
    /// Where to listen; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:7080")]
    listen: SocketAddr,
    /// What to call the version of the rules.
    #[arg(long, default_value = "example-1")]
    policy_version: String,
    /// A certificate in PEM; with it, the kernel speaks TLS.
    #[arg(long, requires = "tls_key")]
    tls_certificate: Option<PathBuf>,
    /// The certificate's key in PEM.
    #[arg(long, requires = "tls_certificate")]
    tls_key: Option<PathBuf>,
    /// Only clients with a certificate of this CA (in PEM) may ask.
    #[arg(long, requires = "tls_certificate")]
    client_ca: Option<PathBuf>,
}

/// May this job be scheduled?
fn judge_job(job: &CheckRequest) -> CheckResponse {
    let says = |decision: Decision, rule: &str, reason: &str| CheckResponse {
        decision: decision.into(),
        rule: rule.into(),
        reason: reason.into(),
        ..CheckResponse::default()
    };
    if job.topic == "forbidden" {
        return says(Decision::Deny, "forbidden-topic", "nothing may run under the topic `forbidden`");
    }
    if job.labels.contains_key("needs_approval") {
        return says(Decision::RequireApproval, "approval-label", "the job asks for a person's approval");
    }
    if job.labels.contains_key("slow_down") {
        let answer = says(Decision::Throttle, "slow-down-label", "the job is in no hurry");
        return CheckResponse { throttle_for_ms: 1_000, ..answer };
    }
    if job.topic == "limited" {
        let answer = says(Decision::AllowWithConstraints, "limited-topic", "a minute, one retry, no network");
        let constraints = Constraints {
            max_runtime_ms: Some(60_000),
            max_retries: Some(1),
            network: Some(false),
            ..Constraints::default()
        };
        return CheckResponse { constraints: Some(constraints), ..answer };
    }
    says(Decision::Allow, "allow-the-rest", "")
}

/// May this result be seen?
fn judge_result(result: &CheckOutputRequest) -> CheckOutputResponse {
    let secret = result.findings.iter().find(|finding| finding.kind() == FindingKind::Secret);
    let (decision, rule, reason) = match secret {
        Some(secret) => {
            let reason = format!("{} of the pattern {} in {}", secret.count, secret.pattern, secret.place);
            (OutputDecision::Quarantine, "secret-found", reason)
        }
        None => (OutputDecision::Allow, "allow-the-rest", String::new()),
    };
    CheckOutputResponse { decision: decision.into(), rule: rule.into(), reason, ..CheckOutputResponse::default() }
}

struct ExampleKernel {
    policy_version: String,
    behaviour: Arc<Mutex<Behaviour>>,
}

#[tonic::async_trait]
impl PolicyKernel for ExampleKernel {
    async fn check(&self, request: Request<CheckRequest>) -> Result<Response<CheckResponse>, Status> {
        let mut answer = judge_job(request.get_ref());
        answer.policy_version = self.policy_version.clone();
        match self.misbehave().await? {
            Behaviour::Garble => answer.decision = 4711,
            Behaviour::Bloat => answer.reason = "very ".repeat(1_000_000),
            Behaviour::Work | Behaviour::Hang | Behaviour::Fail | Behaviour::Refuse | Behaviour::KeepMum => {}
        }
        Ok(Response::new(answer))
    }

    async fn check_output(
        &self,
        request: Request<CheckOutputRequest>,
    ) -> Result<Response<CheckOutputResponse>, Status> {
        let mut answer = judge_result(request.get_ref());
        answer.policy_version = self.policy_version.clone();
        match self.misbehave().await? {
            Behaviour::Garble => answer.decision = 4711,
            Behaviour::Bloat => answer.reason = "very ".repeat(1_000_000),
            Behaviour::Work | Behaviour::Hang | Behaviour::Fail | Behaviour::Refuse | Behaviour::KeepMum => {}
        }
        Ok(Response::new(answer))
    }

    async fn explain(&self, request: Request<CheckRequest>) -> Result<Response<ExplainResponse>, Status> {
        if *self.behaviour.lock() == Behaviour::KeepMum {
            return Err(Status::unimplemented("ask somebody else"));
        }
        let job = request.get_ref();
        let labels: Vec<&str> = job.labels.keys().map(String::as_str).collect();
        let trace = vec![
            format!("the topic is `{}`; `forbidden` is denied, `limited` is constrained", job.topic),
            format!("the labels are [{}]; `needs_approval` and `slow_down` matter", labels.join(", ")),
        ];
        let answer = self.check(request).await?.into_inner();
        Ok(Response::new(ExplainResponse { answer: Some(answer), trace }))
    }
}

/// How the kernel behaves, at the command of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Behaviour {
    Work,
    /// Never answers.
    Hang,
    /// Answers with an error.
    Fail,
    /// Says that it cannot judge this job.
    Refuse,
    /// Answers with a decision that does not exist.
    Garble,
    /// Answers with five megabytes.
    Bloat,
    /// Works, but explains nothing, as a kernel that does not implement it.
    KeepMum,
}

impl Behaviour {
    const ALL: [(&'static str, Self); 7] = [
        ("work", Self::Work),
        ("hang", Self::Hang),
        ("fail", Self::Fail),
        ("refuse", Self::Refuse),
        ("garble", Self::Garble),
        ("bloat", Self::Bloat),
        ("keep-mum", Self::KeepMum),
    ];
}

impl ExampleKernel {
    /// Does what can be done in place of an answer, and tells what is to be done to it.
    async fn misbehave(&self) -> Result<Behaviour, Status> {
        let behaviour = *self.behaviour.lock();
        match behaviour {
            Behaviour::Hang => pending().await,
            Behaviour::Fail => Err(Status::internal("the rules are on fire")),
            Behaviour::Refuse => Err(Status::invalid_argument("this job is beyond me")),
            Behaviour::Work | Behaviour::Garble | Behaviour::Bloat | Behaviour::KeepMum => Ok(behaviour),
        }
    }
}

/// Listens to commands until standard input ends. The kernel works on without.
fn obey(behaviour: &Mutex<Behaviour>) {
    for line in std::io::stdin().lines().map_while(Result::ok) {
        match Behaviour::ALL.into_iter().find(|(word, _)| *word == line.trim()) {
            Some((word, wanted)) => {
                *behaviour.lock() = wanted;
                say(&format!("now {word}"));
            }
            None => say("the commands are: work, hang, fail, refuse, garble, bloat, keep-mum"),
        }
    }
}

/// A line for whoever started this. If nobody reads any more, there is nobody to tell.
fn say(line: &str) {
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
    say(&format!("listening on {}", listener.local_addr()?));
    let behaviour = Arc::new(Mutex::new(Behaviour::Work));
    std::thread::spawn({
        let behaviour = Arc::clone(&behaviour);
        move || obey(&behaviour)
    });
    let kernel = ExampleKernel { policy_version: arguments.policy_version, behaviour };
    let service = PolicyKernelServer::new(kernel);
    server.add_service(service).serve_with_incoming(TcpIncoming::from(listener).with_nodelay(Some(true))).await?;
    Ok(())
}
