//! The stack file: which nodes run on this machine.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde::Deserialize;
use serde_saphyr::{Location, Spanned};

use super::service::{Role, Service};
use crate::definition::InvalidDefinition;
use crate::exit::NotFound;
use crate::text::{self, TextLimits};

/// Name of the service with the control node.
pub const CONTROL: &str = "control";
/// Runner nodes of a stack: they share one machine.
const NODES_MAX: usize = 100;
const NAME_BYTES_MAX: usize = 63;

const TEXT_LIMITS: TextLimits =
    TextLimits { bytes_max: 1 << 20, prefix: "", limit_reason: "the limit of a stack file", encoding_reason: "" };

/// Control node and runner nodes on this machine.
#[derive(Debug)]
pub struct Stack {
    pub name: String,
    /// Directory of the stack's state. It may not exist yet.
    pub directory: PathBuf,
    pub control_listen: SocketAddr,
    pub cluster_listen: SocketAddr,
    /// In the order of their start: the control node first.
    pub services: Vec<Service>,
}

/// Why a stack file is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Services are started: the configuration files of nodes are checked before.
    Start,
    /// Services are looked at or stopped, which must be possible without these files.
    Inspect,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Document {
    name: Option<Spanned<String>>,
    directory: Option<PathBuf>,
    control: ControlEntry,
    nodes: Vec<NodeEntry>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ControlEntry {
    listen: Option<Spanned<SocketAddr>>,
    cluster_listen: Option<Spanned<SocketAddr>>,
    config: Option<Spanned<PathBuf>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeEntry {
    name: Spanned<String>,
    #[serde(default)]
    count: Option<Spanned<usize>>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    capabilities: BTreeSet<String>,
    #[serde(default)]
    pools: BTreeSet<String>,
    #[serde(default)]
    process_slots: Option<u32>,
    #[serde(default)]
    config: Option<Spanned<PathBuf>>,
}

impl Stack {
    /// Reads the file, to start services or not.
    pub fn read(path: &Path, purpose: Purpose) -> Result<Self> {
        let text = text::read(path, &TEXT_LIMITS).map_err(|error| match error.downcast::<NotFound>() {
            Ok(NotFound(message)) => NotFound(format!(
                "{message}. Describe the nodes in this file (docs/cluster.md), or name another one with --file"
            ))
            .into(),
            Err(error) => error,
        })?;
        let base = path.canonicalize().with_context(|| format!("cannot find {}", path.display()))?;
        let base = base.parent().map(Path::to_owned).unwrap_or_default();
        Reader { file: path.display().to_string(), base, purpose }.read(&text)
    }

    pub fn control(&self) -> &Service {
        // `Reader::read` puts it first.
        &self.services[0]
    }

    pub fn runners(&self) -> &[Service] {
        &self.services[1..]
    }

    /// URL of the API from this machine.
    pub fn url(&self) -> String {
        format!("http://{}", reachable(self.control_listen))
    }
}

/// The address under which this machine reaches a listener.
fn reachable(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, listen.port())
}

/// Reads one stack file.
struct Reader {
    /// Name for error messages.
    file: String,
    /// Directory of the file. Paths in it are relative to this one.
    base: PathBuf,
    purpose: Purpose,
}

impl Reader {
    fn read(&self, text: &str) -> Result<Stack> {
        let document: Document = serde_saphyr::from_str(text).map_err(|error| {
            let position = error.location().and_then(position);
            InvalidDefinition::one(&self.file, "syntax", "", message(&error.without_snippet().to_string()), position)
        })?;
        let directory = self.resolve(document.directory.as_deref().unwrap_or(Path::new("outlast-stack")));
        let name = self.stack_name(document.name)?;
        let control = &document.control;
        let control_listen = self.address("control.listen", control.listen.as_ref(), 7070)?;
        let cluster_listen = self.address("control.cluster_listen", control.cluster_listen.as_ref(), 7071)?;
        if cluster_listen.ip().is_unspecified() {
            let at = control.cluster_listen.as_ref().map(|address| address.referenced);
            let message = format!(
                "{cluster_listen} is not an address that nodes can connect to: \
                 give an address of this machine, such as 127.0.0.1:{}",
                cluster_listen.port()
            );
            return Err(self.invalid("control.cluster_listen", message, at).into());
        }
        let mut services = vec![self.control(control, &directory, control_listen, cluster_listen)?];
        for (index, node) in document.nodes.iter().enumerate() {
            self.add_nodes(node, index, &directory, cluster_listen, &mut services)?;
        }
        Ok(Stack { name, directory, control_listen, cluster_listen, services })
    }

    fn stack_name(&self, name: Option<Spanned<String>>) -> Result<String> {
        match name {
            Some(name) => {
                self.check_name("name", &name)?;
                Ok(name.value)
            }
            None => {
                Ok(self.base.file_name().map_or_else(|| "stack".to_owned(), |name| name.to_string_lossy().into_owned()))
            }
        }
    }

    fn address(&self, field: &str, given: Option<&Spanned<SocketAddr>>, default_port: u16) -> Result<SocketAddr> {
        match given {
            Some(address) if address.value.port() == 0 => {
                let message = format!("{} has no port: a stack needs a fixed one", address.value);
                Err(self.invalid(field, message, Some(address.referenced)).into())
            }
            Some(address) => Ok(address.value),
            None => Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, default_port))),
        }
    }

    fn control(
        &self,
        control: &ControlEntry,
        directory: &Path,
        listen: SocketAddr,
        cluster_listen: SocketAddr,
    ) -> Result<Service> {
        let mut service = Service::new(CONTROL, None, Role::Control, directory, &self.base);
        service.argument(format!("--listen={listen}"));
        service.argument(format!("--cluster-listen={cluster_listen}"));
        if let Some(config) = &control.config {
            let file = self.resolve(&config.value);
            if self.purpose == Purpose::Start {
                self.check_exists("control.config", config, &file)?;
                server::Options::from_file(&file).map_err(crate::up::classify)?;
            }
            service.argument(option("--config", &file));
        }
        Ok(service)
    }

    fn add_nodes(
        &self,
        node: &NodeEntry,
        index: usize,
        directory: &Path,
        control: SocketAddr,
        services: &mut Vec<Service>,
    ) -> Result<()> {
        let at = |field: &str| format!("nodes[{index}].{field}");
        self.check_name(&at("name"), &node.name)?;
        let names: Vec<String> = match &node.count {
            None => vec![node.name.value.clone()],
            Some(count) if (1..=NODES_MAX).contains(&count.value) => {
                (1..=count.value).map(|number| format!("{}-{number}", node.name.value)).collect()
            }
            Some(count) => {
                let message = format!("{} is not a number of nodes: choose 1 to {NODES_MAX}", count.value);
                return Err(self.invalid(&at("count"), message, Some(count.referenced)).into());
            }
        };
        let settings = self.node_arguments(node, &at("config"), control)?;
        for name in names {
            if services.iter().any(|service| service.name() == name) {
                let message = format!("there are two services with the name `{name}`");
                return Err(self.invalid(&at("name"), message, Some(node.name.referenced)).into());
            }
            let group = node.count.is_some().then(|| node.name.value.clone());
            let mut service = Service::new(&name, group, Role::Runner, directory, &self.base);
            service.argument(format!("--name={name}"));
            settings.iter().for_each(|argument| service.argument(argument));
            services.push(service);
        }
        if services.len() > NODES_MAX + 1 {
            let message = format!("there are more than {NODES_MAX} nodes");
            return Err(self.invalid("nodes", message, Some(node.name.referenced)).into());
        }
        Ok(())
    }

    /// Arguments of `outlast join` that all nodes of an entry have.
    fn node_arguments(&self, node: &NodeEntry, field: &str, control: SocketAddr) -> Result<Vec<OsString>> {
        let mut arguments: Vec<OsString> = Vec::new();
        let mut add = |argument: String| arguments.push(argument.into());
        node.labels.iter().for_each(|(name, value)| add(format!("--label={name}={value}")));
        node.capabilities.iter().for_each(|name| add(format!("--capability={name}")));
        node.pools.iter().for_each(|name| add(format!("--pool={name}")));
        node.process_slots.iter().for_each(|slots| add(format!("--process-slots={slots}")));
        let mut listen = None;
        if let Some(config) = &node.config {
            let file = self.resolve(&config.value);
            if self.purpose == Purpose::Start {
                self.check_exists(field, config, &file)?;
                listen = server::RunnerNodeOptions::from_file(&file).map_err(crate::up::classify)?.listen;
            }
            arguments.push(option("--config", &file));
        }
        if listen.is_none() {
            // Any port: all nodes of the machine share its addresses.
            arguments.push(format!("--listen={}", SocketAddr::new(control.ip(), 0)).into());
        }
        arguments.push(control.to_string().into());
        Ok(arguments)
    }

    /// Names are names of directories too.
    fn check_name(&self, field: &str, name: &Spanned<String>) -> Result<()> {
        let text = &name.value;
        let is_inner = |character: char| character.is_ascii_alphanumeric() || "._-".contains(character);
        let is_valid = text.len() <= NAME_BYTES_MAX
            && text.starts_with(|character: char| character.is_ascii_alphanumeric())
            && text.chars().all(is_inner);
        if is_valid {
            return Ok(());
        }
        let message = format!(
            "`{text}` is not a name: use 1 to {NAME_BYTES_MAX} letters, digits, `.`, `_` and `-`, \
             beginning with a letter or digit"
        );
        Err(self.invalid(field, message, Some(name.referenced)).into())
    }

    fn resolve(&self, path: &Path) -> PathBuf {
        self.base.join(path)
    }

    fn check_exists(&self, field: &str, path: &Spanned<PathBuf>, found: &Path) -> Result<()> {
        match found.is_file() {
            true => Ok(()),
            false => {
                let message = format!("there is no file {}", found.display());
                Err(self.invalid(field, message, Some(path.referenced)).into())
            }
        }
    }

    fn invalid(&self, field: &str, message: String, at: Option<Location>) -> InvalidDefinition {
        InvalidDefinition::one(&self.file, "invalid_stack", field, message, at.and_then(position))
    }
}

fn option(name: &str, value: &Path) -> OsString {
    let mut argument = OsString::from(format!("{name}="));
    argument.push(value);
    argument
}

fn position(location: Location) -> Option<(u32, u32)> {
    let number = |number: u64| u32::try_from(number).ok().filter(|number| *number > 0);
    Some((number(location.line())?, number(location.column())?))
}

/// The message without its position, which is shown before it.
fn message(text: &str) -> String {
    let rest = text.strip_prefix("error: ").unwrap_or(text);
    match rest.split_once(": ") {
        Some((place, rest)) if place.starts_with("line ") => rest.to_owned(),
        _ => rest.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::Usage;

    fn read(text: &str) -> Result<Stack> {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in
            [("control.yaml", "shards: 2\n"), ("node.yaml", "listen: 127.0.0.1:9\n"), ("bad.yaml", "x: 1")]
        {
            std::fs::write(directory.path().join(name), text).unwrap();
        }
        let file = directory.path().join("stack.yaml");
        std::fs::write(&file, text).unwrap();
        Stack::read(&file, Purpose::Start)
    }

    fn refused(text: &str) -> String {
        let error = read(text).unwrap_err();
        assert!(error.is::<InvalidDefinition>(), "{error:?}");
        error.to_string().lines().last().unwrap().split_once("stack.yaml:").unwrap().1.to_owned()
    }

    fn arguments(service: &Service) -> Vec<String> {
        service.arguments().map(|argument| argument.to_string_lossy().into_owned()).collect()
    }

    // FEATURES: B8
    #[test]
    fn a_stack_file_describes_control_node_and_runner_nodes() {
        let stack = read(
            "name: demo\ndirectory: ./stack-data\n\
             control: {listen: 127.0.0.1:17070, cluster_listen: 127.0.0.1:17071, config: control.yaml}\n\
             nodes:\n\
             - {name: build-1, labels: {zone: a}, process_slots: 4, config: node.yaml}\n\
             - {name: build-2, count: 2, pools: [gpu], capabilities: [cuda]}\n",
        )
        .unwrap();
        let names: Vec<&str> = stack.services.iter().map(Service::name).collect();
        assert_eq!(names, ["control", "build-1", "build-2-1", "build-2-2"]);
        assert_eq!((stack.name.as_str(), stack.url().as_str()), ("demo", "http://127.0.0.1:17070"));
        assert!(stack.directory.is_absolute() && stack.directory.ends_with("stack-data"));
        let control = arguments(stack.control());
        assert_eq!((control[0].as_str(), control[1].as_str()), ("up", "--data-dir"));
        assert!(control[2].ends_with("/control/data"), "{control:?}");
        assert_eq!(control[3..5], ["--listen=127.0.0.1:17070", "--cluster-listen=127.0.0.1:17071"]);
        let first = arguments(&stack.runners()[0]);
        assert_eq!(first[3..6], ["--name=build-1", "--label=zone=a", "--process-slots=4"]);
        assert!(first[6].starts_with("--config=/"));
        assert_eq!(first[7..], ["127.0.0.1:17071"], "its configuration says where it listens");
        let second = &arguments(&stack.runners()[1])[3..];
        let wanted = ["--name=build-2-1", "--capability=cuda", "--pool=gpu", "--listen=127.0.0.1:0", "127.0.0.1:17071"];
        assert_eq!(second, wanted);
    }

    #[test]
    fn a_stack_can_be_stopped_without_the_configuration_files_of_its_nodes() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("stack.yaml");
        std::fs::write(&file, "control: {config: gone.yaml}\nnodes: [{name: a, config: gone.yaml}]\n").unwrap();
        assert_eq!(Stack::read(&file, Purpose::Inspect).unwrap().services.len(), 2);
        assert!(Stack::read(&file, Purpose::Start).is_err());
    }

    #[test]
    fn everything_has_a_default() {
        let stack = read("nodes: []\n").unwrap();
        assert_eq!((stack.url().as_str(), stack.cluster_listen.port()), ("http://127.0.0.1:7070", 7071));
        assert!(stack.directory.ends_with("outlast-stack") && stack.runners().is_empty());
        assert!(!stack.name.is_empty());
    }

    #[test]
    fn a_service_on_all_interfaces_is_reached_by_loopback() {
        let stack = read("control: {listen: '0.0.0.0:80'}\n").unwrap();
        assert_eq!(stack.url(), "http://127.0.0.1:80");
        let stack = read("control: {listen: '[::]:80'}\n").unwrap();
        assert_eq!(stack.url(), "http://[::1]:80");
    }

    #[test]
    fn mistakes_are_refused_with_their_place() {
        let cases = [
            ("nmae: x\n", "1:1: unknown field `nmae`"),
            ("control:\n  lisen: x\n", "2:3: unknown field `lisen`"),
            ("nodes:\n- name: a\n  lables: {}\n", "3:3: unknown field `lables`"),
            ("nodes:\n- labels: {}\n", "missing field `name`"),
            ("nodes:\n- {name: a, process_slots: many}\n", "2:28:"),
            ("control: {listen: here}\n", "1:19:"),
            ("control: {listen: '127.0.0.1:0'}\n", "1:19: control.listen: 127.0.0.1:0 has no port"),
            ("control: {cluster_listen: '0.0.0.0:1'}\n", "1:27: control.cluster_listen: 0.0.0.0:1 is not an address"),
            ("nodes:\n- name: control\n", "2:9: nodes[0].name: there are two services with the name `control`"),
            ("nodes:\n- {name: a-1}\n- {name: a, count: 2}\n", "3:10: nodes[1].name: there are two services"),
            ("nodes:\n- name: ../x\n", "2:9: nodes[0].name: `../x` is not a name"),
            ("nodes:\n- {name: a, count: 0}\n", "2:20: nodes[0].count: 0 is not a number of nodes"),
            ("nodes:\n- {name: a, count: 101}\n", "nodes[0].count: 101 is not a number of nodes"),
            ("nodes:\n- {name: a, count: 100}\n- {name: b}\n", "there are more than 100 nodes"),
            ("nodes:\n- {name: a, config: none.yaml}\n", "2:21: nodes[0].config: there is no file"),
        ];
        for (text, wanted) in cases {
            let found = refused(text);
            assert!(found.contains(wanted), "{text}\n{found}");
        }
        let error = read("control: {config: bad.yaml}\n").unwrap_err();
        assert!(error.is::<Usage>() && error.to_string().contains("unknown field `x`"), "{error}");
        let missing = Stack::read(Path::new("/does/not/exist/stack.yaml"), Purpose::Start).unwrap_err();
        assert!(missing.is::<NotFound>() && missing.to_string().contains("--file"), "{missing}");
    }
}
