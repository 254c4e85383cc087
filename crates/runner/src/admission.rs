//! Reasons to take no new work, and the capacity that they leave.

use model::message::Capacity;

pub(crate) const DISK_REASON: &str =
    "the disk of the node is almost full: no new processes and components until there is more room";

#[derive(Debug, Default)]
pub(crate) struct Admission {
    stopping: bool,
    short_of_memory: bool,
    short_of_disk: bool,
    /// Why results could not be stored.
    outbox: Option<String>,
}

impl Admission {
    pub fn set_stopping(&mut self) {
        self.stopping = true;
    }

    pub fn is_stopping(&self) -> bool {
        self.stopping
    }

    pub fn set_short_of_memory(&mut self, short: bool) {
        self.short_of_memory = short;
    }

    pub fn set_short_of_disk(&mut self, short: bool) {
        self.short_of_disk = short;
    }

    pub fn outbox_refusal(&self) -> Option<&str> {
        self.outbox.as_deref()
    }

    pub fn set_outbox_refusal(&mut self, refusal: Option<String>) {
        self.outbox = refusal;
    }

    /// Whether attempts of every executor are declined, also those that need no slot.
    pub fn refuses_all(&self) -> bool {
        self.stopping || self.outbox.is_some()
    }

    /// Slots out of `full`.
    pub fn capacity(&self, full: Capacity) -> Capacity {
        if self.refuses_all() {
            Capacity::default()
        } else if self.short_of_memory || self.short_of_disk {
            // Echo jobs need next to no memory and no workspace.
            Capacity { process: 0, wasm: 0, ..full }
        } else {
            full
        }
    }

    pub fn reason(&self) -> Option<String> {
        let stopping = self.stopping.then(|| "the node is stopping".to_owned());
        let memory = self.short_of_memory.then(|| {
            "the machine is short of memory: no new processes and components until more is available".to_owned()
        });
        let disk = self.short_of_disk.then(|| DISK_REASON.to_owned());
        stopping.or_else(|| self.outbox.clone()).or(disk).or(memory)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: Capacity = Capacity { process: 1, echo: 2, wasm: 3 };

    #[test]
    fn the_strongest_reason_counts() {
        let mut admission = Admission::default();
        assert_eq!((admission.capacity(FULL), admission.reason()), (FULL, None));
        admission.set_short_of_memory(true);
        assert_eq!(admission.capacity(FULL), Capacity { process: 0, echo: 2, wasm: 0 });
        assert!(admission.reason().unwrap().contains("memory"));
        admission.set_short_of_disk(true);
        assert_eq!(admission.reason().unwrap(), DISK_REASON);
        admission.set_short_of_memory(false);
        assert_eq!(admission.capacity(FULL), Capacity { process: 0, echo: 2, wasm: 0 });
        admission.set_outbox_refusal(Some("the disk is full".to_owned()));
        assert_eq!(admission.capacity(FULL), Capacity::default());
        assert_eq!(admission.reason().unwrap(), "the disk is full");
        admission.set_stopping();
        assert_eq!(admission.reason().unwrap(), "the node is stopping");
        assert!(admission.refuses_all());
    }
}
