//! `outlast stack restart` and `outlast stack rolling`: replace processes of services. Jobs go on.

use anyhow::{Result, anyhow, bail};
use rustix::process::Signal;

use super::file::Stack;
use super::operator::Operator;
use super::service::{Role, Service};
use super::up::up;
use crate::exit::NotFound;

/// The services of these names, in the order of the stack; all without names.
pub fn select<'a>(stack: &'a Stack, names: &[String]) -> Result<Vec<&'a Service>> {
    for name in names {
        if !stack.services.iter().any(|service| service.is_named(name)) {
            let known: Vec<&str> = stack.services.iter().map(Service::name).collect();
            return Err(NotFound(format!("there is no service `{name}`; there are {}", known.join(", "))).into());
        }
    }
    let is_wanted = |service: &&Service| names.is_empty() || names.iter().any(|name| service.is_named(name));
    Ok(stack.services.iter().filter(is_wanted).collect())
}

/// Restarts services in place, one after the other; all services at once if these are all.
pub async fn restart(stack: &Stack, services: &[&Service], operator: &mut Operator<'_>) -> Result<()> {
    if services.len() == stack.services.len() {
        let runners: Vec<&Service> = stack.runners().iter().rev().collect();
        operator.stop(&runners, Signal::TERM).await?;
        operator.stop(&[stack.control()], Signal::TERM).await?;
        return up(stack, operator).await;
    }
    let has_control = services.iter().any(|service| service.role() == Role::Control);
    if !has_control && stack.control().process().is_none() {
        bail!("the control node does not run: start the stack with `outlast stack up`");
    }
    for service in services {
        operator.replace(service).await?;
    }
    Ok(())
}

/// Restarts one runner node after the other and the control node last. Stops at the first that does not come back.
pub async fn rolling(stack: &Stack, operator: &mut Operator<'_>) -> Result<()> {
    check_health(stack, operator).await?;
    let order: Vec<&Service> = stack.runners().iter().chain([stack.control()]).collect();
    for (index, service) in order.iter().enumerate() {
        replace_safely(stack, service, operator).await.map_err(|error| stopped(&error, &order, index))?;
    }
    Ok(())
}

async fn replace_safely(stack: &Stack, service: &Service, operator: &mut Operator<'_>) -> Result<()> {
    operator.replace(service).await?;
    operator.settle(service).await?;
    match service.role() {
        Role::Runner => Ok(()),
        Role::Control => {
            // Its nodes have to find it again.
            let runners: Vec<&Service> = stack.runners().iter().collect();
            operator.wait_for_others(&runners).await
        }
    }
}

/// A rolling restart needs a healthy stack: with a node missing, another one less may be too few.
async fn check_health(stack: &Stack, operator: &mut Operator<'_>) -> Result<()> {
    let all: Vec<&Service> = stack.services.iter().collect();
    operator.wait_for_others(&all).await.map_err(|error| {
        anyhow!(
            "nothing was restarted, because the stack is not healthy: repair it with `outlast stack up` or \
             `outlast stack restart`\n{error:#}"
        )
    })
}

fn stopped(error: &anyhow::Error, order: &[&Service], at: usize) -> anyhow::Error {
    let names = |services: &[&Service]| match services {
        [] => "none".to_owned(),
        services => services.iter().map(|service| service.name()).collect::<Vec<_>>().join(", "),
    };
    anyhow!(
        "{error:#}\nThe rolling restart has stopped at {}. Restarted before it: {}. Left as they are: {}",
        order[at].name(),
        names(&order[..at]),
        names(&order[at + 1..])
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stack::file::Purpose;

    fn stack() -> Stack {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("stack.yaml");
        std::fs::write(&file, "nodes: [{name: a}, {name: b, count: 2}]\n").unwrap();
        Stack::read(&file, Purpose::Inspect).unwrap()
    }

    #[test]
    fn services_are_selected_by_name_or_group_in_the_order_of_the_stack() {
        let stack = stack();
        let selected = |names: &[&str]| -> Vec<String> {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            select(&stack, &names).unwrap().iter().map(|service| service.name().to_owned()).collect()
        };
        assert_eq!(selected(&["b-2", "a"]), ["a", "b-2"]);
        assert_eq!(selected(&["b"]), ["b-1", "b-2"]);
        assert_eq!(selected(&[]), ["control", "a", "b-1", "b-2"]);
        let unknown = select(&stack, &["c".to_owned()]).unwrap_err();
        assert!(unknown.is::<NotFound>() && unknown.to_string().contains("control, a, b-1, b-2"), "{unknown}");
    }

    #[test]
    fn a_stopped_rolling_restart_says_what_was_done() {
        let stack = stack();
        let order: Vec<&Service> = stack.runners().iter().chain([stack.control()]).collect();
        let text = stopped(&anyhow!("b-1 has ended"), &order, 1).to_string();
        assert!(text.starts_with("b-1 has ended\n"), "{text}");
        assert!(text.ends_with("at b-1. Restarted before it: a. Left as they are: b-2, control"), "{text}");
        assert!(stopped(&anyhow!("x"), &order, 3).to_string().ends_with("Left as they are: none"));
    }
}
