//! `outlast stack up`: starts what does not run.

use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};

use anyhow::{Context as _, Result, bail};

use super::file::Stack;
use super::operator::Operator;
use super::service::Service;

/// Starts the control node, then all runner nodes that do not run, and waits until they are ready.
pub async fn up(stack: &Stack, operator: &mut Operator<'_>) -> Result<()> {
    let control = stack.control();
    if control.process().is_none() {
        check_ports(stack)?;
        operator.start(control).await?;
    }
    operator.wait_until_ready(&[control]).await?;
    for service in stack.runners() {
        if service.process().is_none() {
            operator.start(service).await?;
        }
    }
    let all: Vec<&Service> = stack.runners().iter().collect();
    operator.wait_until_ready(&all).await
}

/// Services that run with other arguments than the stack file says.
pub fn changed(stack: &Stack) -> Vec<&str> {
    let has_changed = |service: &&Service| service.process().is_some_and(|process| service.has_changed(&process));
    stack.services.iter().filter(has_changed).map(Service::name).collect()
}

/// Finds ports that are in use before anything is started.
fn check_ports(stack: &Stack) -> Result<()> {
    let tcp = |address: SocketAddr| TcpListener::bind(address).map(drop);
    check_port("listen", stack.control_listen, tcp(stack.control_listen))?;
    check_port("cluster_listen", stack.cluster_listen, tcp(stack.cluster_listen))?;
    check_port("cluster_listen", stack.cluster_listen, UdpSocket::bind(stack.cluster_listen).map(drop))
}

fn check_port(field: &str, address: SocketAddr, bound: io::Result<()>) -> Result<()> {
    match bound {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => bail!(
            "{address} is in use by another program: stop it, or choose another `control.{field}` in the stack file"
        ),
        other => other.with_context(|| format!("cannot listen on {address}, the `control.{field}` of the stack file")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_in_use_is_reported_with_its_field() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        let error = check_port("listen", address, TcpListener::bind(address).map(drop)).unwrap_err().to_string();
        assert!(error.contains("in use") && error.contains("control.listen"), "{error}");
        drop(taken);
        check_port("listen", address, TcpListener::bind(address).map(drop)).unwrap();
    }
}
