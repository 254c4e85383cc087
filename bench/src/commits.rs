//! Commits of 256 transitions: journal and store, compared with a plain append and fdatasync of the same bytes.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::time::Instant;

use model::batch::{Batch, Keyspace};
use model::id::{NodeId, ShardId};
use store::{Embedded, Options, ShardOwner, Store};

use crate::Scale;
use crate::report::{Report, Target};

const NAME: &str = "commits of 256 transitions";
const TRANSITIONS: u64 = 256;
const RECORD: [u8; 250] = [7; 250];

fn batch(round: u64) -> Batch {
    let mut batch = Batch::new();
    for index in 0..TRANSITIONS {
        batch.put(Keyspace::Live, &(round * TRANSITIONS + index).to_be_bytes(), &RECORD);
    }
    batch
}

pub fn measure(scale: Scale, report: &mut Report) -> anyhow::Result<()> {
    if !report.selects(NAME) {
        return Ok(());
    }
    let rounds = scale.of(2_000);
    // Alternating rounds: changes in disk latency affect both.
    let parts = 10;
    let dir = tempfile::tempdir_in(".")?;
    let store = Embedded::open(&dir.path().join("data"), Options::default())?;
    let mut token = store.take_over(ShardId(0), ShardOwner { node: NodeId(1), nonce: 1 })?;
    let size = batch(0).as_bytes().len() as u64;
    let file = OpenOptions::new().write(true).create_new(true).open(dir.path().join("plain"))?;
    file.write_all_at(&vec![0; (size * rounds) as usize], 0)?;
    file.sync_all()?;
    let (mut plain, mut journalled) = (0.0, 0.0);
    for part in 0..parts {
        let range = part * rounds / parts..(part + 1) * rounds / parts;
        let begin = Instant::now();
        for round in range.clone() {
            file.write_all_at(batch(round).as_bytes(), round * size)?;
            file.sync_data()?;
        }
        plain += begin.elapsed().as_secs_f64();
        let begin = Instant::now();
        for round in range {
            store.commit(&mut token, &batch(round))?;
        }
        journalled += begin.elapsed().as_secs_f64();
    }
    store.close()?;
    let transitions = (rounds * TRANSITIONS) as f64;
    let reference = ("plain append and fdatasync", transitions / plain);
    report.ratio(NAME, "trans./s", transitions / journalled, reference, Target::AtLeast(0.5), "");
    Ok(())
}
